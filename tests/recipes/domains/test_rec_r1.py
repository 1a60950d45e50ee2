"""Rec-R1: the reward of a query that a model writes for a retriever, and the world that asks it."""

import asyncio
import json

import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.recipes.domains import rec_r1
from palaestra.run.ranking_exam import measure_rankings
from palaestra.services.index import BM25
from palaestra.types import Act, Episode, Group, Message, Reward, Row, Segment, Task
from palaestra.worlds import WriteQuery, read_json_query, write_query

from tests.recipes.objectives.helpers import advantages, near, scored

DOCS = (("bako.md#1", "boss of bako is tiru"), ("bako.md#2", "heir of bako"), ("tiru.md", "host of tiru"))
RIGHT = '{"query": "host tiru"}'


def written(text, deep, ndcg=0.0):
    row = Row(segments=(Segment(ids=(1,), logp=(-1.0,), trained=True, text=text),))
    query = read_json_query(text)
    facts = {"ndcg": ndcg, "ndcg_plain": 0.5, "ndcg_deep": deep, "copied": False, "query": query, "query_words": 2}
    return Episode(rows=(row,), reward=Reward(total=ndcg, solved=ndcg == 1), facts=facts, status="finished")


def paid(*episodes, **options):
    link = rec_r1.RetrievalReward(**{"think": False, **options})
    return [e.reward for e in asyncio.run(link(None, ("k",), Group(task=Task(id="t"), episodes=episodes))).episodes]


def totals(*episodes, **options):
    return [r.total for r in paid(*episodes, **options)]


def test_rewards_of_the_catalogue():
    """One target at rank 3; {A, B} in X, A, B; nothing found; broken JSON: by hand 0.5 and 1.130930 / 1.630930.
    The catalogue's advantages 0.679286, ... are those of a deviation over 4, ours over 3: times sqrt(3 / 4)."""
    group = (written(RIGHT, 0.5), written(RIGHT, 0.693426), written(RIGHT, 0.0), written('{"query": ', 0.0))
    assert totals(*group) == near([0.6, 0.793426, 0, -2])
    assert advantages(pl.recipe("grpo"), *scored(0.6, 0.793426, 0, -2)) == near(
        [x * 0.75**0.5 for x in (0.679286, 0.854092, 0.137045, -1.670424)], 1e-4
    )
    assert totals(*group, bonus=0.0, broken=-1.0) == near([0.5, 0.693426, 0, -1])
    assert totals() == []


def test_what_the_retriever_tells_apart_is_of_queries_in_the_form_alone():
    group = (written(RIGHT, 0.5), written(RIGHT, 0.9), written("nothing", 0.0))
    assert [r.parts["told_apart"] for r in paid(*group)] == near([0.2, 0.2, 0])
    assert [r.parts["told_apart"] for r in paid(*group, weight=0.0)] == [0, 0, 0]
    assert totals(*group, weight=0.0) == [0, 0, -2]
    assert [r.parts["told_apart"] for r in paid(written(RIGHT, 1.0), written(RIGHT, 1.0))] == [0, 0]


@pytest.mark.parametrize(
    ("text", "formed"),
    [
        (f"<think>a</think><answer>{RIGHT}</answer>", True),
        (f"<think>a</think>\n<answer>\n```json\n{RIGHT}\n```\n</answer>", True),
        (RIGHT, False),
        (f"<think>a</think>{RIGHT}", False),
        (f"<answer>{RIGHT}</answer><think>a</think>", False),
        (f"<think>a</think><answer>{RIGHT}</answer><answer></answer>", False),
        ("<think>a</think><answer>host tiru</answer>", False),
        (f"<think>a</think><answer>no</answer>{RIGHT}", False),
    ],
)
def test_the_form_has_each_tag_once_and_in_order(text, formed):
    assert totals(written(text, 0.5), think=True) == [0.6 if formed else -2]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        (RIGHT, "host tiru"),
        (f"Here it is: {RIGHT}.", "host tiru"),
        (f"```json\n{RIGHT}\n```", "host tiru"),
        ('<think>{"query": "no"}</think>{"query": " a\\n b "}', "a b"),
        ('<think>{"query": "no"}', ""),
        ('{"query": ["a", "b"]}', "a b"),
        ('{"query": 7}', ""),
        ('{"query": "?!"}', ""),
        ('{"query": "a"} {"query": "b"}', ""),
        ('{"query": "a"} and again {"query": "a"}', "a"),
        ('{"q": "a"}', ""),
        ("{" * 3000, ""),
        ("", ""),
    ],
)
def test_what_a_message_asks_for(text, query):
    assert read_json_query(text) == query


def play(text, gold, world=None, query="Boss of Bako?"):
    world = world or WriteQuery(BM25(DOCS), k=1, deep=5)
    task = Task(id="t", prompt=(Message(role="user", content=query),), meta={"gold": gold})
    frame = world.reset(task, ("k",))
    act = Act(ask=frame.asks[0], text=text, call=None, finish="stop", n_tokens=1)
    return frame, asyncio.run(world.step(frame.state, (act,), ("k",)))


