"""Losses on pairs, on one base. Rows of a pair share a unit: `sign` +1 is the chosen one, -1 the
rejected one.

    h(y) = log pi(y) - log pi_ref(y), summed over tokens, in nats;    m = beta (h(chosen) - h(rejected))

Each loss is a function of m, or of the two halves of it, and a mean over pairs. Where the reference
is measured every one logs `chosen` and `rejected`, the means of h: a margin also grows where both
sink.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import softplus

from palaestra.objective.algebra import Algebra, Couples, share_right, sum_by_unit
from palaestra.schedule import check_bounds
from palaestra.types import Batch, Outputs, stage

REF = "ref"


def log_ratios(out: Outputs, batch: Batch, model: str = REF) -> Tensor:
    """[B] h(y) = log pi(y) - log pi_model(y), summed over the trained tokens, in nats."""
    return ((out["logp"] - batch[f"{model}_logp"]) * batch.mask).sum(1)


def preference_margins(out: Outputs, batch: Batch, model: str = REF) -> Tensor:
    """[units in this part] h(chosen) - h(rejected), in nats."""
    return sum_by_unit(batch["sign"] * log_ratios(out, batch, model), batch)


def preference_sides(out: Outputs, batch: Batch, model: str = REF) -> tuple[Tensor, Tensor]:
    """[units in this part] h(chosen), and h(rejected), in nats."""
    h_B = log_ratios(out, batch, model)
    return sum_by_unit(h_B * (batch["sign"] > 0), batch), sum_by_unit(
        h_B * (batch["sign"] < 0), batch
    )


def pair_column(batch: Batch, name: str) -> Tensor:
    """[units in this part] a number that all rows of a pair have in common."""
    rows_U = sum_by_unit(torch.ones_like(batch["sign"]), batch)
    return sum_by_unit(batch[name], batch) / rows_U


def chosen_nll(out: Outputs, batch: Batch, *, total: bool = False) -> Tensor:
    """[units in this part] -log pi of the chosen answer: per token of it, or in `total`, in nats."""
    on_BT = batch.mask * (batch["sign"] > 0)[:, None]
    sum_U = -sum_by_unit((out["logp"] * on_BT).sum(1), batch)
    return sum_U if total else sum_U / sum_by_unit(on_BT.sum(1), batch).clamp(min=1)


class PairLoss(Algebra):
    """What losses of m share: rows of a pair stay together, and held-out pairs are ranked by m."""

    beta: float
    margin_unit: ClassVar[str] = "nats times beta"

    def __post_init__(self) -> None:
        check_bounds(f"{type(self).__name__}.beta", self.beta, above=0)

    @property
    def couples(self) -> Couples:
        return "unit"

    def margins(self, out: Outputs, batch: Batch) -> Tensor:
        """[units in this part] m."""
        return self.beta * preference_margins(out, batch)

    def measures(self, out: Outputs, batch: Batch) -> dict[str, Tensor]:
        return {"margin": self.margins(out, batch)}

    def finish(
        self, loss_U: Tensor, out: Outputs, batch: Batch
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean over pairs, and what every pair loss logs."""
        m_U, n = self.margins(out, batch).detach(), batch.n_units
        logged = {"margin": m_U, "preferred": share_right(m_U)}
        if f"{REF}_logp" in batch.columns:
            sides = preference_sides(out, batch)
            logged |= {
                k: h_U.detach() for k, h_U in zip(("chosen", "rejected"), sides, strict=True)
            }
        return loss_U.sum() / n, {k: x_U.sum() / n for k, x_U in logged.items()}


@stage
class DPO(PairLoss):
    """-log sigmoid(m), arXiv:2305.18290 eq. 7; `smoothing` mixes in the flipped label (cDPO).

    `offset` > 0 takes offset * (A(chosen) - A(rejected)) from m, the column `gap` of the credit: a
    clearer pair is to be further apart (Step-APO of CPL, arXiv:2409.08642; ODPO,
    arXiv:2402.10571). `length_weight` > 0 adds it times (|chosen| - |rejected|), in tokens: what is
    preferred for being longer teaches less (arXiv:2403.19159).
    """

    beta: float = 0.1
    smoothing: float = 0.0
    offset: float = 0.0
    length_weight: float = 0.0

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        m_U = self.margins(out, batch)
        if self.offset:
            m_U = m_U - self.offset * pair_column(batch, "gap")
        if self.length_weight:
            m_U = m_U + self.length_weight * sum_by_unit(batch["sign"] * batch.mask.sum(1), batch)
        loss_U = (1 - self.smoothing) * softplus(-m_U) + self.smoothing * softplus(m_U)
        return self.finish(loss_U, out, batch)


@stage
class JensenShannon(PairLoss):
    """chosen * softplus(-T_c) + (1 - chosen) * softplus(T_r), T = beta h: the Jensen-Shannon
    estimator of mutual information with the log-ratio as its critic (MIO).

    The halves never meet: an unlikely chosen answer is pushed up however low the rejected one is,
    where in DPO both pushes end with the margin.
    """

    beta: float = 0.1
    chosen: float = 0.5  # weight of the half of the chosen answer

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        chosen_U, rejected_U = preference_sides(out, batch)
        loss_U = self.chosen * softplus(-self.beta * chosen_U) + (1 - self.chosen) * softplus(
            self.beta * rejected_U
        )
        return self.finish(loss_U, out, batch)


@stage
class Hinge(PairLoss):
    """max(0, least - m): pairs that are `least` apart teach no more (SLiC, arXiv:2305.10425, in the
    form with a reference).

    score="likelihood" compares mean log-probs of tokens instead of h, without a reference; with
    least 0 and beta 1 it is the ranking loss of RRHF (arXiv:2304.05302).
    """

    beta: float = 0.1
    least: float = 1.0
    score: Literal["ratio", "likelihood"] = "ratio"

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        m_U = self.margins(out, batch)
        return self.finish((self.least - m_U).clamp(min=0), out, batch)

    def margins(self, out: Outputs, batch: Batch) -> Tensor:
        if self.score == "ratio":
            return super().margins(out, batch)
        mean_B = (out["logp"] * batch.mask).sum(1) / batch.mask.sum(1).clamp(min=1)
        return self.beta * sum_by_unit(batch["sign"] * mean_B, batch)


@stage
class ImitatePreferred(Algebra):
    """-log pi of each pair's preferred answer, mean over pairs: per token of it (added to DPO in
    arXiv:2404.19733), or its sum, which with the weight eta * beta makes RPO of DPO
    (arXiv:2405.16436).
    """

    total: bool = False  # the sum over tokens

    @property
    def couples(self) -> Couples:
        return "unit"

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        nll_U = chosen_nll(out, batch, total=self.total)
        loss = nll_U.sum() / batch.n_units
        return loss, {"nll_preferred": loss.detach()}
