"""The claim of rl-plus: multiple importance sampling and an exploration-based advantage."""

import palaestra as pl
from palaestra.claims.short import instead
from palaestra.claims.starts import RATES
from palaestra.recipes.data.rl_plus import MARK, build

LONGEST = 96  # tokens of an answer
ENTROPY = 0.001  # weight of its bonus, as by default


def shrink(learned: pl.Recipe) -> pl.Recipe:
    """8 prompts a step, and four minibatches: with one, nothing is ever clipped."""
    return pl.vary(
        learned, update=pl.Plain(minibatches=4), schedule=pl.Schedule(prompts=8, steps=200)
    )


def imitation_beside() -> pl.Recipe:
    """The same demonstrations, imitated at the weight of a row; all else is as in RL-PLUS."""
    own = pl.Shaped("power", old="behaviour", reduce="constant", length=LONGEST)
    return pl.vary(
        build(length=LONGEST, entropy=ENTROPY),
        objective=pl.On(MARK, pl.Imitation())
        + pl.On(MARK, own, absent=True)
        + ENTROPY * pl.Entropy(),
        needs=(),
    )


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "grpo": shrink(pl.recipe("dr-grpo", length=LONGEST)),
        "rl-plus": shrink(build(length=LONGEST)),
        "denominator 1": shrink(build(length=LONGEST, external="plain")),
        "equal weights": shrink(build(length=LONGEST, gamma=0.0)),
        "luffy": shrink(build(length=LONGEST, external="luffy", gamma=0.0)),
        "imitation beside": shrink(imitation_beside()),
    },
    expect=pl.ledger.Greater(
        "rl-plus",
        "grpo",
        by=0.05,
        why="a tenth of the largest relative gain in the paper, of the three quarters that GRPO solves",
    ),
    reasons=(
        pl.ledger.Needs("denominator 1", "the estimated density of who wrote the demonstrations"),
        pl.ledger.Needs("equal weights", "more weight for tokens that the policy would rarely say"),
        pl.ledger.Needs("imitation beside", "more than the demonstrations themselves"),
    ),
    vetoes={"pass@8": pl.ledger.Veto(pl.ledger.Final("sampled_after.pass@8.mean"), falls=0.03)},
    **instead(
        tuned={"optimiser.lr": RATES[:2]},
        task="add(d=6,max_tokens=96)",
        tokens=24_000,
        tuning_tokens=10_000,
        evaluate=64,
        seconds=75.0,
    ),
    controls={
        "entropy": pl.ledger.Logged("entropy_sampled"),
        "length": pl.ledger.Logged("length"),
    },
)
