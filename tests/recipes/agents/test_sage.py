"""SAGE: rewards that share credit among the strategies of a query's rewrites, and the world that pays them."""

import asyncio
import json

import palaestra as pl
import pytest
from palaestra.errors import Fault, UserError
from palaestra.recipes.agents import sage
from palaestra.services.index import BM25
from palaestra.types import Act, Episode, Group, Message, Reward, Row, Segment, Task
from palaestra.worlds import OwnSearch, RewriteQuery
from palaestra.worlds.rewrite import read_query

from tests.recipes.objectives.helpers import advantages, near, scored

DOCS = (("bako.md#1", "boss of bako is tiru"), ("bako.md#2", "heir of bako"), ("tiru.md", "host of tiru"))
# strategy, NDCG, whether the query was copied: the catalogue's group
GROUP = (("expansion", 0.8, False), ("expansion", 0.6, False), ("decomposition", 0.3, False), ("concise", 0.5, True))


def rewritten(strategy, ndcg, copied=False, plain=0.5, text=None):
    said = f"<strategy>{strategy}</strategy><query>x</query>" if text is None else text
    row = Row(segments=(Segment(ids=(1,), logp=(-1.0,), trained=True, text=said),))
    facts = {"ndcg": ndcg, "ndcg_plain": plain, "copied": copied, "query": read_query(said), "answered": True}
    return Episode(rows=(row,), reward=Reward(total=ndcg, solved=ndcg == 1), facts=facts, status="finished")


def paid(*episodes, **options):
    link = sage.build(**options).collect.links[-1]
    group = Group(task=Task(id="t"), episodes=episodes)
    return [e.reward for e in asyncio.run(link(None, ("k",), group)).episodes]


def totals(*episodes, **options):
    return [r.total for r in paid(*episodes, **options)]


def test_rewards_of_the_catalogue():
    """By hand: m(expansion) = .7; .8 against the mean .4 of .3 and .5; .3 against 1.9 / 3."""
    group = [rewritten(*g) for g in GROUP]
    assert totals(*group) == near([0.75, 0.65, 0.3, -0.1])
    assert totals(*group, shaping="crs", penalties="fixed") == near([0.4, 0.2, 0.3 - 1.9 / 3, -0.1])
    assert totals(*group, shaping="none", copied=0.5) == near([0.8, 0.6, 0.3, 0.5])
    assert advantages(sage.build(), *scored(0.75, 0.65, 0.3, -0.1)) == near(
        [0.908757, 0.649112, -0.259645, -1.298224], 1e-4
    )


def test_no_named_rewrite_is_worth_less_than_a_penalised_one():
    """By hand: the least contrast is .3 - 1.9 / 3 = -.333333, and a copy has .1 less than that."""
    assert totals(*(rewritten(*g) for g in GROUP), shaping="crs") == near([0.4, 0.2, -1 / 3, -1 / 3 - 0.1])
    group = (rewritten("concise", 0.0), rewritten("magic", 1.0), rewritten("neutral", 1.0, copied=True))
    assert totals(*group, shaping="crs") == near([-1, -1.2, -1.1])
    assert totals(*group) == near([0, -0.2, -0.1])
    assert totals(rewritten("magic", 1.0), shaping="crs") == near([-0.2])


def shifts(*group, **options):
    return [r.parts["credit_shift"] for r in paid(*group, **options)]


def test_the_shift_of_credit_is_0_where_no_credit_is_shared():
    """Of one strategy r is affine in n, which GRPO's mean and scale take away."""
    alone = (rewritten("concise", 0.8), rewritten("concise", 0.2), rewritten("neutral", 1.0, copied=True))
    for shaping in ("scs", "crs"):
        assert shifts(*alone, shaping=shaping) == [0, 0, 0]
    assert shifts(rewritten("concise", 0.8), rewritten("concise", 0.2), rewritten("neutral", 0.5)) == near(
        [0.15, 0.15, 0]
    )
    assert shifts(rewritten("concise", 0.8), rewritten("neutral", 0.6), shaping="crs-ref") == [0, 0]
    assert shifts(rewritten("concise", 0.8), rewritten("concise", 0.2), shaping="crs-ref") == near([0.5, 0.2])


@pytest.mark.parametrize(
    ("names", "shaping", "said"),
    [
        (("concise", "concise"), "crs", "each is rewarded 0"),
        (("concise", ""), "scs", "changes nothing"),
        (("magic", ""), "scs", "start=shown imitates"),
        (("concise", "neutral"), "scs", None),
        (("concise", "concise"), "none", None),
    ],
)
def test_the_first_step_says_where_there_is_no_credit_to_share(names, shaping, said):
    link = sage.build(shaping=shaping).collect.links[-1]
    group = Group(task=Task(id="t"), episodes=tuple(rewritten(n, 0.5) for n in names))
    note = link.first_step_note([asyncio.run(link(None, ("k",), group))])
    assert said in note if said else note == ""


