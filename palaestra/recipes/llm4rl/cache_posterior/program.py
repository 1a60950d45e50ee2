"""The arms in which a cached prior is compared: with none, asked about every state, and shuffled."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from pydantic import BaseModel, field_validator
from safetensors.numpy import load_file, save_file

import palaestra as pl
from palaestra.recipes.llm4rl.cache_posterior.cache import (
    LEVELS,
    PriorCache,
    TextKeys,
    closeness,
    cosines,
    number_key,
)
from palaestra.recipes.llm4rl.cache_posterior.grid import PhraseGrid
from palaestra.recipes.llm4rl.cache_posterior.learner import (
    PosteriorLearning,
    PriorAdvisor,
    acting,
)
from palaestra.recipes.llm4rl.cache_posterior.recorded import (
    BEST,
    read_transitions,
    record_games,
)
from palaestra.recipes.llm4rl.cache_posterior.symbols import SymbolicActions

Advice = Literal["model", "none"]
SAMPLE = 64  # games of the start: bounds of numbers, weights of n-grams, and the scale of rewards
FLOOR = 0.1  # share of the prior that is even over all actions, so that none is excluded
ASKS = 3
ENTRIES, DELTA, REFRESH = 500, 0.85, 0.05  # of a cache, at the start
EVERY = 1 << 20  # entries of a cache that keeps all
CHECKED = 64  # states of which the KL divergence is measured
PRIORS, SETTINGS = "priors.safetensors", "priors.json"
QUESTION = """{about}

{state}

