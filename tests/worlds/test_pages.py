"""Pages that are opened beside a search: parts, limits, what is counted, and messages that are no opening."""

import asyncio
from dataclasses import replace

import pytest
from palaestra.errors import UserError
from palaestra.services.index import BM25
from palaestra.tasks.oracle import find_problems
from palaestra.tasks.procedural import question_task
from palaestra.toys.wiki import WikiTasks
from palaestra.types import Message, Task
from palaestra.worlds.pages import ALL_OPENED, NO_MORE, NO_PAGE, PageSearch
from palaestra.worlds.search import Search

from tests.worlds.test_search import a, frames, q

DOCS = (
    ("bako.md#1", "boss of bako is tiru"),
    ("bako.md#2", "bako is old"),
    ("bako.md#3", "bako\nlives <answer>here</answer>"),
    ("tiru.md", "host of tiru is mema"),
    ("C#.md", "a language"),
)
TASK = question_task("t", "host of boss of bako?", "mema", {"gold": ("bako.md", "tiru.md")})
WORLD = PageSearch(BM25(DOCS), k=1, turns=6, passages=2)


def o(name):
    return f"<open>{name}</open>"


def last(*texts, world=WORLD, task=TASK):
    return frames(world, *texts, task=task)[-1]


def said(*texts, world=WORLD):
    return last(*texts, world=world).asks[0].say[-1].content


def test_a_page_is_shown_in_parts_and_a_passage_in_the_part_that_has_it():
    assert said(o("bako.md")) == "bako.md, part 1 of 2: boss of bako is tiru bako is old"
    second = "bako.md, part 2 of 2: bako lives <answer>here</answer>"
    assert said(o("bako.md"), o("bako.md")) == second == said(o("bako.md#3"))
    assert said(o("bako.md"), o("bako.md"), o("bako.md")) == NO_MORE
    assert said(o("bako.md"), o("tiru.md"), o("bako.md")) == second, "another page lies between"
    assert said(o("C#.md")) == "C#.md, part 1 of 1: a language"
    assert said(o("deci.md")) == NO_PAGE == said(o(""))
    assert said(q("boss of bako")) == "[bako.md#1] boss of bako is tiru", "its name is how it is opened"


def test_openings_are_counted_apart_and_have_their_own_limit():
    world = replace(WORLD, opens=2, calls=1)
    end = last(q("bako boss"), o("tiru.md"), o("nowhere"), o("tiru.md"), q("host"), a("mema"), world=world)
    facts = end.facts
    assert facts["outcomes"] == ("found", "opened", "unknown", "over", "over", "answer")
    assert (facts["calls"], facts["opens"], facts["pages_opened"]) == (1, 2, ("tiru.md",))
    assert (facts["tool_calls"], facts["tool_errors"], facts["tool_malformed"]) == (5, 3, 0)
    assert facts["executed"] == (True, True, False, False, False, True) and facts["correct"]
    assert facts["found"][1] == ("tiru.md",) and facts["tools_used"] == ("search", "open")
    assert said(*[o("tiru.md")] * 3, world=world) == ALL_OPENED


def test_an_opened_gold_document_counts_as_found():
    task = replace(TASK, meta={"gold": ("tiru.md",)})
    facts = last(o("tiru.md"), a("mema"), task=task).facts
    assert facts["gains"] == (1.0, 0.0) and facts["coverage"] == (1.0, 1.0)


@pytest.mark.parametrize(
    "text",
    [
        o("bako.md") + " I see",
        o("bako.md") + q("boss"),
        f"`{o('bako.md')}`",
        f"<think>{o('bako.md')}</think>",
        "<open>x",
    ],
)
def test_what_is_no_opening_is_malformed(text):
    assert last(text).facts["outcomes"] == ("malformed",)


def test_without_openings_it_is_a_search():
    off, plain = replace(WORLD, opens=0), Search(WORLD.index, k=1, turns=6)
    assert off.usage == plain.usage and off.closed().usage == plain.closed().usage
    for texts in ((q("boss of bako"),), (o("bako.md"),), (q("boss bako"), a("mema"))):
        mine, theirs = last(*texts, world=off), last(*texts, world=plain)
        assert [x.say for x in mine.asks] == [x.say for x in theirs.asks] and mine.pay == theirs.pay
        assert theirs.facts.items() <= {**mine.facts}.items() and mine.facts["opens"] == 0
    assert "<open>" in WORLD.usage and "8 times" in WORLD.usage


def test_the_oracle_opens_where_no_passage_has_the_answer():
    """The search finds the first passage of the page, and the answer stands in its third."""
    task = Task(id="t", prompt=(Message(role="user", content="bako boss?"),), answer="here", meta={"gold": ["bako.md"]})
    state = frames(WORLD, q("boss of bako"), task=task)[-1].state
    assert WORLD.oracle(state) == o("bako.md#3")
    state = frames(WORLD, q("boss of bako"), o("bako.md#3"), task=task)[-1].state
    assert WORLD.oracle(state) == a("here")
    assert replace(WORLD, opens=0).oracle(frames(WORLD, q("boss of bako"), task=task)[-1].state) == a("here")


def test_its_oracle_solves_a_wiki():
    tasks = WikiTasks(pages=40, hops=(1, 2))
    assert asyncio.run(find_problems(tasks, PageSearch(BM25(tasks.documents()), k=1), 20)) == []


@pytest.mark.parametrize("wrong", [{"form": "search"}, {"form": "a b"}, {"passages": 0}, {"opens": -1}])
def test_settings_that_cannot_be(wrong):
    with pytest.raises(UserError):
        PageSearch(WORLD.index, **wrong)
