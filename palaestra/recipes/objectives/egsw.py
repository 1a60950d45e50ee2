"""EGSW: GRPO whose samples are weighted by a softmax of advantage and entropy over the group.

w_i = softmax_i((A_i + alpha H_i) / P) over the group, H_i the mean token entropy of the answer in
nats, measured before the update; sample i counts with G w_i, so that equal weights are GRPO itself
(arXiv:2503.22456; w_i alone would scale the loss by 1 / G). `level="token"` takes A and H token by
token, the softmax over the answers that have not ended there. Large P gives equal weights, small P
the winner alone; the exponential leaves negatives little weight, so `alpha=0` acts like a soft
filter for positives and is the control for the entropy's share; `advantage=0` weighs by entropy
alone.

w is constant in the update and positive, so weighing the advantage weighs the clipped loss. alpha
and P were searched for in the paper and are not published: 0.3 and 1 are ours. A group of one has w
= 1 and A = 0; equal rewards have A = 0. The number "reweighted" of a step is the mean of |G w - 1|.
"""

from dataclasses import replace
from typing import Literal

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="Entropy-Guided Sequence Weighting",
    paper="arXiv:2503.22456",
    claim="Weighting samples by advantage and entropy together explores better and gives more "
    "reward for equal samples.",
    source="abstract and a summary of the paper; alpha and P are not published",
    size=pl.Size(
        setting="Qwen2.5-Math-7B models; MATH-500, AIME, GPQA Diamond; alpha and the temperature "
        "were searched for, values not known",
        model="qwen2.5-7b",
    ),
    needs=pl.needs.Requirements(
        shows="reweighted",
        off={"alpha": 0.0, "advantage": 0.0},
        own={"schedule.prompts": 4},
    ),
    use="It leans towards right answers that the model was unsure of; alpha and P are yours to search "
    "for, as the paper did.",
    lacks=(
        "The paper's alpha and P are not published.",
        "The weights are built on GRPO alone, while the abstract calls them general.",
    ),
    grade="A",
)


@pl.stage
class EntropySoftmax:
    """x_i * n * softmax_i((advantage * x_i + alpha * H_i) / temperature) over the n answers of the
    group (at that token).
    """

    alpha: float = 0.3
    temperature: float = 1.0
    level: Literal["episode", "token"] = "episode"
    advantage: float = 1.0

    def __post_init__(self) -> None:
        pl.check_bounds("EntropySoftmax.temperature", self.temperature, above=0)

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        x, at = table.lift(x, self.level), table.tokens
        key_N = pl.credit.scope_keys(table, "group", self.level)
        if self.level == "token":  # the k-th trained token of every answer
            first_E = np.cumsum(table.lengths_E) - table.lengths_E
            k_N = np.arange(len(at.episode_N)) - first_E[at.episode_N]
            key_N = np.unique(np.stack([key_N, k_N]), axis=1, return_inverse=True)[1].reshape(-1)
        score_N = self.advantage * x.x_N
        if self.alpha:
            entropy_N = pl.credit.table_signal(table, "policy_entropy")
            if self.level == "episode":
                total_E = np.bincount(at.episode_N, entropy_N, minlength=len(table.episodes))
                entropy_N = total_E / np.maximum(table.lengths_E, 1)
            score_N = score_N + self.alpha * entropy_N
        w_N = relative_softmax(score_N / self.temperature, key_N)
        table.track("reweighted", replace(x, x_N=np.abs(w_N - 1)))
        return replace(x, x_N=x.x_N * w_N)


def relative_softmax(score_N: np.ndarray, key_N: np.ndarray) -> np.ndarray:
    """n * softmax of the scores over the n observations of the same key: 1 where all are equal."""
    most_K = np.full(int(key_N.max(initial=-1)) + 1, -np.inf)
    np.maximum.at(most_K, key_N, score_N)
    raw_N = np.exp(score_N - most_K[key_N])
    return raw_N / pl.group_mean(raw_N, key_N)


def build(
    alpha: float = 0.3,
    temperature: float = 1.0,
    level: Literal["episode", "token"] = "episode",
    advantage: float = 1.0,
    kl: float = 0.0,
) -> pl.Recipe:
    weighting = EntropySoftmax(alpha, temperature, level, advantage)
    return pl.vary(
        pl.recipe("grpo", kl=kl),
        credit=pl.chain(pl.Center("group"), pl.Scale("group"), weighting),
        needs=((("policy", "entropy"),) if alpha else ()) + ((("ref", "logp"),) if kl else ()),
    )
