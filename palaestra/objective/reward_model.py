"""Losses of reward models. s = what a head says at a row's marker; rows of a pair share a unit (see
credit.preferences).
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import softplus

from palaestra.errors import UserError
from palaestra.objective.algebra import Algebra, Couples, share_right, sum_by_unit
from palaestra.types import Batch, Outputs, stage

LEAST_SD = 1e-3


def score_at_marker(out: Outputs, batch: Batch, head: str) -> Tensor:
    """[B] what a head says at the marker."""
    return (out[head] * batch["marker"]).sum(1)


def weights(batch: Batch, head: str) -> Tensor:
    """[B] how often a head's resample holds each row; 1 where nothing is resampled."""
    return batch.columns.get(
        f"{head}_weight", torch.ones_like(batch["length"], dtype=batch.mask.dtype)
    )


@stage
class BradleyTerry(Algebra):
    """-log sigmoid(s_w - s_l), the likelihood of a preference, mean over pairs and heads.

    `center` adds center * (s_w + s_l)^2, which fixes the free constant; a tied pair costs tie *
    (s_w - s_l)^2 instead (both as in the trainer of MM-RLHF, arXiv:2502.10391, with 0.01). Several
    heads make an ensemble, each on its own resample.
    """

    heads: tuple[str, ...] = ("score",)
    center: float = 0.0
    tie: float = 0.0
    margin_unit: ClassVar[str] = "units of the reward"

    @property
    def needs(self) -> tuple[str, ...]:
        return self.heads

    @property
    def couples(self) -> Couples:
        return "unit"

    def lead(self, margin_U: Tensor, batch: Batch) -> Tensor:
        """[U] the lead of the better reply, of which the likelihood is taken."""
        return margin_U

    def measures(self, out: Outputs, batch: Batch) -> dict[str, Tensor]:
        """The mean margin of the heads; NaN for a tie."""
        s_HB = torch.stack([score_at_marker(out, batch, h) for h in self.heads])
        margin_U = sum_by_unit(batch["sign"] * s_HB.mean(0), batch)
        return {"margin": margin_U.masked_fill(sum_by_unit(batch["tie"], batch) > 0, torch.nan)}

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        tie_U = sum_by_unit(batch["tie"], batch) / 2
        loss, ranked = batch.mask.new_zeros(()), batch.mask.new_zeros(())
        for head in self.heads:
            s_B = score_at_marker(out, batch, head)
            margin_U, sum_U = sum_by_unit(batch["sign"] * s_B, batch), sum_by_unit(s_B, batch)
            each_U = (
                (1 - tie_U) * softplus(-self.lead(margin_U, batch))
                + tie_U * self.tie * margin_U**2
                + self.center * sum_U**2
            )
            loss = loss + (sum_by_unit(weights(batch, head), batch) / 2 * each_U).sum()
            ranked = ranked + (share_right(margin_U) * (1 - tie_U)).sum().detach()
        n = batch.n_units * len(self.heads)
        return loss / n, {"ranked": ranked / n}


@stage
class BradleyTerryAhead(BradleyTerry):
    """-log sigmoid(s_w - s_l - margin * gap): the better reply shall be ahead by how much the data
    call it better, the column `gap` of the pair (arXiv:2307.09288, eq. 2).

    Raises UserError where the pairs have no `gap`.
    """

    margin: float = 1.0

    def lead(self, margin_U: Tensor, batch: Batch) -> Tensor:
        """[U] the lead that is left beyond the pair's margin."""
        if "gap" not in batch.columns:
            raise UserError(
                "a margin is taken from the column `gap` of each pair, and the data has none; add "
                "it, or take margin=0"
            )
        return margin_U - self.margin * sum_by_unit(batch["gap"], batch) / 2


@stage
class Regression(Algebra):
    """(s_k - target_k)^2, mean over the labels that a row has and over rows. `squash` puts a
    sigmoid on every head.
    """

    heads: tuple[str, ...] = ("score",)
    targets: tuple[str, ...] = ("total",)
    squash: bool = False

    @property
    def needs(self) -> tuple[str, ...]:
        return self.heads

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        s_BK = torch.stack([score_at_marker(out, batch, h) for h in self.heads], 1)
        s_BK = s_BK.sigmoid() if self.squash else s_BK
        target_BK = torch.stack([batch[f"target_{t}"] for t in self.targets], 1)
        known_BK = ~target_BK.isnan()
        error_BK = torch.where(known_BK, s_BK - target_BK.nan_to_num(), 0.0) ** 2
        loss = (error_BK.sum(1) / known_BK.sum(1).clamp(min=1)).sum() / batch.n_rows
        return loss, {"squared_error": loss.detach()}


@stage
class Gaussian(Algebra):
    """log sd_h + (target - mu_h)^2 / (2 sd_h^2) for heads HEAD and HEAD_sd, each on its own
    resample; mean over heads and rows.

    sd = softplus(HEAD_sd) + 1e-3. The second stage of the Bayesian ensemble of arXiv:2409.15360,
    whose target is the reward of an ordinary reward model. The paper takes the squared error of a
    sample mu + sd * eps, whose minimum is sd = 0; the likelihood lets sd be learned.
    """

    heads: tuple[str, ...]
    target: str = "total"

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(n for h in self.heads for n in (h, f"{h}_sd"))

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        target_B = batch[f"target_{self.target}"]
        loss, error = batch.mask.new_zeros(()), batch.mask.new_zeros(())
        for head in self.heads:
            mean_B, sd_B = (
                score_at_marker(out, batch, head),
                softplus(score_at_marker(out, batch, f"{head}_sd")) + LEAST_SD,
            )
            each_B = torch.log(sd_B) + ((target_B - mean_B) / sd_B) ** 2 / 2
            loss = loss + (weights(batch, head) * each_B).sum()
            error = error + ((target_B - mean_B) ** 2).sum().detach()
        n = batch.n_rows * len(self.heads)
        return loss / n, {"squared_error": error / n}


@stage
class CritiqueNLL(Algebra):
    """-log p of the critiques' tokens, their mean: the language-model part of a critique-then-score
    model.
    """

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        on_BT = batch.mask * (1 - batch["marker"])
        tokens = max(batch.n_tokens - batch.n_rows, 1)  # every row has one marker
        loss = -(out["logp"] * on_BT).sum() / tokens
        return loss, {"critique_nll": loss.detach()}
