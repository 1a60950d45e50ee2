"""Signal temporal logic: robustness as rtamt computes it, and equivalence as an enumeration of all traces finds it."""

import itertools
import random
import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from palaestra.verifiers.logic import equivalence
from palaestra.verifiers.logic.equivalence import Undecided, are_equivalent, difference, is_contingent, place_bounds
from palaestra.verifiers.logic.stl import NotFormula, horizon, parse_formula, robustness

from tests.rows import every

X = [2, 3, 5, 1, 4, 0, 2.5, 6, 1, 3, 2, 4]
Y = [0, 1, 2, 4, 3, 5, 1, 2, 0, 3.5, 2, 1]
# Robustness at the first four times, by rtamt 0.4.10 (StlDiscreteTimeSpecification, offline) in an environment of its own: it
# pins antlr4-python3-runtime 4.7, and math-verify's parser another. There != is written !==.
RTAMT = {
    "x > 1": [1.0, 2.0, 4.0, 0.0],
    "x < 3": [1.0, 0.0, -2.0, 2.0],
    "x >= 3": [-1.0, 0.0, 2.0, -2.0],
    "x <= 2": [0.0, -1.0, -3.0, 1.0],
    "x == 4": [-2.0, -1.0, -1.0, -3.0],
    "x != 4": [2.0, 1.0, 1.0, 3.0],
    "not (x > 1)": [-1.0, -2.0, -4.0, 0.0],
    "(x > 1) and (y > 2)": [-2.0, -1.0, 0.0, 0.0],
    "(x > 1) or (y > 2)": [1.0, 2.0, 4.0, 2.0],
    "(x > 1) -> (y > 2)": [-1.0, -1.0, 0.0, 2.0],
    "always[0,3](x > 1)": [0.0, 0.0, -1.0, -1.0],
    "eventually[1,4](y > 3)": [1.0, 2.0, 2.0, 2.0],
    "(x > 0) until[0,4] (y > 3)": [1.0, 1.0, 1.0, 1.0],
    "(x > 0) until[2,5] (y > 3)": [1.0, 1.0, 1.0, 1.0],
    "(x > 2) until[1,3] (x < 2)": [0.0, 1.0, 1.0, -1.0],
    "always[0,4]((x > 2) -> (eventually[1,3](y > 3)))": [1.0, 1.0, 0.5, 0.5],
    "eventually[0,3](always[1,2](y < 3))": [1.0, -1.0, 1.0, 1.0],
    "not ((x > 0) until[0,2] (y > 3))": [1.0, -1.0, -1.0, -1.0],
    "always[1,3]((x > 0) until[0,2] (y > 1))": [3.0, 3.0, 3.0, 1.0],
}


@every("text", RTAMT)
def test_robustness_is_that_of_rtamt(text):
    traces = {"x": np.array([X], float), "y": np.array([Y], float)}
    assert robustness(parse_formula(text), traces)[0, :4].tolist() == RTAMT[text]


def test_formulas_that_few_traces_satisfy_are_told_apart():
    turns = lambda digits: parse_formula(" and ".join(f"G[{i},{i}](x == {d})" for i, d in enumerate(digits)))
    assert are_equivalent(turns("661"), parse_formula("not F[0,1] not x == 6 and G[2,2](x == 1)"))
    assert not are_equivalent(turns("123456"), turns("123459")) and not are_equivalent(
        parse_formula("x > 1 and x < 0"), turns("12345")
    )
    always = [parse_formula(f"x > {n} or x <= {n}") for n in (1, 2)]
    assert not are_equivalent(*always)  # a reference that nothing breaks says nothing
    start = time.perf_counter()
    assert not are_equivalent(
        parse_formula("<->".join(["G[0,9](x > 1)"] * 20)), parse_formula("<->".join(["G[0,9](x > 1)"] * 19))
    )
    assert time.perf_counter() - start < 5


