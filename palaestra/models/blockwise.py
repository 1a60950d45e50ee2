"""Attention while sampling, on processors: sums over columns in blocks of 64, so that neither the
length of a slot nor who shares the pass changes the order in which a query's values are added.

A product splits a long sum in a way that depends on its length; fused kernels do so by the numbers
of queries and of columns. n = sequences of q tokens, H and K = heads of queries and of keys, G =
H / K, d = size of a head, L = columns, a multiple of 64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

BLOCK = 64  # columns that are added at once, and queries that are looked at together
SCORES = 1 << 18  # that exist at a time: 1 MB, which stays in a processor's cache


class Tiling(NamedTuple):
    """How products are made where kernels add in an order that depends on their number of rows or
    columns.

    Args:
        up: the number of queries to which a part of at most BLOCK is filled up.
        split: scores are made of BLOCK columns at a time, so that a column's place in a product
            does not depend on how many there are.
    """

    up: Callable[[int], int] = int
    split: bool = False


WHOLE = Tiling()  # products as large as they come


def attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    seen: Tensor,
    scale: float | None = None,
    tiling: Tiling = WHOLE,
) -> Tensor:
    """[n, q, H, d] of queries [n, H, q, d] over keys and values [n, K, L, d].

    Args:
        seen: bool [n, 1, q, L], true where a query sees a column, at least one for each.
        scale: of the products; None = d ** -0.5.
        tiling: of the products, for this processor.
    """
    n, heads, q, d = query.shape
    out = query.new_empty(n, q, heads, d)
    for at in range(0, q, BLOCK):
        some = slice(at, at + BLOCK)
        columns = seen[:, :, some].flatten(0, -2).any(0).nonzero()
        upto = -(-(int(columns[-1]) + 1) // BLOCK) * BLOCK  # columns behind add exact zeros
        size = max(1, SCORES // (heads * min(q, BLOCK) * upto))
        for i in range(0, n, size):
            few = slice(i, i + size)
            out[few, some] = _attend(
                query[few, :, some],
                keys[few, :, :upto],
                values[few, :, :upto],
                seen[few, :, some, :upto],
                d**-0.5 if scale is None else scale,
                tiling,
            )
    return out


def _attend(
    query: Tensor, keys: Tensor, values: Tensor, seen: Tensor, scale: float, tiling: Tiling
) -> Tensor:
    n, heads, asked, d = query.shape
    if more := tiling.up(asked) - asked:
        query, seen = (pad(x, (0, 0, 0, more), value=True) for x in (query, seen))
    shared, columns, q = keys.shape[1], keys.shape[2], asked + more
    lined = query.reshape(n * shared, -1, d)  # heads that share keys are queries of one head
    turned = keys.flatten(0, 1).transpose(1, 2)
    if tiling.split and columns > BLOCK:
        scores = torch.cat([torch.bmm(lined, some) for some in turned.split(BLOCK, 2)], 2)
    else:
        scores = torch.bmm(lined, turned)
    scores.mul_(scale).view(n, heads, q, columns).masked_fill_(~seen, float("-inf"))
    mixed = mix(scores.softmax(-1), values.flatten(0, 1))
    return mixed.view(n, heads, q, d)[:, :, :asked].transpose(1, 2)


def attend_one(
    query: Tensor, keys: Tensor, values: Tensor, bias: Tensor, scale: float | None = None
) -> Tensor:
    """[n K, G, d] of one query a sequence [n, H, 1, d], with a bias [n K, 1, L] on its scores."""
    k, d = keys.flatten(0, 1), query.shape[-1]
    lined = query.reshape(len(k), -1, d)
    factor = d**-0.5 if scale is None else scale
    scores = torch.baddbmm(bias, lined, k.transpose(1, 2), alpha=factor)
    return mix(scores.softmax(-1), values.flatten(0, 1))


def mix(weight: Tensor, values: Tensor) -> Tensor:
    """[B, Q, d] sums of values [B, L, d] with weights [B, Q, L], one block of columns after the
    other.
    """
    if values.shape[1] <= BLOCK:
        return torch.bmm(weight, values)
    blocks = zip(weight.split(BLOCK, 2), values.split(BLOCK, 1), strict=True)
    out = torch.bmm(*next(blocks))
    for some in blocks:
        out = torch.baddbmm(out, *some)
    return out
