"""Messages that stand as text in a column, and pairs beside messages."""

import json

import numpy as np
import pytest
from palaestra.tasks.files import FileTasks, first_tasks
from palaestra.tasks.formats import parse_messages

ASK, REPLY, OTHER = ({"role": r, "content": c} for r, c in (("user", "1+2?"), ("assistant", "3"), ("assistant", "no")))
WRITERS = {"JSON": json.dumps, "Python": repr, "numpy": lambda talk: str(np.array(talk, dtype=object))}


def write(tmp_path, rows):
    path = tmp_path / "d.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("column", ["prompt", "messages"])
def test_a_prompt_that_holds_messages_as_text_is_read_as_messages(tmp_path, writer, column):
    talk = [{"role": "system", "content": "Be brief."}, ASK]
    path = write(tmp_path, [{column: WRITERS[writer](talk), "answer": "3"}, {column: [ASK], "answer": "4"}])
    task = first_tasks(path, 1)[0]
    assert [(m.role, m.content) for m in task.prompt] == [("system", "Be brief."), ("user", "1+2?")]
    assert f"{column} holds messages as text (JSON or Python), read as messages" in FileTasks(path).notes


@pytest.mark.parametrize("writer", ["JSON", "Python"])
@pytest.mark.parametrize("whole", [False, True])
def test_a_pair_that_holds_messages_as_text_is_read_as_messages(tmp_path, writer, whole):
    before, prompt = ([ASK], {}) if whole else ([], {"prompt": "1+2?"})
    pair = {k: WRITERS[writer]([*before, m]) for k, m in (("chosen", REPLY), ("rejected", OTHER))}
    (task,) = first_tasks(write(tmp_path, [{**prompt, **pair}]), 1)
    assert ([m.content for m in task.prompt], task.meta["chosen"], task.meta["rejected"]) == (["1+2?"], "3", "no")


def test_an_answer_in_the_form_of_a_reply_is_what_it_says(tmp_path):
    """As R1-V and Video-R1 write it; two of them, or words beside it, are left as they are."""
    for solution, answer in {
        "<answer> B </answer>": "B",
        "<answer>two\nlines</answer>\n": "two\nlines",
        "so <answer>B</answer>": "so <answer>B</answer>",
        "<answer>A</answer><answer>B</answer>": "<answer>A</answer><answer>B</answer>",
    }.items():
        rows = [{"problem": "1+2?", "solution": solution}, {"problem": "2+2?", "solution": "4"}]
        assert first_tasks(write(tmp_path, rows), 1)[0].answer == answer


NO_MESSAGES = ["[1, 2]", "[]", "{}", '{"role": 1}', "[role] content", '["role", "content"]', 'role of {"from": 1}?']


@pytest.mark.parametrize("text", [*NO_MESSAGES, "[" * 9000 + "role", "[{'role': open('content')}]"])
def test_text_without_messages_stays_text(text):
    assert parse_messages(text) is None


@pytest.mark.parametrize("repeated", [{}, {"prompt": "1+2?"}])
def test_messages_beside_a_pair_are_imitated(tmp_path, repeated):
    row = {**repeated, "chosen": [ASK, REPLY], "rejected": [ASK, OTHER], "messages": [ASK, REPLY]}
    (task,) = first_tasks(write(tmp_path, [row]), 1)
    assert [m.content for m in task.prompt] == ["1+2?"]
    assert {k: task.meta[k] for k in ("demonstration", "chosen", "rejected")} == {
        "demonstration": "3", "chosen": "3", "rejected": "no"}  # fmt: skip


def test_messages_that_are_another_conversation_than_the_pair(tmp_path):
    row = {"chosen": [ASK, REPLY], "rejected": [ASK, OTHER], "messages": [{**ASK, "content": "2+2?"}, REPLY]}
    with pytest.raises(Exception, match="messages begins with other messages than chosen and rejected"):
        first_tasks(write(tmp_path, [row]), 1)
