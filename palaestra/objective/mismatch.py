"""Correction for samples of an engine whose probabilities differ from the trainer's (other kernels,
other precision).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from palaestra.errors import UserError
from palaestra.objective.algebra import Algebra, Couples, token_mean
from palaestra.schedule import check_bounds
from palaestra.types import Batch, Objective, Outputs, stage


@stage
class TIS(Algebra):
    """Truncated importance sampling: the objective on advantages w A, w = min(pi_old / mu, cap) per
    token.

    mu is the engine's distribution, pi_old the trainer's before the update (the learner must need
    (model, "logp")); ratios of the objective are then pi / pi_old, so a clip range is spent on the
    update and not on the mismatch. "Your efficient RL framework secretly brings you off-policy RL
    training" (Yao et al. 2025, fengyao.notion.site/off-policy-rl); the cap of 2 is the default of
    ms-swift (pull request 6678). Losses are positively homogeneous in A, so weighting A weights
    them; terms without an advantage stay as they are. Samples that are a few updates old are
    corrected by the same weight. An unknown mu weighs 1.

    Args:
        cap: the largest ratio.
        floor: the smallest ratio; 0 = it has none.
        drop: a token whose ratio lies outside [floor, cap] has no weight, instead of the weight of
            the bound, though it counts in means. By token with a `floor` this is IcePop (0.5 to 5,
            arXiv:2510.18855); without one the decoupled loss of AReaL (arXiv:2505.24298, cap 5 in
            ASearcher).
        level: None takes the ratio of each token; "sequence" that of the whole row, which is
            masked importance sampling (MIS) with `drop`; "geometric" the geometric mean of the
            row's token ratios, for which bounds such as 0.99 and 1.01 suit.
        plain: what is not dropped weighs 1 instead of its ratio, so that this is a mask alone.
    """

    objective: Objective
    model: str = "policy"
    cap: float = 2.0
    drop: bool = False
    floor: float = 0.0
    level: Literal["sequence", "geometric"] | None = None
    plain: bool = False

    def __post_init__(self) -> None:
        check_bounds("TIS.floor", self.floor, least=0)
        numbers = all(isinstance(x, int | float) for x in (self.floor, self.cap))
        if numbers and self.floor >= self.cap:
            raise UserError(f"TIS.floor is {self.floor:g}; it must be below TIS.cap, {self.cap:g}")
        if self.plain and not self.drop:
            raise UserError("TIS.plain makes it a mask, which drops tokens: say drop=True as well")

    @property
    def needs(self) -> tuple[str, ...]:
        return self.objective.needs

    @property
    def couples(self) -> Couples:
        return self.objective.couples

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        if "advantage" not in batch.columns:
            return self.objective(out, batch)
        old_BT = batch[f"{self.model}_logp"]
        ratio_BT = self._ratio(old_BT - batch["behaviour_logp"], batch)
        above_BT, below_BT = ratio_BT > self.cap, ratio_BT < self.floor
        weight_BT = torch.where(above_BT, 0.0 if self.drop else self.cap, ratio_BT)
        if self.floor:
            weight_BT = torch.where(below_BT, 0.0 if self.drop else self.floor, weight_BT)
        if self.plain:
            weight_BT = (weight_BT > 0).to(ratio_BT)
        columns = {
            **batch.columns,
            "behaviour_logp": old_BT,
            "advantage": batch["advantage"] * weight_BT,
        }
        loss, metrics = self.objective(out, replace(batch, columns=columns))
        return loss, metrics | {
            "tis_weight": token_mean(weight_BT, batch),
            "tis_capped": token_mean((above_BT | below_BT).to(ratio_BT), batch),
        }

    def _ratio(self, log_BT: Tensor, batch: Batch) -> Tensor:
        """pi_old / mu [B, T] at the level, 1 where mu is unknown."""
        if self.level is None:
            ratio_BT = log_BT.exp()
            return torch.where(ratio_BT.isnan(), 1.0, ratio_BT)
        log_BT = torch.where(log_BT.isnan(), 0.0, log_BT) * batch.mask
        sum_B1 = log_BT.sum(1, keepdim=True)
        if self.level == "geometric":
            sum_B1 = sum_B1 / batch.mask.sum(1, keepdim=True).clamp(min=1)
        return sum_B1.exp().expand_as(log_BT)
