"""Losses on consistency: squares of what an optimal policy makes zero. Sampling may be off-policy:
no ratio appears.

The problem max E[R] - beta KL(pi || pi_ref) has one optimum pi*, and for every prefix s_t of every
generation

    V*(s_t) - R + beta * sum_{i >= t} log pi*(a_i | s_i) / pi_ref(a_i | s_i) = 0        (R paid at the end, gamma = 1)

Seen from the prompt alone (t = 0) it says that R - beta log pi*/pi_ref is the same number for all
generations: AGRO squares its distance to the group's mean, trajectory balance does so up to a
factor, and mirror descent replaces the mean by that of the rewards. Seen from every prefix, with a
learned V, it is path consistency (OREO).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from palaestra.objective.algebra import Algebra, Couples, Reduction, reduce_terms
from palaestra.schedule import check_bounds
from palaestra.types import Batch, Outputs, stage


def residual(value_N: Tensor, return_N: Tensor, log_ratio_N: Tensor, beta: float) -> Tensor:
    """V - R + beta log(pi / pi_ref): 0 where pi is the optimum and V its value."""
    return value_N - return_N + beta * log_ratio_N


def reverse_sums(x_BT: Tensor) -> Tensor:
    """sum_{i >= t} x_i along the row."""
    return x_BT.flip(1).cumsum(1).flip(1)


def sum_by_generation(x_B: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Sums over the rows of each generation [N], and the unit [N] (a group) that each
    belongs to.
    """
    unit_B = batch.unit_B.unique(return_inverse=True)[1]
    pairs_B2 = torch.stack([unit_B, batch["episode"].long()], 1)
    generations, row_B = pairs_B2.unique(dim=0, return_inverse=True)
    return x_B.new_zeros(len(generations)).index_add(0, row_B, x_B), generations[:, 0]


def unit_sum(x_N: Tensor, unit_N: Tensor) -> Tensor:
    """Sum over each unit, at every one of its members."""
    return x_N.new_zeros(int(unit_N.max()) + 1).index_add(0, unit_N, x_N)[unit_N]


@stage
class Balance(Algebra):
    """weight * mean over prompts of the mean over generations of delta_i^2, on whole generations:

        delta_i = beta (h_i - hbar) - A_i,   h_i = log pi(y_i) / pi_ref(y_i),   A_i = r_i - baseline (the column "advantage")

    With A_i = r_i - rbar, -delta_i = d_i - dbar for d_i = r_i - beta h_i. Rows of a group share a
    unit (`Chain(unit="group")`). `centred=False` leaves hbar out. `weight` sets the scale of -d
    loss / d log pi(y_i), n generations a prompt:

        "variance"  1/2         -beta delta_i / n     AGRO, arXiv:2503.19612
        "policy"    1/(2 beta)  -delta_i / n          mirror descent, arXiv:2501.12599; a policy gradient with A_i at h = 0
        "balance"   1/beta^2    -2 delta_i / (beta n) trajectory balance, VarGrad form, arXiv:2503.18929

    hbar carries no gradient; with all of a group in one unit it would get none, since the delta_i
    sum to 0. `on_policy` adds the derivative through the sampling distribution, E[delta^2 / 2 *
    grad log pi] * (2 weight).
    """

    beta: float = 0.1
    model: str = "ref"
    centred: bool = True
    weight: Literal["variance", "policy", "balance"] = "variance"
    on_policy: bool = False
    unbiased: bool = False  # n - 1 instead of n

    def __post_init__(self) -> None:
        check_bounds("Balance.beta", self.beta, above=0)

    @property
    def couples(self) -> Couples:
        return "unit"

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        h_B = ((out["logp"] - batch[f"{self.model}_logp"]) * batch.mask).sum(1)
        h_N, unit_N = sum_by_generation(h_B, batch)
        rows_N, _ = sum_by_generation(torch.ones_like(h_B), batch)
        length_B = batch.mask.sum(1)
        A_B = (batch["advantage"] * batch.mask).sum(1) / length_B.clamp(min=1)
        A_N = sum_by_generation(A_B, batch)[0] / rows_N
        # a generation that is left out, as `On` leaves some out, is none
        there_N = (sum_by_generation(length_B, batch)[0] > 0).to(h_N.dtype)
        n_N = unit_sum(there_N, unit_N).clamp(min=1)
        mean_N = unit_sum(h_N.detach(), unit_N) / n_N  # a baseline: V is estimated, not fitted
        value_N = -self.beta * mean_N if self.centred else torch.zeros_like(h_N)
        delta_N = residual(value_N, A_N, h_N, self.beta)
        scale = {"variance": 0.5, "policy": 0.5 / self.beta, "balance": 1 / self.beta**2}[
            self.weight
        ]
        terms_N = delta_N**2 * there_N
        if self.on_policy:
            # value 0: only its gradient counts
            terms_N = terms_N + delta_N.detach() ** 2 * (h_N - h_N.detach()) * there_N
        share_N = 1 / ((n_N - 1).clamp(min=1) if self.unbiased else n_N) / batch.n_units
        return scale * (share_N * terms_N).sum(), {
            "residual": (share_N * delta_N.detach().abs() * there_N).sum(),
            f"log_ratio_{self.model}": (share_N * h_N.detach()).sum(),
        }


