"""Tools in records: OpenAI's form of calls is read, and columns that describe tools are not passed over in silence."""

import json

import pytest
from palaestra.chat.calls import read_hermes
from palaestra.errors import UserError
from palaestra.tasks.conversations import read_conversation
from palaestra.tasks.files import FileTasks
from palaestra.tasks.tool_data import NOT_SHOWN, WRITTEN
from palaestra.types import Call

ASK = {"role": "user", "content": "1+2"}
ADD = {"name": "add", "arguments": {"a": 1, "b": 2}}
END = [{"role": "tool", "content": "3", "tool_call_id": "c1", "name": "add"}, {"role": "assistant", "content": "3"}]


def openai(**function):
    return {"type": "function", "id": "c1", "function": function}


def said(**message):
    return read_conversation([ASK, {"role": "assistant", **message}, *END], "a.jsonl:1").prompt[1].content


@pytest.mark.parametrize(
    "message",
    [
        {"content": None, "tool_calls": [openai(**ADD)]},
        {"tool_calls": [openai(**ADD)]},
        {"content": "", "tool_calls": [openai(name="add", arguments='{"a": 1, "b": 2}')]},
        {"content": [], "tool_calls": [ADD]},
        {"content": "I add.", "tool_calls": [openai(**ADD)]},
        {"content": None, "function_call": {"name": "add", "arguments": '{"a": 1, "b": 2}'}},
        {"content": None, "tool_calls": [openai(name="add", arguments={"a": 1, "b": 2, "city": None})]},
    ],
)
def test_calls_of_openais_form_are_what_a_host_reads_from_the_content(message):
    content = said(**message)
    assert read_hermes(content, "eos", ()) == (Call(name="add", args={"a": 1, "b": 2}),)
    assert content.startswith("I add." if message.get("content") else "<tool_call>")


def test_several_calls_and_none():
    two = said(content=None, tool_calls=[openai(**ADD), openai(name="now", arguments="{}")])
    assert [c.name for c in read_hermes(two, "eos", ())] == ["add", "now"]
    assert said(content="plain", tool_calls=None) == said(content="plain", tool_calls=[]) == "plain"
    talk = read_conversation([ASK, {"role": "assistant", "content": None, "tool_calls": [openai(**ADD)]}], "a:1")
    assert talk.reply is not None and read_hermes(talk.reply, "eos", ()) == (
        Call(**{"name": "add", "args": ADD["arguments"]}),
    )


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ({"tool_calls": "add"}, r"messages\[1\].tool_calls is .*'add'.*; write a list of"),
        ({"tool_calls": [{"function": {}}]}, r"tool_calls\[0\] is .*; write \{"),
        ({"tool_calls": [openai(name="add", arguments="1+2")]}, "has arguments .* which are no JSON"),
        ({"tool_calls": [openai(name="add", arguments=[1])]}, "has arguments that are a list"),
        ({"content": None, "tool_calls": []}, "content is"),
        ({"content": "x", "refusal": "no"}, "has 'refusal'; only role and content"),
    ],
)
def test_a_call_that_cannot_be_read_is_refused_in_its_place(message, fault):
    with pytest.raises(UserError, match=fault):
        said(**message)


@pytest.mark.parametrize(
    ("more", "notes"),
    [
        ({"tools": [{"type": "function", "function": {"name": "add"}}]}, {NOT_SHOWN}),
        ({"tools": json.dumps([{"name": "add"}])}, {NOT_SHOWN}),
        ({"tools": ["add"]}, set()),
        ({"tools": "add"}, set()),
        ({"messages": [ASK, {"role": "assistant", "content": None, "tool_calls": [openai(**ADD)]}]}, {WRITTEN}),
        ({}, set()),
    ],
)
def test_what_is_done_with_tools_in_a_column_is_said_once(tmp_path, more, notes):
    rows = [{"prompt": f"{i}+1", "answer": str(i + 1), **more} for i in range(12)]
    if "messages" in more:
        rows = [{"messages": [{**ASK, "content": f"{i}+2"}, *more["messages"][1:]]} for i in range(12)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert {NOT_SHOWN, WRITTEN} & set(FileTasks(str(tmp_path / "a.jsonl")).notes) == notes
