"""What is only looked at: a loss of zero whose metrics are columns of the batch."""

from __future__ import annotations

from torch import Tensor

from palaestra.objective.algebra import Algebra, token_mean
from palaestra.types import Batch, Outputs, stage


@stage
class Track(Algebra):
    """Logs the mean over trained tokens of columns that credit left; adds nothing to
    the gradient.
    """

    columns: tuple[str, ...]

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        return batch.mask.new_zeros(()), {
            name: token_mean(batch[name], batch) for name in self.columns
        }
