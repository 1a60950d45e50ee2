"""LaRe: a language model names what matters of a step, and a network learns from the returns of
whole games what each step was worth.

Only R = sum_t sum_i r_it is seen, when a game is over. A chat model writes factors phi_1..phi_d of a
step, the latent reward; a decoder g is fitted to stored games,

    ( mean_it g(phi_it) - R / (T A) )^2,   T steps, A agents                     (arXiv:2412.11120)

so it divides R over steps and agents. The policy, one network for all agents, learns from g(phi),
relabelled as g moves. Factors are asked for as in the released code: five candidates at temperature
1, then one request that merges them at 0.3.

Deviations: a factor is an expression over quantities that the simulator declares, never code; what
is wrong with one goes back to the model, at most five times, checked on 64 games. The decoder has two
layers of 64 and is fitted 8 times an iteration, where the released one has five and is fitted 50
times every ten; gamma is 0.99, not 1; an agent's rewards sum to R, not to T R.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

import palaestra as pl

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
)
Reward = Literal["dense", "episodic", "state", "sampled state", "factors", "shuffled", "constant"]
GAMES = 256  # on which a policy is measured
SAMPLE = 64  # on which factors are checked; few games may have none of what is rare
ASKS = 5  # of a request whose answers do not fit
QUANTITIES: pl.control.Quantities = {
    "nearest_landmark": pl.control.Quantity(
        low=0.0, high=6.0, about="distance to the landmark that is nearest to the agent"
    ),
    "all_landmarks": pl.control.Quantity(
        low=0.0, high=18.0, about="sum of the agent's distances to all three landmarks"
    ),
    "approach": pl.control.Quantity(
        low=-0.3, high=0.3, about="how much nearer that landmark is than a step ago"
    ),
    "nearest_agent": pl.control.Quantity(
        low=0.0, high=6.0, about="distance to the nearest other agent; below 0.3 they touch"
    ),
    "touching": pl.control.Quantity(low=0.0, high=2.0, about="number of agents that it touches"),
    "speed": pl.control.Quantity(low=0.0, high=2.0, about="of the agent"),
    "from_centre": pl.control.Quantity(
        low=0.0, high=6.0, about="distance to the middle of the field, which is 2 by 2"
    ),
}
TASK = f"""Three agents move in a plane with three landmarks. As a team they should cover all landmarks, \
one agent each, and not bump into one another. They are paid once, after 25 steps. Which factors of \
one agent's step say how much it contributed? Write each as an expression: a number, the name of a \
quantity, or {{"op": ..., "args": [...]}} with the operators add, subtract, multiply, minimum, \
maximum, less (two arguments), neg, abs, square, exp, tanh (one). Quantities:
{pl.control.spell_quantities(QUANTITIES)}"""
MERGE = "These are proposals for the same question. Merge them into one list without repetitions.\n"


def op(name: str, *args: object) -> dict[str, object]:
    return {"op": name, "args": list(args)}


NEAR, CLOSE = op("neg", "nearest_landmark"), op("exp", op("multiply", -3, "nearest_landmark"))
ROOM, ARRIVED = op("minimum", "nearest_agent", 0.6), op("less", "nearest_landmark", 0.1)
# what a large model answered to the five requests, and to the one that merges them
CANDIDATES: tuple[Sequence[object], ...] = (
    (NEAR, "approach", op("neg", "touching"), ARRIVED),
    (CLOSE, op("neg", "touching"), ROOM, "approach"),
    (
        NEAR,
        op("neg", "all_landmarks"),
        ROOM,
        op("neg", op("maximum", 0, op("subtract", "from_centre", 1))),
    ),
    (ARRIVED, "approach", op("multiply", ARRIVED, op("neg", "speed")), op("neg", "touching")),
    (op("neg", op("square", "nearest_landmark")), CLOSE, op("neg", "touching"), "nearest_agent"),
)
MERGED: Sequence[object] = (
    NEAR, CLOSE, "approach", ARRIVED, op("neg", "touching"), ROOM, op("neg", "all_landmarks"),
    op("multiply", ARRIVED, op("neg", "speed")),
)  # fmt: skip


def recorded(request: pl.ChatRequest) -> dict[str, object]:
    """The recorded answer to a request. A large model wrote it while this file was written,
    so it knew the simulator and its rewards, not only the question.
    """
    chosen = MERGED if request.temperature < 1 else CANDIDATES[request.seed % len(CANDIDATES)]
    return {"expressions": list(chosen)}


@pl.stage
class LaRe:
    """A program: asks for factors, learns `steps` environment steps of cooperative navigation, and
    measures the true return of 256 games, played as in training.

    `reward` says what is learned from: `dense` the true reward of each step, `episodic` the return
    at the end, `state` its decomposition over observations, `sampled state` that of 16 steps of a
    game without bias (RRD), `factors` that over the model's factors, `shuffled` over those of
    another step of the same games, `constant` over one that never changes.
    """

    reward: Reward = "factors"
    asked: pl.Source = pl.Scripted(recorded, name="recorded")
    candidates: int = 5
    learner: pl.control.PPO = pl.control.PPO()
    decomposition: pl.control.Decomposition = pl.control.Decomposition()
    sim: pl.control.SimpleSpread = pl.control.SimpleSpread()
    steps: int = 200_000

    async def run(self, ctx: pl.Context) -> pl.Result:
        key: pl.Key = ("lare", ctx.seed)
        asked = self.reward in ("factors", "shuffled", "constant")
        factors = await self.ask(ctx, key) if asked else ()
        shaping = self.shaping(factors, key)
        taken = [0]

        def log(metrics: Mapping[str, Any]) -> None:
            ctx.log(metrics)
            taken.append(metrics["env_steps"])

        policy = await self.learner.learn(self.sim, self.steps, (*key, "learn"), shaping, log=log)
        ctx.spend("env_steps", taken[-1])
        games = pl.control.play_games(self.sim, policy.act, GAMES, (*key, "test"))
        fitted = isinstance(shaping, pl.control.Decomposer)
        told = shaping.reward(games) if fitted else shaping(games)
        given, true = (x.sum(1).ravel() for x in (told, games["reward"]))
        agrees = np.corrcoef(given, true)[0, 1] if np.ptp(given) else 0.0
        return pl.Result(
            metrics={
                "return": float(pl.control.returns_of(games).mean()),
                "correlation": float(agrees),
                "env_steps": taken[-1],
                "factors": len(factors),
                "calls": ctx.client(self.asked).meter.calls if asked else 0,
                "sampled_tokens": 0,
            }
        )

    async def ask(self, ctx: pl.Context, key: pl.Key) -> tuple[pl.control.Expression, ...]:
        """The merged factors. Raises Fault where the model writes none without a mistake."""
        games = pl.control.play_games(
            self.sim, self.learner.start(self.sim, key).act, SAMPLE, (*key, "sample")
        )
        program = pl.control.checked_program(QUANTITIES, self.sim.quantities(games))
        found = list[str]()
        for n in range(self.candidates):
            request = pl.ChatRequest(
                messages=pl.services.question_messages(TASK), temperature=1.0, seed=n
            )
            said = await ctx.ask_for(self.asked, request, program, asks=ASKS)
            found.append(said.model_dump_json())
        last = f"{TASK}\n\n{MERGE}" + "\n".join(found)
        request = pl.ChatRequest(messages=pl.services.question_messages(last), temperature=0.3)
        merged = await ctx.ask_for(self.asked, request, program, asks=ASKS)
        return tuple(merged.expressions)

    def shaping(self, factors: Sequence[pl.control.Expression], key: pl.Key) -> pl.control.Shaping:
        if self.reward in ("dense", "episodic"):
            return pl.control.as_paid if self.reward == "dense" else pl.control.at_the_end
        settings = self.decomposition
        if self.reward == "sampled state":
            settings = replace(settings, sampled=16)
        features = latent_rewards(self.reward, factors, self.sim, key)
        return settings.start(features, key)


def latent_rewards(
    reward: Reward,
    factors: Sequence[pl.control.Expression],
    sim: pl.control.SimpleSpread,
    key: pl.Key,
) -> Callable[[pl.control.Paths], np.ndarray]:
    """What the decoder sees of every step, [n, A, T, F]."""
    if not factors:
        return lambda paths: paths["next_obs"]
    rng = pl.rng_of((*key, "shuffled"))

    def features(paths: pl.control.Paths) -> np.ndarray:
        phi = pl.control.columns_of(factors, sim.quantities(paths), QUANTITIES)
        if reward == "constant":
            return np.ones_like(phi)
        rows = phi.reshape(-1, phi.shape[-1])
        return (
            pl.control.shuffle_rows(rows, rng).reshape(phi.shape) if reward == "shuffled" else phi
        )

    return features


def build(reward: Reward = "factors", steps: int = 200_000) -> LaRe:
    return LaRe(reward, steps=steps)
