"""The built-in proof kernel: 60 theorems, 60 formulas that are none, and every rule against truth tables."""

from itertools import product

import numpy as np
import pytest
from palaestra.errors import UserError
from palaestra.services.proof.base import ProofState, Rejected
from palaestra.services.proof.formulas import atoms, formula_text, is_tautology, read_formula
from palaestra.services.proof.natural import (
    InapplicableTactic,
    NaturalDeduction,
    apply_tactic,
    find_proof,
    goal_text,
    read_goal,
)
from palaestra.toys.theorems import random_formula

from tests.services.proof.statements import OTHERS, THEOREMS

KERNEL = NaturalDeduction()
TABLE = [dict(zip("pqr", row, strict=True)) for row in product((False, True), repeat=3)]


def value(f, row):
    """The truth value of a formula: an oracle beside the package's."""
    if isinstance(f, str):
        return f != "false" and row[f]
    a, b = value(f[1], row), value(f[2], row)
    return {"&": a and b, "|": a or b, "->": b or not a}[f[0]]


def counterexamples(goal):
    """Rows where all hypotheses hold and what is to be proven does not."""
    hypotheses, target = goal
    return [i for i, row in enumerate(TABLE) if all(value(h, row) for h in hypotheses) and not value(target, row)]


def test_the_lists_are_what_they_say():
    assert len(set(THEOREMS)) == len(set(OTHERS)) == 60
    assert not any(counterexamples(((), read_formula(t))) for t in THEOREMS)
    assert all(counterexamples(((), read_formula(t))) for t in OTHERS)
    assert [is_tautology(read_formula(t)) for t in (*THEOREMS, *OTHERS)] == [True] * 60 + [False] * 60


def test_60_theorems_have_proofs():
    for t in THEOREMS:
        proof = find_proof(t)
        assert proof is not None and KERNEL.accepts(t, proof), t
        assert not KERNEL.accepts(t, proof[:-1]) and not KERNEL.accepts(t, [*proof, "assumption"]), t


LIES = (
    [], [""], ["admit"], ["sorry"], ["qed"], ["assumption"], ["exact h0"], ["exact h-1"], ["exact h01"], ["exact h\u0661"],
    ["have false", "assumption", "assumption"], ["have false", "exact h1", "exact h1"], ["exfalso", "assumption"],
    ["intro", "exact h1"], ["contra", "exact h1"], ["contra", "apply h1", "assumption"], ["intro; assumption"],
    ["intro\nassumption"], ["exact h1 h1"], ["assumption h1"], ["cases h1", "assumption"], ["have", "assumption"],
    ["have p -> p", "intro", "exact h1", "exact h1"], ["EXACT h1"], ["mp h1 h1", "assumption"], ["__import__('os')"],
)  # fmt: skip


def test_60_others_have_none():
    """Neither by lies, nor by the proofs of other formulas, nor by what a search of 60 states finds."""
    proofs = [find_proof(t) for t in THEOREMS]
    for t in OTHERS:
        assert find_proof(t) is None, t
        assert not any(KERNEL.accepts(t, script) for script in (*LIES, *proofs)), t
        open_states, seen = [KERNEL.start(t)], set()
        for _ in range(60):
            if not open_states:
                break
            state = open_states.pop(0)
            for after in KERNEL.step(state, [*KERNEL.tactics(state), "have p", "have ~q", "have p | ~p"]):
                if isinstance(after, ProofState) and after.remains not in seen:
                    assert after.goals, (t, after.script)
                    seen.add(after.remains)
                    open_states.append(after)