def test_robustness_by_hand():
    x = {"x": np.array([[2.0, 3.0, 5.0, 0.0]])}
    value = lambda text: robustness(parse_formula(text), x)[0].tolist()
    assert (
        value("G[0,2](x > 1)") == [1.0, -1.0]
        and value("F[1,2](x > 4)") == [1.0, 1.0]
        and value("not x < 3") == [-1.0, 0.0, 2.0, -3.0]
    )
    assert value("(x > 1) U[1,2] (x > 4)") == [1.0, 1.0]
    assert horizon(parse_formula("G[0,21](velocity > 40 -> F[1,4](RPM < 2500))")) == 25
    assert value("x > 1 and x < 3 or x == 5")[2] == 0.0


@settings(max_examples=60)
@given(a=st.integers(0, 6), n=st.integers(0, 6), c=st.integers(1, 9))
def test_neighbouring_bounds_are_told_apart(a, n, c):
    f = parse_formula(f"G[{a},{a + n}](x > {c} -> F[0,{n}](y < {c}))")
    assert are_equivalent(f, parse_formula(f"not F[{a},{a + n}](x > {c} and not F[0,{n}](y < {c}))"))
    others = (
        f"G[{a},{a + n + 1}](x > {c} -> F[0,{n}](y < {c}))",
        f"G[{a},{a + n}](x >= {c} -> F[0,{n}](y < {c}))",
        f"G[{a},{a + n}](x > {c} -> F[0,{n + 1}](y < {c}))",
        f"G[{a},{a + n}](x > {c} -> F[0,{n}](y <= {c}))",
    )
    for other in others:
        assert not are_equivalent(f, parse_formula(other)), other


def drawn(rng, depth):
    """A formula over x and y with the thresholds 0 and 1."""
    kind = rng.choice(["not", "G", "F", "U", "and", "or", "->", "<->"])
    if depth == 0 or rng.random() < 0.2:
        return ("atom", rng.choice("xy"), rng.choice(["<", "<=", ">", ">=", "==", "!="]), Fraction(rng.choice([0, 1])))
    inner = [drawn(rng, depth - 1) for _ in range(1 if kind in ("not", "G", "F") else 2)]
    a = rng.randint(0, 1)
    return (kind, *((a, a + rng.randint(0, 1)) if kind in ("G", "F", "U") else ()), *inner)


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6))
def test_equivalence_is_that_of_all_traces(seed):
    """Five places a signal (below 0, 0, between, 1, above) and at most three steps: 15,625 traces."""
    rng = random.Random(seed)
    f = g = None
    while f is None or max(horizon(f), horizon(g)) > 2:
        f, g = drawn(rng, 3), drawn(rng, 3)
        g = ("not", ("not", f)) if rng.random() < 0.1 else g
    each = np.array(list(itertools.product(range(5), repeat=max(horizon(f), horizon(g)) + 1)), float)
    traces = {"x": np.repeat(each, len(each), 0), "y": np.tile(each, (len(each), 1))}
    bounds = {name: [Fraction(0), Fraction(1)] for name in "xy"}
    a, b = (robustness(place_bounds(h, bounds), traces)[:, 0] > 0 for h in (f, g))
    assert (difference(f, g) is None) == bool((a == b).all())
    assert is_contingent(f) == bool(a.any() and not a.all())


