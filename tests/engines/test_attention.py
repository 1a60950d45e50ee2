"""Tilings of attention: how they are measured on kernels that are known."""

import pytest
import torch
from palaestra.engines import attention, rows
from palaestra.engines.attention import tiling_for

PARTS = (4, 8, 20, 64)  # numbers of queries


@pytest.fixture(autouse=True)
def forget(tmp_path, monkeypatch):
    """A process that knows no rules, and keeps none."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(rows, "_known", {})


def kernel(wrong):
    """Attention that gives the queries, off by `wrong(queries, sequences, columns, split)`."""

    def attend(query, keys, values, seen, tiling):
        n, _, q, _ = query.shape
        return query.transpose(1, 2) + 1e-3 * wrong(q, n, keys.shape[2], tiling.split)

    return attend


@pytest.mark.parametrize(
    ("wrong", "up", "split"),
    [
        (lambda q, n, columns, split: 0, PARTS, False),
        (lambda q, n, columns, split: q < 7, (8, 8, 20, 64), False),
        (lambda q, n, columns, split: q % 6 in (1, 2, 3), (64, 64, 64, 64), False),  # tiles of six, as MKL's for AVX2
        (lambda q, n, columns, split: columns == 128 and not split, PARTS, True),
        (lambda q, n, columns, split: (q < 32) + (columns % 192 > 64 and not split), (32, 32, 32, 64), True),
        (lambda q, n, columns, split: n == 1, None, None),
    ],
)
def test_the_cheapest_tiling_that_holds_is_measured(monkeypatch, wrong, up, split):
    monkeypatch.setattr(attention, "attend", kernel(wrong))
    tiling = tiling_for(2, 2, 8)
    assert (tiling and (tuple(map(tiling.up, PARTS)), tiling.split)) == (up and (up, split))


def test_a_tiling_is_measured_once(monkeypatch):
    first, calls = tiling_for(3, 2, 8), []
    monkeypatch.setattr(rows, "measure", lambda *a: calls.append(a))
    again = tiling_for(3, 2, 8)
    assert not calls and (again.up(5), again.split) == (first.up(5), first.split)
    assert tiling_for(3, 1, 8) is None and len(calls) == 2, (
        "one head of keys is measured by itself, whole and by columns"
    )


def test_any_number_of_rows_can_be_forced():
    with rows.force(rows.ANY):
        tiling = tiling_for(2, 2, 8)
    assert [tiling.up(q) for q in PARTS] == [*PARTS] and not tiling.split


@pytest.mark.parametrize(("together", "shared"), [(1, 4), (2, 2), (3, 3), (4, 1)])
def test_heads_of_this_processor_have_a_tiling(together, shared):
    tiling = tiling_for(together, shared, 16)
    assert tiling is not None and tiling.up(64) == 64 and torch.tensor([tiling.up(q) >= q for q in range(1, 65)]).all()
