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


def preference_scores(
    out: Outputs, batch: Batch, *, reference_free: bool = False, normalise: bool = False
) -> tuple[Tensor, Tensor]:
    """[units in this part] the scores of the chosen and of the rejected answer, in nats.

    Args:
        reference_free: log pi(y) instead of h(y), which needs no reference.
        normalise: per token of the answer instead of the sum over its tokens.
    """
    score_B = (out["logp"] * batch.mask).sum(1) if reference_free else log_ratios(out, batch)
    sides: list[Tensor] = []
    for on_B in (batch["sign"] > 0, batch["sign"] < 0):
        score_U = sum_by_unit(score_B * on_B, batch)
        tokens_U = sum_by_unit(batch.mask.sum(1) * on_B, batch).clamp(min=1)
        sides.append(score_U / tokens_U if normalise else score_U)
    return sides[0], sides[1]


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
    """-log sigmoid(m), arXiv:2305.18290 eq. 7, and what differs from it in m alone.

    Args:
        beta: the weight of h in m.
        smoothing: the share of flipped labels, which is mixed in (conservative DPO).
        offset: above 0 takes offset * (A(chosen) - A(rejected)) from m, the column `gap` of the
            credit: a clearer pair is to be further apart (Step-APO of CPL, arXiv:2409.08642; ODPO,
            arXiv:2402.10571).
        length_weight: above 0 adds it times (|chosen| - |rejected|), in tokens: what is preferred
            for being longer teaches less (arXiv:2403.19159).
        robust: the flipped label is subtracted, and the loss divided by 1 - 2 * smoothing, so that
            it is unbiased where that share of the labels is wrong (arXiv:2403.00409).
        normalise: m is of log-ratios per token instead of their sums.
        reference_free: m is of log pi instead of h (CPO, arXiv:2401.08417).
        target: is taken from m; with the two before it this is SimPO's gamma (arXiv:2405.14734).
    """

    beta: float = 0.1
    smoothing: float = 0.0
    offset: float = 0.0
    length_weight: float = 0.0
    robust: bool = False
    normalise: bool = False
    reference_free: bool = False
    target: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        # at one half the labels say nothing, and the correction divides by 0
        check_bounds("DPO.smoothing", self.smoothing, least=0, most=0.49 if self.robust else 1)

    def margins(self, out: Outputs, batch: Batch) -> Tensor:
        if not (self.normalise or self.reference_free):
            return super().margins(out, batch)
        chosen_U, rejected_U = preference_scores(
            out, batch, reference_free=self.reference_free, normalise=self.normalise
        )
        return self.beta * (chosen_U - rejected_U)

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        m_U = self.margins(out, batch)
        if self.offset:
            m_U = m_U - self.offset * pair_column(batch, "gap")
        if self.length_weight:
            m_U = m_U + self.length_weight * sum_by_unit(batch["sign"] * batch.mask.sum(1), batch)
        if self.target:
            m_U = m_U - self.target
        return self.finish(smooth_logistic(m_U, self.smoothing, self.robust), out, batch)


def smooth_logistic(m_U: Tensor, smoothing: float = 0.0, robust: bool = False) -> Tensor:
    """-log sigmoid(m) with a share of flipped labels mixed in, or, if `robust`, corrected for."""
    if robust:
        flipped_U = smoothing * softplus(m_U)
        return ((1 - smoothing) * softplus(-m_U) - flipped_U) / (1 - 2 * smoothing)
    return (1 - smoothing) * softplus(-m_U) + smoothing * softplus(m_U)


@stage
class IPO(PairLoss):
    """((h(chosen) - h(rejected)) - 1 / (2 beta))^2, arXiv:2310.12036 eq. 17: the margin is drawn to
    a number, so pairs that are far enough apart are not pushed further.

    `normalise` takes h per token, as the authors' experiments do; the paper's formula has sums.
    """

    beta: float = 0.1
    normalise: bool = True

    def margins(self, out: Outputs, batch: Batch) -> Tensor:
        chosen_U, rejected_U = preference_scores(out, batch, normalise=self.normalise)
        return self.beta * (chosen_U - rejected_U)

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        apart_U = self.margins(out, batch) / self.beta
        return self.finish((apart_U - 1 / (2 * self.beta)) ** 2, out, batch)


@stage
class AOT(PairLoss):
    """-log sigmoid(beta (u - v)) over u and v each in ascending order: the whole distribution of u is to
    exceed that of v, not each pair by itself (arXiv:2406.05882).

    `paired`: u is log pi(chosen) - log pi(rejected), v the same of the reference. Otherwise u is
    h(chosen) and v is h(rejected), which need not answer the same prompts. Order is that of the
    whole batch.
    """

    beta: float = 0.1
    paired: bool = True
    smoothing: float = 0.0

    @property
    def couples(self) -> Couples:
        return "batch"

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        if self.paired:
            total_B, ref_B = (
                (x_BT * batch.mask).sum(1) for x_BT in (out["logp"], batch[f"{REF}_logp"])
            )
            u_U, v_U = (sum_by_unit(batch["sign"] * x_B, batch) for x_B in (total_B, ref_B))
        else:
            u_U, v_U = preference_sides(out, batch)
        m_U = self.beta * (u_U.sort().values - v_U.sort().values)
        return self.finish(smooth_logistic(m_U, self.smoothing), out, batch)


@stage
class OddsRatio(PairLoss):
    """-log sigmoid(beta (logit(p_c) - logit(p_r))), p the geometric mean of the probabilities of an
    answer's tokens: the odds-ratio term of ORPO, arXiv:2403.07691 eq. 4 and 7. It has no reference.

    ORPO is `ImitatePreferred() + 0.1 * OddsRatio()`. The paper has beta 1.
    """

    beta: float = 1.0

    def margins(self, out: Outputs, batch: Batch) -> Tensor:
        sides = preference_scores(out, batch, reference_free=True, normalise=True)
        odds_c_U, odds_r_U = (logp_U - log1mexp(logp_U) for logp_U in sides)
        return self.beta * (odds_c_U - odds_r_U)

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        return self.finish(softplus(-self.margins(out, batch)), out, batch)


def log1mexp(x: Tensor) -> Tensor:
    """log(1 - exp(x)) for x < 0, stable near 0 and far from it. A probability that rounds to 1 counts as 1 - eps."""
    x = x.clamp(max=-torch.finfo(x.dtype).eps)
    near = x > -0.6931
    # each side gets a value that it can take, as the gradient of `where` reaches both
    return torch.where(
        near,
        torch.log(-torch.expm1(torch.where(near, x, -0.5))),
        torch.log1p(-torch.exp(torch.where(near, -1.0, x))),
    )


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
