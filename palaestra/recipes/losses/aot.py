"""AOT: prefers chosen answers as a whole distribution, not pair by pair.

The batch's margins of the policy, log pi(chosen) - log pi(rejected), and those of the start are sorted
each, and DPO's loss is taken of their differences in this order (arXiv:2406.05882): the policy's
distribution of margins is to dominate the start's. `paired=False` sorts h of chosen and h of rejected
answers instead, so that which rejected answer belongs to which chosen one does not matter. The larger
the batch, the better the order: `schedule.prompts=64`. `smoothing` mixes in flipped labels.
"""

from typing import Any, Literal

import palaestra as pl

CARD = pl.Card(
    title="AOT: Alignment via Optimal Transport",
    paper="arXiv:2406.05882",
    claim="Preferring distributions beats preferring pairs on instruction following.",
    source="TRL's code for the formula, abstract",
    needs=pl.needs.Requirements(
        columns=pl.needs.PAIRS,
        shows="margin",
        off={"optimiser.lr": 0.0},  # the reference itself
        own={"pairs": "data", "schedule.prompts": 4},
    ),
    use="It helps with large batches and labels that are noisy by pair; with one pair a batch it is DPO.",
    lacks=(
        "The regularised (soft) sorting of the paper is not there; the order is exact.",
        "Unpaired data, whose good and bad answers belong to different prompts, cannot be "
        "read: the columns are those of pairs.",
    ),
    grade="B",
)


def build(
    pairs: Literal["data", "rollouts"] = "data",
    beta: float = 0.1,
    paired: bool = True,
    smoothing: float = 0.0,
) -> pl.Recipe:
    loss = pl.objective.AOT(beta=beta, paired=paired, smoothing=smoothing)
    return pl.vary(
        pl.recipe("dpo", pairs=pairs),
        objective=loss,
    )


def embedded(pairs: Literal["data", "rollouts"] = "rollouts", **options: Any) -> pl.Recipe:
    """On the embedded problem, which has no pairs: they are made from the policy's own answers."""
    return build(pairs, **options)
