"""Tools in records: OpenAI's form of calls is read, and columns that describe tools are not passed over in silence."""

import asyncio
import json

import palaestra as pl
import pytest
from palaestra.chat.calls import read_hermes
from palaestra.errors import UserError
from palaestra.rollout.collect import Sample
from palaestra.rollout.recorded import Demonstrate
from palaestra.tasks.conversations import read_conversation
from palaestra.tasks.files import FileTasks
from palaestra.tasks.tool_data import SHOWN, WRITTEN, described_tools, read_tools
from palaestra.types import Call, Group, Task
from palaestra.worlds.question import Question

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
        ({"tools": [{"type": "function", "function": {"name": "add"}}]}, {SHOWN}),
        ({"tools": json.dumps([{"name": "add"}])}, {SHOWN}),
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
    assert {SHOWN, WRITTEN} & set(FileTasks(str(tmp_path / "a.jsonl")).notes) == notes


WEATHER = {"name": "weather", "description": "says it", "parameters": {"city": {"type": "str, optional"}}}


@pytest.mark.parametrize(
    "column",
    [
        [WEATHER],
        json.dumps([WEATHER]),
        [{"type": "function", "function": WEATHER}],
        [{"name": "weather", "description": "says it", "input_schema": {"properties": {"city": {"type": "string"}}}}],
        [{**WEATHER, "parameters": {"city": {"type": "string", "enum": None}, "day": None}}],
        [{**WEATHER, "parameters": json.dumps({"type": "object", "properties": {"city": {"type": "string"}}})}],
    ],
)
def test_tools_of_a_row_in_every_form_are_one_schema(column):
    [tool] = described_tools(Task(id="t", meta=read_tools({"tools": column}, "a:1")))
    assert (tool.name, tool.description) == ("weather", "says it")
    assert json.loads(tool.parameters)["properties"] == {"city": {"type": "string"}}


@pytest.mark.parametrize("column", [None, ["add"], "add", "def add(): ...", 3, [], "[]"])
def test_what_describes_no_tool_stays_as_it_is(column):
    assert read_tools({"tools": column}, "a:1") == {"tools": column}
    assert described_tools(Task(id="t", meta={"tools": column})) == ()


@pytest.mark.parametrize(
    ("tool", "fault"),
    [
        ({"description": "x"}, r"a:1: tools\[0\] is"),
        ({"name": "f", "parameters": [1]}, "parameters is .*; write a JSON"),
    ],
)
def test_a_tool_without_a_name_or_schema_is_refused(tool, fault):
    with pytest.raises(UserError, match=fault):
        read_tools({"tools": [tool]}, "a:1")


def test_a_row_shows_its_own_tools_alike_in_imitation_and_in_rollouts(context, tmp_path):
    """Two rows with other tools: each prompt names its own, and a demonstration begins with the very ids of an answer's
    prompt."""
    rows = [
        {"prompt": f"hi {name}", "answer": "x", "demonstration": "x", "tools": tools, "id": name, "split": split}
        for name, tools, split in (
            ("first", [{"name": "add"}], "train"),
            ("second", [{"name": "sub"}], "train"),
            ("none", [], "train"),
            ("last", [], "test"),
        )
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    tasks = FileTasks(str(tmp_path / "a.jsonl"))
    ctx = context(bench=pl.Bench(name="a", tasks=tasks, world=Question(), max_tokens=3))

    def prompts(task):
        played = asyncio.run(Sample(1)(ctx, ("k",), Group(task=task))).episodes[0]
        shown = asyncio.run(Demonstrate()(ctx, ("k",), Group(task=task))).episodes[0]
        heard = [[s for s in e.rows[0].segments if not s.trained] for e in (played, shown)]
        assert [s.ids for s in heard[0]] == [s.ids for s in heard[1]]
        return "".join(s.text for s in heard[0])

    said = {t.id: prompts(t) for t in (tasks.task("train", i) for i in range(tasks.size))}
    named = {i: [name for name in ("add", "sub") if name in text] for i, text in said.items()}
    assert named == {"first": ["add"], "second": ["sub"], "none": []}
