"""The chat client against a real server on the loopback interface: retries, waits, budgets, cache, keys, structured replies."""

import asyncio
import json
import math
import time
from contextlib import suppress
from dataclasses import fields, replace
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palaestra.errors import Fault, UserError
from palaestra.judges.reading import Odds
from palaestra.services.chat.base import question_messages
from palaestra.services.chat.endpoint import (
    EXCERPT,
    EXTRAS,
    Endpoint,
    body_of,
    cost_bound,
    refused_extras,
    retry_after,
)
from palaestra.services.chat.replies import first_top, of_choices
from palaestra.services.chat.scripted import Scripted
from palaestra.services.chat.structured import ask, parse_object
from palaestra.types import ChatRequest, Message, Meter, Reply
from pydantic import BaseModel, Field

from tests.chat_server import FAULTS, completion, serving, sometimes


class Verdict(BaseModel):
    reason: str = ""
    score: float = Field(ge=0, le=10)


def echo(body):
    return body["messages"][-1]["content"]


def quick(url, **settings):
    return Endpoint(url=url, **{"backoff": 0.01, "timeout": 5.0, "cache": "", **settings})


def ask_all(client, n, **request):
    async def run():
        asks = (client.chat(ChatRequest(messages=question_messages(f"q{i}"), **request)) for i in range(n))
        return await asyncio.gather(*asks, return_exceptions=True)

    return asyncio.run(run())


def test_one_question():
    with serving(echo) as (server, url):
        client = quick(url, model="m").open()
        (reply,) = ask_all(client, 1, temperature=0.5, stop=("!",), seed=7)
    assert (reply.text, reply.finish, reply.reply_tokens) == ("q0", "stop", 5)
    body = server.seen[0]
    assert (body["model"], body["temperature"], body["stop"], body["seed"]) == ("m", 0.5, ["!"], 7)
    whole = body_of(ChatRequest(messages=question_messages("q", "s"), top_p=0.9, max_tokens=17), "m")
    assert (whole["top_p"], whole["max_tokens"], "stop" in whole) == (0.9, 17, False)
    assert whole["messages"] == [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]
    assert client.meter.numbers()["tokens"] == 15


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_passes_is_not_seen(fault):
    with serving(echo, faulty=lambda n, body: fault if n == 0 else "") as (server, url):
        client = quick(url, timeout=0.7).open()
        (reply,) = ask_all(client, 1)
    assert reply.text == "q0" and len(server.seen) == 2
    assert client.meter.retries == 1 and not client.meter.faults


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503])
def test_a_status_that_may_pass_is_tried_again(status):
    with serving(echo, faulty=lambda n, body: str(status) if n == 0 else "") as (server, url):
        (reply,) = ask_all(quick(url).open(), 1)
    assert reply.text == "q0" and len(server.seen) == 2


@pytest.mark.parametrize("said, finish", [("length", "length"), ("stop", "stop"), (None, "stop")])
def test_a_reply_that_was_cut_says_so(said, finish):
    with serving(lambda body: completion("[[1", finish=said)) as (_, url):
        (reply,) = ask_all(quick(url).open(), 1)
    assert reply.finish == finish


