"""Frozen weights in 4 bits below adapters that learn (QLoRA, arXiv:2305.14314), through bitsandbytes.

NF4: a block of 64 weights is divided by its largest magnitude, and each is rounded to the nearest of 16
quantiles of a normal distribution. The magnitudes are stored in 8 bits, 256 of them with one float32
("double quantisation"), which makes 4 + 8/64 + 32/(64 * 256) = 4.127 bits a weight.

The paper multiplies with bitsandbytes' kernels, which take another path for one row than for many.
Here each product first makes the weights of its layer anew in the model's dtype, so that sampling and
training see the same numbers.
"""

from __future__ import annotations

import copy
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers.pytorch_utils import Conv1D

from palaestra.errors import UserError
from palaestra.models.files import silence_bitsandbytes
from palaestra.models.inside.residual import layers_of

BLOCK = 64  # weights that share a magnitude
BITS = 4 + 8 / BLOCK + 32 / (BLOCK * 256)  # of a weight, magnitudes included
KIND = "nf4"


class Linear4bit(nn.Linear):
    """A linear layer whose weight is packed, two numbers a byte, and never learns."""

    def __init__(self, layer: nn.Linear | Conv1D, device: torch.device):
        turned = isinstance(layer, Conv1D)
        weight = layer.weight.detach().to(device)
        weight_OI = (weight.t() if turned else weight).contiguous()
        wide, deep = weight_OI.shape
        super().__init__(deep, wide, bias=False, device="meta")
        packed, self.state = functional().quantize_4bit(
            weight_OI, blocksize=BLOCK, compress_statistics=True, quant_type=KIND
        )
        self.weight = nn.Parameter(packed, requires_grad=False)
        bias = layer.__dict__["_parameters"]["bias"]  # None where there is none
        if bias is not None:
            self.bias = nn.Parameter(bias.detach().to(device), requires_grad=False)
        self.turned = turned  # whether it stands for a Conv1D, whose weight is [in, out]

    def dequantised(self) -> Tensor:
        """[out, in] in the dtype that the weight had."""
        return functional().dequantize_4bit(self.weight, self.state)

    def forward(self, input: Tensor) -> Tensor:
        return _Product.apply(input, self.weight, self)  # type: ignore[no-any-return]

    def _apply(self, fn: Any, recurse: bool = True) -> Linear4bit:
        """Moved with the model; the magnitudes keep their number format."""
        super()._apply(fn, recurse)
        self.state = copy.deepcopy(self.state)  # copies of a model may share it
        self.state.to(self.weight.device)
        return self


class _Product(torch.autograd.Function):
    """x W^T + b. The backward pass makes W anew, so that between them only packed weights are kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, _: Tensor, layer: Linear4bit) -> Tensor:
        ctx.layer = layer
        return linear(x, layer.dequantised(), layer.bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return grads[0] @ ctx.layer.dequantised(), None, None


def functional() -> Any:
    """The functions of bitsandbytes. Raises UserError where it is not installed."""
    silence_bitsandbytes()
    try:
        return import_module("bitsandbytes.functional")
    except ImportError:
        raise UserError(
            "4-bit weights and 8-bit optimisers need the package bitsandbytes: pip install "
            "'palaestra[quantised]'"
        ) from None


def quantise(module: Any, device: torch.device | str) -> Any:
    """Puts every linear layer of the decoder layers in 4 bits, one at a time on `device`; embeddings,
    norms, the output layer and experts that are one tensor stay as they are.

    Raises UserError where bitsandbytes is not installed.
    """
    functional()
    for layer in layers_of(module):
        _replace(layer, (nn.Linear, Conv1D), lambda m: Linear4bit(m, torch.device(device)))
    return module


def dequantise(module: nn.Module) -> nn.Module:
    """Makes linear layers of packed ones, in place; nothing happens to a model without any. What stood
    for a `Conv1D` is one again after `restore_conv1d`, once adapters are merged into it.
    """
    _replace(module, (Linear4bit,), _plain)
    return module


def outline(layer: Linear4bit) -> nn.Linear | Conv1D:
    """The layer that a packed one stands for, whose weight has a shape and a dtype and no numbers."""
    made = _made(
        layer,
        torch.empty(layer.out_features, layer.in_features, dtype=layer.state.dtype, device="meta"),
    )
    return _turn(made) if isinstance(made, _Turned) else made


def restore_conv1d(module: nn.Module) -> nn.Module:
    """Makes layers of GPT-2's kind of those that were some before they were packed, in place."""
    _replace(module, (_Turned,), _turn)
    return module


def is_quantised(module: nn.Module) -> bool:
    """Whether a model has weights in 4 bits."""
    return any(isinstance(m, Linear4bit) for m in module.modules())


def unpacked_weights(module: nn.Module) -> int:
    """The weights of a model; a packed one counts as one weight."""
    packed = (m for m in module.modules() if isinstance(m, Linear4bit))
    more = sum(m.in_features * m.out_features - m.weight.numel() for m in packed)
    return sum(p.numel() for p in module.parameters()) + more


def unpacked_more_bytes(module: nn.Module) -> int:
    """How many bytes more the weights take once those in 4 bits have the dtype that they had."""
    packed = (m for m in module.modules() if isinstance(m, Linear4bit))
    return sum(
        m.in_features * m.out_features * m.state.dtype.itemsize - m.weight.nbytes for m in packed
    )


def describe_bits(module: nn.Module) -> str:
    """The end of a line: how much of a model is in 4 bits; "" = nothing is."""
    packed = [m for m in module.modules() if isinstance(m, Linear4bit)]
    if not packed:
        return ""
    weights = sum(m.in_features * m.out_features for m in packed)
    return f", over {weights / 1e6:.1f} of {unpacked_weights(module) / 1e6:.1f} million weights in 4 bits"


class _Turned(nn.Linear):
    """A linear layer with the weight of a Conv1D, turned."""


def _plain(layer: Linear4bit) -> nn.Linear:
    return _made(layer, layer.dequantised())


def _made(layer: Linear4bit, weight_OI: Tensor) -> nn.Linear:
    kind, bias = _Turned if layer.turned else nn.Linear, layer.__dict__["_parameters"]["bias"]
    made = kind(layer.in_features, layer.out_features, bias is not None, device="meta")
    made.weight = nn.Parameter(weight_OI, requires_grad=False)
    made.bias = bias
    return made


def _turn(layer: nn.Linear) -> Conv1D:
    with torch.device("meta"):  # without numbers drawn for it
        made = Conv1D(layer.out_features, layer.in_features)
    made.weight = nn.Parameter(layer.weight.detach().t().contiguous(), requires_grad=False)
    made.bias = layer.bias
    return made


def _replace(module: nn.Module, kinds: tuple[type, ...], make: Any) -> None:
    """Layers of exactly these kinds, below a module, by what `make` makes of each."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) in kinds:
                setattr(parent, name, make(child))
