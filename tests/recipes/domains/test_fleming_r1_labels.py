"""Fleming-R1: the form that is demanded of answers, and labels that a strong model doubts."""

import asyncio
import json
from types import SimpleNamespace

import numpy as np
import palaestra as pl
import pytest
from palaestra.recipes.domains import fleming_r1
from palaestra.recipes.domains.fleming_r1 import mining
from palaestra.recipes.domains.fleming_r1.form import RequireForm, in_form

from tests.fake import episode

ROWS = [
    {"prompt": "Which organ makes insulin?", "options": ["liver", "pancreas"], "answer": "pancreas"},
    {"prompt": "Which bone is in the thigh?", "options": ["femur", "ulna"], "answer": "ulna"},  # a wrong label
    {"prompt": "Which vitamin is lacking in scurvy?", "options": ["A", "C"], "answer": "C"},
]


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("It lies there.\nAnswer: femur", 1),
        ("<think>It lies there.</think>Answer: B", 1),
        ("One.\nTwo.\n\n**Answer:** femur\n", 1),
        ("femur", 0),  # nothing says that it is the answer
        ("Answer: femur", 0),  # no thought
        ("It lies there.\nAnswer: femur\nor ulna", 0),
        ("Answer: femur\nAnswer: ulna", 0),  # both
        ("It lies there.\nAnswer:", 0),
        ("", 0),
    ],
)
def test_a_thought_and_one_answer_behind_it(text, fits):
    assert in_form(text) is bool(fits)


def test_what_is_right_in_no_form_earns_nothing(monkeypatch):
    texts = iter(["so\nAnswer: femur", "femur", "so\nAnswer: ulna"])
    episodes = tuple(episode((0,), (1,), r) for r in (1.0, 1.0, 0.0))
    monkeypatch.setattr(pl, "response_text", lambda e: next(texts))
    group = pl.Group(task=pl.Task(id="t"), episodes=episodes)
    paid = asyncio.run(RequireForm()(None, (), group)).episodes
    assert [e.reward.total for e in paid] == [1.0, 0.0, 0.0]
    assert [e.reward.parts["form"] for e in paid] == [1.0, 0.0, 1.0]
    assert [e.solved for e in paid] == [e.solved for e in episodes]  # what is right stays so


def test_where_the_form_is_demanded():
    teacher = pl.Scripted(lambda request: "no")

    def demanded(**given):
        stages = [fleming_r1.build(**given).parts[p].runnable for p in ("stage1", "stage2")]
        forms = {any(isinstance(link, RequireForm) for link in s.collect.links) for s in stages}
        assert len(forms) == 1 and {bool(s.instruction) for s in stages} == {
            given.get("cold") is False and forms == {True}
        }
        return forms.pop()

    assert not demanded() and demanded(teacher=teacher) and demanded(graph="g.tsv") and demanded(cold=False)
    assert demanded(form=True) and not demanded(cold=False, form=False)


def tried(tmp_path, context, monkeypatch, answer, rates=(0.0, 0.0, 1.0), state=None, out=True):
    file = tmp_path / "q.jsonl"
    rows = [{**row, "split": "train"} for row in ROWS] + [{**ROWS[2], "prompt": "Another?", "split": "test"}]
    if not file.exists():
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked, said = [], []

    def reply(request):
        asked.append(request.messages[-1].content)
        return answer(asked[-1])

    async def pass_rates(ctx, key, tasks, sample):
        return np.array(rates)

    monkeypatch.setattr(pl, "pass_rates", pass_rates)
    ctx = context(out=tmp_path if out else None)
    tasks = pl.tasks.FileTasks(str(file))
    ctx.bench = SimpleNamespace(tasks=tasks, first_drawn=0, name="q", reward=pl.Verify(is_right))
    ctx.say = said.append
    draw = mining.FailureMix(checker=pl.Scripted(reply), problems=3)
    return asyncio.run(draw.try_pool(ctx, (0,), state or {})), asked, said


def is_right(text, task):
    return pl.verifiers.MultipleChoice()(text, task.answer, options=task.meta["options"]).score


def right(text):
    option = "pancreas" if "insulin" in text else "femur"
    return f"It is known.\nAnswer: {option}"


def test_a_problem_at_which_the_checker_fails_too_is_set_aside(tmp_path, context, monkeypatch):
    """It answers the first at once; at the second, whose label is wrong, it is asked five times."""
    state, asked, said = tried(tmp_path, context, monkeypatch, right)
    assert [n for n, mined in state["mixed"] if mined] == [0] and 1 not in [n for n, _ in state["mixed"]]
    assert sum("insulin" in t for t in asked) == 1 and sum("thigh" in t for t in asked) == 5
    assert not any("scurvy" in t for t in asked)
    assert "1 of 2 failed problems are set aside" in said[0] and "2 fail" in said[1]
    failed = (tmp_path / "written" / "checked.failed.jsonl").read_text()
    assert "thigh" in failed and "insulin" not in failed
    # the next time the pool is tried nobody is asked again
    again, more, _ = tried(tmp_path, context, monkeypatch, right, state=json.loads(json.dumps(state)))
    assert not more and [n for n, mined in again["mixed"] if mined] == [0]


def test_a_checker_that_is_right_of_nothing_ends_the_run(tmp_path, context, monkeypatch):
    with pytest.raises(pl.UserError, match="stronger"):
        tried(tmp_path, context, monkeypatch, lambda text: "I do not know.", rates=(0.0, 0.0, 0.0))


def test_both_stages_have_the_checker():
    checker = pl.Scripted(right)
    parts = fleming_r1.build(checker=checker).parts
    assert {parts[p].runnable.draw.checker for p in ("stage1", "stage2")} == {checker}
    assert fleming_r1.build().parts["stage1"].runnable.draw.checker is None
