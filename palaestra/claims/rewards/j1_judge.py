"""The claim of j1-judge: J1: incentivising thinking in LLM-as-a-judge."""

from typing import Any

import palaestra as pl
from palaestra.claims.starts import imitation
from palaestra.recipes.rewards.j1_judge import build


@pl.stage
class Biased:
    """Demonstrations of a judge who likes the first place: a guess of `= 1` in `first` of the
    cases, sometimes real work.
    """

    first: float = 0.8
    works: float = 0.3

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        rng = pl.rng_of(key)
        half: pl.Task = group.task.meta["halves"][int(rng.integers(2))]
        source: Any = ctx.bench.tasks
        guess = pl.format_answer([], "1" if rng.random() < self.first else "2")
        reply = (
            source.halves.demonstration(half, rng, "work") if rng.random() < self.works else guess
        )
        return pl.Group(
            task=group.task, episodes=(pl.recorded_episode(ctx, "policy", half.prompt, reply, 1.0),)
        )


def unlearn_bias(learned: pl.Recipe) -> pl.Pipeline:
    biased = imitation(30, Biased(), lr=1e-3)
    return pl.Pipeline(
        parts={"biased": pl.Part(biased), "rl": pl.Part(learned, model=pl.Output("biased"))}
    )


EXPERIMENT = pl.Experiment(
    claim="On pairs in both orders, from a start that likes the first place, paying consistency "
    "makes more held-out pairs right in both than paying correct verdicts alone.",
    arms={
        "correctness": unlearn_bias(build(mode="correctness")),
        "j1": unlearn_bias(build()),
        "consistency": unlearn_bias(build(mode="consistency")),
    },
    expect=pl.Greater("j1", "correctness"),
    falsified_if="as many pairs are right in both orders without the reward for it",
    measure=pl.Final("sampled_after.pass@1.mean"),
    metric="held-out pairs judged rightly in both orders (temperature 1)",
    task="compare-pairs",
    tokens=40_000,
    evaluate=128,
    samples=4,
    seconds=40.0,
    controls={
        "accuracy of single verdicts": pl.Final(),
        "flips": pl.Logged("flips"),
        "consistent in training": pl.Logged("consistent"),
    },
    note="Two final answers of a chain stand for two responses, and the start is trained to prefer "
    "the first place. Pointwise scores (PoS) cannot flip, and tie instead: `palaestra train "
    "j1-judge mode=correctness --task judge-pairs` is that.",
)
