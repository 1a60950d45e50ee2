"""The synthetic tasks: verifiers, demonstrations, splits."""

from __future__ import annotations

import re
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from palaestra.errors import UserError
from palaestra.tasks import phrasing as formats
from palaestra.tasks.procedural import final_answer, split_of
from palaestra.toys.chain import ArithmeticChain
from palaestra.toys.count import Count, NotExpression, expressions, value_of
from palaestra.toys.knights import Knights, fitting_assignments, spell
from palaestra.toys.ladder import Add, Bool, Sort
from palaestra.toys.rec import Rec
from palaestra.toys.words import Words
from palaestra.types import Message, Task, rng_of

from tests.rows import every

SOURCES = [
    ArithmeticChain(),
    ArithmeticChain(operands=(8, 8), modulo=7),
    Count(),
    Count(numbers=4, target=99),
    Rec(),
    Words(),
    *(kind(d) for kind in (Add, Bool, Sort, Knights) for d in (1, 2, 3, 6)),
]
STEPWISE = [s for s in SOURCES if hasattr(s, "first_wrong")]
each = pytest.mark.parametrize("source", SOURCES, ids=repr)


def other(task: Task) -> str:
    """A wrong answer of the right form."""
    for index in range(100):
        answer = SAME_KIND[task.domain].task("train", index).answer
        if answer != task.answer and task.domain != "count":
            return answer
    return f"{task.meta['numbers'][0]}+{task.meta['target']}"


SAME_KIND: dict[str, Any] = {s.name: s for s in SOURCES}


def wrongs(task: Task) -> list[str]:
    gold, bad = str(task.answer), other(task)
    return [
        "= ",
        gold,
        f"={gold}",
        f"answer {gold}",
        f"= {bad}",
        f"= {gold}\n= {bad}",
        f"= {gold} {bad}",
        f"= {gold}, {bad}",
        f"= {gold}.",
        f"= {gold}\nso it is",
        f"I say = {gold}",
        f"{gold} =",
        f"= '{gold}'",
        f"= {gold}{gold}",
        f"= -{gold}",
        f"= {gold}\x00",
        "= " + "(" * 5000 + gold,
        "= None",
        "\n" * 1000,
        "= ½²",
    ]


@each
def test_gold_scores_one_and_everything_else_nothing(source: Any) -> None:
    rng = rng_of(("gold",))
    for index in range(5):
        task = source.task("test", index)
        assert source.check(f"= {task.answer}", task) == 1.0
        assert source.check(f"some steps\n= {task.answer}\n", task) == 1.0
        for habit in ("guess", "work"):
            assert source.check(source.demonstration(task, rng, habit), task) == 1.0
        assert source.check("", task) == 0.0
        assert [w for w in wrongs(task) if source.check(w, task) != 0.0] == []


@each
@given(text=st.text(max_size=60))
@settings(max_examples=20)
def test_a_verifier_never_raises(source: Any, text: str) -> None:
    task = source.task("train", 0)
    for said in (text, f"= {text}", None, 3, b"= 3"):
        assert source.check(said, task) in (0.0, 1.0)
        if hasattr(source, "first_wrong"):
            source.first_wrong(said, task)


@each
def test_splits_are_disjoint_and_tasks_repeat(source: Any) -> None:
    train = {source.task("train", i).prompt[0].content for i in range(60)}
    test = {source.task("test", i).prompt[0].content for i in range(20)}
    assert not train & test
    assert {split_of(q) for q in test} == {"test"}
    assert source.task("test", 3) == source.task("test", 3)
    assert source.task("train", 7).id == f"{source.name}/train/7"
    with pytest.raises(UserError, match="no split"):
        source.task("dev", 0)


@every("source", STEPWISE)
def test_the_first_wrong_line_is_found(source: Any) -> None:
    rng = rng_of(("wrong",))
    for index in range(10):
        task = source.task("train", index)
        lines = source.demonstration(task, rng, "work").splitlines()
        assert source.first_wrong("\n".join(lines), task) is None
        assert source.first_wrong(lines[-1], task) is None
        assert source.first_wrong("", task) == 0
        for at in range(len(lines)):
            spoilt = [*lines[:at], lines[at] + "7", *lines[at + 1 :]]
            assert source.first_wrong("\n".join(spoilt), task) == at
        assert source.first_wrong("\n".join(lines[:-1]), task) == len(lines) - 1


def test_the_chain_is_read_from_left_to_right() -> None:
    chain = ArithmeticChain()
    task = Task(
        id="t",
        prompt=(Message(role="user", content="4+7*3-9 mod 10"),),
        answer="4",
        meta={"numbers": (4, 7, 3, 9), "ops": ("+", "*", "-"), "modulo": 10},
    )
    assert chain.steps(task) == ["4+7=1", "1*3=3", "3-9=4"]
    assert chain.first_wrong("4+7=1\n1*3=4\n4-9=5\n= 5", task) == 1
    assert chain.first_wrong("= 5", task) == 0


