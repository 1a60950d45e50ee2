"""The theory of closure: its rules hold in every small space, spaces refute what is false, and proofs are chains."""

from itertools import product

import pytest
from palaestra.errors import UserError
from palaestra.services.proof import closure
from palaestra.services.proof.base import Rejected
from palaestra.services.proof.closure import (
    ClosureAlgebra,
    SetStatement,
    canonical,
    find_chain,
    is_step,
    larger,
    read_set,
    read_sets,
    set_text,
    statement_text,
)
from palaestra.services.proof.spaces import count_cases, interiors, most_points, refute_sets

SEMI, PRE, ALPHA = "A <= cl int A", "A <= int cl A", "A <= int cl int A"
BOTH = "A <= cl int A, B <= cl int B => "
KERNEL = ClosureAlgebra()


def refutations(text):
    return [count_cases(read_sets(text), n)[1] for n in (2, 3, 4)]


def test_all_topologies_on_few_points():
    """1, 4, 29 and 355 on labelled points (OEIS A000798)."""
    assert [len(interiors(n)) for n in (1, 2, 3, 4)] == [1, 4, 29, 355]
    with pytest.raises(UserError, match="1 to 4"):
        interiors(5)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        (f"{ALPHA} => {SEMI}", [0, 0, 0]),
        (f"{ALPHA} => {PRE}", [0, 0, 0]),
        (f"{SEMI}, {PRE} => {ALPHA}", [0, 0, 0]),
        (f"{SEMI} => {PRE}", [0, 6, 384]),
        (f"{PRE} => {SEMI}", [2, 30, 626]),
        (f"{BOTH}A & B <= cl int (A & B)", [0, 6, 696]),
        (f"{BOTH}A | B <= cl int (A | B)", [0, 0, 0]),
    ],
)
def test_what_spaces_refute(text, counts):
    """The catalogue's counts of counterexamples on 2, 3 and 4 points."""
    assert refutations(text) == counts


def test_the_smallest_counterexample():
    """Opens {}, {b}, {c}, {b, c} and all: A = {a, b} is semi-open and not pre-open. Points a, b, c are bits."""
    opens = (0, 2, 4, 6, 7)
    inside = lambda s: max((o for o in opens if o & ~s == 0), key=int.bit_count)
    close = lambda s: 7 ^ inside(7 ^ s)
    assert list(map(inside, range(8))) in interiors(3).tolist()
    assert 3 & ~close(inside(3)) == 0 and 3 & ~inside(close(3)) != 0


def test_verdicts_of_spaces():
    assert [refute_sets(x, 3) for x in ("cl A <= A", "A <= cl A", "A <= ~A, ~A <= A => A <= cl B")] == [
        "false", "", "vacuous",
    ]  # fmt: skip
    assert refute_sets(f"{SEMI} => {PRE}", 2) == "" and refute_sets(f"{SEMI} => {PRE}", 3) == "false"
    with pytest.raises(UserError, match="too many"):
        count_cases(read_sets("A & B & C & D & E & F & G <= A"), 4)


def test_many_variables_are_looked_at_on_smaller_spaces():
    meet = lambda n, sign="&": f" {sign} ".join(f"A{i}" for i in range(n))
    assert [most_points(read_sets(f"{meet(n)} <= A0")) for n in (1, 3, 4, 6, 7, 10, 11, 24)] == [4, 4, 3, 3, 2, 2, 1, 0]
    assert refute_sets(f"{meet(8)} <= A0", 4) == "" and refute_sets(f"{meet(8, '|')} <= A0", 4) == "false"
    assert refute_sets(f"{meet(24)} <= A0", 4) == ""  # nothing was looked at, so nothing is known against it


def terms(depth):
    """All sets of A and B of up to so many operators above one another."""
    if not depth:
        return ["A", "B"]
    inner = terms(depth - 1)
    pairs = list(product(inner, repeat=2)) if depth == 1 else [(inner[0], inner[5]), (inner[3], inner[1])]
    return [*inner, *((s, x) for s in ("cl", "int", "~") for x in inner), *((s, *p) for s in "&|" for p in pairs)]


