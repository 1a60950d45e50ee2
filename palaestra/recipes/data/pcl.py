"""PCL: a value model picks the prompts that the policy solves about half of the time, before any
answer is sampled.

A step draws k m candidates and attempts the m with the smallest |V(q) - 1/2| (k = 4). V(q) in [0, 1]
is the sigmoid of a head on a copy of the policy, read at the end of the prompt. After each step V is
trained on the attempted prompts with the loss

    mean_q (V(q) - mean reward of the answers to q)^2        (arXiv:2510.01135)

and the policy takes one on-policy step with A = r - mean of the group.

V begins uninformed, so the first batches are nearly random, and it learns only from prompts that it
selected. `share` of each batch is drawn without V, so that easy and hard prompts are seen now and
then. A step logs `score_gain`: by how much the attempted prompts are nearer to 1/2 than the candidates.
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
    needs=pl.needs.Requirements(
        shows="score_gain",
        off={"factor": 1},
        own={"schedule.prompts": 4, "collect.links.0.n": 4, "factor": 3},
    ),
    use="It helps where most prompts are too easy or too hard and a prompt's text tells how hard it is; it "
    "costs a second copy of the model and a forward pass over each candidate, and no further samples.",
    lacks=(
        "The value model has the size of the policy: it is a copy of it.",
        "The study of batch sizes (prompts times answers) that finds the fastest one is not there.",
    ),
    grade="A",
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
