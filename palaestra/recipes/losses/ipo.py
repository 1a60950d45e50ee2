"""IPO: draws the margin of each pair to a fixed number instead of raising it for ever.

loss = (h(chosen) - h(rejected) - 1 / (2 beta))^2, h = log pi - log ref per token of the answer
(arXiv:2310.12036, eq. 17). DPO's loss never ends, so pairs that always agree drive the policy far from
the start whatever beta is. The paper's h is a sum over tokens; the mean is what its authors ran, by
TRL's account, and keeps long answers from having a target of their own: `normalise=False` is the sum.
`sft` adds that much of the chosen answer's loss per token.
"""

from typing import Any, Literal

import palaestra as pl

CARD = pl.Card(
    title="IPO: Identity Preference Optimisation",
    paper="arXiv:2310.12036",
    claim="A bounded loss does not overfit preferences that always agree, as DPO does.",
    source="paper, TRL's documentation for the mean over tokens",
    needs=pl.needs.Requirements(
        columns=pl.needs.PAIRS,
        shows="margin",
        off={"optimiser.lr": 0.0},  # the reference itself
        own={"pairs": "data", "schedule.prompts": 4},
    ),
    use="It helps where every pair was compared once, or always with the same result; with noisy comparisons "
    "DPO does as well.",
    lacks=(
        "The paper's bandit examples are not there.",
        "The paper's objective for any function Psi is not there, only the identity.",
        "The default takes log-ratios per token, where the paper's formula sums them: "
        "`normalise=False`.",
    ),
    grade="A",
)


def build(
    pairs: Literal["data", "rollouts"] = "data",
    beta: float = 0.1,
    normalise: bool = True,
    sft: float = 0.0,
) -> pl.Recipe:
    loss: Any = pl.objective.IPO(beta=beta, normalise=normalise)
    loss = loss + sft * pl.objective.ImitatePreferred() if sft else loss
    return pl.vary(
        pl.recipe("dpo", pairs=pairs),
        objective=loss,
    )


def embedded(pairs: Literal["data", "rollouts"] = "rollouts", **options: Any) -> pl.Recipe:
    """On the embedded problem, which has no pairs: they are made from the policy's own answers."""
    return build(pairs, **options)