CAUSES = {
    "timeout": "chat-timeout", "429": "chat-429", "500": "chat-500", "garbage": "chat-garbage", "wrong": "chat-garbage",
    "half": "chat-garbage", "cut": "chat-broken",
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_stays_has_a_name(fault):
    with serving(echo, faulty=lambda n, body: fault) as (server, url):
        client = quick(url, retries=1, timeout=0.7).open()
        (reply,) = ask_all(client, 1)
    assert isinstance(reply, Fault) and reply.cause == CAUSES[fault]
    assert len(server.seen) == 2 and client.meter.faults == {CAUSES[fault]: 1}


def test_nobody_listens():
    (reply,) = ask_all(quick("http://127.0.0.1:9/v1", retries=0).open(), 1)
    assert isinstance(reply, Fault) and reply.cause == "chat-connection"


def test_a_third_of_all_calls_fail_and_every_question_is_answered():
    with serving(echo, faulty=sometimes(0.3)) as (_, url):
        client = quick(url, retries=8, timeout=0.7).open()
        replies = ask_all(client, 60)
    assert [r.text for r in replies] == [f"q{i}" for i in range(60)]
    assert client.meter.retries > 5 and client.meter.calls == 60 + client.meter.retries


def test_a_dead_endpoint_is_told_soon():
    with serving(echo, faulty=lambda n, body: "500") as (server, url):
        client = quick(url, retries=4, concurrency=1, patience=3).open()
        replies = ask_all(client, 20)
        assert all(isinstance(r, Fault) for r in replies)
        assert len(server.seen) <= 20 + 3
        server.faulty = lambda n, body: ""
        assert ask_all(client, 1)[0].text == "q0"
        assert client.failed == 0


def test_retry_after_holds_back_the_whole_client():
    with serving(echo, faulty=lambda n, body: "429" if n == 0 else "", retry_after="0.3") as (_, url):
        client = quick(url, concurrency=1).open()
        begin = time.monotonic()
        replies = ask_all(client, 2)
    assert [r.text for r in replies] == ["q0", "q1"] and time.monotonic() - begin >= 0.3


def test_an_endpoint_that_asks_for_hours_has_failed():
    with serving(echo, faulty=lambda n, body: "429", retry_after="7200") as (server, url):
        (reply,) = ask_all(quick(url, longest_wait=1.0).open(), 1)
    assert reply.cause == "chat-429" and len(server.seen) == 1


def test_retry_after_is_read():
    assert retry_after("7") == 7 and retry_after("") == 0 and retry_after("soon") == 0 and retry_after("-3") == 0
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0

    assert retry_after(formatdate(time.time() + 100, usegmt=True)) == pytest.approx(100, abs=5)


def test_waits_double_up_to_the_longest(monkeypatch):
    """The k-th of them is 2^k seconds times a number from 0.5 to 1.5, here at most 5 s."""
    waits, asleep = [], asyncio.sleep

    async def sleep(seconds):
        waits.append(seconds)
        await asleep(0)

    with serving(echo, faulty=lambda n, body: "500") as (_, url):
        monkeypatch.setattr(asyncio, "sleep", sleep)
        ask_all(quick(url, backoff=1.0, retries=6, longest_wait=5.0).open(), 1)
    waits = [w for w in waits if w]
    assert len(waits) == 6 and all(0.5 * 2**k <= w <= 1.5 * 2**k for k, w in enumerate(waits[:2]))
    assert 2 <= waits[2] <= 5 and 4 <= waits[3] <= 5 and waits[4:] == [5, 5]


def test_concurrency_is_bounded():
    def slow(body):
        time.sleep(0.02)
        return echo(body)

    with serving(slow) as (server, url):
        ask_all(quick(url, concurrency=3).open(), 12)
    assert server.most <= 3


WORST = cost_bound(body_of(ChatRequest(messages=question_messages("q0")), "default"), (1.0, 1.0))


@pytest.mark.parametrize(
    "budget",
    [{"max_calls": 3}, {"max_tokens": 45}, {"max_cost": 2 * 15e-6 + WORST, "prices": (1.0, 1.0)}],
    ids=lambda b: next(iter(b)),
)
def test_a_budget_ends_the_calls(budget):
    with serving(echo) as (server, url):
        client = quick(url, concurrency=1, **budget).open()
        replies = ask_all(client, 5)
    assert len(server.seen) == 3
    assert [r.cause for r in replies[3:]] == ["chat-budget"] * 2


def test_no_call_is_sent_that_could_exceed_the_money():
    """A reply of 5 tokens at 2 a million and a prompt of 10 at 1 cost 20e-6. A call may cost 35 bytes of prompt and 20
    tokens of reply: 75e-6. Of 150e-6 four calls leave 70e-6, so the fifth is refused; of two calls at a time one is, of 140e-6.
    """
    bound = cost_bound(body_of(ChatRequest(messages=question_messages("q0"), max_tokens=20), "m"), (1.0, 2.0))
    assert bound == pytest.approx((35 + 2 * 20) / 1e6)
    assert cost_bound({"prompt": [1, 2, 3], "max_tokens": 1}, (1.0, 2.0)) == pytest.approx(11e-6)
    with serving(echo) as (server, url):
        client = quick(url, concurrency=1, max_cost=150e-6, prices=(1.0, 2.0)).open()
        replies = ask_all(client, 6, max_tokens=20)
        assert len(server.seen) == 4 and [r.cause for r in replies[4:]] == ["chat-budget"] * 2
        assert client.meter.numbers()["cost"] == pytest.approx(80e-6) and client.under_way == 0.0
        assert "8e-05 of 0.00015 of its cost are spent" in str(replies[4])
        two = quick(url, concurrency=2, max_cost=140e-6, prices=(1.0, 2.0)).open()
        both = ask_all(two, 2, max_tokens=20)
    assert [isinstance(r, Fault) for r in both] == [False, True]  # 2 x 75e-6 are more than there is


def test_a_retry_is_a_call_of_the_budget():
    with serving(echo, faulty=lambda n, body: "500" if n == 0 else "") as (server, url):
        client = quick(url, concurrency=1, max_calls=3).open()
        replies = ask_all(client, 3)
    assert [getattr(r, "cause", "") for r in replies].count("chat-budget") == 1
    assert len(server.seen) == client.meter.calls == 3 and client.meter.retries == 1


def test_prompts_and_replies_have_prices_of_their_own():
    meter = Meter()
    meter.spend(Reply(text="", prompt_tokens=10, reply_tokens=5), (1.0, 3.0))
    assert meter.tokens == 15 and meter.cost == pytest.approx((10 * 1 + 5 * 3) / 1e6)


def test_who_else_is_asked_has_replies_of_their_own(tmp_path):
    with serving(lambda body: f"I am {body['model']}") as (_, url), serving(lambda body: "other") as (_, elsewhere):
        asked = [(url, "m"), (url, "n"), (elsewhere, "m"), (url, "m")]
        replies = [ask_all(quick(u, model=m, cache=str(tmp_path)).open(), 1)[0].text for u, m in asked]
    assert replies == ["I am m", "I am n", "other", "I am m"]


def test_what_was_asked_once_is_not_asked_again(tmp_path):
    settings = {"cache": str(tmp_path / "replies")}
    with serving(echo) as (server, url):
        first = ask_all(quick(url, **settings).open(), 3)
        client = quick(url, **settings).open()
        again = ask_all(client, 3)
        ask_all(client, 3, seed=1)  # another sample
    assert first == again and client.meter.cached == 3 and len(server.seen) == 6
    assert all(json.loads(p.read_text())["text"] for p in tmp_path.rglob("*.json"))


def test_a_damaged_reply_is_asked_for_again(tmp_path):
    with serving(echo) as (server, url):
        ask_all(quick(url, cache=str(tmp_path)).open(), 1)
        (path,) = tmp_path.rglob("*.json")
        path.write_text('{"text": "ha')
        assert ask_all(quick(url, cache=str(tmp_path)).open(), 1)[0].text == "q0"
    assert len(server.seen) == 2


def test_equal_questions_at_a_time_share_a_call():
    async def twice(client):
        request = ChatRequest(messages=question_messages("same"))
        return await asyncio.gather(client.chat(request), client.chat(request))

    with serving(echo) as (server, url):
        assert [r.text for r in asyncio.run(twice(quick(url).open()))] == ["same", "same"]
    assert len(server.seen) == 1


def test_the_key_is_in_the_header_and_nowhere_else(tmp_path, monkeypatch):
    monkeypatch.setenv("TEST_JUDGE_KEY", "sk-very-secret")

    def tells(body):
        return "your key is none of your business"

    with serving(tells, faulty=lambda n, body: "418" if n else "") as (server, url):
        settings = quick(url, key_env="TEST_JUDGE_KEY", cache=str(tmp_path))
        client = settings.open()
        ask_all(client, 1)
        reply = ask_all(client, 2)[1]
    assert server.headers[0]["Authorization"] == "Bearer sk-very-secret"
    shown = [repr(settings), repr(client.__dict__), str(reply), *(p.read_text() for p in tmp_path.rglob("*.json"))]
    assert not any("sk-very-secret" in s for s in shown)


def test_a_missing_key_is_told_by_its_variable(monkeypatch):
    monkeypatch.delenv("TEST_JUDGE_KEY", raising=False)
    (reply,) = ask_all(Endpoint(url="http://127.0.0.1:9/v1", key_env="TEST_JUDGE_KEY", cache="").open(), 1)
    assert isinstance(reply, UserError) and "TEST_JUDGE_KEY" in str(reply)


@pytest.mark.parametrize("status", ["401", "403", "404"])
def test_what_only_the_user_can_mend_is_his_error(status):
    with serving(echo, faulty=lambda n, body: status) as (server, url):
        (reply,) = ask_all(quick(url).open(), 1)
    assert isinstance(reply, UserError) and status in str(reply) and len(server.seen) == 1
    with pytest.raises(UserError, match="no address"):
        Endpoint(url="localhost:8000").open()


def test_an_endpoint_without_extras_is_asked_without():
    def strict(n, body):
        return "400" if "response_format" in body or "seed" in body else ""

    with serving(lambda body: '{"score": 3}', faulty=strict) as (server, url):
        client = quick(url).open()
        found = asyncio.run(ask(client, ChatRequest(messages=question_messages("rate")), Verdict))
        asyncio.run(ask(client, ChatRequest(messages=question_messages("rate 2")), Verdict))
    assert found.score == 3 and len(server.seen) == 4  # refused in both forms, then known


def test_the_older_form_of_a_schema():
    def older(n, body):
        return "400" if body.get("response_format", {}).get("type") == "json_schema" else ""

    with serving(lambda body: '{"score": 3}', faulty=older) as (server, url):
        asyncio.run(ask(quick(url).open(), ChatRequest(messages=question_messages("rate")), Verdict))
    assert server.seen[1]["response_format"]["schema"]["required"] == ["score"]


def test_only_the_field_that_is_named_is_left_out():
    form = b"loc: body, response_format"
    assert refused_extras(500, form) == {"json_schema"}
    assert refused_extras(500, form, frozenset({"json_schema"})) == {"response_format"}
    assert (
        refused_extras(400, b"no", frozenset({"json_schema"})) == set(EXTRAS) and refused_extras(500, b"oops") == set()
    )
    assert refused_extras(200, b"seed") == set()


def test_a_refusal_is_not_asked_again_with_the_same_body():
    """A prompt that is too long: no field is named, and once all extras are left out nothing else can be."""
    with serving(echo, faulty=lambda n, body: "400") as (server, url):
        (reply,) = ask_all(quick(url).open(), 1)
    assert reply.cause == "chat-refused" and len(server.seen) == 2 and server.seen[0] != server.seen[1]


def test_a_reply_does_not_undo_what_another_request_learned():
    client, refused = quick("http://127.0.0.1:9/v1").open(), asyncio.Event()

    async def post(body, headers):
        if echo(body) == "q0":
            await refused.wait()  # sent with every extra, answered last
        elif "seed" in body:
            return 400, {}, b"seed?"
        else:
            refused.set()
        return 200, {}, json.dumps(completion("ok")).encode()

    client.wire.post = post
    assert [r.text for r in ask_all(client, 2)] == ["ok", "ok"] and client.refused == {"seed"}


def test_a_key_on_the_edge_of_what_is_shown_is_masked(monkeypatch):
    monkeypatch.setenv("TEST_JUDGE_KEY", "sk-very-secret")
    client = quick("http://127.0.0.1:9/v1", key_env="TEST_JUDGE_KEY").open()

    async def post(body, headers):
        return 418, {}, b"." * (EXCERPT - 8) + b"sk-very-secret"

    client.wire.post = post
    (reply,) = ask_all(client, 1)
    assert reply.cause == "chat-refused" and "sk-" not in str(reply)


@pytest.mark.parametrize("least", [-9999.0, -math.inf])
def test_an_impossible_word_has_a_log_probability(least):
    """What servers write for a probability of zero; the second word is listed, or bounded by another one."""
    for top in ({"Yes": 0.0, "No": least}, {"Yes": 0.0, "Perhaps": least}):
        with serving(lambda body, top=top: completion("Yes", logprobs=top)) as (_, url):
            (reply,) = ask_all(quick(url).open(), 1, choices=("Yes", "No"))
        assert reply.choices == {"Yes": 0.0, "No": -9999.0}
        yes, no = reply.choices.values()
        for form, values in {"probability": (1.0, 0.0, 0.5), "log-odds": (10.0, -10.0, 0.0)}.items():
            read = Odds(form=form)
            assert (read.value(yes, no), read.value(no, yes), read.value(no, no)) == pytest.approx(values)


def test_log_probabilities_of_choices():
    with serving(lambda body: completion("Yes", logprobs={" Yes": -0.5, "yes": -3.0, "No": -1.5})) as (_, url):
        (reply,) = ask_all(quick(url).open(), 1, choices=("Yes", "No"))
    assert reply.choices["No"] == -1.5 and reply.choices["Yes"] == pytest.approx(-0.42111, abs=1e-5)
    assert of_choices({"A": -1.0, "B": -4.0}, ("A", "C")) == {"A": -1.0, "C": -4.0}
    tokens = [{"token": t, "top_logprobs": [{"token": t, "logprob": p}]} for t, p in (("Yes", -0.5), ("!", -2.0))]
    assert first_top({"content": tokens}) == first_top({"top_logprobs": [{"Yes": -0.5}, {"!": -2.0}]}) == {"Yes": -0.5}


# ---- structured replies


def test_structured_reply_is_asked_by_schema():
    with serving(lambda body: 'Well: {"reason": "ok", "score": 7}') as (server, url):
        found = asyncio.run(ask(quick(url).open(), ChatRequest(messages=question_messages("rate")), Verdict))
    assert found == Verdict(reason="ok", score=7)
    assert server.seen[0]["response_format"]["json_schema"]["schema"]["required"] == ["score"]


def test_one_request_for_repair():
    replies = iter(["seven", {"score": 7}])
    heard = []
    script = Scripted(lambda r: heard.append(r) or next(replies))
    assert asyncio.run(ask(script.open(), ChatRequest(messages=question_messages("rate")), Verdict)).score == 7
    assert "no JSON" in heard[1].messages[-1].content and heard[1].messages[-2].content == "seven"


def test_what_does_not_fit_twice_is_a_fault():
    client = Scripted(lambda r: {"score": 70}).open()
    with pytest.raises(Fault, match="less than or equal to 10"):
        asyncio.run(ask(client, ChatRequest(messages=question_messages("rate")), Verdict))
    assert client.meter.calls == 2 and client.meter.faults == {"chat-format": 1}


def test_a_cut_reply_is_not_mended():
    client = Scripted(lambda r: Reply(text='{"score": 1}', finish="length")).open()
    with pytest.raises(Fault, match="cut"):
        asyncio.run(ask(client, ChatRequest(messages=question_messages("rate")), Verdict))


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ('{"score": 3}', 3),
        ('```json\n{"score": 3,}\n```', 3),
        ('first {"score": 9}, no: {"score": 2}', 2),
        ('{"score": 4} {"verdict": 1}', 4),
        ('{"a": {"score": 9}} {"score": "5"}', 5),
    ],
)
def test_json_is_found(text, score):
    assert parse_object(text, Verdict).score == score


