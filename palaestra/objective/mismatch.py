"""Correction for samples of an engine whose probabilities differ from the trainer's (other kernels,
other precision).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from palaestra.objective.algebra import Algebra, Couples, token_mean
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

    With `drop` a token above the cap has no weight instead, though it counts in means: the decoupled
    loss of AReaL (arXiv:2505.24298), with a cap of 5 in ASearcher.
    """

    objective: Objective
    model: str = "policy"
    cap: float = 2.0
    drop: bool = False

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
        ratio_BT = (old_BT - batch["behaviour_logp"]).exp()
        ratio_BT = torch.where(ratio_BT.isnan(), 1.0, ratio_BT)
        above_BT = ratio_BT > self.cap
        weight_BT = torch.where(above_BT, 0.0 if self.drop else self.cap, ratio_BT)
        columns = {
            **batch.columns,
            "behaviour_logp": old_BT,
            "advantage": batch["advantage"] * weight_BT,
        }
        loss, metrics = self.objective(out, replace(batch, columns=columns))
        return loss, metrics | {
            "tis_weight": token_mean(weight_BT, batch),
            "tis_capped": token_mean(above_BT.to(ratio_BT), batch),
        }
