"""The claim of self-rewarding: Self rewarding, self improving (Countdown, integration)."""

from collections.abc import Mapping

import palaestra as pl
from palaestra.claims.starts import RATES, judging_start
from palaestra.recipes.rewards.self_rewarding import build, judge


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
        found = await self.judge(ctx, group)
        rng = pl.rng_of(("mixed verdicts", ctx.seed, *(e.text for e in group.episodes)))
        return [found[i] for i in rng.permutation(len(found))]


def coin() -> pl.Recipe:
    """`build()` with the verdicts of each group mixed up."""
    collect = pl.links(pl.Sample(n=8), pl.Score(reward=MixedVerdicts(judge()), shadow=True))
    return pl.vary(build(), collect=collect)


def two_stages(rl: pl.Runnable) -> pl.Pipeline:
    """A short imitation of verdicts, then what learns from them."""
    shown = pl.Part(judging_start())
    return pl.Pipeline(parts={"shown": shown, "rl": pl.Part(rl, model=pl.Output("shown"))})


LAZY_JUDGE = pl.Scripted(
    pl.judges.Grader(check=pl.judges.matches_last_digit, yes="[[RIGHT]]", no="[[WRONG]]"),
    name="lazy",
)


ARMS: Mapping[str, pl.Runnable] = {
    "own judge": two_stages(build()),
    "coin": two_stages(coin()),
    "lazy judge": two_stages(build(LAZY_JUDGE)),
    "formal": two_stages(pl.recipe("grpo")),
}


EXPERIMENT = pl.ledger.Experiment(
    claim="On `add`, held-out accuracy rises by at least 5 points above the start where the model "
    "itself judges its answers without a reference.",
    quantity="8% above the baseline on integration with questions and verdicts of the model's own",
    start=two_stages(pl.ledger.Untrained()),
    arms=ARMS,
    expect=pl.ledger.Greater("own judge", "start", by=0.05, why="about half of the paper's gain"),
    falsified_if="accuracy is less than five points above the start",
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
    note="The paper's judge is a 7B model, here the small model itself, after a short imitation of "
    "verdicts that comes first in every arm. A verdict's tokens count, so `own judge` and `coin` "
    "take fewer steps than the others. `formal` has the true reward. The lazy judge looks at the "
    "last digit alone, so one column is enough for it: the exploit is there to be found, and its inflation shows it. How many "
    "of its verdicts are right is counted in the rollouts of a run; this result is from before it was, so that "
    "column is empty.",
)