def sum_by_step(value_BT: Tensor, l_BT: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """At every token of a step: V at the step's first token, the sum of l over the step, and that
    of later steps, held still.
    """
    step_BT, T = batch["step"].long(), l_BT.shape[1]
    total_BN = l_BT.new_zeros(len(l_BT), int(step_BT.max()) + 1).scatter_add(1, step_BT, l_BT)
    # as for tokens: only the action itself is moved
    later_BN = (reverse_sums(total_BN) - total_BN).detach()
    at_BT = torch.where(batch.mask > 0, torch.arange(T, device=l_BT.device), T - 1)
    first_BN = torch.full_like(total_BN, T - 1).long().scatter_reduce(1, step_BT, at_BT, "amin")
    start_BN = value_BT.gather(1, first_BN)
    return start_BN.gather(1, step_BT), total_BN.gather(1, step_BT), later_BN.gather(1, step_BT)


@stage
class PathConsistency(Algebra):
    """OREO's loss of the policy (arXiv:2412.16145), the square of the residual of every prefix,

        delta_t = V(s_t) - R + beta sum_{i >= t} l_i,   l_i = log pi(a_i) - log pi_ref(a_i)

    with V and the later l_i held still, so -d loss / d log pi(a_t) = -2 beta delta_t / T.
    `level="response"` sends the gradient through the sum from t = 0 alone: trajectory balance with
    a learned baseline. `level="step"` takes a step of the reasoning for one action: every token of
    it carries delta at the step's start, with the gradient through all l of the step (the column
    "step", numbers from 0). R is the column "reward", V that of `critic`.
    """

    beta: float = 0.03
    model: str = "ref"
    critic: str = "critic"
    level: Literal["token", "step", "response"] = "token"
    reduce: Reduction = "tokens"

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        l_BT = (out["logp"] - batch[f"{self.model}_logp"]) * batch.mask
        value_BT = batch[f"{self.critic}_value"]
        if self.level == "response":
            first_B = batch.mask.argmax(1, keepdim=True)
            start_B = value_BT.gather(1, first_B)[:, 0]
            loss = (
                residual(start_B, batch["reward"], l_BT.sum(1), self.beta) ** 2
            ).sum() / batch.n_rows
        else:
            if self.level == "step":
                value_BT, l_BT, later_BT = sum_by_step(value_BT, l_BT, batch)
            else:
                later_BT = reverse_sums(l_BT.detach()) - l_BT.detach()
            delta_BT = residual(value_BT, batch["reward"][:, None], l_BT + later_BT, self.beta)
            loss = reduce_terms(delta_BT**2, batch, self.reduce)
        return loss, {"policy_error": loss.detach()}


@stage
class ValueConsistency(Algebra):
    """OREO's loss of the value: mean_t delta_t^2 of `PathConsistency`, the log-probs of the policy
    being columns.
    """

    beta: float = 0.03
    model: str = "ref"
    policy: str = "policy"
    reduce: Reduction = "tokens"

    @property
    def needs(self) -> tuple[str, ...]:
        return ("value",)

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        l_BT = (batch[f"{self.policy}_logp"] - batch[f"{self.model}_logp"]) * batch.mask
        delta_BT = residual(out["value"], batch["reward"][:, None], reverse_sums(l_BT), self.beta)
        loss = reduce_terms(delta_BT**2, batch, self.reduce)
        return loss, {"value_error": loss.detach()}
