"""What is added to a policy gradient: a pull to a frozen model, to an entropy or to legal replies, and the
critic's loss. All are losses: to be minimised.
"""

from __future__ import annotations

import torch
from torch import Tensor

from palaestra.objective.algebra import Algebra, Couples, Reduction, reduce_terms, token_mean
from palaestra.objective.kl import KLKind, kl_quantity, kl_terms
from palaestra.types import Batch, Outputs, stage


@stage
class KL(Algebra):
    """A KL estimator to a frozen model as a loss term; what its gradient is stands in the table of
    `objective.kl`.

    The learner must need (model, kl_quantity(kind)), which is "logp" but for full; unless the model
    is "behaviour". `weight` names a column of the credit that multiplies it token by token; the
    metric is the unweighted mean.
    """

    kind: KLKind = "k3"
    model: str = "ref"
    reduce: Reduction = "sequences"
    weight: str = ""

    @property
    def needs(self) -> tuple[str, ...]:
        return (kl_quantity(self.kind),)

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        quantity = kl_quantity(self.kind)
        kl_BT = kl_terms(out[quantity], batch[f"{self.model}_{quantity}"], self.kind)
        loss_BT = kl_BT * batch[self.weight] if self.weight else kl_BT
        return reduce_terms(loss_BT, batch, self.reduce), {
            f"kl_{self.model}": token_mean(kl_BT, batch)
        }


@stage
class Entropy(Algebra):
    """-H(pi): adding `0.01 * Entropy()` rewards entropy."""

    reduce: Reduction = "tokens"

    @property
    def needs(self) -> tuple[str, ...]:
        return ("entropy",)

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        return reduce_terms(-out["entropy"], batch, self.reduce), {
            "entropy": token_mean(out["entropy"], batch)
        }


@stage
class LegalMass(Algebra):
    """-log sum_c p(c) over the legal replies c of turns that were chosen among these, where each turn begins.

    A policy gradient of the restricted distribution (`types.Choices`) says nothing of how likely the model is to
    say a legal reply at all, and more of its probability may drift to other text; adding `0.1 * LegalMass()`
    holds it there. 0 without such turns.
    """

    reduce: Reduction = "tokens"

    @property
    def needs(self) -> tuple[str, ...]:
        return ("legal_logp",)

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        return reduce_terms(-out["legal_logp"], batch, self.reduce), {
            "legal_loss": token_mean(-out["legal_logp"], batch)
        }


@stage
class TargetEntropy(Algebra):
    """|H - target|, H the mean entropy of the batch's tokens in nats: bounds it from both sides
    (arXiv:2506.18330, TER).

    The gradient of H changes its sign at the target, so H hovers around it; with `squared` it
    vanishes there.
    """

    target: float = 0.55  # of a 14B model; for another, the entropy at the start of RL
    squared: bool = False

    @property
    def needs(self) -> tuple[str, ...]:
        return ("entropy",)

    @property
    def couples(self) -> Couples:
        return "batch"

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        off = reduce_terms(out["entropy"], batch, "tokens") - self.target
        return off**2 if self.squared else off.abs(), {"entropy": token_mean(out["entropy"], batch)}


@stage
class ValueLoss(Algebra):
    """max((V - R)^2, (clip(V, V_old +- clip) - R)^2) / 2, PPO's clipped value loss; `clip` 0 =
    plain. V is of the value head `head`.
    """

    clip: float = 0.2
    reduce: Reduction = "tokens"
    head: str = ""  # "" = "value"

    @property
    def needs(self) -> tuple[str, ...]:
        return (self.head or "value",)

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        (head,) = self.needs
        v_BT, old_BT, target_BT = out[head], batch[f"policy_{head}"], batch["return"]
        loss_BT = (v_BT - target_BT) ** 2
        if self.clip:
            near_BT = old_BT + (v_BT - old_BT).clamp(-self.clip, self.clip)
            loss_BT = torch.maximum(loss_BT, (near_BT - target_BT) ** 2)
        return reduce_terms(loss_BT / 2, batch, self.reduce), {
            "value_error": token_mean((v_BT - target_BT) ** 2, batch)
        }
