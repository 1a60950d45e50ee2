"""BNPO, as TRL calls it: GRPO's advantages and clip, and a loss that is a mean over the tokens of the
optimiser batch.

loss = -(1 / sum_i |y_i|) sum_{i,t} min(rho A, clip(rho) A): GRPO with `objective.reduce=tokens`, so a long
answer weighs more than a short one. TRL takes the mean over the batch of one device; here it is over
the whole optimiser batch, however it is split for memory (TRL's `dapo`). The paper that has the same
initials (Beta Normalization Policy Optimization, arXiv:2506.02864) changes the advantage instead,
which this does not.
"""

import palaestra as pl

CARD = pl.Card(
    title="BNPO: GRPO with a mean over the tokens of the batch (TRL's loss type)",
    claim="A mean over the batch's tokens removes GRPO's bias towards short right answers.",
    source="TRL's documentation",
    needs=pl.needs.Requirements(
        shows="groups_mixed",
        off={"collect.links.0.n": 1},
        own={"schedule.prompts": 6, "collect.links.0.n": 6},
    ),
    use="It helps where answers differ much in length; where they are equally long it is GRPO.",
    grade="A",
)


def build() -> pl.Recipe:
    return pl.vary(pl.recipe("grpo"), objective=pl.Clipped(reduce="tokens"))
