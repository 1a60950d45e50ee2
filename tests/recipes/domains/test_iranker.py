"""IRanker: the reward of one elimination, pools of drawn sizes, and the world in which candidates are dropped."""

import asyncio
import json
from dataclasses import replace

import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.recipes.domains import iranker
from palaestra.services.index import BM25
from palaestra.toys.histories import HistoryTasks
from palaestra.types import Act, Episode, Group, Message, Reward, Row, Segment, Task
from palaestra.worlds import Eliminate
from palaestra.worlds.eliminate import read_choice
from palaestra.worlds.pools import draw_pool, read_items

from tests.recipes.objectives.helpers import near

SHOWN = (("A", "alpha beta", 0.0), ("B", "gamma", 0.0), ("X", "boss of bako", 0.0))
DOCS = (("a", "boss of bako is tiru"), ("b", "heir of bako is soro"), ("c", "host of bako is mema"), ("d", "lion"))


def clean(answer):
    return f"<think>so</think>\n<answer>{answer}</answer>"


def judged(text, shown=SHOWN, gold=("X",), think=True, weight=1.0, opened=""):
    """The reward of a response to a pool, which the chat template may have opened."""
    choice = read_choice(text, shown)
    worth = [float(name in gold) for name, _, _ in shown]
    right = choice > 0 and worth[choice - 1] == min(worth)
    facts = {"choice": choice, "right_choice": right, "chance": worth.count(min(worth)) / len(worth)}
    said = Segment(ids=(1,), logp=(-1.0,), trained=True, text=text)
    forced = (Segment(ids=(2,), text=opened, author="forced"),) if opened else ()
    row = Row(segments=(*forced, said))
    e = Episode(rows=(row,), reward=Reward(total=0.0), facts=facts, status="finished")
    link = iranker.EliminationReward(weight, think)
    return asyncio.run(link(None, ("k",), Group(task=Task(id="t"), episodes=(e,)))).episodes[0].reward


@pytest.mark.parametrize(
    ("text", "total"),
    [
        (clean("A"), 1),
        (clean("[2]"), 1),
        (clean("X"), 0),
        (clean("Z"), -0.5),
        ("<think>so</think>", -2.5),
        ("A", -3),
        ("<think>a</think><think>b</think><answer>A</answer>", 0.5),
        (f"{clean('A')} and more", 0),
    ],
)
def test_rewards_of_the_catalogue(text, total):
    """Pool {A, B, X}, X is relevant. By hand: two answers of four tags missing, no form and no answer: -1 - 1 - .5;
    none of the tags: -1 - 1 - 1; a thought twice costs two tags, and the form still has a thought and an answer."""
    assert judged(text).total == near(total)


def test_a_thought_that_the_template_opens():
    assert judged("so</think>\n<answer>A</answer>", opened="<think>").total == 1
    assert judged("so</think>\n<answer>A</answer>").total == -0.25


def test_what_a_choice_earns_above_chance():
    """A random choice of three candidates is right with 2 / 3."""
    assert judged("[1]", think=False).parts["above_chance"] == near(1 / 3)
    assert judged("[3]", think=False).parts["above_chance"] == near(-2 / 3)
    assert judged("[9]", think=False).parts["above_chance"] == 0 and judged("[9]", think=False).total == -0.5
    assert judged("", think=False).total == -1 and judged("A", think=False).parts["form"] == 0
    off = judged("[3]", think=False, weight=0.0)
    assert (off.total, off.parts["above_chance"]) == (0, 0)
    assert judged("[1]", gold=("A", "B", "X"), think=False).total == 1  # all are equally relevant


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("[2]", 2),
        ("2", 2),
        ("2.", 2),
        ("**Answer:** [2]", 2),
        ("[2] gamma", 2),
        ("b", 2),
        ("  Boss of  Bako\nbecause", 3),
        ("<answer>[1]</answer> no, <answer>\n3\n</answer>", 3),
        ("<think>[1]</think>[2]", 2),
        ("[4]", 0),
        ("[0]", 0),
        ("[1] > [2] > [3]", 1),
        ("the second", 0),
        ("9" * 5000, 0),
        ("<think>[1]", -1),
        ("<answer> </answer>", -1),
        (" \n", -1),
    ],
)
def test_what_a_message_names(text, choice):
    assert read_choice(text, SHOWN) == choice


