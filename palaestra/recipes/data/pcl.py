"""PCL: a value model picks the prompts that are solved about half of the time, before any is
attempted.

Of k m candidates the m with the smallest |V(q) - 1/2| are attempted (k = 4). V(q) in [0, 1] is the
sigmoid of a head on a copy of the policy, read at the end of the prompt; after each step it moves
towards the mean reward of the prompts that were attempted, mean (V(q) - r(q))^2 (arXiv:2510.01135).
The policy takes one on-policy step a batch with A = r - mean of the group.

V sees only what V selected, and begins uninformed, so first batches are near to random; `share` of
each batch is taken without a look at V, which keeps easy and hard prompts in its sight.
"""

import palaestra as pl

CARD = pl.Card(
    title="Prompt Curriculum Learning (value model picks intermediate prompts)",
    paper="arXiv:2510.01135",
    claim="A value model of prompts finds those of intermediate difficulty 12 times faster than "
    "filtering by rollouts.",
    source="a public review of the paper and the abstract; k = 4 is ours",
    size=pl.Size(
        setting="MATH and DeepScaleR; about 8,000 answers a batch: 512 prompts with 16, or 128 "
        "with 64",
        prompts=512,
        samples=16,
    ),
)


def build(factor: int = 4, target: float = 0.5, share: float = 0.0) -> pl.Recipe:
    """`factor` candidates for each prompt that is attempted."""
    parent = pl.vary(
        pl.recipe("grpo"),
        draw=pl.curriculum.Select(
            pl.curriculum.NearValue("value", target=target), pl.Shuffled(), factor, share
        ),
        credit=pl.chain(pl.Center("group")),
        objective=pl.Clipped(reduce="tokens"),
    )
    value = pl.Learner(
        credit=pl.credit.RatePrompts(),
        objective=pl.Regression(heads=("value",), squash=True),
        heads=("value",),
    )
    return pl.vary(parent, learners={**parent.learners, "value": value})
