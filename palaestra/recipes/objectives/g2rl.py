"""G2RL: explore in directions of the policy's own gradient that right answers of the group have not
taken.

The feature of an answer is the mean over its tokens of phi_t = W^T (onehot(y_t) - pi_t), the
gradient of the token's log-prob to the last hidden state: one product with the unembedding, no
backward pass through the model (arXiv:2512.15687, sections 2.1 to 2.6). With S_ij the cosine of two
features of a group and r in {-1, +1},

    nu_i = max(1 - sum_{j != i} w_ij S_ij^2, 0),   w_ij = exp(r_j) / sum_{k != i} exp(r_k)

is 1 where no high-reward peer explains the direction. Scaled to nubar in [0, 1] within the group,
it shapes the reward before GRPO's advantage, clipped to +-3:

    form="equation"  r' = r (1 + lambda r nubar)           equation 12 as printed: novel wrong answers are punished LESS
    form="text"      r' = r (1 + lambda (2 nubar - 1))     what the prose says: near misses are punished less, strays more

Rewards between `bounds`, 0 and 1 if none are given, are mapped to [-1, 1]. A group of one, or with
nu all equal: r' = r. The value of lambda is not given; 1 here.
"""

from dataclasses import replace
from typing import Literal

import numpy as np

import palaestra as pl

SIGNAL = "policy_head_gradient"
CARD = pl.Card(
    title="G2RL: gradient-guided exploration",
    paper="arXiv:2512.15687",
    claim="Rewarding answers whose gradient direction is new within the group widens what the "
    "policy solves.",
    source="paper, sections 2.1 to 2.6; lambda is a choice",
    size=pl.Size(
        setting="Qwen3-1.7B/4B base, MATH (7.5k), groups of 8; lambda and the KL are not known",
        model="qwen3-4b",
        samples=8,
    ),
    needs=pl.needs.Requirements(
        shows="novelty_bonus",
        off={"weight": 0.0},
        own={"schedule.prompts": 4, "collect.links.0.n": 4},
    ),
    use="It helps where a problem has several ways to be solved and samples follow one of them; where "
    "there is one way, novelty rewards mistakes.",
    lacks=(
        "The analysis of directions during training is not there.",
        "There is no KL to the start.",
        "The paper's lambda is not known; 1 is a choice.",
    ),
    grade="A",
)


def novelty(feature_GD: np.ndarray, r_G: np.ndarray) -> np.ndarray:
    """[G] nu; 0 for a group of one."""
    unit_GD = feature_GD / np.maximum(np.linalg.norm(feature_GD, axis=1, keepdims=True), 1e-12)
    weight_GG = np.exp(r_G)[None] * (1 - np.eye(len(r_G)))
    total_G = weight_GG.sum(1)
    explained_G = (weight_GG * (unit_GD @ unit_GD.T) ** 2).sum(1) / np.where(
        total_G > 0, total_G, 1.0
    )
    return np.where(total_G > 0, np.clip(1 - explained_G, 0, None), 0.0)


def scale_novelty(nu_G: np.ndarray, form: Literal["equation", "text"]) -> np.ndarray:
    """[G] min-max within the group, to [0, 1] or centred to [-1, 1]; 0 where all are equal (cosines
    in float32: to 1e-6).
    """
    spread = np.ptp(nu_G)
    if spread < 1e-6:
        return np.zeros_like(nu_G)
    nubar_G = (nu_G - nu_G.min()) / spread
    return nubar_G if form == "equation" else 2 * nubar_G - 1


def feature(table: pl.Table, episode: int) -> np.ndarray:
    """[D] mean over the episode's trained tokens: rows weigh by their tokens."""
    weight = [float(view.trained_T[1:].sum()) for view in table.views[episode]]
    try:
        rows = [np.ravel(signals[SIGNAL]) for signals in table.signals[episode]]
    except KeyError:
        raise KeyError(
            f"signal {SIGNAL!r} was not measured; the learner needs ('policy', 'head_gradient')"
        ) from None
    return np.average(rows, axis=0, weights=weight) if sum(weight) else np.zeros_like(rows[0])


@pl.stage
class Explore:
    """The shaped rewards r'. `placebo` permutes nu within the group: bonuses of the same sizes, on
    other answers. Logs "novelty_bonus", the mean of |r' - r|.
    """

    form: Literal["equation", "text"] = "text"
    weight: float = 1.0  # lambda
    bound: float = 3.0
    placebo: bool = False
    bounds: tuple[float, float] | None = None  # of the reward; None = 0 and 1

    def __post_init__(self) -> None:
        low, high = self.reward_bounds
        if not low < high:
            raise pl.UserError(
                f"g2rl: bounds=({low:g},{high:g}); give the lowest reward first, then the highest"
            )

    @property
    def reward_bounds(self) -> tuple[float, float]:
        return self.bounds or (0.0, 1.0)

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        low, high = self.reward_bounds
        r_E, key_E = 2 * (x.x_N - low) / (high - low) - 1, pl.credit.scope_keys(table, "group")
        out_E = r_E.copy()
        for g in np.unique(key_E):
            mine = np.flatnonzero(key_E == g)
            nu_G = novelty(np.array([feature(table, int(e)) for e in mine]), r_E[mine])
            if self.placebo:
                nu_G = pl.rng_of(("placebo", table.group(int(mine[0])).task.id)).permutation(nu_G)
            bonus_G = scale_novelty(nu_G, self.form)
            r_G = r_E[mine]
            factor_G = 1 + self.weight * (r_G * bonus_G if self.form == "equation" else bonus_G)
            out_E[mine] = np.clip(r_G * factor_G, -self.bound, self.bound)
        table.track("novelty_bonus", pl.Values(level="episode", x_N=abs(out_E - r_E)))
        return replace(x, x_N=out_E)


def build(
    form: Literal["equation", "text"] = "text",
    weight: float = 1.0,
    placebo: bool = False,
    bounds: tuple[float, float] | None = None,
) -> pl.Recipe:
    """`bounds`: the lowest and the highest reward; None = 0 and 1."""
    return pl.vary(
        pl.recipe("grpo"),
        credit=pl.chain(
            Explore(form, weight, placebo=placebo, bounds=bounds),
            pl.Center("group"),
            pl.Scale("group"),
        ),
        objective=pl.Clipped(reduce="sequences"),
        needs=(("policy", "head_gradient"),),
    )