@given(
    n=st.lists(st.integers(0, 99), min_size=4, max_size=4), ops=st.lists(st.sampled_from("+-*"), min_size=3, max_size=3)
)
def test_expressions_have_python_precedence(n: list[int], ops: list[str]) -> None:
    a, b, c, d = n
    o, p, q = ops
    apply = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}
    assert value_of(f"({a}{o}{b}){p}({c}{q}{d})")[0] == apply[p](apply[o](a, b), apply[q](c, d))
    assert value_of(f"{a}-{b}*{c}-{d}") == (a - b * c - d, (a, b, c, d))


@every("text", ["", "1 2", "01", "1++2", "-1", "(1", "1)", "1/2", "2**3", "1+", "²", "9" * 99])
def test_what_is_no_expression_is_unreadable(text: str) -> None:
    with pytest.raises(NotExpression):
        value_of(text)


def test_countdown_expressions_are_complete_and_right() -> None:
    found = expressions((2, 3, 8))
    assert all(value_of(text)[0] == v and sorted(value_of(text)[1]) == [2, 3, 8] for text, v, _ in found)
    assert {t for t, v, _ in found if v == 48} >= {"2*3*8", "8*(3*2)".replace("(", "").replace(")", "")}
    task = Count().task("test", 0)
    assert len(Count().solutions(task)) > 1
    number = task.meta["numbers"][0]
    assert Count().check(f"= {task.answer}+{number}-{number}", task) == 0.0
    assert Count().check(f"= {task.meta['target']}", task) == 0.0


def test_knights_have_one_solution() -> None:
    for d in (1, 4, 6):
        task = Knights(d).task("train", 0)
        assert [spell(k) for k in fitting_assignments(task.meta["sayings"])] == [task.answer]
        assert Knights(d).first_contradicted(task.answer, task) == "ok"


def test_bool_names_every_bracket_outermost_first() -> None:
    task = Bool(3).task("train", 1)
    assert [s[-1] for s in Bool(3).steps(task)] == list(reversed(task.answer))


def test_add_and_sort_steps_are_the_columns_and_swaps() -> None:
    task = Add(3).task("train", 0)
    assert len(Add(3).steps(task)) == 3
    digits = Sort(4).task("train", 0)
    assert (
        Sort(4).steps(digits)[-1]
        == digits.answer
        == "".join(sorted(formats.question_text(digits).removeprefix("sort ")))
    )


def test_the_best_recommendation_follows_the_stride() -> None:
    task = Rec(noise=0.0).task("train", 0)
    first, second = task.meta["history"][:2]
    strides = [(ord(b) - ord(a)) % 4 for a, b in zip(first, second, strict=True)]
    assert tuple(strides) == task.meta["stride"]


# ---- answers and workings anew, from the text of the question alone


def drawn(source: Any, n: int = 60) -> list[tuple[Task, str]]:
    return [(t, formats.question_text(t)) for t in (source.task("train", i) for i in range(n))]


def test_every_number_has_a_problem_of_its_own() -> None:
    assert len({question for _, question in drawn(Add(6), 200)}) == 200


def test_chains_by_hand() -> None:
    lengths, signs, reached = set(), set(), set()
    for task, question in drawn(ArithmeticChain(modulo=7)):
        chain, _, modulo = question.partition(" mod ")
        first, *rest = re.findall(r"[-+*]?\d+", chain)
        total = int(first)
        for op, b in ((x[0], int(x[1:])) for x in rest):
            total = total + b if op == "+" else total - b if op == "-" else total * b
        assert modulo == "7" and task.answer == str(total % 7)
        lengths.add(len(rest) + 1)
        signs |= {x[0] for x in rest}
        reached |= {int(first), *(int(x[1:]) for x in rest)}
    assert (lengths, signs, reached) == ({4, 5, 6}, set("+-*"), set(range(7)))


def test_countdowns_by_hand() -> None:
    given, targets = set(), []
    for task, question in drawn(Count(target=20), 100):
        target, *numbers = map(int, re.findall(r"\d+", question))
        assert eval(task.answer) == target and sorted(map(int, re.findall(r"\d+", task.answer))) == sorted(numbers)
        tries = [
            line.rpartition("=") for line in Count().demonstration(task, rng_of((question,)), "work").splitlines()[:-1]
        ]
        assert [int(value) == target for _, _, value in tries] == [False] * (len(tries) - 1) + [True]
        given |= set(numbers)
        targets.append(target)
    assert given == set(range(1, 10)) and min(targets) >= 1 and 15 < max(targets) <= 20