def test_the_world_pays_the_first_places_and_tells_the_deeper_ranking():
    """ "host bako tiru" finds tiru.md before bako.md: place 2 of the deep ranking is worth 1 / log2(3)."""
    frame, end = play('{"query": "host tiru of bako"}', ["bako.md"])
    assert "bako.md" not in frame.asks[0].say[0].content and "JSON" in frame.asks[0].say[0].content
    assert end.facts["ranking"] == ("tiru.md", "bako.md")
    assert end.pay == {("policy", ""): 0.0} and end.facts["ndcg_deep"] == near(0.6309298)
    assert end.facts["ranking_plain"][0] == "bako.md" and end.facts["ndcg_plain"] == 1
    assert end.facts["query_words"] == 4 and not end.asks
    _, end = play("no object", ["bako.md"])
    assert (end.facts["ndcg_deep"], end.facts["ranking"], end.facts["malformed"]) == (0.0, (), 1)
    assert play(write_query("Boss of Bako?"), ["bako.md"])[1].facts["copied"]
    with pytest.raises(UserError, match="deep must be at least 20"):
        WriteQuery(BM25(DOCS), k=20, deep=5)


def ranked(ranking, plain, gold):
    episode = Episode(facts={"ranking": ranking, "ranking_plain": plain}, status="finished", reward=Reward(total=0.0))
    return Group(task=Task(id="t", meta={"gold": gold}), episodes=(episode,))


def test_held_out_rankings_are_measured_beside_those_before():
    """By hand: places 1 and 2 of single targets; a repeated id counts at its first place; one query without gold."""
    groups = [
        ranked(("a", "a", "b"), ("b", "a"), ["a"]),
        ranked(("x", "x", "b"), ("b",), ["b", "c"]),
        ranked(("x",), (), []),
    ]
    found = measure_rankings(groups, 2, 2)
    second = 0.6309298 / (1 + 0.6309298)
    assert found["ndcg@2"] == near((1 + second) / 2) and found["before ndcg@2"] == near(
        (0.6309298 + 1 / (1 + 0.6309298)) / 2
    )
    assert found["mrr@2"] == near(0.75) and found["before mrr@2"] == near(0.75)
    assert found["recall@2"] == near(0.75) and (found["n"], found["without"]) == (2, 1)
    with pytest.raises(UserError, match="rankings are measured where documents are ranked"):
        measure_rankings([Group(task=Task(id="t"))], 2, 2)


def test_queries_are_shown_without_what_they_are_after():
    stage = rec_r1.ShowQueries(think=False)
    assert stage._query(("k",), Task(id="t", prompt=(Message(role="user", content="boss?"),))) == "boss?"
    rows = Task(id="q:3", meta={"rewrites": {"a": "boss bako", "b": None}, "gold": ["secret.md"]})
    assert stage._query(("k",), rows) == "boss bako"
    with pytest.raises(UserError, match=r"task 'q:3': its column rewrites has ' ' under 'a'"):
        stage._query(("k",), Task(id="q:3", meta={"rewrites": {"a": " "}}))


def train(folder, **more):
    settings = {"model": "tiny-agent", "max_tokens": 8, "steps": 1, "evaluate": 0, "quiet": True}
    words = {"samples": 2, "schedule.prompts": 2, "think": False}
    return pl.train("rec-r1", out=folder / "run", set=words, **(settings | more))


def test_queries_are_judged_by_a_file_and_a_search_of_ones_own(tmp_path):
    """The start writes no JSON: each answer is broken. Query 9 is not judged, and is left out."""
    (tmp_path / "mine.py").write_text("def search(query):\n    return ['lions.md', 'bako.md']\n")
    names = enumerate(("bako", "deci", "mema", "tiru", "suna"), 5)
    rows = [{"prompt": f"boss of {w}?", "id": str(i), "split": "test" if i == 8 else "train"} for i, w in names]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (tmp_path / "qrels.txt").write_text("5 0 bako.md 2\n6 0 bako.md 1\n7 0 bako.md 1\n8 0 bako.md 1\n9 0 bako.md 0\n")
    run = train(
        tmp_path,
        data=str(tmp_path / "q.jsonl"),
        tools=f"{tmp_path / 'mine.py'}:search",
        env=f"query(qrels='{tmp_path / 'qrels.txt'}',k=1)",
    )
    before, step, *_ = map(json.loads, (run.folder / "metrics.jsonl").read_text().splitlines())
    assert before["evaluations"]["ranking"]["before mrr@10"] == 0.5
    assert step["part/formed"] == 0 and step["reward"] == -2 and step["part/ndcg_lift"] == 0


def test_words_that_find_nothing_are_what_it_is_for(tmp_path):
    """Each user says car and each document automobile, so no user's own words find a thing."""
    words = ("red", "old", "fast", "cheap", "small", "long", "blue", "new", "loud", "wide")
    rows = [{"prompt": f"car {i}th", "gold": [f"d{i % 10}"]} for i in range(20)]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    docs = [{"id": f"d{i}", "text": f"{w} automobile"} for i, w in enumerate(words)]
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps(r) + "\n" for r in docs))
    run = train(tmp_path, data=str(tmp_path / "q.jsonl"), docs=str(tmp_path / "docs.jsonl"))
    _, step, *_ = map(json.loads, (run.folder / "metrics.jsonl").read_text().splitlines())
    assert step["part/ndcg_lift"] == 0


def test_what_users_leave_out_is_said(tmp_path):
    with pytest.raises(UserError, match="rec-r1 needs documents"):
        train(tmp_path, task="add")
    rows = tmp_path / "q.jsonl"
    rows.write_text('{"prompt": "boss of bako?", "gold": ["bako.md"]}\n')
    with pytest.raises(UserError, match=r"needs rows of yours, data FILE\.jsonl, and documents"):
        train(tmp_path, data=str(rows))
    link = rec_r1.RetrievalReward()
    e = Episode(reward=Reward(total=1.0), status="finished")
    with pytest.raises(UserError, match="this environment searches none"):
        asyncio.run(link(None, ("k",), Group(task=Task(id="t"), episodes=(e,))))
