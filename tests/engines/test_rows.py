"""Rules for numbers of rows: how they fill up, how they are measured on kernels that are known, and how they are kept."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from palaestra.engines import rows
from palaestra.engines.rows import ANY, RowRule, join, measure, rule_for


def kernel(wrong):
    """A product with a part of the identity that is off wherever `wrong(rows, place)`."""

    def product(x):
        places = torch.tensor([1e-3 * wrong(len(x), i) for i in range(len(x))])
        return x[:, :5] + places[:, None]

    return product


@pytest.mark.parametrize(
    ("rule", "sizes"),
    [
        (ANY, {1: 1, 7: 7}),
        (RowRule(4, 1), {1: 4, 3: 4, 4: 4, 5: 5}),
        (RowRule(8, 4), {1: 8, 9: 12, 12: 12}),
        (RowRule(16, 16, True), {1: 16, 17: 32, 40: 48}),
    ],
)
def test_rows_fill_up(rule, sizes):
    assert {n: rule.up(n) for n in sizes} == sizes


@given(st.integers(1, 70), st.sampled_from([ANY, RowRule(4, 1), RowRule(8, 4), RowRule(16, 16, True)]))
def test_filling_up_changes_no_row_and_adds_none(n, rule):
    """Of one and of two inputs; the product sees a number of rows that the rule allows, each time."""
    x, y, sizes = torch.arange(2.0 * n).view(n, 2), torch.ones(n, 2), []

    def product(*each):
        sizes.append(len(each[0]))
        return sum(each)

    assert torch.equal(rule.apply(product, x, y), x + y) and torch.equal(rule.apply(product, x), x)
    assert all(size == rule.up(size) and (not rule.blocks or size == rule.least) for size in sizes)


def test_one_rule_for_several():
    assert join([RowRule(4, 1), RowRule(2, 2)]) == RowRule(4, 2) and join(
        [RowRule(16, 1), RowRule(4, 4), ANY]
    ) == RowRule(16, 4)
    assert join([ANY, None]) is None and join([]) == ANY
    assert join([RowRule(16, 16, True), ANY]) == RowRule(16, 16, True)


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        (lambda n, i: 0, ANY),
        (lambda n, i: n == 1, RowRule(2, 1)),
        (lambda n, i: n < 7, RowRule(8, 1)),  # AVX-512, 160 numbers a row
        (lambda n, i: n < 16, RowRule(16, 1)),
        (lambda n, i: i >= n // 4 * 4, RowRule(4, 4)),  # a remainder that fills no tile of four rows
        (lambda n, i: n % 4 > 0 or n < 8, RowRule(8, 4)),
        (lambda n, i: n > 40, RowRule(64, 1)),
        (lambda n, i: n * (n != 16), RowRule(16, 16, True)),
        (lambda n, i: i, None),
    ],
)
def test_the_cheapest_rule_that_holds_is_measured(wrong, rule):
    assert measure(kernel(wrong), 6) == rule


def test_under_the_rule_that_is_measured_rows_of_a_true_product_are_the_same():
    """Of torch's own product here, whichever kernels it has: 1 to 40 rows, each alone as among others."""
    w = torch.randn(600, 96, generator=torch.Generator().manual_seed(0))
    x = torch.randn(40, 600, generator=torch.Generator().manual_seed(1))
    product = lambda some: torch.nn.functional.linear(some, w.T)
    rule = measure(product, 600, 600 * 96)
    assert rule is not None
    whole = rule.apply(product, x)
    assert all(torch.equal(rule.apply(product, x[i:n]), whole[i:n]) for n in range(1, 41) for i in (0, n - 1))


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Where rules are kept, of a process that knows none."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(rows, "_known", {})
    return tmp_path / "palaestra" / "rows.json"


def asked(monkeypatch, **other):
    """How often a product is measured when its rule is asked for, and the rule."""
    calls = []
    monkeypatch.setattr(rows, "measure", lambda *a: calls.append(a) or RowRule(4, 1))
    rule = rule_for(
        **{"kind": "mm", "product": kernel(lambda n, i: 0), "width": 6, "columns": 5, "dtype": "float32"} | other
    )
    return len(calls), rule


def test_a_rule_is_measured_once_and_kept_for_the_next_process(file, monkeypatch):
    assert asked(monkeypatch) == (1, RowRule(4, 1)) and asked(monkeypatch) == (0, RowRule(4, 1))
    rows._known.clear()  # another process
    assert asked(monkeypatch) == (0, RowRule(4, 1))
    assert asked(monkeypatch, columns=9)[0] == 1 and asked(monkeypatch, kind="linear")[0] == 1
    rows._known.clear()
    assert asked(monkeypatch)[0] == 0, "what was kept before is kept"


@pytest.mark.parametrize("change", ["threads", "environment"])
def test_other_kernels_are_measured_anew(file, monkeypatch, change):
    assert asked(monkeypatch)[0] == 1
    rows._surroundings.cache_clear()
    if change == "environment":
        monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    else:
        monkeypatch.setattr(torch, "get_num_threads", lambda: 99)
    assert asked(monkeypatch)[0] == 1
    rows._surroundings.cache_clear()


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"a": 1}', "KEY [0, 1, false]", "KEY [4, 3, false]", "KEY [1, 1]", "\udcff"]
)
def test_a_file_that_holds_no_rules_is_measured_anew(file, monkeypatch, text):
    asked(monkeypatch)
    (key,) = json.loads(file.read_text())
    kept = text if "KEY" not in text else json.dumps({key: json.loads(text[4:])})
    file.write_bytes(kept.encode("utf-8", "surrogateescape"))
    rows._known.clear()
    assert asked(monkeypatch) == (1, RowRule(4, 1))


def test_where_nothing_can_be_kept_it_is_measured_again(file, monkeypatch):
    file.parent.write_text("a file where a folder should be")
    assert asked(monkeypatch) == (1, RowRule(4, 1))
    rows._known.clear()
    assert asked(monkeypatch) == (1, RowRule(4, 1))
