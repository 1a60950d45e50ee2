"""Replies that lie: each is read as what it can be, or is the error of one question; the run, its budget and its cache go on."""

import asyncio
import json
import math

import pytest
from palaestra.errors import Fault
from palaestra.judges.pointwise import Judge
from palaestra.judges.reading import MarkedLabel, Odds
from palaestra.services.chat.base import question_messages
from palaestra.services.chat.cache import Cache
from palaestra.services.chat.endpoint import Endpoint
from palaestra.services.chat.replies import LEAST, log_probability, read_reply, readable
from palaestra.services.chat.scripted import Scripted
from palaestra.tasks.oracle import episode_saying, find_problems
from palaestra.types import ChatRequest, Group, Reward, Task

from tests.chat_server import completion, serving

TRUTH = {"Yes": math.log(0.75), "No": math.log(0.25)}
LABEL = MarkedLabel((("YES", 1.0), ("NO", 0.0)))


def of_usage(**usage):
    return completion("[[YES]]", logprobs=TRUTH) | {"usage": usage}


def of_token(token, logprob):
    reply = completion("[[YES]]", logprobs=TRUTH)
    reply["choices"][0]["logprobs"]["content"][0]["top_logprobs"][0] = {"token": token, "logprob": logprob}
    return reply


USAGES = {
    "negative": of_usage(prompt_tokens=-(10**9), completion_tokens=-(10**9)),
    "infinite": of_usage(prompt_tokens=math.inf, completion_tokens=math.inf),
    "nan": of_usage(prompt_tokens=math.nan, completion_tokens=math.nan),
    "text": of_usage(prompt_tokens="many", completion_tokens="5"),
    "huge": of_usage(prompt_tokens=10**300, completion_tokens=10**3999),
    "true": of_usage(prompt_tokens=True, completion_tokens=[5]),
    "a list": completion("[[YES]]", logprobs=TRUTH) | {"usage": [1]},
    "null": completion("[[YES]]", logprobs=TRUTH) | {"usage": None},
}
NO_PROBABILITIES = {
    "infinite": of_token("Yes", math.inf),
    "nan": of_token("Yes", math.nan),
    "above 0": of_token("Yes", 5.0),
    "huge": of_token("Yes", 10**400),
    "text": of_token("Yes", "-0.1"),
    "null": of_token("Yes", None),
    "true": of_token("Yes", True),
    "a numeric token": of_token(5, -0.1),
    "no token": of_token(None, -0.1),
}


def endpoint(url, **settings):
    return Endpoint(url=url, **{"backoff": 0.01, "timeout": 5.0, "retries": 1, "cache": "", **settings})


def reward_of(client, read):
    judge = Judge(client=client, read=read, template="{response} {instruction}")
    group = Group(task=Task(id="t"), episodes=(episode_saying("x"),))
    (found,) = asyncio.run(judge(None, group))
    return found


@pytest.mark.parametrize("lie", USAGES)
def test_counts_that_are_none_are_left_out(lie):
    with serving(lambda body: USAGES[lie]) as (_, url):
        client = endpoint(url, max_tokens=10**6).open()
        reply = asyncio.run(client.chat(ChatRequest(messages=question_messages("q"))))
    assert (reply.text, reply.prompt_tokens, reply.reply_tokens, client.meter.tokens) == ("[[YES]]", 0, 1, 1)


def test_lower_counts_do_not_pay_back_the_budget():
    with serving(lambda body: completion("x") | {"usage": {"prompt_tokens": -(10**6), "completion_tokens": 40}}) as (
        _,
        url,
    ):
        client = endpoint(url, max_tokens=50).open()

        def ask(i):
            return asyncio.run(client.chat(ChatRequest(messages=question_messages(f"q{i}"))))

        ask(0), ask(1)
        with pytest.raises(Fault, match="80 of 50 tokens are spent"):
            ask(2)


@pytest.mark.parametrize("lie", NO_PROBABILITIES)
def test_what_is_no_log_probability_is_an_error_of_one_answer_and_not_kept(lie, tmp_path):
    """With an honest server in its place the same question is answered from then on."""
    with serving(lambda body: NO_PROBABILITIES[lie]) as (server, url):
        client = endpoint(url, cache=str(tmp_path))
        found = reward_of(client, Odds())
        assert isinstance(found, Fault) and found.cause == "chat-garbage" and not [*tmp_path.iterdir()]
        server.answer = lambda body: completion("", logprobs=TRUTH)
        again = reward_of(client, Odds())
    assert isinstance(again, Reward) and again.total == pytest.approx(0.75)


def test_half_of_a_pair_is_no_end_of_a_verdict(tmp_path):
    for text, kept in {"\ud800 [[YES]]": "\ufffd [[YES]]", "😀 [[YES]] \udce9": "😀 [[YES]] \ufffd"}.items():
        assert readable(text) == kept == readable(kept)
        with serving(lambda body, text=text: text) as (_, url):
            for client in (endpoint(url, cache=str(tmp_path)), Scripted(lambda request, text=text: text)):
                found = reward_of(client, LABEL)
                assert found.total == 1.0 and found.verdicts[0].said.encode("utf-8").decode() == kept


