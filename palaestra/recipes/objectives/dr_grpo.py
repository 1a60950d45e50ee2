"""Dr. GRPO: GRPO that neither spares long wrong answers nor weighs a prompt by how hard it is.

A_i = r_i - mean(r), and the clipped surrogate summed over tokens and divided by the constant length
* B (arXiv:2503.20783, section 3.2). GRPO's 1 / |o_i| makes a long wrong answer cheap per token, its
1 / std weighs very easy and very hard prompts up; neither is left. A_i is (G - 1) / G of RLOO's, so
the gradient is unbiased up to a factor. A group of one or of equal rewards has A = 0 with no
epsilon; a truncated answer is simply wrong. `length` is the longest answer allowed, in tokens;
None = that of the run. Another value only rescales the loss, which Adam divides out until the
gradient is clipped.
"""

import palaestra as pl

CARD = pl.Card(
    title="Dr. GRPO (understanding R1-Zero-like training)",
    paper="arXiv:2503.20783",
    claim="Without the length and difficulty biases of GRPO wrong answers stop growing, at equal "
    "accuracy.",
    source="paper and released code (sail-sg/understand-r1-zero)",
    size=pl.Size(
        setting="Qwen2.5-Math-7B, 8k MATH level 3 to 5 questions, 128 prompts x 8, 3,000 tokens, "
        "lr 1e-6, clip 0.2, no KL",
        model="qwen2.5-7b",
        prompts=128,
        samples=8,
        tokens=3000,
        lr=1e-6,
        arguments={"length": 3000},
    ),
    needs=pl.needs.Requirements(
        shows="groups_mixed",
        off={"collect.links.0.n": 1},
        own={"schedule.prompts": 4, "collect.links.0.n": 4},
    ),
    use="It helps where wrong answers grow long under GRPO; where answers are equally long and groups "
    "equally hard, the two take the same direction.",
    lacks=("The analysis of base models and prompt templates is not there.",),
    grade="A",
)


def build(length: float | None = None) -> pl.Recipe:
    """`length` is the longest answer, in tokens; None = the run's."""
    return pl.vary(
        pl.recipe("grpo"),
        credit=pl.chain(pl.Center("group")),
        objective=pl.Clipped(reduce="constant", length=length),
    )
