"""Losses on pairs. Rows of a pair share a unit: `sign` +1 is the chosen one, -1 the
rejected one.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from palaestra.objective.algebra import Algebra, Couples, share_right, sum_by_unit
from palaestra.schedule import check_bounds
from palaestra.types import Batch, Outputs, stage


def preference_margins(out: Outputs, batch: Batch, model: str = "ref") -> Tensor:
    """[units in this part] h(chosen) - h(rejected), h(y) = log pi(y) - log pi_ref(y), summed over
    tokens, in nats.
    """
    h_B = ((out["logp"] - batch[f"{model}_logp"]) * batch.mask).sum(1)
    return sum_by_unit(batch["sign"] * h_B, batch)


@stage
class DPO(Algebra):
    """-log sigmoid(beta * margin), arXiv:2305.18290 eq. 7; `smoothing` mixes in the flipped label
    (cDPO).
    """

    beta: float = 0.1
    smoothing: float = 0.0
    margin_unit: ClassVar[str] = "nats times beta"

    def __post_init__(self) -> None:
        check_bounds("DPO.beta", self.beta, above=0)

    @property
    def couples(self) -> Couples:
        return "unit"

    def measures(self, out: Outputs, batch: Batch) -> dict[str, Tensor]:
        return {"margin": self.beta * preference_margins(out, batch)}

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        m_U = self.beta * preference_margins(out, batch)
        softplus = torch.nn.functional.softplus
        loss = (1 - self.smoothing) * softplus(-m_U) + self.smoothing * softplus(m_U)
        return loss.sum() / batch.n_units, {
            "margin": m_U.detach().sum() / batch.n_units,
            "preferred": share_right(m_U).sum() / batch.n_units,
        }