def test_a_probability_is_at_most_1():
    """Two spellings of which each is said to be certain, and a server's rounding."""
    certain = completion("", logprobs={"Yes": 1e-7, " yes": 0.0, "No": 0.0})
    reply = read_reply(json.dumps(certain).encode(), ("Yes", "No"))
    assert reply.choices == {"Yes": 0.0, "No": 0.0}
    assert log_probability(-math.inf) == log_probability(-(10**4)) == LEAST and log_probability(0) == 0.0


@pytest.mark.parametrize("finish", [{"a": 1}, ["length"], 5, None, "", "\ud800" * 1000])
def test_an_odd_end_is_text(finish):
    body = json.dumps(completion("x", finish=finish)).encode()
    reply = read_reply(body, ())
    assert reply.finish == "stop" or (set(reply.finish) == {"\ufffd"} and len(reply.finish) <= 64)


def test_a_reply_without_the_probabilities_that_others_had_is_tried_again(tmp_path):
    bare = iter([False, True, False, True, True])
    with serving(lambda body: completion("Yes", logprobs=None if next(bare) else TRUTH)) as (server, url):
        client = endpoint(url, cache=str(tmp_path)).open()

        def ask(i):
            return asyncio.run(client.chat(ChatRequest(messages=question_messages(f"q{i}"), choices=("Yes", "No"))))

        assert ask(0).choices == ask(1).choices == TRUTH and len(server.seen) == 3
        with pytest.raises(Fault, match="chat-garbage"):
            ask(2)


POISON = {
    "infinite log-probability": {"choices": {"Yes": math.inf, "No": -1.0}},
    "surrogate": {"text": "\ud800 [[YES]]"},
    "negative count": {"prompt_tokens": -5},
    "endless count": {"reply_tokens": math.inf},
    "a numeric text": {"text": 5},
    "a list": {"choices": [1]},
    "other words": {"choices": {"A": -1.0}},
    "no probabilities": {"choices": None},
}


@pytest.mark.parametrize("kind", POISON)
def test_a_bad_reply_in_the_cache_is_asked_for_again(kind, tmp_path):
    """What an older version kept, or somebody wrote there."""
    request = ChatRequest(messages=question_messages("q"), choices=("Yes", "No"))
    with serving(lambda body: completion("Yes", logprobs=TRUTH)) as (server, url):
        client = endpoint(url, cache=str(tmp_path)).open()
        good = asyncio.run(client.chat(request))
        (file,) = tmp_path.rglob("*.json")
        file.write_text(json.dumps(json.loads(file.read_text()) | POISON[kind]))
        assert asyncio.run(client.chat(request)) == good and len(server.seen) == 2
        assert asyncio.run(client.chat(request)) == good and len(server.seen) == 2
    assert Cache(tmp_path).get(file.stem) == good


# ---- the check before the first step


class Few:
    """Sums whose gold is their number."""

    size, name = 6, "few"

    def task(self, split, i):
        return Task(id=f"t{i}", answer=str(i))


class Paid:
    """Pays the gold. `fault(task, text)` gives what it says instead."""

    gold = 1.0

    def __init__(self, fault=lambda task, text: None):
        self.fault, self.asked = fault, 0

    def put(self, task):
        return task.answer

    async def __call__(self, ctx, group):
        texts = [e.rows[0].segments[0].text for e in group.episodes]
        self.asked += 1
        return [
            (text and self.fault(group.task, text)) or Reward(total=float(text == group.task.answer)) for text in texts
        ]


class Hears:
    def __init__(self):
        self.lines = []

    def say(self, text):
        self.lines.append(text)


def check(judge):
    ctx = Hears()
    return asyncio.run(find_problems(Few(), judge, ctx=ctx)), ctx.lines


@pytest.mark.parametrize("cause", ["judge-unparsed", "chat-500", "chat-format"])
def test_a_verdict_that_fails_is_the_error_of_one_answer_of_the_check(cause):
    found, lines = check(Paid(lambda task, text: task.id in ("t0", "t3") and Fault(cause, "no verdict")))
    assert not found
    assert lines == [f"oracle check: 4 of 18 answers could not be judged, e.g. {cause}: no verdict"]
    assert check(Paid()) == ([], [])


def test_a_wrong_gold_is_seen_beside_an_unreadable_verdict():
    def odd(task, text):
        return Fault("judge-unparsed") if task.id == "t1" else Reward(total=0.25) if text == "2" else None

    found, lines = check(Paid(odd))
    assert [f.line for f in found] == ["task 't2': the gold answer '2' scores 0.25, not 1"] and lines


@pytest.mark.parametrize("cause,asked", [("chat-connection", 2), ("chat-budget", 2), ("judge-unparsed", 6)])
def test_a_judge_that_judges_nothing_ends_the_check(cause, asked):
    """One that is away soon, one that says nothing readable once all was tried."""
    judge = Paid(lambda task, text: Fault(cause))
    with pytest.raises(Fault, match=cause):
        check(judge)
    assert judge.asked == asked
