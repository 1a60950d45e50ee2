"""The bench of answer checkers: its cases are many, different, and labelled without a checker."""

from fractions import Fraction

import pytest
from benchmarks import checkers
from benchmarks.labelled import KINDS, draw_cases
from palaestra.run.parts import Parts
from palaestra.terminal.progress import Headway


def test_a_thousand_cases_of_every_kind_and_both_labels():
    cases = draw_cases(checkers.SEED, 80)
    assert len(cases) >= 1000 and len({(c.kind, str(c.gold), c.said) for c in cases}) == len(cases)
    assert cases == draw_cases(checkers.SEED, 80) != draw_cases(checkers.SEED + 1, 80)
    for kind in KINDS:
        right = [c.right for c in cases if c.kind == kind]
        assert 0.25 < sum(right) / len(right) < 0.75, kind


def test_fractions_are_labelled_by_their_value():
    for case in (c for c in draw_cases(5, 60) if c.kind == "fractions" and "/" in c.said):
        a, b = case.gold.removeprefix("\\frac{").removesuffix("}").split("}{")
        assert case.right == (Fraction(case.said) == Fraction(int(a), int(b)))


def test_errors_are_counted_by_kind(monkeypatch):
    fakes = {
        "pays all": lambda: lambda case: True,
        "pays none": lambda: lambda case: False,
        "breaks": lambda: lambda case: 1 / 0,
        "absent": lambda: None,
    }
    monkeypatch.setattr(checkers, "CHECKERS", fakes)
    with Headway("bench verifiers") as headway:
        found = checkers.measure(12, Parts(headway))
    every, none, broken = (found["checkers"][name] for name in ("pays all", "pays none", "breaks"))
    assert found["checkers"]["absent"] is None
    assert broken.keys() == none.keys() and all(of["raised"] == 12 for of in broken.values())
    assert none == {kind: of | {"raised": 0} for kind, of in broken.items()}
    for kind, of in every.items():
        assert of["paid"] == of["wrong"] > 0 and of["refused"] == 0 < of["right"] == none[kind]["refused"]
    shown = checkers.show(found)
    assert "installed: absent" in shown and shown.count("\n| ") == len(KINDS) + 2


def test_a_library_that_is_absent_is_not_measured():
    assert checkers.load_file("no_such_package.reward") is None
    assert checkers.load_file("json.no_such_module") is None


def test_ours_pays_no_wrong_case():
    pytest.importorskip("math_verify")
    for name, kinds in (("math", list(KINDS)), ("exact", ["numbers", "amounts in words", "bases"])):
        check = checkers.ours(name)
        cases = [c for c in draw_cases(3, 6) if c.kind in kinds and not c.right]
        assert [c for c in cases if checkers.judge_case(check, c)] == []