The actions are: {actions}.
Which of them may be the best one now? Give the ones worth trying a weight each; the others get little."""


@runtime_checkable
class KnowsBestActions(Protocol):
    """A simulator that can tell an oracle which actions are best."""

    def best_actions(self, obs: np.ndarray) -> np.ndarray:
        """[..., K] bool, of observations [..., O]."""
        ...


def log_prior(weight_K: np.ndarray) -> np.ndarray:
    """[..., K] log((1 - FLOOR) w / sum w + FLOOR / K); even where all weights are 0."""
    total = weight_K.sum(-1, keepdims=True)
    share = np.where(total > 0, weight_K / np.maximum(total, 1e-12), 1 / weight_K.shape[-1])
    return np.log((1 - FLOOR) * share + FLOOR / weight_K.shape[-1])


def prior_reply(names: Sequence[str]) -> type[BaseModel]:
    """What an answer about a state has to fit: weights of actions by name, one above 0."""
    known = {n.strip().lower(): n for n in names}

    class PriorReply(BaseModel):
        weights: dict[str, float]

        @field_validator("weights")
        @classmethod
        def check(cls, weights: dict[str, float]) -> dict[str, float]:
            unknown = [n for n in weights if n.strip().lower() not in known]
            if unknown:
                raise ValueError(f"{unknown[0]!r} is no action; they are {', '.join(names)}")
            if not all(0 <= w < float("inf") for w in weights.values()) or not sum(
                weights.values()
            ):
                raise ValueError("weights are 0 or more, and one is above 0")
            return {known[n.strip().lower()]: w for n, w in weights.items()}

    return PriorReply


@pl.stage
class CachePosterior:
    """A program: double Q learning that acts by pi(a | s) ~ p(a | s) exp(Q(s, a) / alpha), in arms.

    Args:
        asked: who gives priors; None = nobody, which is refused where somebody has to.
        advice: "none" = the arm "guide" asks nobody.
        offline: "" = learn by playing; "random" = from `steps` of recorded random games; FILE.npz = from
            all of your transitions.
        draws: 0 = the exact posterior; k = k actions by the prior, one of them by exp(Q / alpha).
        hot, cold: alpha at the hit rates 0 and 1, in units of what a game of the start pays (its mean
            discounted return without the sign).
        levels: of each dimension of continuous actions.
        calls: states that an arm asks about at most; 0 = unbounded.
        compare: whether the arms "uncached" and "static" run; "uncached" asks about every state.
    """

    asked: pl.Source | None = None
    sim: pl.control.Simulator = PhraseGrid()
    advice: Advice = "model"
    offline: str = ""
    draws: int = 0
    hot: float = 0.5
    cold: float = 0.1
    levels: int = 3
    calls: int = 0
    compare: bool = True
    steps: int = 8_000
    games: int = 256
    learner: pl.control.DoubleQ = pl.control.DoubleQ(updates=32)

    def __post_init__(self) -> None:
        if min(self.games, self.steps) < 2 or min(self.draws, self.calls) < 0:
            raise pl.UserError(
                "cache-posterior: games and steps are 2 or more, draws and calls 0 or more"
            )
        if not 0 < self.cold <= self.hot:
            raise pl.UserError("cache-posterior: cold is above 0, and hot is not below it")
        if self.offline not in ("", "random") and not self.offline.endswith(".npz"):
            raise pl.UserError(f"offline={self.offline}: it is random, or FILE.npz")

    @property
    def source(self) -> pl.Source:
        """Who gives priors, the replies kept. Raises UserError where nobody does."""
        if self.asked is None:
            raise pl.UserError(
                "cache-posterior needs a language model that says which actions are worth trying: "
                "--llm endpoint(url='...',model='...'), a folder, or transcript:FILE"
            )
        return pl.services.TranscribedSource(self.asked)

    async def run(self, ctx: pl.Context) -> pl.Result:
        setting = PosteriorSetting.of(self, ctx)
        arms: dict[str, pl.control.ArmRun] = {"none": setting.arm("none", None)}
        if self.advice == "none":
            arms["guide"] = setting.arm("guide", None)
        else:
            guide = setting.guide()
            arms["guide"] = setting.arm("guide", guide, adapts=True)
            if self.compare:
                arms["static"] = setting.arm("static", guide)
                arms["uncached"] = setting.arm("uncached", guide, delta=1.0)
            arms["shuffled"] = setting.arm("shuffled", pl.control.ShuffledGuide(guide), adapts=True)
            if isinstance(self.sim, KnowsBestActions):
                best = self.sim.best_actions
                oracle = pl.control.ComputedGuide(lambda obs: log_prior(best(obs).astype(float)))
                arms["oracle"] = setting.arm("oracle", oracle, delta=1.0)
        results = await pl.control.compare_arms(ctx, arms)
        ctx.spend("env_steps", sum(r["env_steps"] for r in results.values()))
        own = results["guide"]
        ctx.log({"arm": "guide", "moved": own["moved"], "return": own["return"]})
        saved = {}
        if "uncached" in results:
            # without a cache a step is a question
            queries, asked = results["uncached"]["lookups"], max(1, own["asked"])
            saved = {
                "fewer_queries": queries / asked,
                "fewer_states": results["uncached"]["asked"] / asked,
            }
        return pl.Result(
            metrics={
                **pl.control.arm_summary(results),
                **saved,
                "moved": own["moved"],
                "sampled_tokens": 0,
            },
            artifacts={} if ctx.out is None else {"agent": str(ctx.out / "policy")},
        )


@pl.value_class
class PosteriorSetting:
    """What the arms of a run share."""

    program: CachePosterior
    ctx: pl.Context
    sim: pl.control.Simulator
    names: tuple[str, ...]
    words: pl.control.ViewWords
    text_keys: TextKeys
    scale: float  # what a game of the start pays, without the sign
    recorded: tuple[pl.control.Paths, ...]
    steps: int
    key: pl.Key

    @classmethod
    def of(cls, program: CachePosterior, ctx: pl.Context) -> "PosteriorSetting":
        key: pl.Key = ("cache-posterior", ctx.seed)
        sim = program.sim
        if isinstance(sim.actions, pl.control.Box):
            sim = SymbolicActions(sim, program.levels)
        learner, steps = program.learner, program.steps
        if (most := ctx.budget.get("steps")) is not None:
            steps = min(steps, int(most) * learner.games * sim.horizon)
        [games] = record_games(sim, 1, SAMPLE, (*key, "sample"))
        discounts = learner.gamma ** np.arange(games["reward"].shape[-1])
        paid = np.abs((games["reward"] * discounts).sum((1, 2))).mean()
        words = pl.control.ViewWords.of(sim, games)
        alive = np.broadcast_to(games["alive"][:, None], games["reward"].shape)
        seen = np.unique(games["obs"][alive].astype(np.float32), axis=0)
        return cls(
            program=program,
            ctx=ctx,
            sim=sim,
            names=pl.control.action_words(sim),
            words=words,
            text_keys=TextKeys.of([spell_state(sim, words, row) for row in seen]),
            scale=float(paid) or 1.0,
            recorded=recorded_games(program, sim, steps, key, ctx),
            steps=steps,
            key=key,
        )

    def spell(self, state: np.ndarray) -> str:
        return spell_state(self.sim, self.words, state)

    def key_of(self, state: np.ndarray) -> np.ndarray:
        """By the text that a simulator has for a state, else by its numbers."""
        if isinstance(self.sim, pl.control.SpelledView):
            return self.text_keys(self.spell(state))
        return number_key(shares(self.words, state))

    def question(self, state: np.ndarray) -> str:
        about = str(getattr(self.sim, "about", "") or "An agent acts in a simulator.")
        return QUESTION.format(about=about, state=self.spell(state), actions=", ".join(self.names))

    def guide(self) -> pl.control.ChatGuide:
        """Who is asked which actions are worth trying in a state."""
        weights = lambda reply: np.array([reply.weights.get(n, 0.0) for n in self.names])
        return pl.control.ChatGuide(
            source=self.program.source,
            spell=self.question,
            reply=prior_reply(self.names),
            read=lambda reply: log_prior(weights(reply)).tolist(),
            fallback=(-float(np.log(len(self.names))),) * len(self.names),
            asks=ASKS,
        )

    def advisor(
        self, name: str, guide: pl.control.Guide, adapts: bool, delta: float
    ) -> PriorAdvisor:
        """A guide with a cache of its own, in an arm; it keeps all where only the same text counts."""
        exact = delta >= 1
        cache = PriorCache(
            delta=delta,
            refresh=0.0 if exact else REFRESH,
            capacity=EVERY if exact else ENTRIES,
            adapts=adapts,
            likeness=likeness_for(self.sim),
        )
        return PriorAdvisor(
            guide,
            cache,
            self.key_of,
            len(self.names),
            (*self.key, "guide"),
            self.ctx,
            calls=self.program.calls,
        )

    def arm(
        self,
        name: str,
        guide: pl.control.Guide | None,
        adapts: bool = False,
        delta: float = DELTA,
    ) -> pl.control.ArmRun:
        """What `compare_arms` runs."""

        async def run() -> Mapping[str, Any]:
            program, lines = self.program, list[dict[str, Any]]()
            advisor = self.advisor(name, guide, adapts, delta) if guide else None
            learning = PosteriorLearning(
                learner=program.learner,
                hot=program.hot * self.scale,
                cold=program.cold * self.scale,
                draws=program.draws,
                recorded=self.recorded,
            )
            key = (*self.key, "learn")
            values, alpha = await learning.learn(self.sim, self.steps, key, advisor, lines.append)
            act = acting(values, alpha, advisor, greedy=True)
            as_paid = pl.control.as_paid
            numbers, played = pl.control.measure_arm(
                self.sim, act, as_paid, program.games, self.key
            )
            alive = np.broadcast_to(played["alive"][:, None], played["reward"].shape)
            seen = played["obs"][alive]
            moves = [line.get("moved", 0.0) for line in lines]
            more: dict[str, Any] = {"moved": float(np.mean(moves)), "alpha": alpha}
            if advisor:
                more |= advisor.numbers()
                if advisor.left_out:
                    self.ctx.say(
                        f"arm {name}: calls={program.calls} left out {advisor.left_out} questions"
                    )
                more["known"] = float((advisor.places(seen)[0] >= 0).mean())
                if name in ("guide", "static"):
                    more |= await advisor.check(seen, values, alpha, CHECKED)
            if name == "guide" and self.ctx.out is not None:
                save_posterior(self.ctx.out / "policy", values, alpha, advisor, self)
            return {**numbers, **more, "env_steps": lines[-1]["env_steps"], "curve": lines}

        return run


def recorded_games(
    program: CachePosterior,
    sim: pl.control.Simulator,
    steps: int,
    key: pl.Key,
    ctx: pl.Context,
) -> tuple[pl.control.Paths, ...]:
    """The rounds that are learned from offline; none online. Of a file they are all that it has, or as
    many as the run may take steps.
    """
    if not program.offline:
        return ()
    if program.offline == "random":
        return record_games(sim, steps, program.learner.games, key, BEST)
    rounds = read_transitions(program.offline, sim, program.learner.games * sim.horizon)
    most = ctx.budget.get("steps")
    used = rounds if most is None else rounds[: max(1, int(most))]
    count = lambda some: sum(int(p["alive"].sum()) for p in some)
    batches = sum(program.learner.batches(p) for p in used)
    ctx.say(
        f"offline: {count(used)} of {count(rounds)} rows in {len(used)} rounds, {batches} updates"
    )
    return used


def likeness_for(sim: pl.control.Simulator) -> Any:
    """What compares the keys of states: of texts where the simulator says them, else of numbers."""
    return cosines if isinstance(sim, pl.control.SpelledView) else closeness


def spell_state(sim: pl.control.Simulator, words: pl.control.ViewWords, state: np.ndarray) -> str:
    """What an agent sees, [O], as the simulator says it, else each number to a twelfth of its range."""
    if isinstance(sim, pl.control.SpelledView):
        return sim.spell_view(state)
    return "\n".join(
        f"{name} = {q.low + round(share * LEVELS) / LEVELS * (q.high - q.low):.3g}"
        for (name, q), share in zip(words.visible.items(), shares(words, state), strict=True)
    )


def shares(words: pl.control.ViewWords, state: np.ndarray) -> np.ndarray:
    """[Q] where the numbers of a state [O] are in their ranges, 0 to 1."""
    values = [float(x[0]) for x in words.compute(state[None]).values()]
    ranges = [(q.low, q.high) for q in words.visible.values()]
    return np.array(
        [
            np.clip((x - low) / ((high - low) or 1.0), 0, 1)
            for x, (low, high) in zip(values, ranges, strict=True)
        ]
    )


# ---- on disk


def save_posterior(
    folder: Path, values: Any, alpha: float, advisor: PriorAdvisor | None, setting: PosteriorSetting
) -> None:
    """The action values, the cached priors, and what makes the key of a state."""
    pl.control.save_policy(values, folder)
    ranges = {n: [q.low, q.high] for n, q in setting.words.visible.items()}
    settings: dict[str, Any] = {"alpha": alpha, "delta": None, "ranges": ranges}
    if advisor is not None and len(advisor.cache):
        cache = advisor.cache
        settings["delta"] = cache.delta
        weights = setting.text_keys.weight_D
        arrays = {"keys": cache.key_MD, "log_priors": cache.value_MK, "weights": weights}
        save_file({k: np.ascontiguousarray(v) for k, v in arrays.items()}, folder / PRIORS)
    (folder / SETTINGS).write_text(json.dumps(settings, indent=1) + "\n")


def load_posterior(sim: pl.control.Simulator, folder: Path | str) -> pl.control.Acting:
    """The likeliest actions of the posterior that a run saved in its folder `policy`; nobody is asked.

    Args:
        sim: the simulator that the policy is for; of continuous actions the one in symbols,
            `SymbolicActions(sim, levels)`.
    """
    where = Path(folder)
    try:
        settings = json.loads((where / SETTINGS).read_text())
        alpha, delta, ranges = (settings[k] for k in ("alpha", "delta", "ranges"))
        arrays = {} if delta is None else load_file(where / PRIORS)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise pl.UserError(f"{where} holds no posterior: {error}") from None
    values = pl.control.load_policy(where)
    if delta is None:
        return acting(values, alpha, None, greedy=True)
    cache = PriorCache(delta, 0.0, EVERY, likeness=likeness_for(sim))
    text_keys = TextKeys(weight_D=arrays["weights"])
    if not isinstance(sim, pl.control.SpelledView) and arrays["keys"].shape[1] != len(ranges) + 1:
        raise pl.UserError(
            f"{where}: the keys of its priors are not of the numbers of this simulator"
        )
    cache.fill(arrays["keys"], arrays["log_priors"])
    own = pl.control.ViewWords.of(sim, {"obs": np.zeros((1, 1, 1, sim.observation))})
    visible = {n: pl.control.Quantity(low=a, high=b, about=n) for n, (a, b) in ranges.items()}
    words = pl.control.ViewWords(visible=visible, compute=own.compute)

    def key_of(state: np.ndarray) -> np.ndarray:
        if isinstance(sim, pl.control.SpelledView):
            return text_keys(sim.spell_view(state))
        return number_key(shares(words, state))

    actions = int(np.asarray(sim.actions))
    nobody = pl.control.ComputedGuide(lambda obs: np.zeros((len(obs), actions)))
    advisor = PriorAdvisor(nobody, cache, key_of, actions, ())
    return acting(values, alpha, advisor, greedy=True)
