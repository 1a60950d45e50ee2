"""How much backtracking: traces by hand, searches, what the arms show, and a file of a user."""

import json
import re
from fractions import Fraction

import numpy as np
import palaestra as pl
import pytest
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.recipes.analysis import backtracking as study
from palaestra.recipes.analysis.backtracking import results, traces
from palaestra.recipes.analysis.backtracking.traces import SolutionSearch, WrongBranch
from palaestra.types import Message, Task

FORM = traces.TraceForm("back to {step}.", "again.", "= {answer}")
SEARCH = SolutionSearch(("s1", "s2", "s3"), (WrongBranch(2, ("w2",)), WrongBranch(0, ("w0", "v0"))), "A")


def rng():
    return np.random.default_rng(0)


def task(answer="22", **meta):
    return Task(id="t", prompt=(Message(role="user", content="?"),), answer=answer, meta=meta)


def test_a_trace_goes_back_to_the_step_that_a_branch_left():
    """Both branches, in the order of the steps that they leave: from the beginning first, then from the second step."""
    assert FORM.trace(SEARCH, 2, rng()).splitlines() == [
        "w0", "v0", "again.", "s1", "s2", "w2", "back to 2.", "s3", "= A",
    ]  # fmt: skip
    assert FORM.trace(SEARCH, 0, rng()).splitlines() == ["s1", "s2", "s3", "= A"]
    # too few branches: none at all
    assert FORM.trace(SEARCH, 3, rng()) == FORM.trace(SEARCH, 0, rng())
    assert FORM.trace(SolutionSearch(("s",), (), "A", "so A"), 0, rng()) == "s\nso A"


@pytest.mark.parametrize(
    "text, n", [("back to 2.", 1), ("x\nback to 13.\nagain.\nback to y.", 2), ("back to 2", 0), ("", 0)]
)
def test_back_steps_of_a_text(text, n):
    assert FORM.count(text) == n


def test_one_branch_of_two_is_drawn_at_random():
    drawn = {FORM.trace(SEARCH, 1, np.random.default_rng(i)) for i in range(20)}
    assert drawn == {"w0\nv0\nagain.\ns1\ns2\ns3\n= A", "s1\ns2\nw2\nback to 2.\ns3\n= A"}


def test_senseless_content_keeps_the_structure():
    """As many branches at the same places, with the steps of another problem; one without branches stays."""
    others = [SolutionSearch(("x",), (WrongBranch(1, ("o",)),), "B"), SolutionSearch(("y",), (), "C")]
    first, second, third = traces.swap_content([SEARCH, *others], rng())
    assert [(b.at, tuple(b.steps)) for b in first.branches] == [(2, ("o",)), (0, ("o",))]
    assert [(b.at, tuple(b.steps)) for b in second.branches] == [(1, ("w2",))]
    assert (first.steps, first.answer, third) == (SEARCH.steps, "A", others[1])


def steps_hold(steps, numbers):
    """Whether every step combines two numbers that are left; what is left at the end."""
    left = sorted(map(Fraction, numbers))
    for step in steps:
        sides, value = step.split("=")
        sign = next(c for c in "+-*/" if c in sides[1:])
        a, b = map(Fraction, sides.split(sign))
        assert {"+": a + b, "-": a - b, "*": a * b, "/": a / b if b else None}[sign] == Fraction(value)
        left.remove(a)
        left.remove(b)
        left.append(Fraction(value))
    return left


@pytest.mark.parametrize(
    "numbers, target", [((3, 5, 7), 22), ((2, 3, 8), 14), ((1, 2, 3, 4), 24), ((50, 5, 3), 30), ((12, 4, 3), 9)]
)
def test_countdown_solutions_and_wrong_branches(numbers, target):
    """3*5+7 = 22: the right steps reach the target, wrong ones from where they leave do not; 12/4*3 needs division."""
    found = traces.search_of(task(str(target), numbers=numbers), 4, rng())
    assert steps_hold(found.steps, numbers) == [target] and len(found.branches) >= 2
    assert eval(found.answer) == target
    assert sorted(map(int, re.findall(r"\d+", found.answer))) == sorted(numbers)
    for branch in found.branches:
        (end,) = steps_hold([*found.steps[: branch.at], *branch.steps], numbers)
        assert end != target and branch.at < len(found.steps)


def test_what_cannot_be_reached_has_no_steps():
    found = traces.search_of(task("1000", numbers=(1, 1)), 2, rng())
    assert not found.steps and not found.branches


@pytest.mark.parametrize(
    "inner, sign, right, text",
    [("+", "*", False, "(t)"), ("*", "+", True, "t"), ("-", "-", True, "(t)"), ("-", "-", False, "t"), ("", "/", True, "t"),
     ("*", "/", True, "(t)"), ("*", "/", False, "t")],
)  # fmt: skip
def test_brackets(inner, sign, right, text):
    assert traces.bracket((Fraction(1), "t", inner), sign, right=right) == text


def test_columns_of_a_row():
    row = task(steps=("a", "b"), wrong=[{"back": 1, "steps": ["c"]}, {"steps": ["d"]}])
    found = traces.search_of(row, 0, rng())
    assert (found.steps, [(b.at, b.steps) for b in found.branches]) == (("a", "b"), [(1, ("c",)), (0, ("d",))])
    assert traces.search_from(json.loads(json.dumps(found.json()))).json() == found.json()


