"""The claim of self-rewarding: Self rewarding, self improving (Countdown, integration)."""

from collections.abc import Mapping

import palaestra as pl
from palaestra.claims.starts import RATES, judging_start
from palaestra.recipes.rewards.self_rewarding import build, built_in_judge, embedded


@pl.stage
class Inflation:
    """Mean self-reward less mean formal reward over the last `last` steps."""

    last: int = 10

    def __call__(self, cell: pl.ledger.Cell) -> float:
        return pl.ledger.Logged("reward", self.last)(cell) - pl.ledger.Logged(
            "part/gold", self.last
        )(cell)


@pl.stage
class MixedVerdicts:
    """A judge's verdicts on a group, given to its answers in another order: as many are called
    right, and not those that are.
    """

    judge: pl.Judge

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward | pl.Fault]:
        verdicts = await self.judge(ctx, group)
        rng = pl.rng_of(("mixed verdicts", ctx.seed, *(e.text for e in group.episodes)))
        return [verdicts[i] for i in rng.permutation(len(verdicts))]


def coin() -> pl.Recipe:
    """`embedded()` with the verdicts of each group mixed up."""
    collect = pl.links(
        pl.Sample(n=8), pl.Score(reward=MixedVerdicts(built_in_judge()), shadow=True)
    )
    return pl.vary(embedded(), collect=collect)


def two_stages(rl: pl.Runnable) -> pl.Pipeline:
    """A short imitation of verdicts, then what learns from them."""
    sft = pl.Part(judging_start())
    return pl.Pipeline(parts={"shown": sft, "rl": pl.Part(rl, model=pl.Output("shown"))})


LAZY_JUDGE = pl.Scripted(
    pl.judges.Grader(check=pl.judges.matches_last_digit, yes="[[RIGHT]]", no="[[WRONG]]"),
    name="lazy",
)


ARMS: Mapping[str, pl.Runnable] = {
    "own judge": two_stages(embedded()),
    "coin": two_stages(coin()),
    "lazy judge": two_stages(build(LAZY_JUDGE)),
    "formal": two_stages(pl.recipe("grpo")),
}


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    start=two_stages(pl.ledger.Untrained()),
    arms=ARMS,
    expect=pl.ledger.Greater("own judge", "start", by=0.05, why="about half of the paper's gain"),
    reasons=(pl.ledger.Needs("coin", "that the right answers are called right"),),
    vetoes={
        "accuracy above the coin's": pl.ledger.Veto(
            pl.ledger.Final("sampled_after.pass@1.mean"), falls=0.0, against="coin"
        )
    },
    constants={arm: {"rl.optimiser.lr": RATES} for arm in ARMS},
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy (temperature 1)",
    task="add",
    tokens=40_000,
    evaluate=128,
    samples=4,
    seconds=60.0,
    controls={
        "its verdicts, balanced": pl.ledger.Balanced("part/gold"),
        "inflation": Inflation(),
        "self-reward": pl.ledger.Logged("reward"),
        "true reward": pl.ledger.Logged("part/gold"),
    },
)
