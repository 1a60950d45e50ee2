"""Losses on single answers with a label, good or bad: nobody compared two of them.

    h(y) = log pi(y) - log pi_ref(y), summed over tokens, in nats

The column `label` of a row is +1 for a good answer, -1 for a bad one, and 0 for an answer to
another prompt, which trains nothing and tells KTO how far the policy is from the reference. Means
are over the labelled rows of the whole batch.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import softplus

from palaestra.errors import UserError
from palaestra.objective.algebra import Algebra, Couples
from palaestra.objective.preference import log_ratios
from palaestra.schedule import check_bounds
from palaestra.types import Batch, Outputs, stage


class LabelLoss(Algebra):
    """What losses of labels share: the reference point is of the whole batch."""

    beta: float
    good: float
    bad: float

    def __post_init__(self) -> None:
        name = type(self).__name__
        check_bounds(f"{name}.beta", self.beta, above=0)
        check_bounds(f"{name}.good", self.good, least=0)
        check_bounds(f"{name}.bad", self.bad, least=0)

    @property
    def couples(self) -> Couples:
        return "batch"

    def finish(
        self, loss_B: Tensor, h_B: Tensor, batch: Batch, point: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The weighted mean over labelled rows, and what every loss of labels logs: the mean h of each
        side, their difference, and the reference point.
        """
        label_B = batch["label"]
        n = (label_B != 0).sum().clamp(min=1)
        weight_B = self.good * (label_B > 0) + self.bad * (label_B < 0)
        chosen, rejected = (mean_where(h_B.detach(), on_B) for on_B in (label_B > 0, label_B < 0))
        metrics = {"chosen": chosen, "rejected": rejected, "margin": chosen - rejected}
        return (weight_B * loss_B).sum() / n, metrics | {"reference_point": point}


def mean_where(x_B: Tensor, on_B: Tensor) -> Tensor:
    """The mean of the rows where `on`; 0 where there is none."""
    return (x_B * on_B).sum() / on_B.sum().clamp(min=1)


@stage
class KTO(LabelLoss):
    """1 - sigmoid(beta (h - z)) of a good answer, 1 - sigmoid(beta (z - h)) of a bad one,
    arXiv:2402.01306 eq. 7 and 8: an answer teaches most while it is near the reference point z.

    Args:
        beta: how fast a gain or a loss saturates.
        good: the weight of good answers, lambda_D; with `bad` it makes up for sides of unequal
            size.
        bad: the weight of bad answers, lambda_U.
        point: z = max(0, mean h). "mismatched": over answers to other prompts, as in the paper
            (rows with label 0, from `MismatchedAnswer`); "batch": over the labelled rows themselves,
            which estimates the KL where the policy has just sampled them; "zero": z = 0, the
            unpaired form of APO-zero (arXiv:2408.06266).

    No gradient flows through z.
    """

    beta: float = 0.1
    good: float = 1.0
    bad: float = 1.0
    point: Literal["mismatched", "batch", "zero"] = "mismatched"

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        h_B, label_B = log_ratios(out, batch), batch["label"]
        z = self.reference_point(h_B.detach(), label_B)
        loss_B = 1 - torch.sigmoid(self.beta * label_B * (h_B - z))
        return self.finish(loss_B, h_B, batch, z)

    def reference_point(self, h_B: Tensor, label_B: Tensor) -> Tensor:
        """z, in nats. Raises UserError where no row is there to estimate it from."""
        if self.point == "zero":
            return torch.zeros_like(h_B.sum())
        on_B = label_B == 0 if self.point == "mismatched" else label_B != 0
        if not on_B.any():
            raise UserError(
                "KTO: no answer to another prompt is in the batch, from which the reference point "
                "is estimated; collect with pl.rollout.MismatchedAnswer(), or set objective.point=batch"
            )
        return mean_where(h_B, on_B).clamp(min=0)


@stage
class BCO(LabelLoss):
    """-log sigmoid(beta h - d) of a good answer, -log sigmoid(d - beta h) of a bad one: a classifier
    of good and bad whose logit is the implicit reward (arXiv:2404.04656).

    The shift d is (mean beta h of good answers + mean beta h of bad ones) / 2 of the batch; the
    mean of the one side where there is no other. The paper averages it over steps too. No gradient
    flows through d.
    """

    beta: float = 0.1
    good: float = 1.0
    bad: float = 1.0

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        h_B, label_B = log_ratios(out, batch), batch["label"]
        reward_B = self.beta * h_B
        sides = [on_B for on_B in (label_B > 0, label_B < 0) if on_B.any()]
        means = [mean_where(reward_B.detach(), on_B) for on_B in sides]
        shift = torch.stack(means).mean() if means else torch.zeros_like(reward_B.sum())
        return self.finish(softplus(-label_B * (reward_B - shift)), h_B, batch, shift)
