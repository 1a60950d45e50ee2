"""Reinforce-Ada: each prompt is sampled in rounds until it has enough right and wrong answers.

A round draws 8 answers to a prompt. With `until="balance"` a prompt stops once it has n/2 right and
n/2 wrong answers, with "positive" once it has one right answer, and after 4 rounds at the latest
(arXiv:2510.04996). n of all its answers train: the first n/2 of each kind; where one kind is short
the other fills up. With S all answers to the prompt,

    A_i = r_i - mean of r over S

without a standard deviation, so 4 right answers of 16 give + 0.75 and - 0.25. If all answers are
alike nothing is learned from them, but their n answers count in the mean over tokens.

Stopping at a success makes the mean of S too high on average, and the balance gives right answers a
weight that falls with 1 - p. A step costs more sampled tokens than one of GRPO, so compare the two at
equal tokens.
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
    needs=pl.needs.Requirements(
        shows="answers_spread",
        off={"rounds": 1},
        own={"schedule.prompts": 6, "n": 2, "each": 4, "rounds": 3},
    ),
    use="It helps where many prompts are solved once in ten answers or less, so that a group of one size "
    "seldom has right and wrong ones; at equal sampled tokens it makes fewer updates than GRPO.",
    lacks=(
        "The paper's small bonus for entropy (1e-4) is not there; its released script sets it "
        "to 0.",
        "Prompts do not share rounds: each one samples its rounds by itself.",
    ),
    grade="A",
)


def build(
    n: int = 4,
    rounds: int = 4,
    each: int = 8,
    until: Literal["balance", "positive"] = "balance",
    right: float | None = None,
) -> pl.Recipe:
    """A round draws `each` answers; `n` of all rounds train. An answer is right from the reward
    `right` on; None = from 1.
    """
    good, bad = n // 2, n - n // 2
    enough = pl.rollout.Enough(*((good, bad) if until == "balance" else (1, 0)), right=right)
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(
            pl.rollout.Until(enough, pl.links(pl.Sample(n=each), pl.Score()), rounds),
            pl.rollout.Pick(pl.rollout.Few(good, bad, right=right)),
        ),
        credit=pl.chain(pl.Center("group")),
        objective=pl.Clipped(low=0.2, high=0.28, reduce="tokens"),
    )
