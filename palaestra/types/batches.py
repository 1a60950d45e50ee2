"""What an update reads, what a forward pass gives, and what a loss is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    Protocol,
    TypeAlias,
)

import numpy as np

from palaestra.types.base import (
    value_class,
)
from palaestra.types.rows import Row

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@value_class
class Example:
    """A row with its credit: scalars or [T] arrays by name. What a replay of stale
    credit stores.
    """

    row: Row
    # scalars, [T] arrays, features [1, D]; a "trained" column replaces the row's own mask
    columns: Mapping[str, Any]
    # rows of one unit share a micro-batch (a pair, a coupled group); "" = a unit of its own
    unit: str = ""


MARK_PREFIX = "is:"  # of columns that say which tokens are of a kind, 0 = it is none
# quantities of a model with another tokenizer: the number of each token's span of text, from 1 on, 0 =
# it is in none, and what the model says of that text
SPAN, SPAN_LOGP = "span", "span_logp"
TRACK_PREFIX = "track:"  # of columns whose mean over trained tokens is a number of the step


@value_class
class Batch:
    """Rows as tensors. The counts belong to the whole optimiser batch: a part of a batch keeps
    them.

    Columns are [B], [B, T], of features [B, 1, D], of distributions [B, T, V]. `totals` has the
    trained tokens, and the rows and units that have some, which a column "is:NAME" [B, T] marks;
    under "not:NAME" those of the others.
    """

    columns: Mapping[str, Tensor]  # always ids, trained, length, temperature, behaviour_logp
    unit_B: Tensor
    n_tokens: int
    n_rows: int
    n_units: int
    totals: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Tensor:
        try:
            return self.columns[name]
        except KeyError:
            raise KeyError(
                f"the batch has no column {name!r}; it has {', '.join(sorted(self.columns))}"
            ) from None

    @property
    def mask(self) -> Tensor:
        """[B, T], 1.0 at trained tokens."""
        return self.columns["trained"]

    def part(self, rows: Tensor) -> Batch:
        """Some rows, cut to their longest; the denominators stay those of the whole."""
        columns = {k: v[rows] for k, v in self.columns.items()}
        longest = int(columns["length"].max())
        columns = {k: v[:, :longest] if v.dim() > 1 else v for k, v in columns.items()}
        return replace(self, columns=columns, unit_B=self.unit_B[rows])

    def only(self, on_BT: Tensor) -> Batch:
        """The same rows with no other trained tokens than those where `on` holds. What columns say
        of the others is 0, so that no NaN of theirs gets into a sum: NaN * 0 is NaN.
        """
        columns = dict(self.columns)
        for name, v in self.columns.items():
            if v.shape[1:2] == on_BT.shape[1:] and v.is_floating_point():
                other = 1.0 if name == "temperature" else 0.0
                columns[name] = v.where(on_BT if v.dim() == 2 else on_BT[..., None], other)
        return replace(self, columns=columns)

    def to(self, device: torch.device) -> Batch:
        return replace(
            self,
            columns={k: v.to(device) for k, v in self.columns.items()},
            unit_B=self.unit_B.to(device),
        )


# [group][episode][row]{"ref_logp": [T]}; features [1, D]
Signals: TypeAlias = list[list[list[dict[str, np.ndarray]]]]
# (model, quantity), e.g. ("ref", "logp"): measured once, before any update
Need: TypeAlias = tuple[str, str]

Outputs: TypeAlias = Mapping[
    str, "Tensor"
]  # what a forward pass gives: "logp" [B, T], "entropy" [B, T], "value" [B, T], ...
Metrics: TypeAlias = dict[str, Any]


class Objective(Protocol):
    """A loss. `needs` names the outputs it reads; `couples` says how far rows depend on one
    another.

    The loss and the metrics are sums over rows with the denominators of the whole batch, so that
    parts add up.
    """

    @property
    def needs(self) -> tuple[str, ...]: ...
    @property
    def couples(self) -> Literal["row", "unit", "batch"]: ...

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]: ...
