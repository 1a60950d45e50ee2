"""Linear layers while sampling: their weights in the order in which oneDNN reads them.

A decode step multiplies few rows with large weights. Most of what a general product then spends on
float32 CPUs goes into rearranging the weights, each time anew; here that is done once after every
change of the weights. And a row has the same bits then, however many there are.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from palaestra.models.load import Model


class Reordered:
    """A context in which a model's linear layers use reordered copies of their weights; no gradient
    passes through these.

    Copies are made anew whenever torch has counted a write to a weight. It does not count those of
    its fused optimisers: who moves weights calls `forget`. Without oneDNN, on a GPU or in another
    precision nothing changes.
    """

    def __init__(self, model: Model):
        able = (
            torch.backends.mkldnn.is_available()
            and model.device.type == "cpu"
            and model.dtype == torch.float32
        )
        self.linears = [m for m in model.module.modules() if able and type(m) is nn.Linear]
        self._made: dict[nn.Linear, tuple[tuple[int, int], Tensor]] = {}

    def forget(self) -> None:
        self._made.clear()

    def __enter__(self) -> None:
        for m in self.linears:
            state = (m.weight.data_ptr(), m.weight._version)
            if m not in self._made or self._made[m][0] != state:
                self._made[m] = state, torch.ops.mkldnn._reorder_linear_weight(m.weight.detach())
            m.__dict__["forward"] = partial(_linear, self._made[m][1], m.bias)

    def __exit__(self, *_: Any) -> None:
        for m in self.linears:
            del m.__dict__["forward"]


def _linear(weight: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
