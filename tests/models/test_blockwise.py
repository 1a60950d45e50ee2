"""Attention in blocks: what it computes, and that nothing but a query and what it sees decides its bits."""

import pytest
import torch
from palaestra.engines.attention import tiling_for
from palaestra.models import blockwise
from palaestra.models.blockwise import WHOLE, Tiling, attend, attend_one, mix
from torch.nn.functional import scaled_dot_product_attention

N, H, K, D, LONG = 5, 4, 2, 16, 512
FEW = range(4, 64, 4)  # queries in a part, as the engine has them


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


KEYS, VALUES, QUERIES = numbers(N, K, LONG, D), numbers(N, K, LONG, D, seed=1), numbers(N, H, LONG, D, seed=2)


def causal(n, first, q, columns):
    at = torch.arange(first, first + q)
    return (torch.arange(columns) <= at[:, None]).expand(n, 1, q, columns)


def run(n, first, q, columns, tiling, longest=1):
    """Queries at positions first, first + 1, ... of the first n sequences, beside one that sees its first `longest` columns."""
    some = QUERIES[[*range(n), -1], :, first : first + q]
    last = (torch.arange(columns) < longest).expand(1, 1, q, columns)
    seen = torch.cat([causal(n, first, q, columns), last])
    keys, values = KEYS[[*range(n), -1], :, :columns], VALUES[[*range(n), -1], :, :columns]
    return attend(some, keys, values, seen, tiling=tiling)[:n]


@pytest.mark.parametrize(
    "tiling", [WHOLE, Tiling(lambda q: -(-q // 32) * 32), Tiling(split=True)], ids=["whole", "up", "split"]
)
@pytest.mark.parametrize(("first", "q", "columns"), [(0, 8, 64), (3, 100, 192), (300, 200, 512)])
def test_it_is_attention(first, q, columns, tiling):
    some = QUERIES[:, :, first : first + q]
    keys, values = KEYS[:, :, :columns], VALUES[:, :, :columns]
    seen = causal(N, first, q, columns)
    expected = scaled_dot_product_attention(some, keys, values, attn_mask=seen, enable_gqa=True)
    found = attend(some, keys, values, seen, tiling=tiling)
    torch.testing.assert_close(found.transpose(1, 2), expected, atol=1e-5, rtol=1e-5)
    scaled = attend(some, keys, values, seen, scale=0.5, tiling=tiling)
    expected = scaled_dot_product_attention(some, keys, values, attn_mask=seen, enable_gqa=True, scale=0.5)
    torch.testing.assert_close(scaled.transpose(1, 2), expected, atol=1e-5, rtol=1e-5)


def test_one_query_each_by_hand():
    """Scores ln 3 and 0: weights 3/4 and 1/4 of the values (4, 0) and (0, 8)."""
    query = torch.tensor([[[[1.0, 0.0]]]])
    keys = torch.zeros(1, 1, 64, 2)
    keys[0, 0, 0, 0] = torch.tensor(3.0).log()
    values = torch.zeros(1, 1, 64, 2)
    values[0, 0, 0], values[0, 0, 1] = torch.tensor([4.0, 0.0]), torch.tensor([0.0, 8.0])
    bias = torch.full((1, 1, 64), float("-inf"))
    bias[..., :2] = 0
    torch.testing.assert_close(attend_one(query, keys, values, bias, scale=1.0), torch.tensor([[[3.0, 2.0]]]))


def in_company(tiling):
    """Whether queries have the same bits as among all: at numbers of queries as the engine has them, each with more columns,
    more sequences, and a longer one in the pass.
    """
    whole = run(N - 1, 0, LONG, LONG, tiling)
    for first, q in (
        (0, 8),
        (0, 128),
        (3, 64),
        (100, 136),
        (120, 8),
        (333, 160),
        (440, 20),
        (500, 12),
        *((128, q) for q in FEW),
    ):
        least = -(-(first + q) // 64) * 64
        for columns in {least, min(LONG, least + 64), LONG}:
            for n, longest in ((1, 1), (3, 1), (1, least), (2, columns)):
                if not torch.equal(run(n, first, q, columns, tiling, longest), whole[:n, first : first + q]):
                    return False
    return True


def test_neither_length_nor_company_nor_size_of_parts_is_seen(monkeypatch):
    """To the bit, with the tiling that was measured; also where scores are made in parts."""
    tiling = tiling_for(H // K, K, D)
    assert in_company(tiling)
    whole = run(N - 1, 0, LONG, LONG, tiling)
    monkeypatch.setattr(blockwise, "SCORES", 1)
    assert torch.equal(run(N - 1, 0, LONG, LONG, tiling), whole)


def test_with_another_tiling_than_was_measured_company_is_seen():
    """Unless whole products are what was measured."""
    tiling = tiling_for(H // K, K, D)
    assert in_company(WHOLE) == (not tiling.split and all(tiling.up(q) == q for q in FEW))


def test_blocks_are_added_in_their_order():
    """1 + 2^-24 a hundred times stays 1 from the left, and columns of weight zero add nothing at all."""
    values = torch.full((1, 256, 1), 2.0**-24)
    values[0, 0] = 1.0
    weight = torch.zeros(1, 4, 256)
    weight[..., 0], weight[..., 64], weight[..., 128], weight[..., 192] = 1.0, 1.0, 1.0, 1.0
    assert mix(weight, values)[0].flatten().tolist() == [1.0] * 4
    assert torch.equal(mix(weight[..., :64], values[:, :64]), mix(weight * (torch.arange(256) < 64), values))
