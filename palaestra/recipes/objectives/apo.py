"""APO: right answers to hard prompts are held less to the start, long wrong answers count more
(View-R1).

GRPO with a k3 loss (A with ddof 1, eps 1e-9; beta 1e-3), and with c_i = 1 for a right answer
(reward of at least 1; a format bonus does not count), d = 1 - mean_group(c) the difficulty of the
prompt:

    DADS  positives (A_i > 0): the KL loss of the sample is multiplied by f(d) = 1 - exp(-e (1 - d)), f(0) = f(1) = 1. Easy
          positives keep most of it, hard ones are released
    STCR  negatives (c_i = 0) longer than the mean length Lbar of the group's right answers: A_i is multiplied by
          s_i = 2 - base^-(L_i - Lbar), so 1 <= s_i < 2. A long wrong answer is pushed down harder

(arXiv:2506.21655; formulas and order from the released code, where DADS tests the sign of A and
STCR c.) STCR acts after the normalisation and leaves the group's mean alone. No right answer: s =
1. Equal rewards: A = 0, and the full KL acts. `base` is the paper's 1.00001, made for thousands of
tokens; on answers below 100 tokens it does nothing that can be seen.

Numbers of a step: "kl_released" is the mean of 1 - f over its tokens, "long_wrong" that of s - 1.
"""

from dataclasses import replace
from typing import ClassVar

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="Asymmetric Policy Optimization (View-R1): DADS + STCR",
    paper="arXiv:2506.21655",
    claim="A KL loss released on hard positives and extra weight on long negatives curb "
    "overthinking without an entropy drop.",
    source="released code (Indolent-Kawhi/View-R1) and abstract",
    size=pl.Size(
        setting="Qwen2.5-VL-3B, 128 prompts x 8, 4,096 tokens, lr 1e-6, beta 1e-3, at most 20,000 "
        "samples, 2 episodes",
        model="qwen2.5-3b",
        prompts=128,
        samples=8,
        tokens=4096,
        lr=1e-6,
    ),
    needs=pl.needs.Requirements(
        shows="kl_released", off={"dads": False}, own={"schedule.prompts": 4}
    ),
    use="It helps where a KL to the start is wanted, and answers have hundreds of tokens or more: at "
    "the paper's base, STCR adds 1% to a wrong answer that is a thousand tokens too long.",
    lacks=(
        "That general tasks keep their accuracy is not measured.",
        "The multimodal model and training data of the paper do not come with it.",
    ),
    grade="A",
)


def right_answers(table: pl.Table, right: float | None) -> np.ndarray:
    """[E] c_i: 1.0 for a right answer."""
    return table.right_E(right).astype(float)


def kl_share(difficulty_N: np.ndarray) -> np.ndarray:
    """f(d) = 1 - exp(-e (1 - d)), and 1 at d = 0 and d = 1."""
    f_N = 1 - np.exp(-np.e * (1 - difficulty_N))
    return np.where((difficulty_N <= 0) | (difficulty_N >= 1), 1.0, f_N)


@pl.stage
class Dads:
    """Leaves the column "kl_weight": f(difficulty) for positive advantages, else 1."""

    right: float | None = None
    reads_right: ClassVar[bool] = True

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        difficulty_E = 1 - pl.group_mean(right_answers(table, self.right), table.group_E)
        weight_E = np.where(x.x_N > 0, kl_share(difficulty_E), 1.0)
        table.add_column("kl_weight", replace(x, x_N=weight_E))
        table.track("kl_released", replace(x, x_N=1 - weight_E))
        return x


@pl.stage
class Stcr:
    """Wrong answers longer than the group's right ones: A (2 - base^-(L - Lbar))."""

    base: float = 1.00001
    right: float | None = None
    reads_right: ClassVar[bool] = True

    def __post_init__(self) -> None:
        pl.check_bounds("Stcr.base", self.base, least=1)

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        c_E, key_E = right_answers(table, self.right), table.group_E
        share_E = pl.group_mean(c_E, key_E)
        mean_E = pl.group_mean(c_E * table.lengths_E, key_E) / np.where(share_E > 0, share_E, 1)
        excess_E = np.where((c_E == 0) & (share_E > 0), np.maximum(table.lengths_E - mean_E, 0), 0)
        more_E = 1 - self.base**-excess_E
        table.track("long_wrong", pl.Values(level="episode", x_N=more_E))
        return replace(x, x_N=x.x_N * (1 + more_E))


def build(
    kl: float = 1e-3,
    dads: bool = True,
    stcr: bool = True,
    base: float = 1.00001,
    right: float | None = None,
) -> pl.Recipe:
    """`right` is the reward from which on an answer is right; None = as the reward says, else 1."""
    shaping = ((Dads(right),) if dads else ()) + ((Stcr(base, right),) if stcr else ())
    return pl.vary(
        pl.recipe("grpo", kl=kl),
        credit=pl.Chain((pl.Center("group"), pl.Scale("group", ddof=1, eps=1e-9), *shaping)),
        objective=pl.Clipped() + kl * pl.KL("k3", weight="kl_weight" if dads else "")
        if kl
        else pl.Clipped(),
    )
