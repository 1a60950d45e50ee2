"""SEC: categories of problems as the arms of a bandit whose values are moving averages of |A|.

    p(c) = exp(Q(c) / tau) / sum_c' exp(Q(c') / tau),   Q(c) <- alpha r(c) + (1 - alpha) Q(c),   Q = 0 at first

r(c) is the mean |A| over the samples of category c in the batch (arXiv:2505.14970). With binary
rewards of mean p and advantages divided by the standard deviation it is 2 sqrt(p (1 - p)) on
average, which is largest at p = 1/2; so it does not tell too hard from too easy. A category without a
sample in the batch keeps its value; variant="released", as in the released code, gives it r = 0 there,
so that it fades. rule="proportional" draws with p ~ max(Q, 0.01) and signal="progress" takes the change
of the mean reward; both are options of that code.

The categories are the values of the column `domain` of a file, or the parts of a mixture such as
--task 'knights(d=1)+knights(d=2)'; with two dimensions there is one for each pair. A step logs p as
`odds/CATEGORY`.
"""

from typing import Literal

import palaestra as pl

CATEGORY = pl.needs.NeededColumn(
    "domain", "text", ("easy", "hard"), "the category: a difficulty, a type of problem, or both"
)

CARD = pl.Card(
    title="Self-Evolving Curriculum (bandit, TD(0))",
    paper="arXiv:2505.14970",
    claim="A bandit that draws the categories with the largest absolute advantages generalises "
    "better to hard problems than drawing at random.",
    source="a public copy of the code (auto_curriculum/priority.py) and the abstract",
    size=pl.Size(
        setting="Qwen2.5-3B and 7B, Countdown, Zebra puzzles, ARC-1D, MATH; 240 steps (720 for "
        "several domains); tau 1, 0.4, or 0.2 in two dimensions",
        model="qwen2.5-3b",
        arguments={"tau": 1.0},
    ),
    task="+".join(f"knights(d={d})" for d in (1, 2, 3)),
    needs=pl.needs.Requirements(
        columns=(pl.needs.PROMPT, pl.needs.ANSWER, CATEGORY),
        least={"domains": 2},
        shows="odds_spread",
        off={"tau": float("inf")},
        own={"schedule.prompts": 6, "collect.links.0.n": 4},
    ),
    use="It helps where categories differ in difficulty and the model leaves some behind as it learns; it "
    "cannot tell a category that is too hard from one that is too easy.",
    lacks=("The bandit is tried with GRPO alone: PPO and RLOO are not offered as the learner.",),
    grade="A",
)


def build(
    tau: float = 0.4,
    alpha: float = 0.5,
    signal: Literal["scaled", "centred", "progress"] = "scaled",
    rule: Literal["softmax", "proportional"] = "softmax",
    variant: Literal["paper", "released"] = "paper",
) -> pl.Recipe:
    return pl.vary(
        pl.recipe("grpo"),
        draw=pl.curriculum.Bandit(tau=tau, rule=rule),
        observe=pl.curriculum.Learnability(
            of=signal, alpha=alpha, absent="keep" if variant == "paper" else "decay"
        ),
    )
