"""DUMP: the parts of a mixture as the arms of a bandit, drawn by an upper confidence bound.

    L_j = mean |A| of the newest 300 samples of part j,   n_j = its samples so far,   n = sum_j n_j
    UCB_j = L_j + sqrt(2 ln(n + 1) / (n_j + 1)),   p_j = exp(UCB_j / tau) / sum_i exp(UCB_i / tau)     (arXiv:2504.09710)

Every task of a batch is drawn from a part with the probability p; after the step L and n take in its
samples. At first all parts have the same p. The parts are the values of the column `domain` of a file,
or those of a mixture such as --task 'knights(d=1)+knights(d=2)'. A step logs p as `odds/PART`.

A is GRPO's advantage, divided by the standard deviation, so L is mostly the share of groups with right
and wrong answers; signal="centred" does not divide. The counts n only grow, so the bonus fades, and
only the window sees later changes.

The released code updates the parts only at validation, by the mean reward there in place of |A|;
signal="reward" is close to that, with the training reward.
"""

from typing import Literal

import palaestra as pl

DISTRIBUTION = pl.needs.NeededColumn(
    "domain", "text", ("easy", "hard"), "the distribution that a record belongs to"
)

CARD = pl.Card(
    title="DUMP: UCB distribution-level curriculum",
    paper="arXiv:2504.09710",
    claim="Drawing from the distributions with the largest advantages converges faster than "
    "drawing alike, and ends higher on the hard ones.",
    source="released code (ZhentingWang/DUMP, curriculum_learning.py and the training script) and "
    "the abstract",
    size=pl.Size(
        setting="Qwen2.5-7B-Instruct-1M, knights and knaves with 3 to 14 people as 12 "
        "distributions; 128 prompts, G = 16, lr 1e-6, KL 0.001, answers up to 20,000 tokens",
        model="qwen2.5-7b",
        prompts=128,
        samples=16,
        tokens=20000,
        lr=1e-6,
        arguments={"kl": 0.001},
    ),
    task="+".join(f"knights(d={d})" for d in (1, 2, 3)),
    needs=pl.needs.Requirements(
        columns=(pl.needs.PROMPT, pl.needs.ANSWER, DISTRIBUTION),
        least={"domains": 2},
        shows="odds_spread",
        off={"tau": float("inf")},
        own={"schedule.prompts": 6, "collect.links.0.n": 4},
    ),
    use="It helps where a corpus has parts of very different difficulty, some of which teach nothing yet or "
    "nothing any more; where all parts are about as hard it draws them alike.",
    grade="A",
)


def build(
    tau: float = 0.1,
    explore: float = 1.0,
    window: int = 300,
    signal: Literal["scaled", "centred", "reward"] = "scaled",
    kl: float = 0.0,
) -> pl.Recipe:
    """`explore` weighs the bonus of parts that were seen little."""
    return pl.vary(
        pl.recipe("grpo", kl=kl),
        draw=pl.curriculum.Bandit(tau=tau, explore=explore),
        observe=pl.curriculum.Learnability(of=signal, window=window),
    )
