"""Restraints on the few tokens whose log-probability and advantage go together most, which lower the
policy's entropy (arXiv:2505.22617).

    c_t = (A_t - mean A) (log pi_t - mean log pi),    means over the trained tokens of the batch

Means and ranks are those of the whole optimiser batch; the released code takes them within a
micro-batch, whose size then changes the method.
"""

from __future__ import annotations

import torch
from torch import Tensor

from palaestra.objective.algebra import Algebra, Couples, Reduction, reduce_terms, token_mean
from palaestra.objective.policy import log_ratio
from palaestra.objective.tokens import random_scores
from palaestra.schedule import Scheduled, check_bounds
from palaestra.types import Batch, Outputs, stage


def covariances(logp_BT: Tensor, advantage_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """[B, T] the products c_t of the module, 0 where nothing is trained; no gradient flows."""
    n = mask_BT.sum().clamp(min=1)
    centred = [(x.detach() - (x.detach() * mask_BT).sum() / n) for x in (advantage_BT, logp_BT)]
    return centred[0] * centred[1] * mask_BT


def share_of(n: int, share: float) -> int:
    """How many of n tokens a share is: at least one where there is a share."""
    return min(n, max(int(share * n), 1)) if share > 0 and n else 0


@stage
class ClipCov(Algebra):
    """PPO's clip, with the gradient of a few tokens taken away: a share of all tokens, drawn among
    those whose c_t lies between `least` and `most` and that are not clipped (Clip-Cov,
    arXiv:2505.22617, eq. 10 to 12; verl's `clip_cov`).

    Which are drawn belongs to each row's tokens (`tokens.random_scores`).
    """

    share: float = 2e-4
    least: float = 1.0
    most: float = 5.0
    low: float = 0.2
    high: float = 0.2
    reduce: Reduction = "tokens"

    def __post_init__(self) -> None:
        check_bounds("ClipCov.share", self.share, least=0, most=1)
        if not isinstance(self.least, Scheduled):
            check_bounds("ClipCov.most", self.most, above=self.least)
        check_bounds("ClipCov.low", self.low, least=0)
        check_bounds("ClipCov.high", self.high, least=0)

    @property
    def couples(self) -> Couples:
        return "batch"

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        rho_BT, A_BT = log_ratio(out, batch).exp(), batch["advantage"]
        clipped_BT = rho_BT.clamp(1 - self.low, 1 + self.high)
        outside_BT = clipped_BT * A_BT < rho_BT * A_BT
        c_BT = covariances(out["logp"], A_BT, batch.mask)
        open_BT = (c_BT > self.least) & (c_BT < self.most) & (batch.mask > 0) & ~outside_BT
        drawn_N = random_scores(batch)[open_BT]
        k = min(share_of(int((batch.mask > 0).sum()), self.share), len(drawn_N))
        cut_N = torch.zeros_like(drawn_N)
        cut_N[torch.sort(drawn_N, descending=True, stable=True).indices[:k]] = 1.0
        cut_BT = torch.zeros_like(batch.mask).masked_scatter(open_BT, cut_N)
        loss_BT = -torch.minimum(rho_BT * A_BT, clipped_BT * A_BT) * (1 - cut_BT)
        return reduce_terms(loss_BT, batch, self.reduce), {
            "ratio": token_mean(rho_BT, batch),
            "clipped": token_mean(outside_BT.float(), batch),
            "covariance_cut": token_mean(cut_BT, batch),
        }


@stage
class KLCov(Algebra):
    """-rho A without a clip, and + weight |log rho| at the share of tokens with the highest c_t (KL-Cov,
    arXiv:2505.22617, eq. 13 and 14; verl's `kl_cov`).
    """

    share: float = 2e-4
    weight: float = 1.0
    reduce: Reduction = "tokens"

    def __post_init__(self) -> None:
        check_bounds("KLCov.share", self.share, least=0, most=1)
        check_bounds("KLCov.weight", self.weight, least=0)

    @property
    def couples(self) -> Couples:
        return "batch"

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        x_BT, A_BT, on_BT = log_ratio(out, batch), batch["advantage"], batch.mask > 0
        c_N = covariances(out["logp"], A_BT, batch.mask)[on_BT]
        held_N = torch.zeros_like(c_N)
        k = share_of(len(c_N), self.share)
        held_N[torch.sort(c_N, descending=True, stable=True).indices[:k]] = 1.0
        held_BT = torch.zeros_like(batch.mask).masked_scatter(on_BT, held_N)
        loss_BT = -x_BT.exp() * A_BT + self.weight * x_BT.abs() * held_BT
        return reduce_terms(loss_BT, batch, self.reduce), {
            "ratio": token_mean(x_BT.exp(), batch),
            "covariance_held": token_mean(held_BT, batch),
            "kl_behaviour": token_mean(x_BT.abs(), batch),
        }
