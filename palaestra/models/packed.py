"""Attention over a flat run of tokens, as `palaestra.models.layout` lays a batch out, for models of
transformers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from palaestra.models import blockwise
from palaestra.models.layout import Layout

LONG = 512  # queries of a row that meet their keys together
NAME = "palaestra_packed"  # of the attention among those of transformers


def attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    layout: Layout | None = None,
    grouped: bool = False,
    tiling: blockwise.Tiling = blockwise.WHOLE,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention over the blocks of a layout. query [1, H, N, D] -> [1, N, H, D]; without a layout
    as in transformers.

    `grouped`: the mask is final, and heads that share keys do so without a copy of these
    (transformers repeats them). `tiling`: of attention over prompts in float32 on a processor.
    """
    if layout is None and not grouped:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    scale = kwargs.get("scaling")
    if layout is None:
        exact = query.device.type == "cpu" and query.dtype == torch.float32
        if exact and attention_mask is not None:
            return _attend_in_blocks(query, key, value, attention_mask, scale, tiling), None
        return _attend(query, key, value, attention_mask, scale), None
    outs = []
    for b in layout.blocks:
        # [H, R, Q, D], [H_kv, R, K, D]
        parts = (query[0][:, b.query], key[0][:, b.key], value[0][:, b.key])
        q, k, v = (x.transpose(0, 1) for x in parts)
        if q.shape[2] > LONG and not q.is_cuda:
            out = _attend_causally(q, k, v, b.mask, scale)
        else:
            out = _attend(q, k, v, b.mask, scale, b.summand)
        outs.append(out[b.filled])  # [R, Q, H, D] -> [tokens, H, D]
    return torch.cat(outs)[None], None


def _attend_causally(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float | None
) -> Tensor:
    """As `_attend`, of a block whose last Q keys are those of its Q queries, which see none after
    themselves: `LONG` queries at a time leave out the keys that none of them sees.
    """
    Q, K = mask.shape[2:]
    outs = list[Tensor]()
    for start in range(0, Q, LONG):
        end = min(start + LONG, Q)
        seen = slice(K - Q + end)
        some = mask[:, :, start:end, seen]
        outs.append(
            _attend(query[:, :, start:end], key[:, :, seen], value[:, :, seen], some, scale)
        )
    return torch.cat(outs, 1)


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scale: float | None,
    summand: Callable[[int, torch.dtype], Tensor] | None = None,
) -> Tensor:
    """query [R, H, Q, D], key and value [R, H_kv, K, D] -> [R, Q, H, D]. `summand`: the mask for
    heads in line, at hand.
    """
    together = query.shape[1] // key.shape[1]
    # its fused kernels take a mask or shared heads, not both
    if together > 1 and mask is not None and query.is_cuda:
        lined = summand(together, query.dtype) if summand else mask.repeat(1, 1, together, 1)
        out = attend_in_line(query, key, value, lined, scale)
    else:
        out = scaled_dot_product_attention(
            query, key, value, attn_mask=mask, scale=scale, enable_gqa=together > 1
        )
    return out.transpose(1, 2)


def _attend_in_blocks(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seen: Tensor,
    scale: float | None,
    tiling: blockwise.Tiling,
) -> Tensor:
    """The same [n, q, H, d] with sums whose order depends on nobody else: a decode step of one query
    each, or a pass over prompts.
    """
    if query.shape[2] > 1:
        return blockwise.attend(query, key, value, seen, scale, tiling)
    bias = query.new_zeros(seen.shape[0], 1, seen.shape[3])
    bias = bias.masked_fill_(~seen[:, 0], float("-inf")).repeat_interleave(key.shape[1], 0)
    return blockwise.attend_one(query, key, value, bias, scale).view_as(query).transpose(1, 2)


def attend_in_line(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float | None
) -> Tensor:
    """[R, H, Q, D] where the G heads that share keys are one head with G Q queries, so the keys
    need no copies.

    The mask is of all G Q.
    """
    queries = query.reshape(*key.shape[:2], -1, query.shape[-1])  # [R, H_kv, G Q, D]
    return scaled_dot_product_attention(queries, key, value, attn_mask=mask, scale=scale).reshape(
        query.shape
    )


ALL_ATTENTION_FUNCTIONS.register(NAME, attention)
ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, sdpa_mask)


def enable(causal: Any) -> bool:
    """Lets a model of transformers run packed, if all its layers attend to the whole past through
    the common interface.
    """
    config = causal.config.get_text_config()
    layers = getattr(config, "layer_types", None)
    able = (
        config._attn_implementation in ("sdpa", NAME)  # a copy of a model comes enabled
        and causal._supports_attention_backend
        and (layers is None or set(layers) == {"full_attention"})
        and not getattr(config, "sliding_window", None)
    )
    if able:
        causal.set_attn_implementation(NAME)
    return able