@pytest.mark.parametrize(
    "meta, why",
    [
        ({"steps": "a"}, "`steps` are"),
        ({"steps": ("a",), "wrong": [{"back": 2, "steps": ["c"]}]}, "at most 1"),
        ({"steps": ("a",), "wrong": ["c"]}, "`wrong` is"),
        ({"steps": ("a",), "wrong": [{"back": 0, "steps": []}]}, "`wrong` is"),
        ({"numbers": ("x", 2)}, "no whole number"),
    ],
)
def test_columns_in_another_form(meta, why):
    with pytest.raises(UserError, match=why):
        traces.search_of(task(**meta), 1, rng())


def test_answers_of_the_start_stand_for_what_is_missing():
    item = {"texts": ["x\n= 2", "y\n\n= 1", "z\n= 3", "x\n= 2"], "right": [False, True, False, False]}
    found = study.with_answers(SolutionSearch((), (), "1"), item)
    assert (found.steps, found.end) == (["y"], "= 1")
    assert [(b.at, b.steps) for b in found.branches] == [(0, ("x", "= 2")), (0, ("z", "= 3"))]
    kept = study.with_answers(SEARCH, item)
    assert (kept.steps, kept.branches, kept.end) == (SEARCH.steps, SEARCH.branches, "")


def items(*rights):
    return [
        {"problem": i, "id": str(i), "prompt": "p", "gold": "1", "right": list(r), "texts": ["back to 1."] * len(r),
         "tokens": [3] * len(r)}
        for i, r in enumerate(rights)
    ]  # fmt: skip


def arm(name, b, after, curve=()):
    return results.Arm(results.Traces(name, b, "f", 10.0, b), 5, items(*after), items(*after), curve)


N = 30


def test_the_answer_comes_first():
    """Of 30 problems none is solved with 0 back-steps and all with 2; shuffled ones as with 2, cold ones as with 0."""
    none, all_right = [(0, 0)] * N, [(1, 1)] * N
    arms = [arm("back-0", 0, none), arm("back-2", 2, all_right), arm("shuffled-2", 2, all_right), arm("cold", 0, none)]
    found = results.report(items(*[(1, 1)] * 10, *[(0, 0)] * 20), arms, FORM)
    assert found.findings[0].startswith("2 back-steps before RL are better than none: +100.0 points")
    assert "0.0% with 0, 100.0% with 2" in found.findings[0]
    assert found.findings[2].startswith("Senseless wrong steps instead of those of the problem: +0.0 points")
    assert found.findings[-1].endswith("with 2 where the start is always right, 2 where the start is never right.")
    assert found.numbers["best"] == 2 and found.numbers["moved"] == 0 and found.numbers["back_steps_cold"] == 1
    assert [r[1] for r in found.tables[1].rows] == ["10", "20"]


def test_nothing_is_claimed_without_a_difference():
    some = [(1, 0)] * N
    arms = [arm("back-0", 0, some), arm("back-1", 1, some)]
    found = results.report(items(*some), arms, FORM)
    assert found.findings[0].startswith("No number of back-steps is seen to be better than none. Right")
    worse = results.report(items(*some), [arm("back-0", 0, [(1, 1)] * N), arm("back-1", 1, [(0, 0)] * N)], FORM)
    assert "and 1 are worse" in worse.findings[0] and worse.numbers["best"] == 0


def test_drawdown():
    """Means over two values: 1/2, 1, 3/4, 1/4, 1/2: the worst fall is 3/4."""
    assert pl.studies.drawdown([0, 1, 1, 0.5, 0, 1], 2) == pytest.approx(0.75)
    assert pl.studies.drawdown([0, 1, 2], 2) == 0 and pl.studies.drawdown([1], 2) == 0


@pytest.mark.parametrize(
    "given, why",
    [({"backs": (1, 2)}, "0 among them"), ({"backs": (0, 0)}, "different"), ({"back": "back"}, "needs {step}"),
     ({"ends": "so"}, "and ends"), ({"traces": 1}, "traces")],
)  # fmt: skip
def test_numbers_that_say_nothing_are_refused(given, why):
    with pytest.raises(UserError, match=why):
        study.build(**given)


def test_a_file_of_a_user_is_held_out_and_goes_on(tmp_path, capsys):
    """Rows of prompt and answer alone: answers of the start serve. The same command goes on, and trains nothing again."""
    rows = [{"id": str(i), "prompt": f"{i}+1", "answer": str(i + 1)} for i in range(8)]
    file, out = tmp_path / "own.jsonl", tmp_path / "out"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    words = [
        "backs=[0,1]",
        "cold=false",
        "shuffled=0",
        "problems=2",
        "samples=1",
        "tries=3",
        "sft_steps=1",
        "rl_steps=1",
    ]
    words += ["teach.schedule.prompts=2", "train.schedule.prompts=1", "train.collect.links.0.n=2"]
    ask = [
        "study",
        "backtracking",
        "--model",
        "tiny",
        "--data",
        str(file),
        "--reward",
        "math",
        "--out",
        str(out),
        *words,
    ]
    assert main(ask) == 0
    first = (out / "study.json").read_text()
    items = [json.loads(x) for x in (out / "items.jsonl").read_text().splitlines()]
    taught = [json.loads(x) for x in (out / "traces-back-1.jsonl").read_text().splitlines()]
    held = {x["prompt"] for x in items}
    assert held and taught and held.isdisjoint(t["messages"][0]["content"] for t in taught)
    assert all(t["messages"][-1]["role"] == "assistant" for t in taught)
    (out / "summary.json").unlink()
    before = (out / "back-0-rl" / "metrics.jsonl").stat().st_mtime_ns
    assert main(ask) == 0 and (out / "study.json").read_text() == first
    assert (out / "back-0-rl" / "metrics.jsonl").stat().st_mtime_ns == before
