"""Requests and answers in the form of the Responses API."""

import json

import pytest
from palaestra.engines.own import OwnEngine
from palaestra.models.load import load
from palaestra.types import Act, Ask, Call
from palaestra.worlds.gateway.responses import ResponseAnswer, read_items, read_response_request
from palaestra.worlds.gateway.wire import CompletionAnswer, Refusal, read_message, reply_message

from tests.gateway.helpers import TASK, episode, scripted, world

ADD = {"type": "function", "name": "add", "description": "sums", "parameters": {"type": "object"}, "strict": True}


def answer(text, finish="eos", calls=(), **body):
    act = Act(ask=Ask(seat="policy"), text=text, call=None, finish=finish, n_tokens=3, calls=calls)
    made = CompletionAnswer(id="i", model="m", acts=(act,), messages=(reply_message(act, 0),))
    return ResponseAnswer(answer=made, body=body)


def test_an_input_is_read_as_messages():
    body = {
        "instructions": "be brief", "model": "policy:critic", "max_output_tokens": 4, "tools": [ADD], "stream": True,
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "3+4?"}]}],
    }  # fmt: skip
    request, kept = read_response_request(body, {})
    assert [(x.message.role, x.message.content) for x in request.lines] == [("system", "be brief"), ("user", "3+4?")]
    assert (request.agent, request.max_tokens, request.stream, request.tools[0].name) == ("critic", 4, True, "add")
    assert json.loads(request.tools[0].parameters) == {"type": "object"} and request.notes == ()
    assert kept == [{"role": "user", "content": "3+4?"}]


def test_what_was_answered_is_recognised_when_it_is_sent_back():
    calls = (Call(name="add", args={"x": 1}), Call(name="add", args={"x": 2}))
    for said in (
        answer("so <tool_call>...</tool_call>", calls=calls),
        answer("so"),
        answer("<tool_call>", calls=calls[:1]),
    ):
        (back,) = read_items(said.items())
        assert read_message(back, "m").mark == read_message(dict(said.message), "m").mark
    result = {"type": "function_call_output", "call_id": "c", "output": "7"}
    *_, tool = read_items([*answer("so", calls=calls).items(), {"type": "reasoning", "summary": []}, result])
    assert tool == {"role": "tool", "tool_call_id": "c", "content": "7"}


def test_a_request_goes_on_from_an_earlier_response():
    before = {"resp_1": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    request, kept = read_response_request({"input": "c", "previous_response_id": "resp_1", "instructions": "i"}, before)
    assert [x.message.content for x in request.lines] == ["i", "a", "b", "c"] and len(kept) == 3
    with pytest.raises(Refusal, match="no response 'resp_2'"):
        read_response_request({"input": "c", "previous_response_id": "resp_2"}, before)


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ([], "no JSON object"),
        ({}, "input must"),
        ({"input": []}, "at least one"),
        ({"input": [3]}, "input[0]"),
        ({"input": [{"type": "image_generation_call"}]}, "image_generation_call"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "no text"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": {}}]}, "arguments as a text"),
        ({"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{"}]}, "JSON"),
        ({"input": "a", "tools": [{"type": "web_search"}]}, "web_search"),
        ({"input": "a", "tools": "add"}, "tools must"),
        ({"input": "a", "conversation": "c"}, "conversation"),
        ({"input": "a", "background": True}, "background"),
        ({"input": "a", "max_output_tokens": 0}, "from 1"),
    ],
)
def test_a_request_that_cannot_be_read_is_refused(body, part):
    with pytest.raises(Refusal) as refused:
        read_response_request(body, {})
    assert refused.value.status == 400 and part in str(refused.value)


def test_what_has_no_effect_is_named():
    idle = {"input": "a", "store": False, "truncation": "disabled", "top_p": 1, "include": []}
    assert read_response_request(idle, {})[0].notes == ()
    (note,) = read_response_request({"input": "a", "reasoning": {"effort": "low"}}, {})[0].notes
    assert "'reasoning'" in note


def test_a_reply_that_is_cut_says_so():
    assert answer("so").json()["status"] == "completed" and answer("so").json()["incomplete_details"] is None
    cut = answer("so", "length").json()
    assert (cut["status"], cut["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})


def test_a_stream_says_what_the_answer_says():
    said = answer("one two\n three", calls=(Call(name="f", args={"x": "é"}),))
    events = list(said.events())
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    assert events[0]["response"]["output"] == [] and events[0]["response"]["status"] == "in_progress"
    done = events[-1]["response"]
    assert events[-1]["type"] == "response.completed" and done["output"] == said.json()["output"]
    text = "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
    assert text == done["output"][0]["content"][0]["text"] == said.message["content"]
    assert [e["arguments"] for e in events if e["type"].endswith("arguments.done")] == [done["output"][1]["arguments"]]
    assert [e["item"] for e in events if e["type"].endswith("item.done")] == done["output"]
    opened = [e["item"]["status"] for e in events if e["type"].endswith("item.added")]
    assert opened == ["in_progress"] * len(done["output"])


AGENT = """
def respond(body):
    return json.load(post(base + "/responses", {"model": "policy", **body}))
tools = [{"type": "function", "name": "add", "parameters": {"type": "object"}}]
first = respond({"input": "3+4?", "tools": tools})
if MODE == "whole":
    more = [user("3+4?"), *first["output"], user("sure?")]
    second = respond({"input": more, "tools": tools})
else:
    second = respond({"input": "sure?", "previous_response_id": first["id"], "tools": tools})
print(json.dumps({"reward": 1.0}))
"""


@pytest.mark.parametrize("mode", ["whole", "previous"])
def test_an_agent_that_goes_on_has_one_row(tmp_path, mode):
    said = episode(
        world(tmp_path, f"MODE = {mode!r}\n{AGENT}"), scripted(OwnEngine(load("tiny")), lambda text: "seven"), TASK
    )
    assert said.ok and said.total == 1.0 and len(said.rows) == 1
    assert [s.trained for s in said.rows[0].segments].count(True) == 2
