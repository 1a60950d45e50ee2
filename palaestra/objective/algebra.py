"""Objectives add and multiply: `Clipped() + 0.01 * KL("k3")`. Each is a sum over rows with the
whole batch's denominators.
"""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor

from palaestra.errors import UserError
from palaestra.types import Batch, Objective, Outputs, stage

Couples = Literal["row", "unit", "batch"]
Reduction = Literal["tokens", "sequences", "constant"]
ORDER: tuple[Couples, ...] = ("row", "unit", "batch")


class Algebra:
    """Adds + and * to an objective. A subclass overrides what it needs and couples, if it is not
    log-probs row by row.
    """

    @property
    def needs(self) -> tuple[str, ...]:
        return ("logp",)

    @property
    def couples(self) -> Couples:
        return "row"

    def __add__(self, other: Any) -> Sum:
        return Sum((*_parts(self), *_parts(other)))

    def __rmul__(self, weight: float) -> Scaled:
        whole: Any = self
        return Scaled(whole, weight)


def _parts(objective: Any) -> tuple[Objective, ...]:
    return objective.parts if isinstance(objective, Sum) else (objective,)


@stage
class Sum(Algebra):
    """The sum of its parts."""

    parts: tuple[Objective, ...]

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(n for p in self.parts for n in p.needs))

    @property
    def couples(self) -> Couples:
        return ORDER[max(ORDER.index(p.couples) for p in self.parts)]

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        parts = [p(out, batch) for p in self.parts]
        metrics: dict[str, Tensor] = {}
        for _, m in parts:
            metrics |= m
        return sum((loss for loss, _ in parts[1:]), start=parts[0][0]), metrics


@stage
class Scaled(Algebra):
    """weight * objective; the metrics are those of the unweighted part."""

    objective: Objective
    weight: float

    @property
    def needs(self) -> tuple[str, ...]:
        return self.objective.needs

    @property
    def couples(self) -> Couples:
        return self.objective.couples

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        loss, metrics = self.objective(out, batch)
        return self.weight * loss, metrics


DEFAULT_LENGTH = 64  # outside of a run, which has a longest answer: that of a bench by default


def reduce_terms(x_BT: Tensor, batch: Batch, how: Reduction, length: float | None = None) -> Tensor:
    """One number from per-token terms.

    "tokens": every trained token of the batch weighs the same (DAPO); "sequences": mean within each
    row, then over rows (GRPO); "constant": sum over tokens / (length * rows) (Dr. GRPO, `length` =
    the longest answer allowed; in a run None is its `max_tokens`).
    """
    x_BT = x_BT * batch.mask
    if how == "tokens":
        return x_BT.sum() / batch.n_tokens
    if how == "sequences":
        return (x_BT.sum(1) / batch.mask.sum(1).clamp(min=1)).sum() / batch.n_rows
    if how == "constant":
        length = DEFAULT_LENGTH if length is None else length
        return x_BT.sum() / (length * batch.n_rows)
    raise UserError(f"unknown reduction {how!r}; there are tokens, sequences, constant")


def token_mean(x_BT: Tensor, batch: Batch) -> Tensor:
    """For metrics: this part's share of the mean over the trained tokens of the whole batch."""
    return (x_BT * batch.mask).sum().detach() / batch.n_tokens


def sum_by_unit(x_B: Tensor, batch: Batch) -> Tensor:
    """[units in this part] sums over the rows of each unit.

    Args:
        x_B: a number for each row of the batch.
    """
    _, unit_B = batch.unit_B.unique(return_inverse=True)
    return x_B.new_zeros(int(unit_B.max()) + 1).index_add(0, unit_B, x_B)


def share_right(margin_U: Tensor) -> Tensor:
    """[units] 1 where a pair is ranked right, 0 where wrong, and one half for a tie."""
    return (1 + margin_U.detach().sign()) / 2
