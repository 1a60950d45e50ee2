"""What is shown of a task, and what is not."""

from types import SimpleNamespace

import numpy as np
import pytest
from palaestra.context import Bench
from palaestra.errors import UserError
from palaestra.rollout.hints import Criteria, Examples, Feedback, HintColumn, Hinted, Unleaked, Working, leaks_answer
from palaestra.tasks.phrasing import question_text
from palaestra.toys.chain import ArithmeticChain
from palaestra.toys.ladder import Add
from palaestra.types import Episode, Group, Message, Reward, Row, Segment, Task
from palaestra.worlds.question import Question


def ctx_of(tasks):
    dialect = SimpleNamespace(encode_text=lambda t: tuple(map(ord, t)), decode=lambda ids: "".join(map(chr, ids)))
    bench = Bench(name="b", tasks=tasks, world=Question())
    return SimpleNamespace(bench=bench, engine=lambda name="policy": SimpleNamespace(dialect=dialect))


def rng():
    return np.random.default_rng(0)


CHAIN = ctx_of(ArithmeticChain(operands=(6, 6)))
TASK = CHAIN.bench.tasks.task("train", 0)
GROUP = Group(task=TASK)
STEPS = CHAIN.bench.tasks.steps(TASK)


@pytest.mark.parametrize("unit", ["characters", "tokens"])
def test_shares_of_characters_and_tokens_are_rounded_half_to_even(unit):
    """GHPO: 2, 5, 8 of ten characters for 0.25, 0.5, 0.75; here a token is a character."""
    group = Group(task=Task(id="t", answer="1", meta={"demonstration": "abcdefghij"}))
    shown = [Working(share, unit)(CHAIN, group, rng()) for share in (0, 0.25, 0.5, 0.75, 1)]
    assert shown == ["", "ab", "abcde", "abcdefgh", "abcdefghij"]


def test_shares_of_steps_leave_the_answer_out():
    assert len(STEPS) == 5
    for share, n in ((0.25, 1), (0.5, 2), (0.75, 4), (1, 5)):
        assert Working(share)(CHAIN, GROUP, rng()) == "".join(f"{s}\n" for s in STEPS[:n])
    assert Working(1, "lines")(CHAIN, GROUP, rng()) == f"{STEPS[0]}\n"
    assert Working(9, "lines")(CHAIN, GROUP, rng()) == "".join(f"{s}\n" for s in STEPS)


def test_a_share_of_nothing_is_none():
    for share in (0, 0.05):
        assert Working(share)(CHAIN, GROUP, rng()) == "" and Hinted(Working(share))(CHAIN, GROUP, rng()) is None
    with pytest.raises(UserError, match="at least 0"):
        Working(-0.1)


@pytest.mark.parametrize("unit", ["steps", "lines", "characters", "tokens"])
def test_a_bare_answer_is_no_working(unit):
    """Half of it would give it away; a demonstration is one, also in a single line."""
    data = ctx_of(SimpleNamespace(task=None, size=1))
    bare = Task(id="t", prompt=(Message(role="user", content="q"),), answer="TTTFF")
    for share in (0.5, 1, 9):
        assert Working(share, unit)(data, Group(task=bare), rng()) == ""
    assert Hinted(Working(1, unit))(data, Group(task=bare), rng()) is None
    shown = Task(id="t", answer="TTTFF", meta={"demonstration": "T, TT\nTTTFF"})
    assert Working(1, unit)(data, Group(task=shown), rng())


def test_a_hint_stands_behind_the_question_and_changes_nothing_else():
    found = Hinted(Working(0.25))(CHAIN, GROUP, rng())
    assert question_text(found) == f"{question_text(TASK)}\nhint:\n{STEPS[0]}"
    assert (found.answer, found.meta, found.id) == (TASK.answer, TASK.meta, TASK.id)


def test_shuffled_guidance_is_another_tasks():
    found = Working(1.0, shuffled=True)
    shown = found(CHAIN, GROUP, rng())
    assert shown != Working(1.0)(CHAIN, GROUP, rng()) and len(shown.splitlines()) == 5
    assert shown == found(CHAIN, GROUP, rng()) != found(CHAIN, GROUP, np.random.default_rng(1))
    one = ArithmeticChain(size=1)
    with pytest.raises(UserError, match="no other training task"):
        found(ctx_of(one), Group(task=one.task("train", 0)), rng())


