"""Requests and answers in OpenAI's form."""

import pytest
from palaestra.types import Act, Ask, Call, Malformed
from palaestra.worlds.gateway.wire import CompletionAnswer, Refusal, read_message, read_request, reply_message

ASKED = [{"role": "user", "content": "hello"}]
CALLS = [{"id": "a1", "type": "function", "function": {"name": "add", "arguments": '{"x": 1, "y": 2}'}}]


def act(text, finish="eos", calls=(), stop=()):
    return Act(ask=Ask(seat="policy", stop=stop), text=text, call=None, finish=finish, n_tokens=3, calls=calls)


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ([], "no JSON object"),
        ({"messages": []}, "at least one"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": [{"role": "judge", "content": "x"}]}, "judge"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "text"),
        ({"messages": ASKED, "n": 0}, "n must"),
        ({"messages": ASKED, "n": True}, "n must"),
        ({"messages": ASKED, "max_tokens": "9"}, "max_tokens must"),
        ({"messages": ASKED, "temperature": -1}, "temperature must"),
        ({"messages": ASKED, "temperature": float("nan")}, "temperature must"),
        ({"messages": ASKED, "stop": [3]}, "stop must"),
        ({"messages": ASKED, "tools": {"a": 1}}, "tools must"),
        ({"messages": ASKED, "tools": [{"name": "add"}]}, "tools[0]"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]}, "JSON"),
        ({"messages": [{"role": "assistant", "tool_calls": "f"}]}, "tool_calls"),
    ],
)
def test_a_request_that_cannot_be_read_is_refused(body, part):
    with pytest.raises(Refusal) as refused:
        read_request(body)
    assert refused.value.status == 400 and part in refused.value.json()["error"]["message"]


def test_a_request_is_read():
    body = {
        "messages": [{"role": "developer", "content": [{"type": "text", "text": "be"}, {"type": "text", "text": " it"}]}],
        "model": "policy:critic", "n": 2, "stop": "\n", "max_tokens": 5, "max_completion_tokens": 4, "stream": True,
    }  # fmt: skip
    r = read_request(body)
    assert (r.lines[0].message.role, r.lines[0].message.content) == ("system", "be it")
    assert (r.agent, r.n, r.stop, r.max_tokens, r.stream) == ("critic", 2, ("\n",), 4, True)
    assert read_request(body, "planner").agent == "planner"


@pytest.mark.parametrize("ask", [{"top_p": 0.5}, {"seed": 3}, {"response_format": {"type": "json_object"}}, {"odd": 1}])
def test_what_has_no_effect_is_named(ask):
    (note,) = read_request({"messages": ASKED, **ask}).notes
    assert repr(next(iter(ask))) in note


def test_what_asks_for_nothing_is_not_named():
    plain = {"top_p": 1, "presence_penalty": 0.0, "tool_choice": "auto", "user": "me", "seed": None}
    assert read_request({"messages": ASKED, **plain}).notes == ()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"content": None, "tool_calls": CALLS}, {"content": "", "tool_calls": CALLS, "refusal": None}, True),
        ({"content": "a"}, {"content": [{"type": "text", "text": "a "}]}, True),
        ({"content": "a"}, {"content": "b"}, False),
        ({"tool_calls": CALLS}, {"tool_calls": [{**CALLS[0], "id": "b"}]}, False),
        (
            {"tool_calls": CALLS},
            {"tool_calls": [{**CALLS[0], "function": {"name": "add", "arguments": '{"y":2,"x":1}'}}]},
            True,
        ),
    ],
)
def test_a_message_is_the_same_however_a_library_writes_it(one, other, same):
    marks = [read_message({"role": "assistant", **m}, "m").mark for m in (one, other)]
    assert (marks[0] == marks[1]) is same


def test_what_is_answered_is_recognised():
    said = reply_message(act("so <tool_call>...</tool_call>", calls=(Call(name="add", args={"x": 1}),)), 4)
    assert said["content"] == "so" and said["tool_calls"][0]["id"] == "call00400"
    assert read_message(said, "m").mark == read_message({**said, "content": "so "}, "m").mark
    bad = reply_message(act("<tool_call>{</tool_call>", calls=(Malformed(kind="json"),)), 0)
    assert bad == {"role": "assistant", "content": "<tool_call>{</tool_call>"}


def test_a_stop_string_is_left_out_of_the_text():
    assert reply_message(act("one\n", "stop", stop=("\n",)), 0)["content"] == "one"
    assert reply_message(act("one\n", "eos", stop=("\n",)), 0)["content"] == "one\n"


def test_a_stream_says_what_the_answer_says():
    acts = (act("one two\n three", "length"), act("x", calls=(Call(name="f"),)))
    messages = tuple(reply_message(a, i) for i, a in enumerate(acts))
    answer = CompletionAnswer(id="i", model="m", acts=acts, messages=messages)
    for choice in answer.json()["choices"]:
        i, mine = choice["index"], [
            c["choices"][0] for c in answer.chunks(False) if c["choices"][0]["index"] == choice["index"]
        ]  # fmt: skip
        assert "".join(c["delta"].get("content") or "" for c in mine) == (messages[i]["content"] or "")
        assert mine[-1]["finish_reason"] == choice["finish_reason"]
        called = [t["function"] for c in mine for t in c["delta"].get("tool_calls", ())]
        assert called == [t["function"] for t in messages[i].get("tool_calls", ())]
    assert [c["finish_reason"] for c in answer.json()["choices"]] == ["length", "tool_calls"]
