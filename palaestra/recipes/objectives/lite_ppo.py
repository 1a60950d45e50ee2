"""Lite PPO: rewards are centred in their group and divided by the deviation of the whole batch, and
all tokens weigh the same. PPO's clipped loss without a critic, and nothing else.

A_k = (R_k - mean_group(R)) / (std_batch(R) + eps): the std is that of the raw rewards of the whole
batch (ddof 1), which is why it is taken before the group's mean. Every token of the batch weighs
the same in the loss (arXiv:2508.08221). No KL, no entropy bonus, no overlong filter, symmetric clip
0.2. A group of equal rewards has A = 0 and, unlike with its own std, a nearly equal one is not
blown up; a batch of equal rewards has A = 0. `ddof=0` and `centred=True` (the std of the rewards
minus their group's mean) are what other implementations take.
"""

import palaestra as pl

CARD = pl.Card(
    title="Tricks or Traps? / Lite PPO (group mean, batch std, token-level loss)",
    paper="arXiv:2508.08221",
    claim="Group mean with batch std and a token-level loss alone beat GRPO and DAPO on base "
    "models.",
    source="released code (alibaba/ROLL, huggingface/trl) and abstract",
    size=pl.Size(
        setting="Qwen3-4B and 8B, 128 prompts x 8, 8 optimiser steps a batch, temperature 0.99, "
        "top-p 0.99, top-k 100, no KL",
        model="qwen3-8b",
        prompts=128,
        samples=8,
        arguments={
            "update.minibatches": 8,
            "collect.sample.temperature": 0.99,
            "collect.sample.top_p": 0.99,
            "collect.sample.top_k": 100,
        },
    ),
    needs=pl.needs.Requirements(
        shows="groups_mixed", off={"collect.links.0.n": 1}, own={"schedule.prompts": 4}
    ),
    use="It helps with base models, whose groups differ in how mixed their rewards are; in a batch of "
    "one deviation it is GRPO at another rate.",
    lacks=(
        "The paper's study of the other tricks, one by one, is not a run; each is a part of its own.",
    ),
    grade="A",
)


def build(ddof: int = 1, centred: bool = False) -> pl.Recipe:
    center, scale = pl.Center("group"), pl.Scale("batch", ddof=ddof)
    return pl.vary(
        pl.recipe("grpo"),
        credit=pl.chain(center, scale) if centred else pl.chain(scale, center),
        objective=pl.Clipped(reduce="tokens"),
    )
