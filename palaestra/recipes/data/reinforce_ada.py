"""Reinforce-Ada: prompts are sampled in rounds until there is enough of both kinds of answers.

Every round draws 8 answers to each prompt that is not done. `balance`: done with n/2 right and n/2
wrong answers; `positive`: with one right one; after 4 rounds at the latest (arXiv:2510.04996). Of
the pool n answers train, half of each kind, the first ones, filled up from the other side where one
is short. Their advantage is r - the mean of the whole pool, without a standard deviation, so 4
right of 16 give + 0.75 and - 0.25. A pool of one kind trains nothing, but its n answers count in the mean
over tokens.

To stop at a success biases the pool's mean upwards, and balance weighs prompts anew: the weight of
right answers falls with 1 - p. What a step gains is bought with tokens: compare at equal ones.
"""

from typing import Literal

import palaestra as pl

CARD = pl.Card(
    title="Reinforce-Ada: adaptive sampling by successive elimination",
    paper="arXiv:2510.04996",
    claim="Sampling each prompt until it has right and wrong answers gives more signal a step than "
    "groups of one size, and keeps the entropy up.",
    source="paper and released code (RLHFlow/Reinforce-Ada)",
    size=pl.Size(
        setting="Qwen2.5-Math-1.5B and 7B, Llama-3.2-3B, Qwen3-4B on OpenR1-Math; 512 prompts, n = "
        "4 of up to 32, clip 0.2 and 0.28, lr 1e-6, 600 steps",
        model="qwen2.5-1.5b",
        prompts=512,
        lr=1e-6,
    ),
)


def build(
    n: int = 4,
    rounds: int = 4,
    each: int = 8,
    until: Literal["balance", "positive"] = "balance",
) -> pl.Recipe:
    """`each` answers a round, `n` of all rounds train."""
    right, wrong = n // 2, n - n // 2
    enough = pl.rollout.Enough(right, wrong) if until == "balance" else pl.rollout.Enough(1, 0)
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(
            pl.rollout.Until(enough, pl.links(pl.Sample(n=each), pl.Score()), rounds),
            pl.rollout.Pick(pl.rollout.Few(right, wrong)),
        ),
        credit=pl.chain(pl.Center("group")),
        objective=pl.Clipped(low=0.2, high=0.28, reduce="tokens"),
    )
