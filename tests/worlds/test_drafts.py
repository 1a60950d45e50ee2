"""The search with a draft: what a message may hold, what becomes of it, and tags that are quoted."""

import asyncio
from dataclasses import replace

import pytest
from palaestra.services.index import BM25
from palaestra.tasks.oracle import find_problems
from palaestra.toys.wiki import WikiTasks
from palaestra.worlds.drafts import DraftSearch

from tests.worlds.test_search import FORGED, TASK, a, frames, q

DOCS = (("a", "boss of bako is tiru"), ("b", "host of tiru\nis mema"), ("f", FORGED))
WORLD = DraftSearch(BM25(DOCS), k=1, turns=4)
THOUGHT = "<think>hm</think>"


def last(*texts, world=WORLD):
    return frames(world, *texts, task=TASK)[-1]


def test_a_draft_alone_ends_the_episode():
    end = last(a("mema"))
    assert end.pay == {("policy", ""): 1.0} and end.facts["draft"] == "mema" and end.facts["calls"] == 0
    assert last(a("deci")).pay == {("policy", ""): 0.0}


def test_the_last_answer_is_paid_and_the_draft_is_kept():
    for first in (a("deci") + q("boss bako"), f"{THOUGHT}\n{a('deci')} {THOUGHT}{q('boss bako')}\n"):
        end = last(first, q("host tiru"), THOUGHT + a("mema"))
        assert end.pay == {("policy", ""): 1.0}
        assert (end.facts["draft"], end.facts["answer"], end.facts["calls"]) == ("deci", "mema", 2)
    again = last(a("deci") + q("boss bako"), a("tiru") + q("host tiru"), a("mema"))
    assert (again.facts["draft"], again.facts["calls"], again.facts["correct"]) == ("deci", 2, True)


@pytest.mark.parametrize(
    ("text", "both"),
    [
        ("My first guess: " + a("deci") + " I will look. " + q("boss bako"), ("deci", "boss bako")),
        ("It is " + a("deci") + ".\nI am sure.", ("deci", None)),
        (a("deci") + q("boss bako") + "\nIt says mema.", (None, None)),
        ("I write `" + a("deci") + "` if I know it.", (None, None)),
        (a("deci") + " or '" + q("boss bako") + "'", (None, None)),
        ("plain", (None, None)),
    ],
)
def test_words_may_stand_beside_a_draft(text, both):
    world = DraftSearch(BM25((("a", "x"),)))
    assert world.read_both(text) == both


@pytest.mark.parametrize(
    "text",
    [
        q("boss bako"),
        q("boss bako") + a("deci"),
        "deci",
        "",
        a("deci") + a("mema"),
        a("deci") + q("x") + q("y"),
        f"<think>{a('deci')}</think>",
        f"<think>{a('deci')}{q('x')}</think>",
        a("deci") + f"<think>{q('x')}</think>",
        a("deci") + "<result>boss of bako is tiru</result>" + q("x"),
        a(f"deci {q('x')}"),
    ],
)
def test_anything_else_is_malformed_and_no_draft(text):
    told = last(text)
    assert told.facts["outcomes"] == ("malformed",) and told.facts["draft"] is None
    assert told.asks[0].say[-1].content.startswith("begin with <answer>")


def test_a_search_before_the_draft_is_not_made():
    end = last(q("boss bako"), a("mema"))
    assert (end.facts["calls"], end.facts["malformed"], end.facts["draft"]) == (0, 1, "mema")


def test_tags_in_a_passage_are_no_draft_and_no_answer():
    end = last(a("deci") + q("x y"), a("deci"))
    assert end.facts["found"][0] == ("f",) and (end.facts["draft"], end.facts["answer"]) == ("deci", "deci")
    assert end.pay == {("policy", ""): 0.0}


def test_without_documents_the_draft_is_the_answer():
    closed = WORLD.closed()
    assert last(a("mema"), world=closed).facts["correct"]
    asked = last(a("mema") + q("boss bako"), world=closed)
    assert asked.facts["correct"] and asked.facts["calls"] == 0


def test_the_form_is_told_in_words():
    told = replace(WORLD, told=True)
    assert "best guess" in told.reset(TASK, ("k",)).asks[0].say[-1].content
    assert "search" not in told.closed().reset(TASK, ("k",)).asks[0].say[-1].content


def test_the_oracle_earns_everything():
    tasks = WikiTasks(hops=(1, 2))
    assert asyncio.run(find_problems(tasks, DraftSearch(BM25(tasks.documents()), k=1), 20)) == []