def test_a_rule_keeps_every_counterexample():
    """If no goal that a tactic leaves has a counterexample, the goal has none: sound, rule by rule."""
    rng, tried = np.random.default_rng(0), set()
    for _ in range(400):
        hypotheses = tuple(dict.fromkeys(random_formula(rng, 2) for _ in range(int(rng.integers(4)))))
        goal = (hypotheses, "false" if rng.random() < 0.2 else random_formula(rng, 2))
        state = ProofState(theorem="p", goals=(goal_text(goal),), remains="")
        for tactic in (*KERNEL.tactics(state), f"have {formula_text(random_formula(rng, 2))}"):
            try:
                left = apply_tactic(goal, tactic)
            except InapplicableTactic:  # "exact" and "have" of what is there
                continue
            tried.add(tactic.split()[0])
            kept = {i for below in left for i in counterexamples(below)}
            assert set(counterexamples(goal)) <= kept, (goal_text(goal), tactic)
    assert tried == {
        "intro",
        "split",
        "left",
        "right",
        "contra",
        "exfalso",
        "assumption",
        "apply",
        "cases",
        "mp",
        "have",
    }


def test_every_tautology_that_is_drawn_has_a_proof():
    rng = np.random.default_rng(1)
    drawn = [random_formula(rng, 4) for _ in range(400)]
    for f in drawn:
        text = formula_text(f)
        proof = find_proof(text)
        assert (proof is not None) == (not counterexamples(((), f))), text
        assert proof is None or KERNEL.accepts(text, proof), text
    assert 20 < sum(is_tautology(f) for f in drawn) < 300


def test_formulas_have_one_spelling():
    for text, whole in (
        ("p -> q -> r", "(p -> (q -> r))"), ("~p & q | r -> p", "((((~p) & q) | r) -> p)"), ("p | q & r", "(p | (q & r))"),
        ("p /\\ q \\/ ~r", "p & q | ~r"), ("p \u2192 \u22a5", "~p"), ("p <-> q", "(p -> q) & (q -> p)"),
        ("~~(p | q)", "((p | q) -> false) -> false"), ("(p -> q) -> r", "((p -> q) -> r)"),
    ):  # fmt: skip
        assert read_formula(text) == read_formula(whole), text
        assert read_formula(formula_text(read_formula(text))) == read_formula(text)
    assert read_formula("p -> q & r") == ("->", "p", ("&", "q", "r"))
    assert atoms(read_formula("q -> p | false")) == ["p", "q"]
    assert read_goal("h1: p\nh2: p -> q\n|- q") == (("p", ("->", "p", "q")), "q")


@pytest.mark.parametrize(
    "text", ["", "p &", "(p", "p)", "P", "p => q", "p q", "& p", "1 = 1", "forall x, x", "(" * 300 + "p" + ")" * 300]
)
def test_no_formula(text):
    with pytest.raises(UserError, match="is no formula of the built-in kernel"):
        read_formula(text)


def test_what_is_too_large_ends_neither_memory_nor_recursion():
    start = KERNEL.start("p -> p")
    for text in ("&".join("p" * 900), "<->".join("p" * 40), "~" * 1500 + "p", "(p<->" * 12 + "p" + ")" * 12):
        with pytest.raises(UserError):
            KERNEL.start(text)
        assert isinstance(KERNEL.step(start, [f"have {text}"])[0], Rejected)
        assert not KERNEL.accepts("p -> p", [f"have {text}", "intro", "assumption"])
    deep = "(p&" * 39 + "p" + ")" * 39
    (after,) = KERNEL.step(KERNEL.start(deep), ["contra"])
    assert isinstance(after, ProofState) and KERNEL.tactics(after) == ("apply h1", "cases h1")
    with pytest.raises(UserError, match="more than 200 connectives"):
        read_formula("p<->q" + "<->q" * 20)


def test_equal_remains_are_equal_states():
    """`cases h1` of the two goals in one order or the other leaves the same; a script does not tell states apart."""
    a = KERNEL.step(KERNEL.start("p -> q -> p"), ["intro"])[0]
    again = KERNEL.step(KERNEL.start("p -> q -> p"), [" intro "])[0]
    assert a == again and hash(a) == hash(again) and a.goals == ("h1: p\n|- q -> p",)
    contra = KERNEL.step(a, ["contra"])[0]
    assert contra != a and contra.script == ("intro", "contra")
    assert KERNEL.step(a, ["assumption"])[0] == Rejected(reason="no hypothesis is the goal")
