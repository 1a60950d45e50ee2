"""The claim of salu: SALU: unanswerability recognition with RLHF."""

from dataclasses import replace

import palaestra as pl
from palaestra.claims.starts import RATES, TWO_POINTS
from palaestra.recipes.rewards.salu import Honest, improve


@pl.stage
class MixedPunishments:
    """Punishments that are scaled by confidence, given to the false answers of a group in another
    order: the same sizes, and not by the confidence of the answer.
    """

    honest: Honest = Honest()

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward | pl.Fault]:
        rewards = await self.honest(ctx, group)
        false = {
            i: r
            for i, r in enumerate(rewards)
            if isinstance(r, pl.Reward) and r.total <= self.honest.wrong
        }
        totals = [r.total for r in false.values()]
        key = ("mixed punishments", ctx.seed, *(e.text for e in group.episodes))
        order = pl.rng_of(key).permutation(len(false))
        for (i, r), k in zip(false.items(), order, strict=True):
            rewards[i] = replace(r, total=totals[k])
        return rewards


def two_stages(rl: pl.Recipe) -> pl.Pipeline:
    """Both stages; the first one is short, so that it abstains unreliably."""
    imitation = pl.vary(pl.recipe("sft"), schedule=pl.Schedule(prompts=16, steps=12))
    rl = pl.vary(rl, schedule=pl.Schedule(prompts=8, steps=30))
    return pl.Pipeline(parts={"sft": pl.Part(imitation), "rl": pl.Part(rl, model=pl.Output("sft"))})


def placebo() -> pl.Recipe:
    """`improve()` with the punishments mixed up."""
    collect = pl.links(pl.Sample(n=8), pl.Score(reward=MixedPunishments(), shadow=True))
    return pl.vary(improve(), collect=collect)


ARMS = {
    "fixed -1": two_stages(improve(0.0, -1.0)),
    "fixed -2": two_stages(improve(0.0, -2.0)),
    "scaled by confidence": two_stages(improve()),
    "mixed up": two_stages(placebo()),
}


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    start=pl.Pipeline(
        parts={
            "sft": pl.Part(pl.vary(pl.recipe("sft"), schedule=pl.Schedule(prompts=16, steps=12))),
            "start": pl.Part(pl.ledger.Untrained(), model=pl.Output("sft")),
        }
    ),
    arms=ARMS,
    expect=pl.ledger.Greater("scaled by confidence", "fixed -2", why=TWO_POINTS),
    reasons=(
        pl.ledger.Needs(
            "mixed up", "the confidence of each answer, beside the size of punishments"
        ),
    ),
    constants={arm: {"rl.optimiser.lr": RATES} for arm in ARMS},
    metric="held-out overall accuracy: right answers and right abstentions (greedy)",
    task="unanswerable",
    tokens=20_000,
    evaluate=512,
    seconds=40,
    controls={
        "hallucinated": pl.ledger.Logged("part/hallucinated"),
        "abstained needlessly": pl.ledger.Logged("part/needlessly"),
        "confidence": pl.ledger.Logged("part/confidence"),
    },
)
