"""Multiple choice in data: options are shown under their question, and the right one may be named in three ways."""

import asyncio
import json
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from palaestra.recipes.rewards import alphamed
from palaestra.rewards.audit import audit
from palaestra.rewards.verified import Verified
from palaestra.run.benches import from_data
from palaestra.tasks.files import FileTasks, first_tasks
from palaestra.tasks.options import contains_options, letter_options
from palaestra.tasks.oracle import episode_saying, find_problems
from palaestra.types import Group, Message, Task

RED = ["red", "green", "blue"]
CTX = SimpleNamespace(judging=nullcontext, verdicts=lambda reward, group: reward(CTX, group))


def asked(prompt="Which?", **columns):
    return {"prompt": prompt, "answer": "red", **columns}


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (asked(options=RED), "Which?\nA. red\nB. green\nC. blue"),
        (asked(options=RED, order=[2, 0, 1]), "Which?\nA. blue\nB. red\nC. green"),
        (asked(options=RED, order=[0, 0, 1]), "Which?\nA. red\nB. green\nC. blue"),  # no order
        (asked(options=[1, 2.5]), "Which?\nA. 1\nB. 2.5"),
        (asked(options=["A) red", "B) blue"]), "Which?\nA) red\nB) blue"),
        (asked("Which?\n\na) Red\nb) green\nc) blue", options=RED), "Which?\n\na) Red\nb) green\nc) blue"),
        (asked("Which? (A) red (B) green (C) blue", options=RED), "Which? (A) red (B) green (C) blue"),
        (asked("Is it red, green or blue?", options=RED), "Is it red, green or blue?\nA. red\nB. green\nC. blue"),
        (asked("Which? A. blue B. green C. red", options=RED), "Which? A. blue B. green C. red\nA. red\nB. green\nC. blue"),
        (asked(options=None), "Which?"),
        (asked(options={"timeout": 5}), "Which?"),
        (asked(options=["red"]), "Which?"),
        (asked(options=["red", None]), "Which?"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("messages", [False, True])
def test_options_stand_under_the_question(tmp_path, record, said, messages):
    if messages:
        before = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
        record = dict(record)
        record["messages"] = [*before, {"role": "user", "content": record.pop("prompt")}]
    (tmp_path / "d.jsonl").write_text(json.dumps(record))
    (task,) = first_tasks(str(tmp_path / "d.jsonl"), 1)
    assert task.prompt[-1].content == said and task.meta["options"] == record["options"]
    assert len(task.prompt) == (3 if messages else 1)


def test_a_letter_is_no_part_of_a_word():
    assert not contains_options("Banana. red, b. blue", ["red", "blue"])
    assert contains_options(letter_options(RED), RED)


def written(tmp_path, answer, n=12, **columns):
    """Three options, the second right, under a question of its own each."""
    records = [asked(f"Number {i}?", options=RED, **columns) | {"answer": answer} for i in range(n)]
    (tmp_path / "d.jsonl").write_text("\n".join(map(json.dumps, records)))
    return str(tmp_path / "d.jsonl")


@pytest.mark.parametrize("answer", [1, "B", "green"])
@pytest.mark.parametrize("reward", ["", "choice", "choice-boxed"])
def test_training_and_evaluation_show_options_and_pay_the_right_one(tmp_path, answer, reward):
    bench = from_data(written(tmp_path, answer), "", reward)
    for split in ("train", "test"):
        task = bench.tasks.task(split, 0)
        assert task.prompt[-1].content.endswith("?\nA. red\nB. green\nC. blue")
        texts = (r"\boxed{B}", r"\boxed{green}", r"\boxed{A}", r"\boxed{1}", "")
        found = asyncio.run(bench.reward(CTX, Group(task=task, episodes=tuple(map(episode_saying, texts)))))
        assert [r.total for r in found] == [1, 1, 0, 0, 0]
    assert asyncio.run(find_problems(bench.tasks, bench.reward, 8, ctx=CTX)) == []


def test_the_letter_is_that_of_the_order_shown(tmp_path):
    judge, (task, *_) = Verified("choice"), first_tasks(written(tmp_path, 1, order=[2, 0, 1]), 1)
    assert task.prompt[-1].content.endswith("C. green") and judge.put(task) == "<answer>C</answer>"
    assert judge.judge(judge.put(task), task).total == 1 and judge.judge("B", task).total == 0


def test_an_audit_asks_for_indices_as_letters(tmp_path):
    tasks = first_tasks(written(tmp_path, 1, n=6), 6)
    tasks = [*tasks[:3], *(Task(id=t.id, prompt=t.prompt, answer=2, meta=t.meta) for t in tasks[3:])]
    found = audit("choice", Verified("choice"), tasks)
    assert found.gold["mean"] == 1 and found.gold["not_best"] == 0


def test_data_without_options_keeps_exact_answers(tmp_path):
    (tmp_path / "d.jsonl").write_text("\n".join(json.dumps({"prompt": f"{i}?", "answer": i}) for i in range(9)))
    bench = from_data(str(tmp_path / "d.jsonl"), "", "")
    assert bench.reward.gold == 1 and not FileTasks(str(tmp_path / "d.jsonl")).choices


def test_some_tasks_with_options_and_some_without(tmp_path):
    records = [asked(f"Number {i}?", options=RED if i % 2 else None) for i in range(20)]
    (tmp_path / "d.jsonl").write_text("\n".join(map(json.dumps, records)))
    bench = from_data(str(tmp_path / "d.jsonl"), "", "")
    for task in (bench.tasks.task("train", i) for i in range(bench.tasks.size)):
        found = asyncio.run(bench.reward(CTX, Group(task=task, episodes=(episode_saying("A"), episode_saying("red")))))
        assert [r.total for r in found] == [float(task.meta["options"] is not None), 1]
    assert asyncio.run(find_problems(bench.tasks, bench.reward, 8, ctx=CTX)) == []


def test_alphamed_shows_options_once_in_an_order_of_its_own(tmp_path):
    ctx = SimpleNamespace(bench=from_data(written(tmp_path, 1), "", ""), seed=0)
    tasks, _ = alphamed.build().draw(ctx, ("k",), 10, {})
    for task in tasks:
        question, *lines, ask = task.prompt[-1].content.split("\n")
        assert question.startswith("Number ") and ask == alphamed.ASK
        assert lines == [f"{letter}. {RED[i]}" for letter, i in zip("ABC", task.meta["order"], strict=True)]
    assert len({tuple(t.meta["order"]) for t in tasks}) > 1


def test_alphamed_keeps_an_order_that_the_question_speaks_of():
    text = "Choose (A) red, (B) green or (C) blue, please."
    task = Task(id="q", prompt=(Message(role="user", content=text),), answer=1, meta={"options": RED})
    shown = alphamed.show_options(task, ("k",))
    assert shown.prompt[-1].content == f"{text}\n{alphamed.ASK}" and "order" not in shown.meta


PETS = ["cat", "dog", "eel"]
LISTED = [{"label": x, "text": p} for x, p in zip("ABC", PETS, strict=True)]
FORMS = {  # the options, the answer, the answer as a letter of what is shown
    "an object": ({"A": "cat", "B": "dog", "C": "eel"}, "B", "B"),
    "an object with fewer than others": ({"A": "cat", "B": "dog", "C": "eel", "D": None}, "B", "B"),
    "objects": (LISTED, "C", "C"),
    "objects without labels": ([{"text": p} for p in PETS], "C", "C"),
    "two lists": ({"text": PETS, "label": ["A", "B", "C"]}, "A", "A"),
    "labels that are numbers": ({"text": PETS, "label": ["1", "2", "3"]}, "1", "A"),
    "a number as a label": ({"1": "cat", "2": "dog", "3": "eel"}, 3, "C"),
    "labels in brackets": ({"(a)": "cat", "(b)": "dog", "(c)": "eel"}, "(c)", "C"),
    "labels in another order": ({"C": "cat", "A": "dog", "B": "eel"}, "C", "A"),
    "an answer that is a text": ({"A": "cat", "B": "dog", "C": "eel"}, "dog", "dog"),
    "JSON": (json.dumps(PETS), "B", "B"),
    "JSON of objects": (json.dumps(LISTED), "B", "B"),
    "lines": ("A. cat\nB. dog\nC. eel", "B", "B"),
    "lines in brackets": ("(a) cat\n\n(b) dog\n(c) eel\n", "B", "B"),
}  # fmt: skip


def told_of(tmp_path, options, answer):
    rows = [{"prompt": f"Which is {i}?", "options": options, "answer": answer} for i in range(4)]
    (tmp_path / "d.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return FileTasks(str(tmp_path / "d.jsonl"))


@pytest.mark.parametrize("name", FORMS)
def test_options_in_other_forms_are_shown_and_the_answer_is_their_letter(tmp_path, name):
    options, answer, letter = FORMS[name]
    tasks = told_of(tmp_path, options, answer)
    task = tasks.task("train", 0)
    assert task.prompt[-1].content.endswith("?\nA. cat\nB. dog\nC. eel") and tasks.choices
    assert (task.meta["options"], task.answer) == (PETS, letter)
    assert not any("options" in n for n in tasks.notes)


@pytest.mark.parametrize(
    "options", [{"timeout": 5}, {"low": "a", "high": "b"}, "cat or dog", ["cat"], 3, [["A", "cat"]] * 2]
)
def test_options_in_no_known_form_are_told(tmp_path, options):
    tasks = told_of(tmp_path, options, "x")
    assert not tasks.choices and tasks.task("train", 0).meta["options"] == options
    assert sum("4 of 4 records have a column 'options' in no known form" in n for n in tasks.notes) == 1
