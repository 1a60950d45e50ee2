"""What rows without an answer show: texts that are imitated whole, and conversations that go on."""

import json

import palaestra as pl
import pytest
from palaestra.api.loops import run_blocking
from palaestra.errors import UserError
from palaestra.rollout.recorded import is_document
from palaestra.run import setup
from palaestra.run.record_checks import check_recorded
from palaestra.settings.fields import Settings
from palaestra.tasks.files import FileTasks, load
from palaestra.types import Group, Message, Task

TEXTS = [{"text": f"{i} + 1 = {i + 1}\n", "url": f"a/{i}", "n": i} for i in range(12)]


@pytest.fixture(autouse=True)
def fresh():
    load.cache_clear()


def write(folder, rows, name="d.jsonl"):
    (folder / name).write_text("\n".join(map(json.dumps, rows)))
    return str(folder / name)


def said(*contents):
    return [{"role": ("user", "assistant")[i % 2], "content": c} for i, c in enumerate(contents)]


def episode(path, columns=""):
    ctx = setup.context(Settings(data=path, columns=columns), talk=False)
    task = ctx.bench.tasks.task("train", 0)
    return task, run_blocking(pl.Demonstrate()(ctx, ("a", 1), Group(task=task, episodes=()))).episodes[0], ctx


@pytest.mark.parametrize(
    ("rows", "columns"), [(TEXTS, ""), ([{"body": r["text"], "label": 1} for r in TEXTS], "body=document")]
)
def test_a_text_is_trained_whole_and_without_the_template(rows, columns, tmp_path):
    task, made, ctx = episode(write(tmp_path, rows), columns)
    (segment,) = made.rows[0].segments
    tokenizer = ctx.engine().dialect.tokenizer
    assert segment.trained and segment.text == task.meta["document"] and segment.text.endswith("\n")
    begin = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
    whole = [*begin, *tokenizer.encode(segment.text, add_special_tokens=False), ctx.engine().dialect.end]
    assert list(segment.ids) == whole
    tasks = ctx.bench.tasks
    assert not tasks.has_answers and "documents are imitated whole, without the chat template" in tasks.notes


@pytest.mark.parametrize("beside", [{"answer": "2"}, {"Gold": "1"}, {"output": "x"}, {"tags": ["a"]}])
def test_a_text_beside_something_to_learn_from_is_no_document(beside, tmp_path):
    path = write(tmp_path, [{**r, **beside} for r in TEXTS])
    with pytest.raises(UserError, match=r"d\.jsonl:1: no 'prompt' .*--columns text=prompt"):
        FileTasks(path)
    own = FileTasks(path, answers=False, columns="text=prompt")
    assert not is_document(own.task("train", 0)) and not [n for n in own.notes if "document" in n]


def test_a_column_document_of_the_users_own_is_none():
    asked = (Message(role="user", content="q"),)
    meta = {"document": "q", "demonstration": "a"}
    assert not is_document(Task(id="t", prompt=asked, answer=None, meta=meta))
    assert is_document(Task(id="t", prompt=asked, answer=None, meta={"document": "q", "demonstration": "q"}))


def test_a_long_text_is_told_before_the_first_step(tmp_path):
    rows = [*TEXTS, {"text": "no " * 2000}]
    ctx = setup.context(Settings(data=write(tmp_path, rows)), talk=False)
    told = r"d\.jsonl:13': its demonstration has \d+ tokens, and the context of tiny holds 512; split its text"
    with pytest.raises(UserError, match=told):
        run_blocking(check_recorded(pl.recipe("sft"), ctx))


OPEN = [
    {"messages": said(f"{i}?", f"{i}.", "thanks")} for i in range(6)
]  # conversations in which the user has the last word


def test_of_an_open_conversation_the_replies_are_imitated(tmp_path):
    rows = [*OPEN, {"messages": said("7?", "7.", "8?", "8.", "9?")}, {"messages": said("a?", "a.")}]
    tasks = FileTasks(write(tmp_path, rows))
    made = [tasks.task(s, i) for s, n in (("train", tasks.size), ("test", tasks.test_size)) for i in range(n)]
    shown = {t.id: ([m.content for m in t.prompt], t.meta["demonstration"]) for t in made}
    assert shown["d.jsonl:1"] == (["0?"], "0.") and shown["d.jsonl:7"] == (["7?", "7.", "8?"], "8.")
    assert shown["d.jsonl:8"] == (["a?"], "a.")
    (note,) = [n for n in tasks.notes if "end with the user" in n]
    assert note.startswith("7 of 8 records end with the user, after what is imitated")


@pytest.mark.parametrize("beside", [{"answer": "x"}, {"chosen": "a", "rejected": "b"}, {"response": "a", "right": 1}])
def test_an_open_conversation_with_another_use_is_a_prompt(beside, tmp_path):
    tasks = FileTasks(write(tmp_path, [{**r, **beside} for r in OPEN]))
    assert len(tasks.task("train", 0).prompt) == 3 and not [n for n in tasks.notes if "end with" in n]
    bare = FileTasks(write(tmp_path, OPEN, "e.jsonl"), answers=False)  # judged by a reward of the user
    assert len(bare.task("train", 0).prompt) == 3
