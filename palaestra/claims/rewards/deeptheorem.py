"""The claim of deeptheorem: DeepTheorem: RL on verified theorem variants."""

from dataclasses import replace

import palaestra as pl
from palaestra.claims.starts import RATES, judging_start, unmoved
from palaestra.recipes.rewards.deeptheorem import build


@pl.stage
class OtherLabels:
    """A judge's verdicts on a group, given to its proofs in another order: as many are paid, and not
    those that have the right label. What is logged of a proof stays with it.
    """

    judge: pl.RewardFn

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward | pl.Fault]:
        rewards = list(await pl.judge_group(ctx, self.judge, group))
        known = [(i, r) for i, r in enumerate(rewards) if isinstance(r, pl.Reward)]
        rng = pl.rng_of(("other labels", ctx.seed, ctx.step, group.task.id))
        for (i, r), k in zip(known, rng.permutation(len(known)), strict=True):
            rewards[i] = replace(r, total=known[k][1].total)
        return rewards


def arm(recipe: pl.Recipe) -> pl.Recipe:
    """8 prompts a step with 8 proofs each."""
    return pl.vary(recipe, schedule=pl.Schedule(prompts=8, steps=400))


def after_judging(rl: pl.Recipe) -> pl.Pipeline:
    """From a start that judges better than a coin, whose verdicts follow workings half of the time."""
    sft = pl.warm(judging_start(), "chain(operands=(2,3))")
    return pl.Pipeline(parts={"shown": sft, "rl": pl.Part(rl, model=pl.Output("shown"))})


def coin() -> pl.Recipe:
    """The verdicts of each group mixed up."""
    scored = build().collect.links[1].reward  # type: ignore[union-attr]
    return pl.vary(build(), collect=pl.links(pl.Sample(n=8), pl.Score(reward=OtherLabels(scored))))


PROCESS = pl.ledger.Logged("part/process", last=5)

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    start=after_judging(unmoved(arm(build()))),
    arms={
        "variants": after_judging(arm(build())),
        "originals": after_judging(arm(build(("right",)))),
        "other labels": after_judging(arm(coin())),
    },
    expect=pl.ledger.Greater(
        "variants", "start", by=0.05, why="ours: one line in twenty more that stands"
    ),
    reasons=(pl.ledger.Needs("other labels", "that the right labels are paid"),),
    vetoes={
        "accuracy of verdicts": pl.ledger.Veto(
            pl.ledger.Final("sampled_after.pass@1.mean"), falls=0.03
        )
    },
    measure=PROCESS,
    metric="share of a proof's lines before its first wrong one, last 5 steps",
    constants={a: {"rl.optimiser.lr": RATES} for a in ("variants", "originals", "other labels")},
    task="variants",
    tokens=16_000,
    evaluate=128,
    samples=4,
    seconds=15.0,
    controls={
        "outcome in training": pl.ledger.Logged("reward", last=5),
        "length": pl.ledger.Logged("length"),
    },
)
