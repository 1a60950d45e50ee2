"""Copies of linear layers' weights that take fewer bytes, for sampling on a processor.

A decode step multiplies few rows, so that it waits for weights to be read from memory. These are
torch's own kernels, of FBGEMM and oneDNN:

    int8      W ~ s q with whole numbers q from -127 to 127 and a scale s for each output, its largest
              |w| / 127, so that |w - s q| <= s / 2. Each row x of the input is rounded in the same
              way, with a scale of its own: a row's sums are whole numbers and so do not depend on the
              order of addition, on the other rows, or on the number of threads
    float16   W rounded to float16; sums in float32
    bfloat16  W and x rounded to bfloat16; sums in float32, results rounded to bfloat16

Samples come from the distribution of these weights, which is not quite the trainer's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from palaestra.engines.rows import Product
from palaestra.errors import UserError
from palaestra.processor import computes_bfloat16

Format = Literal["", "int8", "float16", "bfloat16"]  # "" = as the model is
MOST = 127  # of the whole numbers that stand for weights
LEAST = 1e-30  # scale, of rows and columns of zeros


class Int8Weight(NamedTuple):
    """W ~ scale q."""

    numbers_MK: Tensor  # int8
    scale_M: Tensor  # float32


def quantise(weight_MK: Tensor) -> Int8Weight:
    """The whole numbers and scales that stand for a weight, by output."""
    numbers = _quantised(weight_MK)
    return Int8Weight(numbers.int_repr(), numbers.q_per_channel_scales().float())


def product_in(kind: Format, weight: Tensor, bias: Tensor | None) -> Product:
    """Multiplies rows with a copy of the weight in a format; results have the type of the input."""
    return _PACKED[kind](weight, None if bias is None else bias.detach())


def check_format(kind: str, device: str) -> None:
    """Raises UserError for a format that does not exist, or that this machine cannot multiply."""
    names = get_args(Format)
    option = f"--engine own(dtype={kind})"
    if kind not in names:
        raise UserError(f"{option}: dtype is one of {', '.join(n for n in names if n)}")
    if kind and device != "cpu":
        raise UserError(f"{option}: these copies are for processors, and the model is on a GPU")
    if kind in ("int8", "float16") and "fbgemm" not in torch.backends.quantized.supported_engines:
        raise UserError(f"{option}: this build of torch has no FBGEMM, which multiplies them")
    if kind == "bfloat16" and not (computes_bfloat16() and _bfloat16_is_multiplied()):
        raise UserError(
            f"{option}: this processor has no instructions for bfloat16; use dtype=int8 or float16"
        )


def formats_here() -> list[str]:
    """What of the formats this machine multiplies, with how finely int8 rounds inputs."""
    able: list[str] = []
    for kind in filter(None, get_args(Format)):
        try:
            check_format(kind, "cpu")
        except UserError:
            continue
        levels = f" (inputs of {2 * input_levels() + 1} levels)" if kind == "int8" else ""
        able.append(kind + levels)
    return able


def _int8(weight: Tensor, bias: Tensor | None) -> Product:
    with _fbgemm():
        packed = torch.ops.quantized.linear_prepack(_quantised(weight), None)
    return partial(_times_int8, packed, bias, input_levels())


def _float16(weight: Tensor, bias: Tensor | None) -> Product:
    with _fbgemm():
        packed = torch.ops.quantized.linear_prepack_fp16(weight.float(), None)
    return partial(_times_float16, packed, bias)


def _bfloat16(weight: Tensor, bias: Tensor | None) -> Product:
    copy = torch.ops.mkldnn._reorder_linear_weight(weight.bfloat16())
    return partial(_times_bfloat16, copy, None if bias is None else bias.bfloat16())


_PACKED: Mapping[str, Callable[[Tensor, Tensor | None], Product]] = {
    "int8": _int8,
    "float16": _float16,
    "bfloat16": _bfloat16,
}


def _times_int8(packed: Any, bias: Tensor | None, levels: int, x: Tensor) -> Tensor:
    """Rows of x over their scales are rounded to whole numbers by the operator, around levels + 1."""
    rows = x.float()
    scale = rows.abs().amax(-1, keepdim=True).div_(levels).clamp_(min=LEAST)
    out = _static(rows / scale, 1.0, levels + 1, packed).mul_(scale)
    return (out if bias is None else out.add_(bias)).to(x.dtype)


def _times_float16(packed: Any, bias: Tensor | None, x: Tensor) -> Tensor:
    out = torch.ops.quantized.linear_dynamic_fp16(x.float(), packed)
    return (out if bias is None else out.add_(bias)).to(x.dtype)


def _times_bfloat16(weight: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    out = torch.ops.mkldnn._linear_pointwise(x.bfloat16(), weight, bias, "none", [], "")
    return out.to(x.dtype)


@cache
def _bfloat16_is_multiplied() -> bool:
    """Whether oneDNN does it: what the processor has may be hidden from it (`ONEDNN_MAX_CPU_ISA`)."""
    if not torch.backends.mkldnn.is_available():
        return False
    try:
        _bfloat16(torch.ones(16, 16), None)(torch.ones(1, 16))
    except RuntimeError:
        return False
    return True


@cache
def input_levels() -> int:
    """The largest whole number of a rounded input: 127, and 63 on processors without VNNI, where two
    products are added in 16 bits that must not overflow.
    """
    with _fbgemm():
        packed = torch.ops.quantized.linear_prepack(_quantised(torch.full((16, 64), 1.0)), None)
    largest = torch.full((1, 64), float(MOST))
    held = float(_static(largest, 1.0, MOST + 1, packed)[0, 0])
    return MOST if abs(held - 64 * MOST) < 1 else MOST // 2


def _static(x: Tensor, scale: float, zero: int, packed: Any) -> Tensor:
    return torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(x, scale, zero, packed)


def _quantised(weight: Tensor) -> Tensor:
    weight = weight.detach().float()
    scale_M = weight.abs().amax(1).div_(MOST).clamp_(min=LEAST).double()
    with warnings.catch_warnings():  # these tensors go, once torch packs weights without them
        warnings.simplefilter("ignore")
        return torch.quantize_per_channel(
            weight, scale_M, torch.zeros(len(scale_M), dtype=torch.long), 0, torch.qint8
        )


@contextmanager
def _fbgemm() -> Generator[None]:
    """Within it weights are packed for FBGEMM."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = "fbgemm"
    try:
        yield
    finally:
        torch.backends.quantized.engine = before