def test_levels_ignore_the_stride_each_by_itself() -> None:
    """Half of the letters are any letter: 1 - 0.5 * 3/4 = 0.625 follow the stride, and all four do in 0.625^4 = 0.153."""
    follows = []
    for task, question in drawn(Rec(noise=0.5), 500):
        *_, last = question.split()
        follows.append(
            [(ord(b) - ord(a) - s) % 4 == 0 for a, b, s in zip(last, task.answer, task.meta["stride"], strict=True)]
        )
    assert np.mean(follows) == pytest.approx(0.625, abs=0.05)
    assert np.all(follows, axis=1).mean() == pytest.approx(0.153, abs=0.06)


def test_columns_carry() -> None:
    for task, question in drawn(Add(3), 30):
        a, b = question.split("+")
        carry, wanted = 0, []
        for x, y in zip(a[::-1], b[::-1], strict=True):
            wanted.append(f"{x}+{y}+{carry}={int(x) + int(y) + carry}")
            carry = int(int(x) + int(y) + carry > 9)
        assert Add(3).steps(task) == wanted and len(a) == 3 and task.answer == str(int(a) + int(b))


def test_brackets_have_their_truth_values() -> None:
    def true(text: str) -> bool:
        python = re.sub(r"!([TF])", r"(not \1)", text)
        return bool(eval(python, {"T": True, "F": False}))

    for task, question in drawn(Bool(3), 100):
        brackets, text = [], question
        while text:
            brackets.append(text)
            inner = re.search(r"\(.*\)", text[1:-1])
            text = inner[0] if inner else ""
        assert len(brackets) == 3 and task.answer == "".join("FT"[true(b)] for b in brackets)
        for step in Bool(3).steps(task):
            text, _, value = step.partition("=")
            assert true(text) == (value == "T")
        assert f"({Bool(3).steps(task)[0].partition('=')[0]})" in question


def test_a_sort_is_by_selection() -> None:
    for task, question in drawn(Sort(4), 30):
        states = [question.removeprefix("sort "), *Sort(4).steps(task)]
        for before, after in pairwise(states):
            i, j = (k for k in range(len(before)) if before[k] != after[k])
            assert (after[i], after[j]) == (before[j], before[i]) and after[: i + 1] == "".join(sorted(before))[: i + 1]


def test_exactly_one_assignment_fits() -> None:
    says = {"and": lambda a, b: a and b, "or": lambda a, b: a or b, "like": lambda a, b: a is b}
    for task, question in drawn(Knights(3), 30):
        told = [part.partition(": ")[2].split() for part in question.split(", ")]
        fitting_ones, broken = [], {}
        for knights in product((True, False), repeat=4):
            is_knight = dict(zip("ABCD", knights, strict=True))
            said = [
                not is_knight[t[0]] if t[1] == "lies" else says[t[1]](is_knight[t[0]], is_knight[t[2]]) for t in told
            ]
            spelling = "".join("NK"[k] for k in knights)
            broken[spelling] = next((n for n, s, k in zip("ABCD", said, knights, strict=True) if s != k), "ok")
            fitting_ones += [spelling] * (broken[spelling] == "ok")
        assert fitting_ones == [task.answer]
        assert {c: Knights(3).first_contradicted(c, task) for c in broken} == broken


def test_formats_keep_the_problem() -> None:
    chain, rng = ArithmeticChain(), np.random.default_rng(0)
    task, easy = chain.task("train", 0), chain.task("train", 1)
    hinted = formats.add_hint(task, chain.steps(task)[:1])
    assert formats.question_text(hinted).startswith(f"{formats.question_text(task)}\nhint:\n")
    assert formats.add_hint(task, []) == task and formats.add_examples(task, []) == task
    shown = formats.add_examples(task, [(easy, chain.demonstration(easy, rng, "work"))])
    assert formats.question_text(shown).endswith(f"now:\n{formats.question_text(task)}")
    assert (hinted.answer, hinted.meta, shown.id) == (task.answer, task.meta, task.id)
    assert [m.role for m in formats.add_instruction(task, formats.THINK_STEPWISE).prompt] == ["system", "user"]
    assert formats.judging_task(task, "= 3", False).answer == "wrong"
    assert formats.critique(0).content == "line 1 is wrong, try again"


def test_the_final_line_counts() -> None:
    assert final_answer("= 3\n= 4") == "4" and final_answer("=  4") == "4"
    assert final_answer("= 3\nx") is None
    assert final_answer("") is None


def test_how_long_an_answer_may_be_is_no_part_of_the_problems():
    """Long workings need more than the 64 tokens of other benches; a mixture has the most of its parts."""
    from palaestra.run.benches import bench_by_name

    specs = ("chain(modulo=9)", "chain(modulo=9,max_tokens=96)", "add(d=7,max_tokens=96)+bool")
    assert [bench_by_name(s)[0].max_tokens for s in specs] == [64, 96, 96]
    for source in (ArithmeticChain, Add, Bool, Sort):
        short, long = source(), source(max_tokens=96)
        assert [short.task("train", i) for i in range(5)] == [long.task("train", i) for i in range(5)]
