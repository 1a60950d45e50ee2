"""More losses on pairs, in which the chosen and the rejected answer are each held to something of their
own, not only to each other. With h as in `palaestra.objective.preference`,

    r_c = beta h(chosen),  r_r = beta h(rejected),  m = r_c - r_r
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from palaestra.objective.algebra import Algebra, Couples, token_mean
from palaestra.objective.policy import log_ratio
from palaestra.objective.preference import PairLoss, preference_scores, preference_sides
from palaestra.schedule import check_bounds
from palaestra.types import Batch, Outputs, stage


@stage
class AnchoredPair(PairLoss):
    """APO, arXiv:2408.06266 eq. 7 and 8, which says where the chosen answer itself shall go.

    zero  1 - sigmoid(r_c) + sigmoid(r_r)    up, and the rejected one down: for chosen answers
          that are better than what the policy says
    down  sigmoid(r_c) + 1 - sigmoid(m)      down, and the rejected one further: for chosen
          answers that are worse than what the policy says
    """

    beta: float = 0.1
    anchor: Literal["zero", "down"] = "zero"

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        c_U, r_U = (self.beta * h_U for h_U in preference_sides(out, batch))
        if self.anchor == "zero":
            return self.finish(torch.sigmoid(-c_U) + torch.sigmoid(r_U), out, batch)
        return self.finish(torch.sigmoid(c_U) + torch.sigmoid(r_U - c_U), out, batch)


@stage
class NoiseContrastive(PairLoss):
    """-log sigmoid(r_c) - (log sigmoid(-r_c) + log sigmoid(-r_r)) / 2: NCA for two answers,
    arXiv:2402.05369. The likelihood of the chosen answer itself is held up, not only above
    that of the other.
    """

    beta: float = 0.1

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        c_U, r_U = (self.beta * h_U for h_U in preference_sides(out, batch))
        return self.finish(softplus(-c_U) + (softplus(c_U) + softplus(r_U)) / 2, out, batch)


@stage
class ReversePairKL(PairLoss):
    """KL(p || q) of two answers, p = (sigmoid(m), sigmoid(-m)) of the policy and q = (1 - smoothing,
    smoothing) of the label: EXO, arXiv:2402.00856 eq. 16, where DPO is KL(q || p) but for a constant.

    `smoothing` is above 0 and below 1, for a sure label makes the divergence infinite.
    """

    beta: float = 0.1
    smoothing: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds("ReversePairKL.smoothing", self.smoothing, above=0, most=0.999)

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        m_U = self.margins(out, batch)
        sure, flipped = math.log1p(-self.smoothing), math.log(self.smoothing)
        kept_U = torch.sigmoid(m_U) * (logsigmoid(m_U) - sure)
        return self.finish(kept_U + torch.sigmoid(-m_U) * (logsigmoid(-m_U) - flipped), out, batch)


@stage
class SquaredSides(PairLoss):
    """(h(chosen) - 1 / (2 beta))^2 + (h(rejected) + 1 / (2 beta))^2: SPPO, arXiv:2405.00675 eq. 4.7,
    with winning probabilities of 1 and 0 in place of a preference model's; its eta is 1 / beta.
    """

    beta: float = 0.1

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        c_U, r_U = preference_sides(out, batch)
        target = 1 / (2 * self.beta)
        return self.finish((c_U - target) ** 2 + (r_U + target) ** 2, out, batch)


@stage
class LogRatioModulated(PairLoss):
    """(1 - w) softplus(-m) + w exp(-m), w = sigmoid(m / temperature): DiscoPOP, arXiv:2406.08414 eq. 5,
    a loss that a language model wrote. It is not convex: shortly below m = 0 it rises with m.
    """

    beta: float = 0.05
    temperature: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds("LogRatioModulated.temperature", self.temperature, above=0)

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        m_U = self.margins(out, batch)
        w_U = torch.sigmoid(m_U / self.temperature)
        return self.finish((1 - w_U) * softplus(-m_U) + w_U * torch.exp(-m_U), out, batch)


@stage
class PowerReward(PairLoss):
    """-log sigmoid(beta (R(chosen) - R(rejected)) - target), R = (1 - p^-alpha) / alpha of p, the
    geometric mean of the probabilities of an answer's tokens: AlphaPO, arXiv:2501.03884. For alpha
    to 0 it is log p, and the loss SimPO's, whose beta and target stand here. It has no reference.

    `alpha` bends the reward: above 0 an unlikely answer costs more than its logarithm, below 0 less.
    """

    beta: float = 2.0
    alpha: float = 0.25
    target: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds("PowerReward.alpha", self.alpha, least=-10, most=10)

    def margins(self, out: Outputs, batch: Batch) -> Tensor:
        sides = preference_scores(out, batch, reference_free=True, normalise=True)
        chosen_U, rejected_U = map(self.reward, sides)
        return self.beta * (chosen_U - rejected_U)

    def reward(self, logp_U: Tensor) -> Tensor:
        """R of the mean log-probability of a token."""
        return -torch.expm1(-self.alpha * logp_U) / self.alpha if self.alpha else logp_U

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        return self.finish(softplus(self.target - self.margins(out, batch)), out, batch)


@stage
class GeometricMean(Algebra):
    """-A exp(mean of s clip(s log rho)) over an answer's tokens: GMPO, arXiv:2507.20673.

    s is the sign of A, and of log rho only what moves on is clipped: min(s log rho, s clip(log rho,
    -low, high)), times s. A geometric mean of token ratios is less bent by outliers than their
    arithmetic mean, so the range may be wide: 0.4 in logarithms. A is the mean of the row's
    advantages; each row counts alike.
    """

    low: float = 0.4
    high: float = 0.4

    def __post_init__(self) -> None:
        check_bounds("GeometricMean.low", self.low, least=0)
        check_bounds("GeometricMean.high", self.high, least=0)

    @property
    def couples(self) -> Couples:
        return "row"

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        x_BT, A_BT = log_ratio(out, batch), batch["advantage"]
        sign_BT = torch.sign(A_BT)
        held_BT = sign_BT * torch.minimum(
            sign_BT * x_BT, sign_BT * x_BT.clamp(-self.low, self.high)
        )
        tokens_B = batch.mask.sum(1).clamp(min=1)
        ratio_B = torch.exp((held_BT * batch.mask).sum(1) / tokens_B)
        A_B = (A_BT * batch.mask).sum(1) / tokens_B
        return -(A_B * ratio_B).sum() / batch.n_rows, {
            "ratio": token_mean(x_BT.exp(), batch),
            "clipped": token_mean((sign_BT * held_BT < sign_BT * x_BT).float(), batch),
        }
