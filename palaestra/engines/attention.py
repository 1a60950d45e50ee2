"""How the products of attention over prompts are made so that a query gets the same bits in any
company.

A query's company are the queries before and behind it in the pass, the other sequences, and the
columns that the longest of them sees. Some kernels see all three: MKL's for AVX2 add the rows that
are left over when tiles of six are full, and the last eight of 128 columns, in another order than
the same rows and columns among more. What holds is measured, as it is for linear layers
(`engines.rows`): how many queries a part has, and whether scores are made of 64 columns at a time.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from palaestra.engines.rows import RowRule, join, rule_for
from palaestra.models.blockwise import BLOCK, Tiling, attend

FEW = RowRule(4, 4)  # queries: a single one is a decode step, which has an operator of its own
LENGTHS = (64, 128, 192, 512)  # columns of the sequences that are tried in each other's company


def tiling_for(together: int, shared: int, size: int) -> Tiling | None:
    """The cheapest tiling under which a query has the same bits in any company; None where none is
    known.

    Args:
        together: heads of queries that share a head of keys.
        shared: heads of keys.
        size: of a head.
    """
    for split in (False, True):
        product = partial(_in_company, together=together, shared=min(shared, 2), split=split)
        kind = f"attention{' by columns' * split}{' of one head' * (shared == 1)}"
        rule = rule_for(kind, product, size, together, "float32", range(1, BLOCK + 1))
        if rule and not rule.blocks and (queries := join([FEW, rule])):
            return Tiling(queries.up, split)
    return None


def _in_company(x_Qd: Tensor, *, together: int, shared: int, split: bool) -> Tensor:
    """[Q, F] attention of queries to sequences of each of LENGTHS; NaN where the longer ones in the
    pass are seen in what shorter ones give.
    """
    Q, d = x_Qd.shape
    drawn = torch.Generator().manual_seed(0)
    keys, values = torch.randn(2, 1, 1, LENGTHS[-1], d, generator=drawn)
    each = list[Tensor]()
    for n, upto in enumerate(LENGTHS, 1):
        seen = torch.arange(upto) < torch.tensor(LENGTHS[:n])[:, None]
        out = attend(
            x_Qd.expand(n, together * shared, Q, d),
            keys[..., :upto, :].expand(n, shared, upto, d),
            values[..., :upto, :].expand(n, shared, upto, d),
            seen[:, None, None].expand(n, 1, Q, upto),
            tiling=Tiling(split=split),
        )
        each.append(out)
    whole = each[-1]
    same = all(torch.equal(out, whole[: len(out)]) for out in each)
    return (whole if same else whole * torch.nan).transpose(0, 1).flatten(1)
