"""The claim of cec-zero: CEC-Zero: Chinese spelling correction by self-generated errors."""

import re

import palaestra as pl
from palaestra.claims.short import ACCURACY, FRESH
from palaestra.claims.starts import RATES
from palaestra.recipes.rewards.cec_zero import Restored, build, correction


@pl.stage
class MixedConsensus:
    """The consensus of each group, given to its answers in another order: as many are paid as much,
    and not for agreeing.
    """

    consensus: pl.RewardFn = Restored(supervised=0.0, agreed=1.0)

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward]:
        rewards = await self.consensus(ctx, group)
        texts = [e.text for e in group.episodes]
        order = pl.rng_of(("mixed consensus", ctx.seed, ctx.step, *texts)).permutation(len(rewards))
        return [rewards[i] for i in order]


@pl.stage
class Answered:
    """Pays whatever says a truth value of each bracket, such as TFF, be it right or not."""

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward]:
        form = re.compile(f"[TF]{{{group.task.meta['d']}}}")
        corrections = [correction(pl.response_text(e)) for e in group.episodes]
        return [pl.Reward(total=float(form.fullmatch(x) is not None)) for x in corrections]


def arm(learned: pl.Recipe) -> pl.Recipe:
    """8 prompts with 8 answers a step, for as many steps as the tokens pay for."""
    return pl.vary(learned, schedule=FRESH)


def paid(reward: pl.RewardFn) -> pl.Recipe:
    collect = pl.links(pl.Sample(n=8), pl.Score(reward=reward, shadow=True))
    return arm(pl.vary(build(measured=0), collect=collect))


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "consensus": arm(build(supervised=0.0, agreed=1.0, measured=0)),
        "similarity": arm(build(supervised=1.0, agreed=0.0, measured=0)),
        "both": arm(build(measured=0)),
        "mixed up": paid(MixedConsensus()),
        "answered": paid(Answered()),
    },
    expect=pl.ledger.Greater(
        "consensus", "start", by=0.05, why="about half of what the paper gains"
    ),
    reasons=(
        pl.ledger.Needs("mixed up", "that those are paid who agree"),
        pl.ledger.Needs("answered", "agreement, beside the form of an answer"),
    ),
    measure=ACCURACY,
    metric="held-out accuracy (temperature 1)",
    tuned={"optimiser.lr": RATES},
    blocks=pl.ledger.TWENTY_SEEDS,
    task="bool",
    tokens=16_000,
    evaluate=128,
    samples=8,
    seconds=8.0,
    controls={
        "pass@8": pl.ledger.Final("sampled_after.pass@8.mean"),
        "training answers right, last 5 steps": pl.ledger.Logged("part/gold", last=5),
        "consensus": pl.ledger.Logged("part/consensus", last=5),
        "entropy": pl.ledger.Logged("entropy_sampled", last=5),
        "length": pl.ledger.Logged("length", last=5),
    },
)