def play(says, gold=("a",), query="boss of bako?", **settings):
    """The frames of an elimination in which `says` answers each turn, given the shown candidates."""
    world = Eliminate(**{"retriever": BM25(DOCS), "k": 3, **settings})
    items = {"items": settings["items"]} if "items" in settings else {}
    task = Task(id="t", prompt=(Message(role="user", content=query),), meta={"gold": list(gold), **items})
    frames = [asyncio.run(world.reset(task, ("k",)))]
    while frames[-1].asks:
        state = frames[-1].state
        act = Act(ask=frames[-1].asks[0], text=says(world, state), call=None, finish="stop", n_tokens=1)
        frames.append(world.step(state, (act,), ("k",)))
    return frames


def name(wanted):
    return lambda world, state: next(w for w in wanted if w in [h[0] for h in state.left])


def test_the_order_of_drops_is_the_ranking():
    """n = 3, the relevant one is dropped first: rank 3, NDCG 1 / log2(4)."""
    frames = play(name("acb"))
    assert len(frames) == 3 and frames[-1].facts["ranking"] == ("b", "c", "a")
    assert frames[-1].pay == {("policy", ""): near(0.5)} and frames[1].asks[0].new_row
    assert "boss of bako is tiru" not in frames[1].asks[0].say[0].content
    assert play(name("bc"))[-1].facts["ranking"] == ("a", "c", "b")
    assert frames[-1].facts["ranking_plain"][0] == "a" and frames[-1].facts["ndcg_plain"] == 1
    best = play(lambda world, state: world.oracle(state))
    assert best[-1].facts["correct"] and best[-1].facts["malformed"] == 0


def test_who_names_nothing_has_no_ranking():
    end = play(lambda world, state: "none of them")[-1]
    assert (end.pay[("policy", "")], end.facts["ranking"], end.facts["malformed"]) == (0.0, (), 2)
    once = play(lambda world, state: "b" if len(state.left) == 3 else "?")[-1].facts
    assert once["ranking"] == ("a", "c", "b") and once["malformed"] == 1  # the last of the retriever's order


def test_candidates_stand_in_an_order_drawn_at_random():
    first = {tuple(h[0] for h in play(name("cba"), query=f"bako {i}?")[0].state.left) for i in range(12)}
    assert len(first) == 1  # the same task and key draw the same
    worlds = [Eliminate(BM25(DOCS), k=3), Eliminate(BM25(DOCS), k=3, shuffle=False)]
    orders = []
    for world in worlds:
        tasks = [
            Task(id=str(i), prompt=(Message(role="user", content="boss of bako?"),), meta={"gold": ["a"]})
            for i in range(12)
        ]
        orders.append({tuple(h[0] for h in asyncio.run(world.reset(t, ("k",))).state.left) for t in tasks})
    assert len(orders[0]) > 2 and len(orders[1]) == 1


def test_one_decision_on_a_pool_of_a_size():
    for size in (2, 3, 4):
        frame, end = play(lambda world, state: world.oracle(state), size=size)
        ids = [h[0] for h in frame.state.left]
        assert len(ids) == size and "a" in ids and end.pay == {("policy", ""): 1.0}
        assert end.facts["chance"] == near((size - 1) / size)
    assert play(name("a"), size=3)[-1].pay == {("policy", ""): 0.0}
    rng = pl.rng_of(("pool",))
    assert [h[0] for h in draw_pool((), {"z": 1.0}, None, 3, rng)] == []
    alone = play(lambda world, state: "[1]", query="lion?", gold=("d",))
    assert len(alone) == 2 and alone[-1].facts["ranking"] == ("d",)
    nothing = play(lambda world, state: "[1]", query="zebra?")[-1]
    assert nothing.facts["ranking"] == () and nothing.pay[("policy", "")] == 0


def test_less_relevant_ones_stand_in_a_pool_where_all_are_graded():
    hits, grades = (("a", "", 0.0), ("b", "", 0.0), ("c", "", 0.0)), {"a": 1.0, "b": 2.0, "c": 3.0}
    pools = [tuple(h[0] for h in draw_pool(hits, grades, None, 3, pl.rng_of(("p", i)))) for i in range(24)]
    assert {p[0]: set(p[1:]) for p in pools} == {"a": set(), "b": {"a"}, "c": {"a", "b"}}


