"""InForage: what a search finds, what turns cost, and where gold documents come from."""

import asyncio

import pytest
from palaestra.errors import UserError
from palaestra.recipes.agents import inforage
from palaestra.services.index import BM25
from palaestra.types import Act, Episode, Group, Message, Reward, Row, Segment, Task
from palaestra.worlds.search import Search

from tests.recipes.objectives.helpers import near

GOLD = Task(id="t", answer="new york city", meta={"gold": ("a", "b.md")})
INDEX = BM25((("a", "bako is big"), ("b.md#1", "tiru is small"), ("b.md#2", "tiru is New York City"), ("c", "other")))


def paid(answer, gains, turns, *, coverage=(), **options):
    facts = {
        "answer": answer,
        "answered": answer is not None,
        "gains": (*gains, 0.0),
        "coverage": coverage or (0.0,),
        "outcomes": ("found",) * turns + (("answer",) if answer is not None else ()),
        "malformed": 0,
    }
    row = Row(segments=(Segment(ids=(1,), logp=(-1.0,), trained=True, text="x"),))
    e = Episode(rows=(row,), reward=Reward(total=0.0), facts=facts, status="finished")
    group = Group(task=GOLD, episodes=(e,))
    for link in inforage.build(think=False, **options).collect.links[2:]:
        group = asyncio.run(link(None, ("k",), group))
    return group.episodes[0].reward


def test_rewards_of_the_catalogue():
    assert paid("york city", (0.5, 1.0), 2).total == pytest.approx(1.0)  # F1 0.8
    assert paid("york city", (0.5, 1.0), 3).total == pytest.approx(0.9025)
    assert paid("new york city", (0.5,), 3).total == pytest.approx(0.99275)
    assert [paid("new york city", (0,), n).total for n in (4, 5, 6)] == near([0.857375, 0.814506, 0.773781])
    assert paid("deci", (1.0,), 2).total == pytest.approx(0.2)  # evidence without the answer
    assert paid(None, (1.0,), 2).total == pytest.approx(0.2)


def test_only_the_best_search_counts_unless_all_do_together():
    assert paid("deci", (0.5, 0.5), 2, coverage=(0.5, 1.0)).parts["gain"] == pytest.approx(0.1)
    link = inforage.ForagingReward(coverage="union")
    facts = {"gains": (0.5, 0.5), "coverage": (0.5, 1.0), "outcomes": ("found", "found"), "answered": False}
    e = Episode(rows=(), reward=Reward(total=0.0, parts={"f1": 0.0}), facts=facts, status="finished")
    assert link._paid(e).reward.total == pytest.approx(0.2)


def test_no_penalty_and_no_gain_where_they_are_off():
    reward = paid("new york city", (1.0,), 6, gain=0.0, cost=1.0)
    assert reward.total == 1 and reward.parts["gain"] == reward.parts["cost"] == 0
    for bad in ({"gain": -1}, {"cost": 1.5}):
        with pytest.raises(UserError, match="gain is 0 or more and cost is 0 to 1"):
            inforage.build(**bad)


@pytest.mark.parametrize(
    ("meta", "query", "gain"),
    [
        ({"gold": ("a", "b.md")}, "bako", 0.5),  # one passage of two gold documents
        ({"gold": ("a", "b.md")}, "tiru", 0.5),  # two passages of one document are one
        ({"gold": ("a", "b.md")}, "bako tiru", 1.0),
        ({"gold": "b.md#1"}, "bako", 0.0),
        ({}, "tiru", 1.0),  # a passage has the answer's words
        ({}, "bako", 0.0),
    ],
)
def test_what_a_search_gains(meta, query, gain):
    world = Search(INDEX, k=3)
    task = Task(id="t", prompt=(Message(role="user", content="who?"),), answer="new york city", meta=meta)
    frame = world.reset(task, ("k",))
    act = Act(ask=frame.asks[0], text=f"<search>{query}</search>", call=None, finish="eos", n_tokens=1)
    after = asyncio.run(world.step(frame.state, (act,), ("k", 0)))
    assert after.facts["gains"] == (pytest.approx(gain),)


def test_gold_documents_that_are_none_and_environments_that_say_nothing_are_refused():
    task = Task(id="t", prompt=(Message(role="user", content="who?"),), answer="x", meta={"gold": ("b",)})
    with pytest.raises(UserError, match="its gold document 'b' is none of the documents, whose names are such as 'a'"):
        Search(INDEX).reset(task, ("k",))
    e = Episode(rows=(), reward=Reward(total=1.0, parts={"f1": 1.0}), facts={"answered": True}, status="finished")
    with pytest.raises(UserError, match="give your documents with --docs"):
        inforage.ForagingReward()._paid(e)
