"""Linear layers while sampling, on processors in float32: a row has the same bits in any company, and
weights lie in the order in which oneDNN reads them.

A decode step multiplies few rows with large weights. Most of what a general product then spends on
float32 CPUs goes into rearranging the weights, each time anew; here that is done once after every
change of the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from palaestra.engines.formats import Format, product_in
from palaestra.engines.rows import ANY, Product, RowRule, rule_for
from palaestra.errors import UserError
from palaestra.models.eyes import Eyes
from palaestra.models.load import Model
from palaestra.models.quantised import Linear4bit


class Reordered:
    """A context in which a model's linear layers use reordered copies of their weights, with as many
    rows as `engines.rows` asks for; no gradient passes through them.

    Copies are made anew whenever torch has counted a write to a weight. It does not count those of
    its fused optimisers: who moves weights calls `forget`. Without oneDNN the weights are used as
    they lie; on a GPU or in another precision nothing changes.

    Args:
        dtype: the copies' format; "" = float32 as the weights are, else fewer bytes, of models in
            bfloat16 too.
    """

    def __init__(self, model: Model, dtype: Format = ""):
        self.model = model
        self.dtype: Format = dtype
        able = model.device.type == "cpu" and (model.dtype == torch.float32 or dtype != "")
        kinds = (nn.Linear, Linear4bit)
        every = (m for m in model.module.modules() if isinstance(m, nn.Linear))
        self.linears = [m for m in every if able and type(m) in kinds]
        self.copies = torch.backends.mkldnn.is_available()
        self._made: dict[nn.Linear, tuple[tuple[int, ...], Product]] = {}

    def forget(self) -> None:
        self._made.clear()

    def are_all(self) -> bool:
        """Whether layers multiply with no other weights, such as those of experts or of a Conv1D."""
        weights = {id(m.weight) for m in self.linears}
        try:
            every = [p for layer in self.model.layers for p in layer.parameters()]
        except UserError:
            return False
        return all(id(p) in weights for p in every if p.dim() > 1)

    def rules(self) -> list[RowRule | None]:
        """Of every layer, with the threads there are."""
        return [self._rule(m, _made_late(partial(self._product, m))) for m in self.linears]

    def _rule(self, m: nn.Linear, product: Product) -> RowRule | None:
        kind = (
            "linear" if self.dtype or isinstance(m, Linear4bit) or not self.copies else "reordered"
        )
        return rule_for(kind, product, m.in_features, m.out_features, self.dtype or "float32")

    def _product(self, m: nn.Linear) -> Product:
        packed = isinstance(m, Linear4bit)
        weight = m.dequantised() if packed else m.weight.detach()
        if self.dtype:
            return product_in(self.dtype, weight, m.bias)
        if packed:
            return partial(_plain, weight, m.bias)
        if self.copies:
            return partial(_reordered, torch.ops.mkldnn._reorder_linear_weight(weight), m.bias)
        return partial(_plain, weight, m.bias)

    def __enter__(self) -> None:
        threads = torch.get_num_threads()
        for m in self.linears:
            state = (m.weight.data_ptr(), m.weight._version, threads)
            if m not in self._made or self._made[m][0] != state:
                product = self._product(m)
                rows = self._rule(m, product) or ANY
                if isinstance(m, Linear4bit) and not self.dtype:  # no copy of its weights stays
                    self._made[m] = state, partial(_unpacked, rows, m)
                    m.__dict__["forward"] = self._made[m][1]
                    continue
                run = product if rows == ANY else partial(_in_rows, rows, product)
                self._made[m] = state, run
            m.__dict__["forward"] = self._made[m][1]

    def __exit__(self, *_: Any) -> None:
        for m in self.linears:
            del m.__dict__["forward"]


@contextmanager
def in_measured_rows(eyes: Any) -> Generator[None]:
    """Within it the linear layers of eyes that are the project's own have as many rows as
    `engines.rows` asks for, so that a picture is seen alike whatever else the pass shows; a tower
    sees one picture at a time. Float32 on a processor; gradients pass.
    """
    every = eyes.modules() if isinstance(eyes, Eyes) else ()
    layers = [m for m in every if isinstance(m, nn.Linear)]
    able = all(m.weight.device.type == "cpu" and m.weight.dtype == torch.float32 for m in layers)
    for m in layers if able else ():
        product = partial(_plain, m.weight, m.bias)
        rule = rule_for("linear", product, m.in_features, m.out_features, "float32") or ANY
        m.__dict__["forward"] = partial(_in_rows, rule, product)
    try:
        yield
    finally:
        for m in layers:
            m.__dict__.pop("forward", None)


def _made_late(make: Callable[[], Product]) -> Product:
    """A product that is made when it is first asked for: a rule that is known asks for none."""
    made = cache(make)
    return lambda x: made()(x)


def _reordered(weight: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def _plain(weight: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    return linear(x, weight, bias)


def _unpacked(rows: RowRule, m: Linear4bit, x: Tensor) -> Tensor:
    product = partial(_plain, m.dequantised(), m.bias)
    return product(x) if rows == ANY else _in_rows(rows, product, x)


def _in_rows(rows: RowRule, product: Product, x: Tensor) -> Tensor:
    """Of an input of any shape, whose rows are its last axis."""
    return rows.apply(product, x.reshape(-1, x.shape[-1])).view(*x.shape[:-1], -1)
