"""The claim of dr-grpo: Dr. GRPO (understanding R1-Zero-like training)."""

import palaestra as pl
from palaestra.claims.short import ACCURACY, FRESH, short
from palaestra.claims.starts import unmoved
from palaestra.recipes.objectives.dr_grpo import build

LAST = 15  # steps of which answers are measured, half of a run or less

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    start=unmoved(pl.vary(pl.recipe("grpo"), schedule=FRESH), steps=LAST),
    arms={
        "grpo": short(pl.recipe("grpo")),
        "dr-grpo": short(build(length=64)),
        "no std": short(pl.recipe("grpo"), credit=pl.chain(pl.Center("group"))),
        "constant length": short(
            pl.recipe("grpo"), objective=pl.Clipped(reduce="constant", length=64)
        ),
    },
    expect=pl.ledger.Greater(
        "dr-grpo", "grpo", by=2.0, why="a twelfth of a wrong answer, of some 24 tokens"
    ),
    reasons=(
        pl.ledger.Needs("no std", "a constant instead of each answer's length"),
        pl.ledger.Needs("constant length", "rewards that no deviation divides"),
    ),
    vetoes={"sampled accuracy": pl.ledger.Veto(ACCURACY, falls=0.03)},
    measure=pl.ledger.Less(pl.ledger.Logged("length_wrong", last=LAST)),
    metric=f"tokens of a wrong training answer, last {LAST} steps, with a minus",
    tuned={"optimiser.lr": (1e-4,)},
    blocks=pl.ledger.TWENTY_SEEDS,
    task="sort(d=5)",
    tokens=40_000,
    evaluate=128,
    samples=4,
    seconds=18.0,
    controls={
        "length of right answers": pl.ledger.Logged("length_right", last=LAST),
        "cut off": pl.ledger.Logged("truncated", last=LAST),
        "training answers right": pl.ledger.Logged("reward", last=LAST),
        "entropy": pl.ledger.Logged("entropy_sampled", last=LAST),
    },
)