def test_every_rule_holds_in_every_space_of_up_to_three_points():
    some = terms(2)
    steps = [(x, y) for x in some for y in larger(x)]
    steps += [(x, y) for x in some for y in some if closure._widens(x, y)]
    assert len(some) > 60 and len(steps) > 300
    for x, y in steps:
        assert not refute_sets(SetStatement(hypotheses=(), conclusion=(x, y)), 3), (set_text(x), set_text(y))


def test_rules_backwards_inside_a_complement():
    down, up = read_set("~cl A"), read_set("~A")
    assert is_step(down, up) and not is_step(up, down)
    assert is_step(read_set("~A"), read_set("~~~A")) and is_step("A", read_set("A | cl B"))
    assert is_step(read_set("~(A | B)"), read_set("~A")) and not is_step(read_set("~A"), read_set("~(A | B)"))
    given = read_sets(f"{SEMI} => {SEMI}").hypotheses
    assert is_step("A", read_set("cl int A"), given) and not is_step("A", read_set("cl int A"))
    assert is_step(read_set("~cl int A"), read_set("~A"), given) and not is_step(
        read_set("~A"), read_set("~cl int A"), given
    )


def test_the_shortest_chains():
    chains = {
        "A <= A": [],
        "int A <= A": ["A"],
        "int A <= cl A": ["A", "cl A"],
        f"{SEMI}, {PRE} => {ALPHA}": ["int cl A", "int cl cl int A", "int cl int A"],
    }
    for text, chain in chains.items():
        found = find_chain(read_sets(text), 4)
        assert found is not None and len(found) == len(chain)
        assert KERNEL.accepts(text, list(map(set_text, found))) and KERNEL.accepts(text, chain)
    assert find_chain(read_sets("cl A <= A"), 4) is None
    assert find_chain(read_sets(f"{SEMI}, {PRE} => {ALPHA}"), 2) is None


@pytest.mark.parametrize(
    "script",
    [
        [],
        ["A"],  # ends elsewhere
        ["cl int A", "cl A"],  # not from the left side
        ["int int cl A"],
        ["int cl A", "cl A", "A"],  # goes on behind the right side, and down
        ["int cl cl A", "cl int A"],
        ["cl A <= cl A"],
        ["..."],
        ["sorry"],
        ["int A <= cl A"],
        [""],
    ],
)
def test_scripts_that_are_no_proof(script):
    assert not KERNEL.accepts("int cl A <= cl A", script)


def test_a_proof_step_by_step():
    state = KERNEL.start("int A <= cl A")
    after, wrong, broken = KERNEL.step(state, ["A", "cl A", "cl ("])
    assert after.goals == ("A <= cl A",) and isinstance(wrong, Rejected) and isinstance(broken, Rejected)
    assert "A" in KERNEL.tactics(state) and "cl int A" in KERNEL.tactics(state)
    (whole,) = KERNEL.step(after, ["cl A"])
    assert whole.whole and KERNEL.tactics(whole) == () and whole.script == ("A", "cl A")
    assert isinstance(KERNEL.step(whole, ["cl cl A"])[0], Rejected)
    for tactic in KERNEL.tactics(state):
        assert not isinstance(KERNEL.step(state, [tactic])[0], Rejected)


@pytest.mark.parametrize("text", ["A", "A <=", "a <= A", "A <= A B", "A <= (A", "A = A", "A <= B, A <= B", "cl <= A",
                                  "=> A <= A", "A <= A => A <= A => A <= A", "cl " * 40 + "A <= A"])  # fmt: skip
def test_what_is_no_statement(text):
    assert KERNEL.normal(text) is None
    with pytest.raises(UserError):
        KERNEL.start(text)


@pytest.mark.parametrize("text", ["cl (A | B) & ~C <= A", "A & (B & C) <= A & B & C", "~~A <= int ~(A & B)"])
def test_what_is_written_is_read_again(text):
    read = read_sets(text)
    assert read_sets(statement_text(read)) == read and statement_text(read) == text


def test_one_spelling_whatever_the_names():
    assert KERNEL.normal(" X1 <= cl int X1,Y <= Y=>  Y&X1<=Y ") == KERNEL.normal("B <= B, A <= cl int A => B & A <= B")
    assert KERNEL.normal("B <= cl B") == "A <= cl A"
    assert canonical(read_sets("A <= A, A <= A => A <= A")).hypotheses == (("A", "A"),)