def test_the_leak_filter():
    assert leaks_answer("it is 42.", 42) and leaks_answer("a\n= 42", "42") and leaks_answer("x=-3", "-3")
    assert (
        not leaks_answer("142 and 420, 4 2", "42") and not leaks_answer("anything", None) and not leaks_answer("", "1")
    )
    told = lambda ctx, group, rng: f"the answer is {group.task.answer}"
    assert Unleaked(told)(CHAIN, GROUP, rng()) == "" and Hinted(Unleaked(told))(CHAIN, GROUP, rng()) is None
    safe = lambda ctx, group, rng: "carry twice"
    assert Unleaked(safe)(CHAIN, GROUP, rng()) == "carry twice"


def test_examples_are_other_tasks():
    text = question_text(Examples(2)(CHAIN, GROUP, rng()))
    assert text.count("example:") == 2 and text.endswith(f"now:\n{question_text(TASK)}")
    assert text.count(question_text(TASK)) == 1 and text.count("\n= ") == 2


def said(text, total):
    return Episode(
        rows=(Row(segments=(Segment(ids=(1,), logp=(0.0,), text=text),)),),
        reward=Reward(total=total),
        status="finished",
    )


def test_feedback_on_a_wrong_attempt():
    wrong, right = f"{STEPS[0]}\n1+1=0\n", "\n".join([*STEPS, f"= {TASK.answer}"])
    group = Group(task=TASK, episodes=(said(right, 1.0), said(wrong, 0.0)))
    told = {kind: Feedback(kind)(CHAIN, group, rng()).prompt for kind in ("verdict", "critique", "answer")}
    assert {k: p[-1].content for k, p in told.items()} == {
        "verdict": "wrong, try again",
        "critique": "line 2 is wrong, try again",
        "answer": f"wrong, it is {TASK.answer}, try again",
    }
    assert all(
        p[:1] == TASK.prompt and (p[1].role, p[1].content) == ("assistant", wrong.strip()) for p in told.values()
    )
    assert Feedback()(CHAIN, Group(task=TASK, episodes=group.episodes[:1]), rng()) is None
    from palaestra.toys.count import Count

    blind = Count()
    if not hasattr(blind, "first_wrong"):
        with pytest.raises(UserError, match="nobody knows"):
            Feedback("critique")(ctx_of(blind), group, rng())


def test_criteria_are_a_share_of_those_that_judge():
    task = Task(id="t", prompt=TASK.prompt, meta={"criteria": list("abcde")})
    lines = lambda share: (Criteria(share)(CHAIN, Group(task=task), rng()) or task).prompt[0].content.splitlines()
    assert [len(lines(x)) - 1 for x in (0.2, 0.5, 1.0)] == [1, 2, 5]
    assert lines(1.0)[1:] == ["- a", "- b", "- c", "- d", "- e"]
    assert Criteria(0.0)(CHAIN, Group(task=task), rng()) is None and Criteria()(CHAIN, GROUP, rng()) is None
    behind = Criteria(1.0, "prompt")(CHAIN, Group(task=task), rng())
    assert question_text(behind).splitlines() == [*question_text(task).splitlines(), *lines(1.0)]
    assert [m.role for m in behind.prompt] == [m.role for m in task.prompt]


def test_guidance_of_a_mixture_is_of_the_tasks_own_source():
    from palaestra.tasks.mixture import Mixture

    mixture = Mixture(((ArithmeticChain(), 1.0), (Add(), 1.0)))
    tasks = [mixture.task("train", i) for i in range(20)]
    for task in tasks:
        shown = question_text(Examples(1)(ctx_of(mixture), Group(task=task), rng())).splitlines()[1]
        assert (" mod " in shown) == (task.domain == "chain")


def test_a_hint_that_was_written_beforehand():
    group = Group(task=Task(id="t", answer="1", meta={"hint": "add from the right", "demonstration": "a\nb\n= 1"}))
    bare = Group(task=Task(id="t", answer="1", meta={"demonstration": "a\nb\n= 1"}))
    said = [HintColumn()(CHAIN, group, rng()), HintColumn()(CHAIN, bare, rng())]
    assert said == ["add from the right", ""]
    assert HintColumn(otherwise=Working(0.5))(CHAIN, bare, rng()) == "a\n"


def test_what_was_said_before_the_question_stays():
    """Examples before a question are the user's words too; the question is the last of them."""
    said = [("user", "2+2 ?"), ("assistant", "4"), ("user", "2+2 ?"), ("assistant", "4"), ("user", "2+3 ?")]
    task = Task(id="a", prompt=tuple(Message(role=r, content=c) for r, c in said), meta={"hint": "add"})
    assert question_text(task) == "2+3 ?"
    found = Hinted(HintColumn())(CHAIN, Group(task=task), rng())
    assert found is not None and [(m.role, m.content) for m in found.prompt] == [
        *said[:-1],
        ("user", "2+3 ?\nhint:\nadd"),
    ]