def test_a_constant_reference_changes_nothing_but_where_it_is_clipped():
    """GRPO's mean takes n(query) away; max(0, .) does not let it."""
    n = (0.8, 0.6, 0.4, 0.5)
    assert advantages(sage.build(), *scored(*n)) == near(advantages(sage.build(), *scored(*(x - 0.5 for x in n))), 1e-4)
    clipped = totals(*(rewritten("concise", x) for x in n), shaping="crs-ref")
    assert clipped == near([0.3, 0.1, 0.0, 0.0])


def test_groups_of_one_strategy_have_no_contrast():
    alone = [rewritten("concise", 0.8), rewritten("concise", 0.2)]
    assert totals(*alone, shaping="crs") == [0.0, 0.0]
    assert totals(*alone) == near([0.65, 0.35])
    assert totals(rewritten("concise", 0.8), shaping="scs", weight=1.0) == near([0.8])
    assert totals() == []


def test_rewrites_without_a_known_strategy_or_query_are_penalised_and_count_in_means():
    group = (
        rewritten("magic", 0.9),
        rewritten("", 0.9, text="<query>x</query>"),
        rewritten("", 0.0, text="<strategy>concise</strategy>x"),
        rewritten("concise", 0.5),
    )
    rewards = paid(*group, shaping="crs")
    assert [r.total for r in rewards] == near([-0.3, -0.3, -0.3, 0.5 - 1.8 / 3])
    assert [r.parts["unnamed"] for r in rewards] == [1, 1, 1, 0]
    assert [r.parts["credit_shift"] for r in rewards] == [0, 0, 0, 0]  # one strategy that is known
    assert [r.parts["concise"] for r in rewards] == [0, 0, 0, 1]


@pytest.mark.parametrize(
    ("text", "strategy", "query"),
    [
        ("<strategy> Concise </strategy><query> a b </query>", "concise", "a b"),
        ("<think><query>no</query></think><strategy>concise</strategy>\n<query>a</query>", "concise", "a"),
        ("<think><strategy>concise</strategy> and so on", "", ""),
        ("<strategy>concise</strategy><strategy>neutral</strategy><query>a</query><query>b</query>", "", ""),
        ("<strategy>concise, neutral</strategy><query></query>", "", ""),
    ],
)
def test_what_a_message_says(text, strategy, query):
    assert sage.strategy_of(text, sage.names_of(sage.STRATEGIES)) == strategy
    assert read_query(text) == query


def play(text, gold, world=None, query="Boss of Bako?"):
    world = world or RewriteQuery(BM25(DOCS), k=2)
    task = Task(id="t", prompt=(Message(role="user", content=query),), meta={"gold": gold})
    frame = world.reset(task, ("k",))
    act = Act(ask=frame.asks[0], text=text, call=None, finish="stop", n_tokens=1)
    return frame, asyncio.run(world.step(frame.state, (act,), ("k",)))


def test_the_world_pays_the_ndcg_of_what_the_rewrite_finds():
    frame, end = play("<query>heir boss bako</query>", ["tiru.md"])
    assert frame.asks[0].say[0].content.startswith("Boss of Bako?\n\nThis is a query")
    assert end.pay == {("policy", ""): 0.0} and not end.asks
    _, end = play("<query>host tiru</query>", ["tiru.md"])
    assert (end.pay[("policy", "")], end.facts["ndcg_plain"], end.facts["correct"]) == (1.0, 0.0, True)
    _, end = play("<query>boss of bako</query>", {"bako.md": 2, "tiru.md": 1})
    assert end.facts["copied"] and end.facts["ranking"] == ("bako.md",)  # both of its passages
    assert end.facts["ndcg"] == pytest.approx(2 / (2 + 0.6309298))
    for query, copied in (
        ("who is the boss of bako", True),
        ("boss bako", False),
        ("bako boss of", False),
        ("boss of bako chief", False),
        ("the who", False),
    ):
        assert play(f"<query>{query}</query>", ["bako.md"])[1].facts["copied"] == copied, query
    _, end = play("boss of bako", ["bako.md"])
    assert (end.facts["ndcg"], end.facts["ndcg_plain"], end.facts["malformed"]) == (0.0, 1.0, 1)


