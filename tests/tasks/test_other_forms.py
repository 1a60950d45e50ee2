"""Rows as other libraries write them arrive under the columns that Palaestra reads, with the values that they mean."""

import json

import pytest
from palaestra.errors import UserError
from palaestra.tasks.files import FileTasks, first_tasks
from palaestra.tasks.formats import OTHER_ROLES, read_verdict, standard_message
from palaestra.tasks.tool_data import THOUGHT, THOUGHTS

ASK, REPLY = {"role": "user", "content": "1+2?"}, {"role": "assistant", "content": "3"}
HUMAN, GPT = {"from": "human", "value": "1+2?"}, {"from": "gpt", "value": "3"}
CALL = {"name": "add", "arguments": {"a": 1}}
WRITTEN_CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
OPENAI_CALL = {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": CALL}]}


def write(tmp_path, *rows):
    path = tmp_path / "d.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def task(tmp_path, row):
    return first_tasks(write(tmp_path, row), 1)[0]


UNPAIRED = {  # without the label: the label's column, and the row
    "TRL": ("label", {"prompt": "1+2?", "completion": "3"}),
    "TRL, conversational": ("label", {"prompt": [ASK], "completion": [REPLY]}),
    "OpenRLHF": ("score", {"instruction": "1+2?", "response": "3"}),
    "LLaMA-Factory, Alpaca": ("kto_tag", {"instruction": "1+2?", "input": "", "output": "3"}),
    "LLaMA-Factory, ShareGPT": ("kto_tag", {"conversations": [HUMAN, GPT]}),
    "ms-swift": ("label", {"messages": [ASK, REPLY]}),
    "its own names": ("right", {"prompt": "1+2?", "response": "3"}),
}
LABELS = [(True, True), (1, True), ("true", True), ("True", True), ("1", True), (1.0, True),
          (False, False), (0, False), ("false", False), ("0", False), (-1, False), (0.0, False)]  # fmt: skip


@pytest.mark.parametrize("name", UNPAIRED)
@pytest.mark.parametrize(("label", "right"), LABELS)
def test_an_unpaired_answer_is_right_or_not_as_its_label_says(tmp_path, name, label, right):
    column, row = UNPAIRED[name]
    read = task(tmp_path, {**row, column: label})
    assert [m.content for m in read.prompt] == ["1+2?"] and read.meta["response"] == "3"
    assert read.meta["right"] is right and "demonstration" not in read.meta


@pytest.mark.parametrize("label", [2, "maybe", 0.5])
def test_a_verdict_that_is_none_is_refused_where_it_stands(tmp_path, label):
    rows = [{"prompt": f"{i}?", "response": "3", "right": True} for i in range(4)]
    path = write(tmp_path, *rows, {**rows[0], "right": label})
    with pytest.raises(UserError, match=r"d\.jsonl:5: right is a .*; write true or false"):
        FileTasks(path)
    assert read_verdict(label) is None and read_verdict(None) is None


@pytest.mark.parametrize("label", ["72", 2])
def test_a_label_without_a_reply_is_the_answer(tmp_path, label):
    row = {"context_messages": [ASK], "label": label}
    assert task(tmp_path, row).answer == label
    assert task(tmp_path, {"input": "1+2?", "label": label, "target": "other"}).answer == "other"


@pytest.mark.parametrize("name", ["expected_answer", "reference_answer", "final_answer"])
def test_an_answer_by_other_names_gives_way_to_the_usual_ones(tmp_path, name):
    assert task(tmp_path, {"problem": "1+2?", name: "3"}).answer == "3"
    assert task(tmp_path, {"problem": "1+2?", name: "3", "target": "4"}).answer == "4"


PAIRS = {
    "Argilla": {"instruction": "1+2?", "chosen_response": "3", "rejected_response": "no"},
    "OpenAI": {
        "input": {"messages": [ASK], "tools": []},
        "preferred_output": [REPLY],
        "non_preferred_output": [{**REPLY, "content": "no"}],
    },
    "LLaMA-Factory": {"conversations": [HUMAN], "chosen": GPT, "rejected": {**GPT, "value": "no"}},
}


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_by_other_names(tmp_path, name):
    read = task(tmp_path, PAIRS[name])
    assert ([m.content for m in read.prompt], read.meta["chosen"], read.meta["rejected"]) == (["1+2?"], "3", "no")


def test_a_reply_of_a_pair_may_be_a_call(tmp_path):
    row = {"prompt": [ASK], "chosen": [OPENAI_CALL], "rejected": [{**OPENAI_CALL, "content": "I add."}]}
    read = task(tmp_path, row)
    assert (read.meta["chosen"], read.meta["rejected"]) == (WRITTEN_CALL, f"I add.\n{WRITTEN_CALL}")


@pytest.mark.parametrize("names", [("role", "content"), ("from", "value"), ("role", "value")])
@pytest.mark.parametrize(("calls", "results"), [("function_call", "observation"), ("tool_call", "tool_response")])
def test_calls_and_results_that_are_messages_of_their_own(tmp_path, names, calls, results):
    turns = [("user", "1+2?"), (calls, json.dumps(CALL)), (results, "3"), ("assistant", "It is 3.")]
    column = "messages" if names[0] == "role" else "conversations"
    read = task(tmp_path, {column: [dict(zip(names, turn, strict=True)) for turn in turns]})
    expected = [("user", "1+2?"), ("assistant", WRITTEN_CALL), ("tool", "3")]
    assert [(m.role, m.content) for m in read.prompt] == expected and read.meta["demonstration"] == "It is 3."


def test_a_call_that_is_no_json_stays_text_and_standard_messages_stay_as_they_are():
    assert standard_message({"from": "function_call", "value": "add 1"}) == {"role": "assistant", "content": "add 1"}
    assert all(standard_message(m) is m for m in (ASK, REPLY, OPENAI_CALL, "text", {"role": "human", "content": "a"}))
    assert {standard_message({"role": r, "content": ""})["role"] for r in OTHER_ROLES} == {
        "assistant",
        "system",
        "tool",
    }


def test_what_is_empty_in_a_reply_of_an_api_is_passed_over(tmp_path):
    empty = {"refusal": None, "annotations": [], "audio": None, "function_call": None, "tool_calls": None}
    read = task(
        tmp_path, {"messages": [{"role": "developer", "content": "Brief."}, {**ASK, "name": "bob"}, {**REPLY, **empty}]}
    )
    assert [m.role for m in read.prompt] == ["system", "user"] and read.meta["demonstration"] == "3"
    with pytest.raises(UserError, match="has 'annotations'; only role and content"):
        task(tmp_path, {"messages": [ASK, {**REPLY, "annotations": [{"url": "a"}]}]})


@pytest.mark.parametrize("name", THOUGHTS)
def test_reasoning_is_written_before_the_content_once(tmp_path, name):
    rows = [{"messages": [{**ASK, "content": f"{i}?"}, {**REPLY, name: "Add. "}]} for i in range(3)]
    rows.append({"messages": [ASK, {"role": "assistant", "content": "<think>\nAdd.\n</think>\n\n3", name: "Add."}]})
    tasks = FileTasks(write(tmp_path, *rows))
    read = [tasks.task(s, i) for s, n in (("train", tasks.size), ("test", tasks.test_size)) for i in range(n)]
    assert {t.meta["demonstration"] for t in read} == {"<think>\nAdd.\n</think>\n\n3"} and THOUGHT in tasks.notes
