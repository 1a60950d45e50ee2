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
        found = await self.consensus(ctx, group)
        texts = [e.text for e in group.episodes]
        order = pl.rng_of(("mixed consensus", ctx.seed, ctx.step, *texts)).permutation(len(found))
        return [found[i] for i in order]


@pl.stage
class Answered:
    """Pays whatever says a truth value of each bracket, such as TFF, be it right or not."""

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward]:
        form = re.compile(f"[TF]{{{group.task.meta['d']}}}")
        said = [correction(pl.response_text(e)) for e in group.episodes]
        return [pl.Reward(total=float(form.fullmatch(x) is not None)) for x in said]


def arm(learned: pl.Recipe) -> pl.Recipe:
    """8 prompts with 8 answers a step, for as many steps as the tokens pay for."""
    return pl.vary(learned, schedule=FRESH)


def paid(reward: pl.RewardFn) -> pl.Recipe:
    collect = pl.links(pl.Sample(n=8), pl.Score(reward=reward, shadow=True))
    return arm(pl.vary(build(), collect=collect))


EXPERIMENT = pl.ledger.Experiment(
    claim="On formulas of three operators, the consensus of eight answers, without a label, lifts held-out accuracy "
    "at least 5 points above the untrained start's.",
    quantity="average F1 of spelling correction from 52.2 to 65.1 (Qwen3-14B) and from 55.5 to 68.2 (32B), "
    "with similarity and consensus",
    arms={
        "consensus": arm(build(supervised=0.0, agreed=1.0)),
        "similarity": arm(build(supervised=1.0, agreed=0.0)),
        "both": arm(build()),
        "mixed up": paid(MixedConsensus()),
        "answered": paid(Answered()),
    },
    expect=pl.ledger.Greater(
        "consensus", "start", by=0.05, why="about half of what the paper gains"
    ),
    falsified_if="answers trained on consensus are less than 5 points more often right than the start's",
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
    note="The small model knows no Chinese: what is restored are the values of three nested brackets, one of "
    "eight answers such as TFF, so that a cluster is a vote; similarity is to the right answer. Errors of spelling are made "
    "and paid in the tests alone, so this is the claim about consensus and not about spelling. The older look "
    "measured training answers at one rate; here held-out ones decide, and each arm has its best of three rates "
    "by labels, which a run without labels could not choose by. The start is right more often than in any "
    "other way, which "
    "consensus needs, and can lose: where a group agrees on one answer for all formulas, accuracy falls to one in eight. "
    "Part of the gain is form and habit, to work and to give an answer at all: `answered` pays for an answer "
    "alone. In a first look it paid for 0 and 1, which no answer is, and so trained nothing; hence it is declared "
    "anew. Looked at before the declaration, on seed 3000, which nothing else uses, at 1e-4 with 12,000 "
    "tokens, of 96 "
    "problems: .77 in one sample after `consensus`, greedy .97 from .51, training answers .61 at first. Cannot "
    "show: embeddings that see little of one wrong character, corrections of which several are right.",
)