BOUNDS = {"A": 50, "x": 3, "y": 20, "z": 10}
TEMPLATES = (
    "G[0,{A}](a > 1 -> F[{x},{y}](b > 1 and G[0,{z}](c < 2)))",
    "F[0,{A}](G[0,{z}](a > 1 and b < 3 and c == 2))",
    "(G[0,{A}](a > 1)) -> (F[0,{y}](b > 1) and G[0,{z}](c > 1))",
    "G[0,{A}](F[{x},{y}](a > 1)) or F[0,{A}](G[0,{z}](b > 1))",
    "G[0,{A}](a > 1 -> (b > 1 U[{x},{y}] c > 1))",
    "G[0,{A}](a > 1 -> (F[{x},{y}](b > 1) <-> F[0,{z}](c > 1)))",
)


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_bound_off_by_one_is_another_meaning(template):
    gold = parse_formula(template.format(**BOUNDS))
    for name, d in itertools.product(BOUNDS, (1, -1)):
        if f"{{{name}}}" in template:
            other = template.format(**{**BOUNDS, name: BOUNDS[name] + d})
            assert not are_equivalent(parse_formula(other), gold), other


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("G[0,60](a > 1 -> F[3,20](b > 1))", "not F[0,60](a > 1 and G[3,20](b <= 1))"),
        (
            "G[0,50](a > 1 -> (F[3,20](b > 1) and G[0,9](c > 1)))",
            "G[0,50](a > 1 -> F[3,20](b > 1)) and G[0,50](a <= 1 or G[0,9](c > 1))",
        ),
        ("a > 1 U[5,50] b > 1", "G[0,4](a > 1) and F[5,5](a > 1 U[0,45] b > 1)"),
        ("G[0,90](F[0,20](a > 1))", "G[0,70](F[0,20](a > 1)) and F[71,91](a > 1) and G[70,90](F[0,20](a > 1))"),
        (
            "G[0,60](F[0,20](b > 1) <-> F[0,30](c > 1))",
            "G[0,60](F[0,20](b > 1) and F[0,30](c > 1) or G[0,20](b <= 1) and G[0,30](c <= 1))",
        ),
        ("F[0,40](x > 1 and x > 2)", "F[0,40](2 < x)"),
        ("x == 3", "x >= 3.0 and not x > 3"),
    ],
)
def test_another_writing_is_proved_the_same(text, other):
    assert are_equivalent(parse_formula(other), parse_formula(text)) and are_equivalent(
        parse_formula(text), parse_formula(other)
    )


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("pressure > 2000000 or y > 0", "pressure < 2000000 or y > 0"),
        ("v > 40", "v > 40.00003"),
        ("v > 40", "v > 40.0000000000000000000000000001"),
        ("v > 9007199254740992", "v > 9007199254740993"),
        ("v >= 5000000", "v > 5000000"),
    ],
)
def test_thresholds_are_compared_exactly(text, other):
    assert not are_equivalent(parse_formula(other), parse_formula(text))


@pytest.mark.parametrize(
    ("text", "others"),
    [
        (
            "G[0,5](v > 40)",
            (
                "G_[0,5](40 < v)",
                "□[0,5](v > 40)",
                "□_{[0:5]} v > 40",
                "Globally[0:5](v > 40)",
                "ALWAYS_[0,5](v > 40)",
                "\\Box_{[0,5]}(v > 40)",
                "\\mathbf{G}_{[0,5]} (v > 40)",
                "\\square_{[0,5]}\\left(v > 40\\right)",
            ),
        ),
        (
            "not F[0,5](v <= -4 and w >= 1.5 or u != 2)",
            (
                "¬◇[0,5](v ≤ −4 ∧ w ≥ 1.5 ∨ u ≠ 2)",
                "! eventually[0,5]((-4 >= v && 1.5 <= w) || 2 != u)",
                "\\neg \\Diamond_{[0,5]}(v \\leq -4 \\land w \\geq 1.5 \\lor u \\neq 2)",
            ),
        ),
        (
            "(a > 1) U[0,5] (b < 2) -> c == 3",
            ("(a > 1) Until[0,5] (b < 2) → c = 3", "(1 < a) until_[0:5] (b < 2) \\rightarrow 3 = c"),
        ),
    ],
)
def test_other_spellings_are_read(text, others):
    for other in others:
        assert parse_formula(other) == parse_formula(text), other
    for broken in (
        "G[0;5](v > 40)",
        "G_(v > 40)",
        "G[0:5:6](v > 40)",
        "40 < 41",
        "v < w",
        "< v 40",
        "G[0," + "9" * 5000 + "](v > 4)",
        "v > " + "9" * 5000,
    ):
        with pytest.raises(NotFormula):
            parse_formula(broken)


@pytest.mark.parametrize("bound", ["LARGEST", "BUDGET"])
def test_what_cannot_be_decided_is_not_the_same(bound, monkeypatch):
    f, g = parse_formula("F[0,40](x > 1 and x > 2)"), parse_formula("F[0,40](2 < x)")
    assert are_equivalent(f, g)
    is_contingent.cache_clear()
    monkeypatch.setattr(equivalence, bound, 10)
    assert not are_equivalent(f, g)
    with pytest.raises(Undecided):
        difference(f, g)