@pytest.mark.parametrize("words", [False, True])
def test_what_is_demonstrated(words):
    """Without noise never the relevant one, with noise it, too; both by number and by text."""
    task = Task(
        id="t", prompt=(Message(role="user", content="12 40 33"),), meta={"gold": ["18"], "items": ["18", "71"]}
    )
    for noise, named in ((0.0, {"71"}), (1.0, {"18", "71"})):
        world = iranker.DrawnDrops(None, k=2, size=2, noise=noise, think=False, words=words)
        seen = set()
        for i in range(16):
            state = asyncio.run(world.reset(replace(task, id=str(i)), ("k",))).state
            text = world.oracle(state)
            assert text.startswith("[") != words
            seen.add(state.left[read_choice(text, state.left) - 1][0])
        assert seen == named


def test_users_like_small_or_large_numbers():
    tasks = [HistoryTasks().task(split, i) for split in ("train", "test") for i in range(20)]
    sides = set()
    for t in tasks:
        had, items = [int(x) < 50 for x in t.prompt[0].content.split()], t.meta["items"]
        liked = [x for x in items if (int(x) < 50) == had[0]]
        assert len(set(had)) == 1 and tuple(liked) == t.meta["gold"] and len(set(items)) == 6
        sides.add(had[0])
    assert len(sides) == 2 and len({t.meta["items"].index(t.meta["gold"][0]) for t in tasks}) == 6
    assert not {t.prompt for t in tasks[:20]} & {t.prompt for t in tasks[20:]}


def test_a_first_step_in_which_nothing_is_named_is_said():
    link, named = iranker.EliminationReward(), [Reward(total=0.0, parts={"named": x}) for x in (0.0, 1.0)]
    groups = [Group(task=Task(id="t"), episodes=(Episode(rows=(), reward=r, status="finished"),)) for r in named]
    assert "start=shown imitates" in link.first_step_note(groups[:1])
    assert "think=False" in link.first_step_note(groups[:1])
    assert link.first_step_note(groups) == link.first_step_note([]) == ""


def test_items_of_a_row_are_its_candidates():
    retriever = BM25(DOCS)
    assert read_items(["b", "x y", {"id": 7, "text": "t"}], retriever, 9, "row") == (
        ("b", "heir of bako is soro", 0.0),
        ("x y", "x y", 0.0),
        ("7", "t", 0.0),
    )
    for items, match in (
        ("a", "row: items is 'a'; write a list"),
        (["a", "a"], "two of its items are the same"),
        ([None], "an item is 'None'"),
        (["a", "b", "c"], r"row has 3 items, .*eliminate\(k=3\)"),
    ):
        with pytest.raises(UserError, match=match):
            read_items(items, retriever, 2, "row")


def train(folder, **more):
    settings = {"model": "tiny-agent", "max_tokens": 4, "steps": 1, "evaluate": 0, "quiet": True}
    words = {"schedule.prompts": 2, "think": False, "exam": 1}
    return pl.train("iranker", out=folder / "run", set=words, **(settings | more))


def test_a_file_of_candidates_alone_is_enough(tmp_path):
    """Recommendation without documents: what a user had, and named candidates."""
    rows = [{"prompt": f"had: lamp {i}", "gold": ["shade"], "items": ["shade", "boat", "tea"]} for i in range(12)]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    run = train(tmp_path, data=str(tmp_path / "q.jsonl"), env="eliminate")
    steps = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert {"part/named", "part/above_chance", "value_error"} <= set(next(s for s in steps if "reward" in s))
    assert {"before ndcg@10", "mrr@10"} <= set(steps[0]["evaluations"]["ranking"])


def test_what_users_leave_out_is_said(tmp_path):
    with pytest.raises(UserError, match="iranker needs documents"):
        train(tmp_path, task="add")
    with pytest.raises(UserError, match="needs a query and its relevant documents"):
        play(name("a"), gold=())
    # any choice would be right, and be paid
    with pytest.raises(UserError, match="none of its candidates is in its column gold"):
        wrong = Task(id="t", prompt=(Message(role="user", content="q"),), meta={"gold": ["lamp"], "items": ["a", "b"]})
        asyncio.run(Eliminate(None, k=3, size=2).reset(wrong, ("k",)))
    with pytest.raises(UserError, match="pool"):
        iranker.build(pool=1)
    with pytest.raises(UserError, match="has no candidates; list them in the column items"):
        play(name("a"), retriever=None)