@pytest.mark.parametrize(
    "text", ["", "{", "score: 3", '{"score": NaN}', '{"score": 11}', "[3]", "{" * 5000, '{"a":' * 5000]
)
def test_what_is_no_answer(text):
    with pytest.raises(ValueError):
        parse_object(text, Verdict)


@given(st.text(alphabet='{}[]":,\\ sco1re', max_size=80))
def test_any_text_fits_or_is_refused(text):
    with suppress(ValueError):
        assert 0 <= parse_object(text, Verdict).score <= 10


def test_digests_tell_requests_apart():
    one = ChatRequest(messages=question_messages("a"))
    others = [
        replace(one, seed=1),
        replace(one, temperature=0.1),
        replace(one, messages=question_messages("b")),
        replace(one, messages=(Message(role="assistant", content="a"),)),
        replace(one, top_p=0.9),
        replace(one, max_tokens=9),
        replace(one, stop=("A",)),
        replace(one, schema={"type": "object"}),
        replace(one, choices=("A",)),
    ]
    assert {f.name for f in fields(ChatRequest)} == {
        *("messages", "temperature", "top_p", "max_tokens", "stop", "seed", "schema", "choices")
    }
    assert len({r.digest("m") for r in (one, *others)} | {one.digest("n")}) == len(others) + 2
    assert one.digest("m") == replace(one).digest("m")


def test_a_function_that_breaks_is_named():
    """With what to raise in its place; a Fault is let through, and counted."""

    def broken(request):
        raise ConnectionError("refused")

    def down(request):
        raise Fault("down")

    (error,) = ask_all(Scripted(broken).open(), 1)
    assert isinstance(error, UserError)
    assert all(x in str(error) for x in ("broken raised ConnectionError: refused", "pl.Fault"))
    client = Scripted(down).open()
    (fault,) = ask_all(client, 1)
    assert isinstance(fault, Fault) and client.meter.faults == {"down": 1}
