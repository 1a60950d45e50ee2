"""Policy-gradient surrogates and what is added to them. All are losses: to be minimised."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from palaestra.objective.algebra import Algebra, Reduction, reduce, token_mean
from palaestra.types import Batch, Outputs, stage

KLKind = Literal["k1", "k2", "k3"]


def log_ratio(out: Outputs, batch: Batch, level: Literal["token", "turn", "sequence"] = "token") -> Tensor:
    """log pi - log pi_behaviour [B, T] at trained tokens, summed over the turn or the row where asked."""
    x_BT = (out["logp"] - batch["behaviour_logp"]) * batch.mask
    if level == "token":
        return x_BT
    if level == "sequence":
        return x_BT.sum(1, keepdim=True).expand_as(x_BT) * batch.mask
    turn_BT = batch["turn"]
    total = torch.zeros_like(x_BT).scatter_add(1, turn_BT, x_BT)  # turn numbers are below the row's length
    return total.gather(1, turn_BT) * batch.mask


@stage
class Clipped(Algebra):
    """-min(rho A, clip(rho, 1 - low, 1 + high) A), PPO, arXiv:1707.06347 eq. 7.

    `high` > `low` is clip-higher (DAPO, arXiv:2503.14476 eq. 10). `ratio="sequence"` is a bandit over whole rows.
    """

    low: float = 0.2
    high: float = 0.2
    ratio: Literal["token", "turn", "sequence"] = "token"
    reduce: Reduction = "sequences"
    length: float | None = None

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        rho_BT = log_ratio(out, batch, self.ratio).exp()
        A_BT = batch["advantage"]
        clipped_BT = rho_BT.clamp(1 - self.low, 1 + self.high)
        loss_BT = -torch.minimum(rho_BT * A_BT, clipped_BT * A_BT)
        outside_BT = (clipped_BT * A_BT < rho_BT * A_BT).float()
        return reduce(loss_BT, batch, self.reduce, self.length), {
            "ratio": token_mean(rho_BT, batch),
            "clipped": token_mean(outside_BT, batch),
            "kl_behaviour": token_mean(rho_BT - 1 - rho_BT.clamp(min=1e-30).log(), batch),
        }


@stage
class Reinforce(Algebra):
    """-A log pi: the score-function estimator, without any ratio (Williams 1992)."""

    reduce: Reduction = "sequences"
    length: float | None = None

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        return reduce(-batch["advantage"] * out["logp"], batch, self.reduce, self.length), {}


@stage
class Imitation(Algebra):
    """-log pi of the recorded tokens: supervised fine-tuning. Needs no behaviour log-prob."""

    reduce: Reduction = "tokens"

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        loss = reduce(-out["logp"], batch, self.reduce)
        return loss, {"nll": token_mean(-out["logp"], batch)}


def kl_terms(logp_BT: Tensor, other_BT: Tensor, kind: KLKind) -> Tensor:
    """Estimators of KL(pi || other) per token for tokens drawn from pi (Schulman 2020): d = log pi - log other.

    k1 = d (unbiased, its gradient as a loss is zero in expectation: use it in the reward), k2 = d^2 / 2 (its gradient as a
    loss is that of the KL), k3 = exp(-d) + d - 1 (unbiased and non-negative; its gradient as a loss is that of the forward KL).
    """
    d_BT = logp_BT - other_BT
    if kind == "k1":
        return d_BT
    if kind == "k2":
        return d_BT**2 / 2
    if kind == "k3":
        return torch.exp(-d_BT) + d_BT - 1
    raise ValueError(f"unknown KL estimator {kind!r}; there are k1, k2, k3")


@stage
class KL(Algebra):
    """A KL estimator to a frozen model as a loss term. The learner must need (model, "logp")."""

    kind: KLKind = "k3"
    model: str = "ref"
    reduce: Reduction = "sequences"

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        kl_BT = kl_terms(out["logp"], batch[f"{self.model}_logp"], self.kind)
        return reduce(kl_BT, batch, self.reduce), {f"kl_{self.model}": token_mean(kl_BT, batch)}


@stage
class Entropy(Algebra):
    """-H(pi): adding `0.01 * Entropy()` rewards entropy."""

    reduce: Reduction = "tokens"

    @property
    def needs(self) -> tuple[str, ...]:
        return ("entropy",)

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        return reduce(-out["entropy"], batch, self.reduce), {"entropy": token_mean(out["entropy"], batch)}


@stage
class ValueLoss(Algebra):
    """max((V - R)^2, (clip(V, V_old +- clip) - R)^2) / 2, PPO's clipped value loss; `clip` 0 = plain."""

    clip: float = 0.2
    reduce: Reduction = "tokens"

    @property
    def needs(self) -> tuple[str, ...]:
        return ("value",)

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        v_BT, old_BT, target_BT = out["value"], batch["policy_value"], batch["return"]
        loss_BT = (v_BT - target_BT) ** 2
        if self.clip:
            near_BT = old_BT + (v_BT - old_BT).clamp(-self.clip, self.clip)
            loss_BT = torch.maximum(loss_BT, (near_BT - target_BT) ** 2)
        return reduce(loss_BT / 2, batch, self.reduce), {"value_error": token_mean((v_BT - target_BT) ** 2, batch)}
