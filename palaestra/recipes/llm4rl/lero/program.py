"""The search for a candidate, and the arms in which the best one is compared."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

import palaestra as pl
from palaestra.recipes.llm4rl.lero.candidate import (
    Candidate,
    CandidateWords,
    EnhancedSimulator,
    Parts,
    hybrid_reward,
    random_candidate,
    save_candidate,
)

Writer = Literal["model", "random"]
SAMPLE = 64  # games on which candidates are checked
ASKS = 4  # a reply, and three repairs
POINTS = 8  # of a learning curve that a model is shown
FORM = """

Write a reward and features that make these agents learn faster. An agent i is rewarded with \
team_weight * (what the team is paid) + own_weight * (the sum of the expressions in "reward"), so \
"reward" should say what the agent itself contributed. "features" are numbers that the agent sees beside \
its observation, for instance what it can infer about things that it does not see. Each is an \
expression: a number, the name of a quantity, or {"op": ..., "args": [...]} with the operators add, \
subtract, multiply, minimum, maximum, less (two arguments), neg, abs, square, exp, tanh (one).
"""


@pl.stage
class EvolveGuidance:
    """A program: generations of candidates, each trained for `trial` environment steps and ranked by
    what the simulator pays, then the best one from scratch for `steps`, beside the other arms.

    The candidates of a generation have the same seed, and so have the elites, which are trained anew
    in it: none stays for the luck of its seed. `--steps` counts iterations, and cuts each training.

    Args:
        asked: who writes candidates; None = nobody, which is refused where one has to.
        writer: "random" draws candidates, the control of a search by a model.
        parts: which part of a candidate acts; "none" = neither, and nobody is asked.
        population: candidates that are written in a generation.
        elites: the best of a generation, which the next one is shown, and is ranked with.
        games: on which a policy is measured.
    """

    asked: pl.Source | None = None
    sim: pl.control.Simulator = pl.control.Coverage()
    writer: Writer = "model"
    parts: Parts = "both"
    generations: int = 2
    population: int = 3
    elites: int = 1
    trial: int = 16_000
    steps: int = 80_000
    games: int = 256
    learner: pl.control.PPO = pl.control.PPO(bootstrap=True)
    smallest: ClassVar[Mapping[str, float]] = {"population": 1, "trial": 2, "games": 8}

    def __post_init__(self) -> None:
        least = {"generations": 1, "population": 1, "elites": 1, "trial": 1, "steps": 1, "games": 2}
        for name, number in least.items():
            if getattr(self, name) < number:
                raise pl.UserError(f"lero: {name} is {number} or more")

    @property
    def source(self) -> pl.Source:
        """Who writes candidates, its replies kept. Raises UserError where nobody does."""
        if self.asked is None:
            raise pl.UserError(
                "lero needs a language model that writes candidates: "
                "--llm endpoint(url='...',model='...'), a folder, or transcript:FILE; or writer=random"
            )
        return pl.services.TranscribedSource(self.asked)

    async def run(self, ctx: pl.Context) -> pl.Result:
        key: pl.Key = ("lero", ctx.seed)
        start = self.learner.start(self.sim, key).act
        games = pl.control.play_games(self.sim, start, SAMPLE, (*key, "sample"))
        words = CandidateWords(
            step=pl.control.SimulatorWords.of(self.sim, games),
            view=pl.control.ViewWords.of(self.sim, games),
        )
        search = CandidateSearch(self, ctx, words, games, key)
        best = await search.run() if self.parts != "none" else Candidate()
        folder = None if ctx.out is None else ctx.out / "policy"
        total = search.env_steps + self.cut(ctx, self.steps)
        train = CandidateTraining(program=self, words=words, key=key)
        arms: dict[str, pl.control.ArmRun] = {
            "none": train.arm(Candidate(), total),
            "guide": train.arm(best, self.cut(ctx, self.steps), folder=folder),
        }
        if self.parts != "none":
            arms["shuffled"] = train.arm(best, self.cut(ctx, self.steps), shuffled=True)
            if isinstance(self.sim, pl.control.SeenWhole):
                arms["oracle"] = train.arm(best, total, sim=self.sim.whole)
        results = await pl.control.compare_arms(ctx, arms)
        if search.asks and search.invalid == search.asks:
            ctx.say(
                f"all {search.asks} candidates are random ones, as the model wrote none without a fault: the guide's "
                "arm says nothing of the model's words"
            )
        ctx.spend("env_steps", sum(r["env_steps"] for r in results.values()))
        guide = results["guide"]
        ctx.log({"arm": "guide", "relabelled": guide["relabelled"], "return": guide["return"]})
        return pl.Result(
            metrics={
                **pl.control.arm_summary(results),
                "search_steps": search.env_steps,
                "random_in_place": search.invalid,
                "repeated": search.repeated,
                "asked": search.asks,
                "sampled_tokens": 0,
                "candidate": best.model_dump(),
            },
            artifacts={} if folder is None else {"agent": str(folder)},
        )

    def cut(self, ctx: pl.Context, steps: int) -> int:
        """Environment steps of a training, by `--steps`."""
        if (most := ctx.budget.get("steps")) is None:
            return steps
        return min(steps, int(most) * self.learner.games * self.sim.horizon)


@pl.value_class
class CandidateTraining:
    """Trains the policy of an arm or a candidate."""

    program: EvolveGuidance
    words: CandidateWords
    key: pl.Key

    def arm(
        self,
        candidate: Candidate,
        steps: int,
        shuffled: bool = False,
        sim: pl.control.Simulator | None = None,
        folder: Path | None = None,
    ) -> pl.control.ArmRun:
        """What `compare_arms` runs; the policy is saved where there is a folder."""

        async def run() -> Mapping[str, Any]:
            key = (*self.key, "final")
            return await self.learn(candidate, steps, key, shuffled, sim, folder)

        return run

    async def learn(
        self,
        candidate: Candidate,
        steps: int,
        key: pl.Key,
        shuffled: bool = False,
        sim: pl.control.Simulator | None = None,
        folder: Path | None = None,
    ) -> dict[str, Any]:
        """The numbers of a policy after `steps`, with those of `measure_arm`.

        "relabelled" is how far the reward is from what was paid, on average over steps and agents,
        plus how much features differ between observations (their mean standard deviation).
        """
        program, lines = self.program, list[dict[str, Any]]()
        enhanced = EnhancedSimulator(sim or program.sim, candidate, self.words.view, shuffled)
        mixed = (*key, "reward") if shuffled else None
        shaping = hybrid_reward(candidate, self.words.step, program.sim.observation, mixed)
        policy = await program.learner.learn(enhanced, steps, key, shaping, log=lines.append)
        if folder is not None:
            pl.control.save_policy(policy, folder)
            save_candidate(candidate, self.words, folder)
        numbers, played = pl.control.measure_arm(enhanced, policy.act, shaping, program.games, key)
        alive = np.broadcast_to(played["alive"][:, None], played["reward"].shape)
        moved = np.abs(shaping(played) - played["reward"])[alive].mean()
        features = enhanced.features(played["obs"][..., : program.sim.observation])[alive]
        spread = features.std(0).mean() if features.shape[-1] else 0.0
        if "covered" in played:
            numbers["covered"] = float(played["covered"][:, 0, -1].mean())
        curve = [{k: x[k] for k in ("env_steps", "reward", "entropy")} for x in lines]
        return {
            **numbers,
            "relabelled": float(moved + spread),
            "env_steps": int(lines[-1]["env_steps"]),
            "curve": curve,
        }


class CandidateSearch:
    """Generations of candidates, in a run."""

    def __init__(
        self,
        program: EvolveGuidance,
        ctx: pl.Context,
        words: CandidateWords,
        games: pl.control.Paths,
        key: pl.Key,
    ):
        self.program, self.ctx, self.words, self.key = program, ctx, words, key
        self.form = words.form(games, program.parts)
        self.training = CandidateTraining(program=program, words=words, key=key)
        self.env_steps = self.invalid = self.repeated = self.asks = 0

    async def run(self) -> Candidate:
        """The best candidate of the last generation."""
        best: list[tuple[Candidate, Mapping[str, Any]]] = []
        for g in range(self.program.generations):
            question = self.question(best)
            candidates = [c for c, _ in best]
            for k in range(self.program.population):
                candidates.append(await self.write(question, g, k, candidates))
            results = [await self.trial(c, g, i) for i, c in enumerate(candidates)]
            order = best_of([r["return"] for r in results], self.program.elites)
            best = [(candidates[i], results[i]) for i in order]
            self.ctx.say(f"generation {g + 1}: {best[0][1]['return']:.4g} by the best candidate")
        return best[0][0]

    async def write(self, question: str, g: int, k: int, known: Sequence[Candidate]) -> Candidate:
        """A candidate that is none of those known. A random one stands for one that the model does
        not write without a fault in four replies, or that it wrote before; both are counted.
        """
        rng = pl.rng_of((*self.key, "random", g, k))
        draw = lambda: random_candidate(self.words, self.form, self.program.parts, rng)
        if self.program.writer == "random":
            return draw()
        self.asks += 1
        number = g * self.program.population + k
        self.ctx.say(f"generation {g + 1}: asks for candidate {k + 1} of {self.program.population}")
        request = pl.ChatRequest(
            messages=pl.services.question_messages(question),
            temperature=1.0,
            seed=number,
            max_tokens=2048,
        )

        async def ask() -> dict[str, Any] | None:
            try:
                reply = await self.ctx.ask_for(self.program.source, request, self.form, asks=ASKS)
            except pl.Fault as fault:
                if fault.cause != "chat-format":
                    raise
                self.ctx.say(f"generation {g + 1}: {fault}")
                return None
            return reply.model_dump()

        record = await self.ctx.once(f"written-{g}-{k}", ask)
        if record is None:
            self.invalid += 1
            self.ctx.say(
                f"generation {g + 1}: no candidate without a fault, so a random one stands"
            )
            return draw()
        written = self.form.model_validate(record)
        if any(written.model_dump() == c.model_dump() for c in known):
            self.repeated += 1
            return draw()
        return written

    async def trial(self, candidate: Candidate, g: int, i: int) -> Mapping[str, Any]:
        """A short training with the seed of the generation."""
        steps = self.program.cut(self.ctx, self.program.trial)
        run: Callable[[], Any] = lambda: self.training.learn(candidate, steps, (*self.key, g))
        result = await self.ctx.once(f"trial-{g}-{i}", run)
        self.env_steps += result["env_steps"]
        self.ctx.spend("env_steps", result["env_steps"])
        return result

    def question(self, best: Sequence[tuple[Candidate, Mapping[str, Any]]]) -> str:
        """What a candidate is asked for with: the simulator, the quantities that its parts may read, the best so far."""
        step, view, parts = self.words.step, self.words.view, self.program.parts
        text = f"{step.about}{FORM}"
        if parts != "features":
            text += f"\nQuantities of a step, for rewards:\n{pl.control.spell_quantities(step.declared)}\n"
        if parts != "reward":
            spelled = pl.control.spell_quantities(view.visible)
            text += f"\nQuantities of the agent's observation, for features:\n{spelled}\n"
        text += {
            "reward": '\nLeave "features" empty.\n',
            "features": '\nLeave "reward" empty: the agents learn from what is paid.\n',
        }.get(parts, "")
        for candidate, result in best:
            text += f"\n{describe_trial(candidate, result)}\n"
        return text + ("\nWrite a better candidate.\n" if best else "")


def best_of(returns: Sequence[float], most: int) -> list[int]:
    """Which have the highest finite returns, best first; of equal ones the first."""
    finite = [i for i, x in enumerate(returns) if np.isfinite(x)]
    return sorted(finite, key=lambda i: -returns[i])[:most]


def describe_trial(candidate: Candidate, result: Mapping[str, Any]) -> str:
    """A candidate with its learning curve, and what seems wrong with it."""
    curve = [line["reward"] for line in result["curve"]]
    points = [curve[i] for i in np.linspace(0, len(curve) - 1, min(POINTS, len(curve))).astype(int)]
    text = (
        f"A candidate that was tried: {json.dumps(candidate.model_dump())}\n"
        f"The team was paid {result['return']:.4g} a game after it; while it learned "
        f"{', '.join(f'{x:.4g}' for x in points)}."
    )
    if candidate.reward:
        text += f" Its reward correlates with that by {result['agreement']:.2f} over games."
        if result["agreement"] < 0.2:
            text += " The reward pays for something else than the task."
    if curve[-1] <= curve[0]:
        text += " Nothing was learned."
    return text
