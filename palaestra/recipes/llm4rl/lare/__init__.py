"""LaRe: a language model names what matters of a step, and a network learns from the returns of
whole games what each step was worth.

Only R = sum_t sum_i r_it is seen, when a game is over. A chat model writes factors phi_1..phi_d of a
step, the latent reward; a decoder g is fitted to stored games,

    ( mean_it g(phi_it) - R / (T A) )^2,   T steps, A agents                     (arXiv:2412.11120)

so it divides R over steps and agents. The policy, one network for all agents, learns from g(phi),
relabelled as g moves. Factors are asked for as in the released code: five candidates at temperature
1, then one request that merges them at 0.3.

The simulator is yours (`--env FILE.py:NAME`, in arrays, see `palaestra.control.Simulator`) or any of
Gymnasium's (`--env gym:CartPole-v1`); the model is `--llm`. A simulator may say what it is `about` and
which `quantities` factors may read, with bounds in `declared`; else these are the numbers of an
agent's observation, with bounds from games of the start. Without either, cooperative navigation is
learned with factors that a large model wrote once, which knew the simulator (`navigation.py`).

By default four arms take equally many steps, from equal starts, and stand beside each other in arms.md
and in the summary: `none` learns from R at the end of a game, `guide` from the decomposition over
the factors, `shuffled` from that over the factors of other steps, `oracle` from the true rewards of the
steps, which the others never see. `credit` names one of the rewards below for a run without comparison.
In policy/ of the run folder is the guide's policy, in transcript.jsonl what the model wrote.

    palaestra train lare --env FILE.py:make --llm "endpoint(url='...',model='...')" steps=100000

Deviations: a factor is an expression over quantities that the simulator declares, never code; what
is wrong with one goes back to the model, at most five times, checked on 64 games. The decoder has two
layers of 64 and is fitted 8 times an iteration, where the released one has five and is fitted 50
times every ten; gamma is 0.99, not 1; an agent's rewards sum to R, not to T R.

Long because asking for factors, fitting their decoder and four arms from equal starts are one program.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

import palaestra as pl
from palaestra.recipes.llm4rl.lare.navigation import Navigation, recorded

CARD = pl.Card(
    title="LaRe: latent reward credit assignment",
    paper="arXiv:2412.11120",
    claim="Factors that a language model names make return decomposition from episodic rewards learn "
    "faster, sometimes than with the true rewards of steps.",
    source="released code (thu-rllab/LaRe): prompts, verification, decoder, losses, defaults; and the "
    "abstract",
    size=pl.Size(
        setting="GPT-4o names the factors; MuJoCo with TD3, and MPE spread, tag and Triangle Area with "
        "6 to 30 agents and IPPO"
    ),
    needs=pl.needs.Requirements(
        policy=False,
        flags={"env": "sim", "goal": "goal", "llm": "asked"},
        columns=(),
        models=(pl.needs.chat_model("language model", "asked", "writes the factors of a step"),),
        places=(
            pl.needs.NeededPlace(
                "simulator",
                "in arrays, as palaestra.control.Simulator says, or one of Gymnasium's",
                flag="--env FILE.py:NAME or --env gym:ID",
                otherwise="cooperative navigation of three agents",
            ),
        ),
        shows="latent",
        off={"credit": "episodic"},
        own={"endpoint": '{"expressions": ["approach", "touching"]}'},
    ),
    use="It helps where a game pays only at its end and a model that writes formulas without mistakes "
    "knows the game; factors that say nothing of the step are worse than none.",
    lacks=(
        "Factors are expressions over declared quantities, not code.",
        "Of a simulator of Gymnasium the language model is told neither the name nor what its "
        "numbers mean, unless a description says so: `palaestra guide init`.",
        "Without `quantities` the action of a step is none of them.",
        "MuJoCo with TD3 and Triangle Area were not run.",
    ),
    grade="B",
)

Reward = Literal["dense", "episodic", "state", "sampled state", "factors", "shuffled", "constant"]
Credit = Reward | Literal["arms"]
ARMS: dict[str, Reward] = {
    "none": "episodic",
    "guide": "factors",
    "shuffled": "shuffled",
    "oracle": "dense",
}
ASKED = ("factors", "shuffled", "constant")
GAMES = 256  # on which a policy is measured
SAMPLE = 64  # on which factors are checked; few games may have none of what is rare
ASKS = 5  # of a request whose answers do not fit
GENERAL = "Agents act in a simulator and are paid once, when a game is over."
FORM = """ Which factors of \
one agent's step say how much it contributed? Write each as an expression: a number, the name of a \
quantity, or {"op": ..., "args": [...]} with the operators add, subtract, multiply, minimum, \
maximum, less (two arguments), neg, abs, square, exp, tanh (one). Quantities:
"""
MERGE = "These are proposals for the same question. Merge them into one list without repetitions.\n"


def question_of(words: pl.control.SimulatorWords) -> str:
    """What the language model is asked for factors with."""
    return f"{words.about}{FORM}{pl.control.spell_quantities(words.declared)}"


@pl.stage
class LaRe:
    """A program: asks for factors, learns `steps` environment steps, fewer where the run has fewer
    steps (`--steps` counts iterations), and measures the true return of 256 games, played as in
    training.

    `reward` says what is learned from: `dense` the true reward of each step, `episodic` the return
    at the end, `state` its decomposition over observations, `sampled state` that of 16 steps of a
    game without bias (RRD), `factors` that over the model's factors, `shuffled` over those of
    another step of the same games, `constant` over one that never changes; `arms` runs those of `ARMS`.
    """

    reward: Credit = "arms"
    asked: pl.Source | None = None
    candidates: int = 5
    learner: pl.control.PPO = pl.control.PPO()
    decomposition: pl.control.Decomposition = pl.control.Decomposition()
    sim: pl.control.Simulator = Navigation()
    steps: int = 200_000

    async def run(self, ctx: pl.Context) -> pl.Result:
        key: pl.Key = ("lare", ctx.seed)
        asked = self.reward in (*ASKED, "arms")
        games = self.sample(key)
        words = pl.control.SimulatorWords.of(self.sim, games, GENERAL)
        factors = await self.ask(ctx, words, games) if asked else ()
        if self.reward == "arms":
            return await self.compare(ctx, factors, words, key)
        log = lambda line: ctx.log(line)
        numbers = await self.learn(ctx, self.reward, factors, words, key, log)
        ctx.spend("env_steps", numbers["env_steps"])
        names = ("return", "correlation", "env_steps", "factors")
        return pl.Result(
            metrics={k: numbers[k] for k in names} | {"calls": self.calls(ctx), "sampled_tokens": 0}
        )

    async def compare(
        self,
        ctx: pl.Context,
        factors: Sequence[pl.control.Expression],
        words: pl.control.SimulatorWords,
        key: pl.Key,
    ) -> pl.Result:
        """The arms beside each other, each kept when it is done."""

        def arm(name: str, reward: Reward) -> pl.control.ArmRun:
            async def run() -> Mapping[str, Any]:
                lines = list[Mapping[str, Any]]()
                folder = ctx.out / "policy" if ctx.out is not None and name == "guide" else None
                numbers = await self.learn(ctx, reward, factors, words, key, lines.append, folder)
                return {**numbers, "curve": lines}

            return run

        arms = {name: arm(name, reward) for name, reward in ARMS.items()}
        results = await pl.control.compare_arms(ctx, arms)
        ctx.spend("env_steps", sum(r["env_steps"] for r in results.values()))
        own = results["guide"]
        return pl.Result(
            metrics={
                **pl.control.arm_summary(results),
                "correlation": own["correlation"],
                "env_steps": own["env_steps"],
                "factors": own["factors"],
                "calls": self.calls(ctx),
                "sampled_tokens": 0,
            },
            artifacts={} if ctx.out is None else {"policy": str(ctx.out / "policy")},
        )

    async def learn(
        self,
        ctx: pl.Context,
        reward: Reward,
        factors: Sequence[pl.control.Expression],
        words: pl.control.SimulatorWords,
        key: pl.Key,
        log: Callable[[Mapping[str, Any]], None],
        folder: Path | None = None,
    ) -> dict[str, Any]:
        """What a policy that learned from a reward comes to in test games.

        Args:
            log: takes the lines of training.
            folder: where the policy is kept.
        """
        factors = factors if reward in ASKED else ()
        shaping = self.shaping(reward, factors, words, key)
        taken = [0]

        def noted(metrics: Mapping[str, Any]) -> None:
            log({**metrics, "latent": float(len(factors))})
            taken.append(metrics["env_steps"])

        steps = self.steps
        if (most := ctx.budget.get("steps")) is not None:
            steps = min(steps, int(most) * self.learner.games * self.sim.horizon)
        policy = await self.learner.learn(self.sim, steps, (*key, "learn"), shaping, log=noted)
        if folder is not None:
            pl.control.save_policy(policy, folder)
        fitted = isinstance(shaping, pl.control.Decomposer)
        learned_from = shaping.reward if fitted else shaping
        given: list[np.ndarray] = []

        def kept(paths: pl.control.Paths) -> np.ndarray:
            given.append(learned_from(paths))
            return given[-1]

        numbers, played = pl.control.measure_arm(self.sim, policy.act, kept, GAMES, key)
        each, true = (x.sum(1).ravel() for x in (given[0], played["reward"]))
        agrees = np.corrcoef(each, true)[0, 1] if np.ptp(each) and np.ptp(true) else 0.0
        return {
            **numbers,
            "correlation": float(agrees),  # of the rewards of steps
            "env_steps": taken[-1],
            "factors": len(factors),
        }

    def calls(self, ctx: pl.Context) -> int:
        """Of the language model, in this process."""
        asks = self.reward in (*ASKED, "arms")
        return ctx.client(self.source).meter.calls if asks else 0

    @property
    def source(self) -> pl.Source:
        """Who is asked for factors, its replies kept. Raises UserError where nobody is."""
        if self.asked is None:
            raise pl.UserError(
                "lare needs a language model that writes factors: --llm endpoint(url='...',model='...')"
            )
        return pl.services.TranscribedSource(self.asked)

    def sample(self, key: pl.Key) -> pl.control.Paths:
        """Games of the start, on which factors are checked."""
        act = self.learner.start(self.sim, key).act
        return pl.control.play_games(self.sim, act, SAMPLE, (*key, "sample"))

    async def ask(
        self, ctx: pl.Context, words: pl.control.SimulatorWords, games: pl.control.Paths
    ) -> tuple[pl.control.Expression, ...]:
        """The merged factors. Raises Fault where the model writes none without a mistake."""
        program = pl.control.checked_program(words.declared, words.compute(games))
        proposals = list[str]()
        for n in range(self.candidates):
            request = pl.ChatRequest(
                messages=pl.services.question_messages(question_of(words)), temperature=1.0, seed=n
            )
            reply = await ctx.ask_for(self.source, request, program, asks=ASKS)
            proposals.append(reply.model_dump_json())
        last = f"{question_of(words)}\n\n{MERGE}" + "\n".join(proposals)
        request = pl.ChatRequest(messages=pl.services.question_messages(last), temperature=0.3)
        merged = await ctx.ask_for(self.source, request, program, asks=ASKS)
        return tuple(merged.expressions)

    def shaping(
        self,
        reward: Reward,
        factors: Sequence[pl.control.Expression],
        words: pl.control.SimulatorWords,
        key: pl.Key,
    ) -> pl.control.Shaping:
        if reward in ("dense", "episodic"):
            return pl.control.as_paid if reward == "dense" else pl.control.at_the_end
        settings = self.decomposition
        if reward == "sampled state":
            settings = replace(settings, sampled=16)
        features = latent_rewards(reward, factors, words, key)
        return settings.start(features, key)


def latent_rewards(
    reward: Reward,
    factors: Sequence[pl.control.Expression],
    words: pl.control.SimulatorWords,
    key: pl.Key,
) -> Callable[[pl.control.Paths], np.ndarray]:
    """What the decoder sees of every step, [n, A, T, F]."""
    if not factors:
        return lambda paths: paths["next_obs"]
    rng = pl.rng_of((*key, "shuffled"))

    def features(paths: pl.control.Paths) -> np.ndarray:
        phi = pl.control.columns_of(factors, words.compute(paths), words.declared)
        if reward == "constant":
            return np.ones_like(phi)
        rows = phi.reshape(-1, phi.shape[-1])
        return (
            pl.control.shuffle_rows(rows, rng).reshape(phi.shape) if reward == "shuffled" else phi
        )

    return features


def build(
    asked: pl.Source | None = None,
    sim: str = "",
    goal: str = "",
    credit: Credit = "arms",
    steps: int = 200_000,
    candidates: int = 5,
) -> LaRe:
    """`asked` writes the factors; `sim` is FILE.py:NAME, a simulator or what makes one, or gym:ID,
    and `goal` says in words what is wanted there; `credit` says what is learned from, `steps` are
    those of the environment, of each arm.
    """
    own = pl.control.simulator_by_name(sim) if sim else Navigation()
    return LaRe(credit, asked, candidates, sim=pl.control.state_goal(own, goal), steps=steps)


def embedded(asked: pl.Source | None = None, credit: Credit = "arms", steps: int = 200_000) -> LaRe:
    """On cooperative navigation, with the recorded factors unless a model is `asked`."""
    return build(asked or pl.Scripted(recorded, name="recorded"), credit=credit, steps=steps)
