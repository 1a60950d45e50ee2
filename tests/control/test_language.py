"""Reward programs: what they compute, what bounds them, and what is refused."""

import asyncio

import numpy as np
import palaestra as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from palaestra.control.language import COMPUTE, TWO, Operation, bounds_of, compute
from palaestra.errors import Fault, UserError

DECLARED = {
    "x": pl.control.Quantity(low=-1.0, high=2.0),
    "d": pl.control.Quantity(low=0.0, high=3.0, about="a distance"),
}
COLUMNS = {"x": np.array([[-0.5, 1.0], [2.0, 0.0]]), "d": np.array([[0.0, 1.0], [3.0, 9.0]])}


def op(name, *args):
    return Operation(op=name, args=args)


def test_factors_and_a_linear_decoder_of_the_catalogue():
    """Rows (1, 0), (0, 1), (1, 1) with weights (2, -1): 2, -1, 1, sum 2."""
    declared = {n: pl.control.Quantity(low=0.0, high=1.0) for n in "ab"}
    columns = {"a": np.array([1.0, 0.0, 1.0]), "b": np.array([0.0, 1.0, 1.0])}
    phi = pl.control.columns_of(["a", "b"], columns, declared)
    assert phi.tolist() == [[1, 0], [0, 1], [1, 1]]
    assert (phi @ [2, -1]).tolist() == [2, -1, 1]
    whole = op("subtract", op("multiply", 2, "a"), "b")
    assert compute(whole, columns, declared).tolist() == [2, -1, 1]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (op("less", "x", 0.5), [[1, 0], [0, 1]]),
        (op("exp", op("neg", "d")), np.exp(-np.array([[0, 1], [3, 3]]))),  # 9 is clipped to 3
        (op("maximum", op("abs", "x"), op("square", "x")), [[0.5, 1], [4, 0]]),
        (1.5, [[1.5, 1.5], [1.5, 1.5]]),
    ],
)
def test_values_by_hand(expression, value):
    assert compute(expression, COLUMNS, DECLARED) == pytest.approx(np.array(value, float))


@pytest.mark.parametrize(
    ("expression", "bounds"),
    [
        ("x", (-1, 2)),
        (op("square", "x"), (0, 4)),
        (op("multiply", "x", "d"), (-3, 6)),
        (op("subtract", "x", "d"), (-4, 2)),
        (op("minimum", "x", 0), (-1, 0)),
        (op("abs", op("neg", "d")), (0, 3)),
        (op("less", "x", "d"), (0, 1)),
    ],
)
def test_bounds_by_hand(expression, bounds):
    assert bounds_of(expression, DECLARED) == bounds


def trees():
    leaves = st.one_of(st.sampled_from(["x", "d"]), st.floats(-5, 5))
    grow = lambda inner: st.sampled_from(sorted(COMPUTE)).flatmap(
        lambda name: st.tuples(*[inner] * (2 if name in TWO else 1)).map(lambda args: Operation(op=name, args=args))
    )
    return st.recursive(leaves, grow, max_leaves=8)


@given(trees(), st.floats(-10, 10), st.floats(-10, 10))
def test_what_passes_stays_within_its_bounds(expression, x, d):
    columns = {"x": np.array([x]), "d": np.array([d])}
    if pl.control.lint_expression(expression, DECLARED):
        return
    low, high = bounds_of(expression, DECLARED)
    found = compute(expression, columns, DECLARED)
    assert np.isfinite(found).all() and found.shape == (1,)
    slack = 1e-9 * (1 + abs(low) + abs(high))
    assert low - slack <= found[0] <= high + slack


def deep(n):
    return "x" if not n else op("neg", deep(n - 1))


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("reward", "no quantity 'reward'"),
        (op("add", "x"), "'add' takes 2 arguments, not 1"),
        (op("exp", "x", "d"), "'exp' takes 1 arguments, not 2"),
        (float("nan"), "no finite number"),
        (op("exp", op("square", op("square", "d"))), "above 10000 in size"),
        (op("multiply", 1e4, "d"), "above 10000 in size"),
        (deep(70), "71 parts, more than 64"),
        (op("less", "d", 10), "the same in all states"),
    ],
)
def test_what_is_refused(expression, why):
    assert why in pl.control.lint_expression(expression, DECLARED, COLUMNS)[0]


def test_what_may_be_used():
    assert not pl.control.lint_expression(op("exp", op("neg", "d")), DECLARED, COLUMNS)
    with pytest.raises(UserError, match="no quantity 'y'"):
        pl.control.columns_of(["y"], COLUMNS, DECLARED)
    with pytest.raises(UserError, match="no quantity 'd'"):
        compute("d", {"x": COLUMNS["x"]}, DECLARED)  # declared, not given
    assert "- d, 0 to 3: a distance" in pl.control.spell_quantities(DECLARED)


def test_a_model_hears_what_is_wrong_with_its_program():
    heard = []

    def answer(request):
        heard.append(request.messages[-1].content)
        return {"expressions": ["reward"] if len(heard) == 1 else ["d", {"op": "neg", "args": ["x"]}]}

    request = pl.ChatRequest(messages=pl.services.question_messages("?"))
    model = pl.control.checked_program(DECLARED, COLUMNS, most=2)
    found = asyncio.run(pl.services.ask(pl.Scripted(answer).open(), request, model))
    assert "no quantity 'reward'" in heard[1]
    assert found.expressions == ["d", op("neg", "x")]
    many = pl.Scripted(lambda r: {"expressions": ["x", "d", "x"]}).open()
    with pytest.raises(Fault, match="at most 2"):
        asyncio.run(pl.services.ask(many, request, model))


@pytest.mark.parametrize(("name", "argument"), [("exp", 1000.0), ("square", 1e200), ("exp", "year")])
def test_what_overflows_is_refused_like_what_is_large(name, argument):
    declared = {"year": pl.control.Quantity(low=1000.0, high=2000.0)}
    with pytest.raises(ValueError, match="may reach inf"):
        bounds_of(op(name, argument), declared)
