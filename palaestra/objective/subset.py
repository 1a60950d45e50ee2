"""An objective on some of a batch's tokens: demonstrations beside samples, guided replies beside
unguided ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from torch import Tensor

from palaestra.errors import UserError
from palaestra.objective.algebra import Algebra, Couples
from palaestra.types import MARK_PREFIX, Batch, Objective, Outputs, stage


@stage
class On(Algebra):
    """The objective on the tokens that the column "is:`mark`" marks (`credit.Fact` leaves one); with
    `absent` on all others.

    What it does not act on is not read, so an unknown log-prob there does no harm. `over`: its
    denominators are those of the whole batch, or its own tokens, rows and units alone, of the
    optimiser batch also where a forward pass holds a part of it. Over the batch, a row objective on
    marked rows and the same one on the others add up to it. The metrics are MARK/NAME, or
    not-MARK/NAME.
    """

    mark: str
    objective: Objective
    over: Literal["batch", "own"] = "batch"
    absent: bool = False

    @property
    def needs(self) -> tuple[str, ...]:
        return self.objective.needs

    @property
    def couples(self) -> Couples:
        return self.objective.couples

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        if f"{MARK_PREFIX}{self.mark}" not in batch.columns:
            raise UserError(
                f"no token is marked {self.mark!r}: put Fact({self.mark!r}) into the credit"
            )
        marked_BT = batch[f"{MARK_PREFIX}{self.mark}"] > 0
        on_BT = (marked_BT != self.absent) & (batch.mask > 0)
        part = batch.only(on_BT)
        if self.over == "own":
            tokens, rows, units = batch.totals[f"{'not' if self.absent else 'is'}:{self.mark}"]
            part = replace(
                part, n_tokens=max(tokens, 1), n_rows=max(rows, 1), n_units=max(units, 1)
            )
        visible = {k: _hide(v, on_BT) for k, v in out.items()}
        loss, metrics = self.objective(visible, part)
        name = f"not-{self.mark}" if self.absent else self.mark
        return loss, {f"{name}/{k}": v for k, v in metrics.items()}


def _hide(v: Tensor, on_BT: Tensor) -> Tensor:
    """Outputs of tokens without those that are not meant; of whole rows as they are."""
    if v.shape[1:2] != on_BT.shape[1:]:
        return v
    return v.where(on_BT if v.dim() == 2 else on_BT[..., None], 0.0)