def test_gold_documents_are_those_of_the_index():
    docs = BM25((("C#.md#1", "boss"), ("C#.md#2", "heir"), ("C#2", "host"), ("7", "soro")))
    world = RewriteQuery(docs, k=4)
    assert play("<query>boss</query>", ["C#.md"], world)[1].facts["ranking"] == ("C#.md",)
    assert play("<query>host</query>", ["C#2"], world)[1].facts["ndcg"] == 1
    for gold in ([7], 7, {"7": 1, "C#.md": 0}):
        assert play("<query>soro</query>", gold, world)[1].facts["ndcg"] == 1
    with pytest.raises(UserError, match=r"gold document 'nope\.md' is none of the documents"):
        play("<query>boss</query>", ["C#.md", "nope.md"], world)
    with pytest.raises(UserError, match=r"task 't': gold is .* one of them above 0"):
        play("<query>boss</query>", {"C#.md": 0}, world)


def test_a_search_of_ones_own_finds_the_documents(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "def one(query):\n    return ['tiru.md', 'bako.md']\n\n"
        "async def two(query, k):\n    return [{'id': f'{query}{i}', 'text': 'x'} for i in range(9)][:k]\n\n"
        "def away(query):\n    raise ConnectionError('refused')\n\n"
        "def wrong(query):\n    return 1 / 0\n\n"
        "def bare(query):\n    return 'tiru.md'\n"
    )
    _, end = play("<query>x</query>", ["bako.md"], RewriteQuery(OwnSearch(f"{file}:one")))
    assert end.facts["ndcg"] == pytest.approx(0.6309298)
    assert asyncio.run(OwnSearch(f"{file}:two").search("q", 2)) == (("q0", "x", 1.0), ("q1", "x", 0.5))
    for name, kind, match in (
        ("away", Fault, "refused"),
        ("wrong", UserError, r"mine.py:11: ZeroDivisionError"),
        ("bare", UserError, "a search returns documents"),
    ):
        with pytest.raises(kind, match=match):
            asyncio.run(OwnSearch(f"{file}:{name}").search("q"))


def test_what_users_leave_out_is_said(tmp_path):
    with pytest.raises(UserError, match=r"needs a query and its gold documents; .* or drop the row"):
        play("x", [])
    with pytest.raises(UserError, match="sage needs documents"):
        pl.train("sage", task="add", out=tmp_path / "a", quiet=True)
    rows = tmp_path / "q.jsonl"
    rows.write_text('{"prompt": "boss of bako?", "gold": ["bako.md"]}\n')
    with pytest.raises(UserError, match=r"needs rows of yours, data FILE\.jsonl, and documents"):
        pl.train("sage", data=str(rows), out=tmp_path / "b", quiet=True, set={"shaping": "none"})
    with pytest.raises(UserError, match="each with a name of its own"):
        sage.build(strategies=("a: x", "a: y"))
    with pytest.raises(UserError, match="no rewrites to show"):
        asyncio.run(sage.ShowRewrites()(None, ("k",), Group(task=Task(id="t"))))


@pytest.mark.parametrize(
    ("rewrites", "match"),
    [
        ({"Typo": "boss of bako", "concise": None}, r"task 'q\.jsonl:3': .* strategy 'typo', and these are known: exp"),
        ({"Concise": " "}, r"task 'q\.jsonl:3': .* has ' ' for the strategy 'concise'"),
        ({"concise": ["a"]}, "write the rewritten query"),
        ({"concise": None}, "has no rewrites to show"),
    ],
)
def test_rewrites_to_imitate_are_checked(rewrites, match):
    task = Task(id="q.jsonl:3", meta={"rewrites": rewrites})
    with pytest.raises(UserError, match=match):
        asyncio.run(sage.ShowRewrites()(None, ("k",), Group(task=task)))


def test_rewrites_are_shown_by_the_names_of_strategies():
    stage = sage.ShowRewrites(("typo: correct it",))
    task = Task(id="t", meta={"rewrites": {"Typo": "boss of bako", "concise": None}})
    assert stage._checked(task.meta["rewrites"], task) == {"typo": "boss of bako"}


def test_queries_are_rewritten_for_a_search_of_ones_own(tmp_path):
    """The start knows no form: every rewrite is penalised, and the search of the query itself is told."""
    (tmp_path / "mine.py").write_text("def search(query):\n    return ['lions.md', 'bako.md']\n")
    rows = [{"prompt": f"boss of {who}?", "gold": {"bako.md": 2}} for who in ("bako", "deci", "mema", "tiru")]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    run = pl.train(
        "sage",
        data=str(tmp_path / "q.jsonl"),
        tools=f"{tmp_path / 'mine.py'}:search",
        model="tiny-agent",
        max_tokens=8,
        steps=1,
        evaluate=0,
        quiet=True,
        out=tmp_path / "run",
        set={"samples": 2, "schedule.prompts": 2},
    )
    step = json.loads((run.folder / "metrics.jsonl").read_text().splitlines()[0])
    assert step["part/unnamed"] == 1 and step["part/ndcg_lift"] == pytest.approx(-0.6309298)
