"""CoRanking: orders and windows of listwise rerankers, what the large one makes of an order, and who learns from it."""

import asyncio
import json
import re
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from math import log2
from types import SimpleNamespace

import palaestra as pl
import pytest
from palaestra.errors import Fault, UserError
from palaestra.judges.listwise import rank_windows, window_spans
from palaestra.objective.preference import DPO
from palaestra.recipes.domains import coranking
from palaestra.recipes.domains.coranking import orders
from palaestra.recipes.domains.coranking.exam import OrderExam
from palaestra.toys import TasteRanker
from palaestra.types import Act, Episode, Group, Message, Reward, Row, Segment, Task
from palaestra.verifiers import ndcg
from palaestra.verifiers.orders import read_order, write_order
from palaestra.worlds import Listwise

from tests.objective.test_preference import loss_of
from tests.recipes.objectives.helpers import near

GOLD = {"b": 1, "c": 7, "d": 3}  # gains 2^rel - 1 of the relevances 1, 3 and 2; a has none
ITEMS = [{"id": x, "text": f"text {x}"} for x in "abcd"]
TASK = Task(id="t", prompt=(Message(role="user", content="what?"),), meta={"gold": GOLD, "items": ITEMS})
WORTH = {"a": 1.0, "b": 1.2, "c": 2.0, "d": 1.6}
ABCD, CDBA = (1, 2, 3, 4), (3, 4, 2, 1)


def shown(request):
    """The texts that a listwise question shows."""
    lines = request.messages[-1].content.splitlines()
    return [line.partition("] ")[2] for line in lines if line.startswith("[")]


def biased(request, bias=0.4):
    """A large reranker of the catalogue: quality less 0.4 for each place."""
    names = [text[-1] for text in shown(request)]
    score = [WORTH[x] - bias * i for i, x in enumerate(names)]
    return write_order(sorted(range(1, len(names) + 1), key=lambda n: -score[n - 1]))


def context(says, k=4):
    """A run that asks `says(request)`, with the requests."""
    asked = []

    async def ask(source, question, *, seed=0):
        asked.append(question)
        return says(question)

    bench = SimpleNamespace(world=Listwise(None, k=k))
    return SimpleNamespace(ask=ask, judging=nullcontext, bench=bench, asked=asked)


def wrote(*numbers):
    row = Row(segments=(Segment(ids=(1,), logp=(-1.0,), trained=True, text="x"),))
    facts = {"order": numbers, "ndcg": 0.25}
    return Episode(rows=(row,), reward=Reward(total=0.5, solved=False), facts=facts, status="finished")


def paid(*episodes, says=biased, weight=1.0, k=4):
    """The episodes after the large reranker, and how many calls it took."""
    ctx = context(says, k)
    link = orders.OrderReward(orders.LargeReranker("large"), weight)
    made = asyncio.run(link(ctx, ("k",), Group(task=TASK, episodes=episodes)))
    return made.episodes, len(ctx.asked)


@pytest.mark.parametrize(
    ("text", "n", "order"),
    [
        ("[2] > [2] > [9]", 3, (2, 1, 3)),  # the catalogue's repair
        ("[3] > [1] > [2]", 3, (3, 1, 2)),
        ("[1] is weak. So: [3] > [2]", 3, (3, 2, 1)),
        ("[1] > [2]\nno, [2] > [1]", 2, (2, 1)),
        ("1. [2]\n2. [1]", 2, (2, 1)),
        ("<think>[1] > [2] > [3]</think>[3]", 3, (3, 1, 2)),
        ("2 > 1", 3, (2, 1, 3)),
        ("B > lion cub", 3, (2, 3, 1)),
        ("[9] > [0]", 3, None),
        ("<think>[1] > [2]", 3, None),
        ("none of the 3", 3, None),
        ("", 3, None),
        (f"[{'9' * 5000}] > [2]", 3, (2, 1, 3)),
    ],
)
def test_orders_are_read_and_repaired(text, n, order):
    assert read_order(text, n, [("a", "tea"), ("b", "boat"), ("c", "Lion  cub")][:n]) == order


def test_an_order_is_read_as_it_is_written():
    for order in ((2, 1, 3), (3, 2, 1)):
        assert read_order(write_order(order), 3) == order
        texts = ["71", "18", "3"]
        assert read_order(write_order(order, texts), 3, list(zip(texts, texts, strict=True))) == order


@pytest.mark.parametrize(
    ("n", "window", "stride", "calls"),
    [(100, 20, 10, 9), (20, 20, 10, 1), (3, 20, 10, 1), (25, 10, 5, 4), (23, 10, 5, 4), (8, 4, 2, 3), (5, 2, 1, 4)],
)
def test_windows_from_the_back_to_the_front(n, window, stride, calls):
    """ceil((n - window) / stride) + 1 calls, 9 for the paper's 100 passages; every passage is read."""
    spans = window_spans(n, window, stride)
    assert len(spans) == calls and spans[0][1] == n and spans[-1][0] == 0
    assert all(end - start == min(n, window) for start, end in spans)
    assert all(later[1] > first[0] > later[0] for first, later in pairwise(spans))
    for wrong in ((4, 0), (4, 5), (0, 1)):
        with pytest.raises(UserError, match="a listwise reranker"):
            window_spans(9, *wrong)


def test_a_window_carries_the_best_passage_to_the_front():
    """The best of 100 stands last; an unbiased reranker moves it up by one window a call."""
    texts = [f"{i:03d}" for i in range(100)]
    ctx = context(lambda r: write_order(sorted(range(1, len(shown(r)) + 1), key=lambda n: shown(r)[n - 1])[::-1]))
    order, unread = asyncio.run(rank_windows(ctx, "small", "q", texts))
    assert len(ctx.asked) == 9 and unread == 0 and order[:10] == tuple(range(100, 90, -1))
    assert sorted(order) == list(range(1, 101))
    silent = context(lambda r: "I cannot say")
    assert asyncio.run(rank_windows(silent, "small", "q", texts)) == (tuple(range(1, 101)), 9)
    alone = context(lambda r: "[1]")
    assert asyncio.run(rank_windows(alone, "small", "q", ["a"])) == ((1,), 0) and not alone.asked


def test_the_order_of_the_catalogue_is_chosen():
    """By hand: a,b,c,d is ranked c,a,b,d, whose DCG@3 is 7 + 1 / 2 of 7 + 3 / log2(3) + 1 / 2 = 9.392789."""
    (first, best), calls = paid(wrote(*ABCD), wrote(*CDBA))
    ideal = 7 + 3 / log2(3) + 1 / 2
    assert ndcg(["c", "a", "b", "d"], GOLD, 3) == near(0.798485) and ideal == near(9.392789)
    assert first.reward.total == near((7.5 + 3 / log2(5)) / ideal) and best.reward.total == 1.0
    assert (first.reward.parts["order_gain"], best.reward.parts["order_gain"]) == (0, near(1 - first.total))
    assert first.reward.parts["spread"] == best.reward.parts["spread"] == near(1 - first.total)
    assert calls == 2 and best.reward.parts["order_ndcg"] == 0.25
    kept = asyncio.run(orders.KeepChosen()(None, ("k",), Group(task=TASK, episodes=(first, best)))).episodes
    assert [e.muted for e in kept] == [True, False]
    groups = [Group(task=TASK, episodes=(first, best))]
    examples, _ = pl.credit.Prefer(gap=0.05)(groups, [[[{}], [{}]]], {})
    assert [(x.columns["sign"], x.row is best.rows[0]) for x in examples] == [(1.0, True), (-1.0, False)]


def test_the_loss_of_a_pair():
    """Log-ratios 2 and -1, beta 0.1: -log sigmoid(0.3)."""
    part = coranking.build(large="large").parts["preferred"].runnable
    loss = part.learners["policy"].objective
    assert isinstance(loss, DPO) and loss_of(loss, (2.0, -1.0))[0] == near(0.554355)


def test_without_positional_bias_nothing_is_preferred():
    (first, best), _ = paid(wrote(*ABCD), wrote(*CDBA), says=lambda r: biased(r, 0.0))
    assert first.total == best.total == 1 and best.reward.parts["order_gain"] == 0
    group = Group(task=TASK, episodes=(first, best))
    kept = asyncio.run(orders.KeepChosen()(None, ("k",), group)).episodes
    assert all(e.muted for e in kept)
    assert pl.credit.Prefer(gap=0.05)([group], [[[{}], [{}]]], {})[0] == []
    note = orders.OrderReward(orders.LargeReranker("large")).first_step_note([group])
    assert "alike in every order" in note


def test_a_message_without_an_order_earns_nothing_and_asks_nobody():
    """Else words without an order would earn what the small reranker's order does."""
    (empty, same, again), calls = paid(wrote(), wrote(*CDBA), wrote(*CDBA))
    assert empty.total == 0 and empty.reward.parts["order_gain"] == 0
    assert calls == 2 and same.total == again.total == 1  # the small reranker's order, and this one once
    assert paid(wrote())[1] == 1
    kept = asyncio.run(
        orders.KeepChosen()(None, ("k",), Group(task=TASK, episodes=(empty, replace(same, status="error:x"))))
    ).episodes
    assert all(e.muted for e in kept)


def pair(*episodes, key=("k",)):
    """The places of the chosen and of the rejected order, as the part `preferred` has them; none without a pair."""
    part = coranking.build(large="large").parts["preferred"].runnable
    group = Group(task=TASK, episodes=episodes)
    made = asyncio.run(part.collect.links[-1](None, key, group))
    examples, _ = part.learners["policy"].credit([made], [[[{}]] * len(episodes)], {})
    return tuple(i for x in examples for i, e in enumerate(episodes) if e.rows[0] is x.row)


def test_a_message_without_an_order_is_no_end_of_a_pair():
    """Without bias all orders are worth the same, and one malformed message changes nothing in that."""
    episodes, _ = paid(wrote(), wrote(*ABCD), wrote(*CDBA), says=lambda r: biased(r, 0.0))
    assert [e.total for e in episodes] == [0, 1, 1] and episodes[1].reward.parts["spread"] == 0
    assert pair(*episodes) == ()
    episodes, _ = paid(wrote(), wrote(*ABCD), wrote(*CDBA))
    assert pair(*episodes) == (2, 1)


def test_ends_of_a_pair_are_drawn_among_equals():
    episodes, _ = paid(wrote(*CDBA), wrote(*ABCD), wrote(*ABCD), wrote(*CDBA))
    drawn = {pair(*episodes, key=("k", i)) for i in range(40)}
    assert drawn == {(0, 1), (0, 2), (3, 1), (3, 2)}


def test_an_order_that_the_large_reranker_fails_at_is_not_paid():
    """c in front makes the reranker fail; c, d, b, a has NDCG 1 as a ranking, which nobody made."""

    def fails(request):
        return "sorry" if shown(request)[0][-1] == "c" else biased(request)

    episodes, _ = paid(wrote(*ABCD), wrote(4, 3, 2, 1), wrote(3, 1, 2, 4), wrote(*CDBA), says=fails)
    assert [e.reward.parts["unread"] for e in episodes] == [0, 0, 1, 1] == [int(e.muted) for e in episodes]
    assert [e.total for e in episodes[2:]] == [e.reward.parts["order_gain"] for e in episodes[2:]] == [0, 0]
    read = sorted(e.total for e in episodes[:2])
    assert all(e.reward.parts["spread"] == near(read[1] - read[0]) for e in episodes)
    assert set(pair(*episodes)) <= {0, 1}
    assert pair(episodes[0], episodes[3]) == ()


NOTE = orders.OrderReward(orders.LargeReranker("large")).first_step_note


def test_gold_that_names_no_candidate_is_said():
    lost = replace(TASK, meta={**TASK.meta, "gold": ["not there"]})
    made = [asyncio.run(orders.OrderReward(orders.LargeReranker("large"))(
        context(biased), ("k",), Group(task=t, episodes=(wrote(*ABCD), wrote(*CDBA)))
    )) for t in (TASK, lost)]  # fmt: skip
    assert [g.episodes[0].reward.parts["relevant"] for g in made] == [1, 0]
    assert NOTE(made[:1]) == ""
    assert (
        "gold names no candidate" in NOTE(made) and "'not there'" in NOTE(made) and NOTE(made).startswith("in 1 of 2 ")
    )
    assert "alike" not in NOTE(made[1:])  # the reranker has no part in it


def test_what_most_orders_were_lost_to_is_said():
    (e, *_), _ = paid(wrote(*ABCD), says=lambda r: biased(r, 0.0))
    lost = replace(e, status="error:chat-budget")
    assert "9 of 10 orders" in (note := NOTE([Group(task=TASK, episodes=(e, *[lost] * 9))]))
    assert "9 of them to 'chat-budget'" in note and "alike" not in note
    assert "alike" in NOTE([Group(task=TASK, episodes=(e, e, lost))])


def test_too_long_windows_are_answered_with_the_window():
    """k is what the policy reads; what the small reranker reads is the window."""

    def long(request):
        raise Fault("context", "a prompt of 1485 tokens leaves no room in a context of 512")

    group = Group(task=TASK, episodes=())
    with pytest.raises(UserError, match=r"1485 tokens.*window=2 stride=1 .*k=2,told=0"):
        asyncio.run(orders.PreRank("small", window=4, stride=2)(context(long), ("k",), group))
    with pytest.raises(UserError, match="window=2 stride=1 "):
        asyncio.run(orders.ShowRankings("large", window=4)(context(long), ("k",), group))
    world = orders.WrittenOrder(None, numbers=tuple(range(1, 21)), windowed=True)
    assert world.shorter.startswith("window=5 stride=2 ")
    assert "window" not in orders.WrittenOrder(None, numbers=ABCD).shorter


def test_who_is_not_read_and_who_is_away():
    (e,), _ = paid(wrote(*CDBA), says=lambda r: "They are all good.")
    assert e.reward.parts["unread"] == 1 and e.total == 0 and e.muted  # c, d, b, a is perfect, and nobody read it
    note = orders.OrderReward(orders.LargeReranker("large")).first_step_note
    advice = re.search(r"(\w+)=(\d+) gives it room", note([Group(task=TASK, episodes=(e,))]))
    pl.recipe("coranking", large="large", **{advice[1]: int(advice[2])})  # the setting is there

    def away(request):
        raise Fault("chat-away", "no route")

    (e,), _ = paid(wrote(*CDBA), says=away)
    assert e.status == "error:chat-away"
    (off, other), _ = paid(wrote(*CDBA), wrote(*ABCD), weight=0.0)
    assert off.total == other.total == off.reward.parts["spread"] == 0


def test_the_rest_follows_behind_what_the_large_one_reads():
    (e,), calls = paid(wrote(2, 1), k=2)
    assert calls == 1 + 1 and e.total == near(ndcg(["b", "a", "c", "d"], GOLD))


def test_the_small_reranker_orders_all_candidates():
    ctx = context(lambda r: biased(r, 0.0), k=2)
    group = Group(task=TASK, episodes=())
    made = asyncio.run(orders.PreRank("small", window=2, stride=1)(ctx, ("k",), group)).task
    assert [x["id"] for x in made.meta["items"]] == ["c", "a", "b", "d"] and len(ctx.asked) == 3
    assert made.meta["retrieved"] == tuple("abcd")
    stays = asyncio.run(orders.PreRank(None)(ctx, ("k",), group)).task
    assert [x["id"] for x in stays.meta["items"]] == list("abcd") and len(ctx.asked) == 3
    told = asyncio.run(orders.PreRank("small", usage=None)(ctx, ("k",), group))
    assert told and ctx.asked[-1].messages[-1].content.endswith(ctx.bench.world.usage)


def test_what_the_small_reranker_is_shown(monkeypatch):
    """The large reranker's order, with the relevant passages first by their grades: c 7, d 3, b 1, and then a."""
    written = []

    async def keep(ctx, key, group, numbers, words, windowed):
        names = [x["id"] for x in group.task.meta["items"]]
        written.append([names[n - 1] for n in numbers])
        return group

    monkeypatch.setattr(orders, "demonstrate_order", keep)
    group = Group(task=TASK, episodes=())
    for i in range(4):
        ctx = context(lambda r: biased(r, 0.0))
        asyncio.run(orders.ShowRankings("large")(ctx, ("k", i), group))
    assert written == [list("cdba")] * 4
    one = replace(TASK, meta={**TASK.meta, "gold": ["a"]})
    asyncio.run(orders.ShowRankings("large")(ctx, ("k",), replace(group, task=one)))
    assert written.pop() == list("acdb")
    asyncio.run(orders.ShowRankings(None)(ctx, ("k",), replace(group, task=one)))
    assert written.pop() == list("abcd")


def play(text, gold=("b",), k=4, **settings):
    """The last frame of a list that is ranked by one message."""
    world = Listwise(None, k=k, **settings)
    task = replace(TASK, meta={"gold": gold, "items": ITEMS})
    frame = asyncio.run(world.reset(task, ("k",)))
    text = text or world.oracle(frame.state)
    act = Act(ask=frame.asks[0], text=text, call=None, finish="stop", n_tokens=1)
    return frame, world.step(frame.state, (act,), ("k",))


def test_a_list_is_ranked_in_one_message():
    frame, end = play("[2] > [1]")
    assert end.facts["ranking"] == ("b", "a", "c", "d") and end.pay == {("policy", ""): 1.0} and not end.asks
    assert frame.asks[0].say[0].content.startswith("what?\n\n[1] text a\n[2] text b")
    assert play("[1] > [2]")[1].pay[("policy", "")] == near(1 / log2(3)) == play("a > b")[1].facts["ndcg_plain"]
    assert play("", gold=("d",))[1].facts["correct"]
    none = play("I like all of them")[1]
    assert (none.pay[("policy", "")], none.facts["ranking"], none.facts["order"]) == (0.0, (), ())
    short, end = play("[2] > [1]", gold=("d",), k=2)
    assert "text c" not in short.asks[0].say[0].content and end.facts["ranking"] == ("b", "a", "c", "d")
    with pytest.raises(UserError, match=r"4 items, and at most 3 .*listwise\(deep=4\)"):
        play("[1]", deep=3)


def test_the_built_in_large_reranker_believes_more_in_what_comes_late():
    """Its bias is measured: over all queries, a relevant candidate is put first more often the later it stands; not so
    without the bias."""
    from palaestra.toys import HistoryTasks

    tasks = [HistoryTasks(candidates=4).task("test", i) for i in range(60)]

    def first(late, place):
        hits = 0
        for task in tasks:
            others = [x for x in task.meta["items"] if x not in task.meta["gold"]]
            texts = [*others[:place], *task.meta["gold"], *others[place:]]
            ctx = context(TasteRanker(late=late))
            order = asyncio.run(pl.judges.rank_once(ctx, "large", task.prompt[0].content, texts))
            hits += order[0] == place + 1
        return hits / len(tasks)

    shares = [first(0.3, place) for place in range(4)]
    assert shares == sorted(shares) and shares[-1] - shares[0] > 0.5
    assert len({first(0.0, place) for place in range(4)}) == 1 and 0.3 < first(0.0, 0) < 1


def test_what_a_query_costs_is_counted():
    """Four candidates, windows of 2 by 1: 3 calls of the large reranker alone and of the small one, and one call on k = 2."""
    ctx = context(biased, k=2)
    pre = orders.PreRank("small", window=2, stride=1)
    exam = OrderExam(pre, orders.LargeReranker("large"), best=1)
    task = replace(TASK, meta={**TASK.meta, "retrieved": tuple("abcd")})
    told = asyncio.run(exam.measure(ctx, task, wrote(2, 1)))
    assert (told["calls"], told["alone calls"], told["small calls"]) == (1, 3, 3)
    (read, *_) = [r for r in ctx.asked if [text[-1] for text in shown(r)] == ["b", "a"]]
    replies = len("[1] > [2]")
    assert told["characters"] == sum(len(m.content) for m in read.messages) + replies
    assert told["alone characters"] == near(3 * told["characters"])  # all texts have one length
    assert [*told][:3] == ["adjusted", "small", "alone"]
    single = replace(exam, pre=orders.PreRank(None))
    assert asyncio.run(single.measure(ctx, task, wrote()))["small calls"] == 0


def train(folder, **more):
    words = {
        "exam": 1,
        "tokens": 8,
        "best": 2,
        "small_steps": 0,
        "chosen_steps": 0,
        "samples": 1,
        "shuffles": 1,
        "preferred.schedule.prompts": 2,
    }
    settings = {"model": "tiny", "max_tokens": 4, "steps": 1, "evaluate": 1, "quiet": True}
    return pl.train("coranking", out=folder / "run", set=words | more.pop("set", {}), **(settings | more))


def test_a_file_of_candidates_and_a_model_as_large_reranker(tmp_path):
    """Other names and sizes than the built-in ones: lists of 2 to 5, without documents."""
    rows = [
        {"prompt": f"had: lamp {i}", "gold": ["shade"], "items": ["boat", "shade", "tea", "cup", "hat"][: 2 + i % 4]}
        for i in range(12)
    ]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    run = train(tmp_path, data=str(tmp_path / "q.jsonl"), env="listwise", set={"large": "tiny-agent"})
    logs = [json.loads(x) for x in (run.folder / "preferred" / "metrics.jsonl").read_text().splitlines()]
    exam = logs[0]["evaluations"]["orders"]
    assert {"retrieved", "small", "adjusted", "best of 2", "alone", "alone calls", "order only"} <= set(exam)
    assert exam["calls"] == 1 and exam["best of 2"] >= exam["small"]
    assert any("part/spread" in x for x in logs)


def test_what_users_leave_out_is_said(tmp_path):
    with pytest.raises(UserError, match=r"coranking needs .*large"):
        train(tmp_path, task="listed-histories")
    with pytest.raises(UserError, match="coranking"):
        train(tmp_path, task="add", set={"large": "tiny-agent"})
    for wrong in ({"delta": 0}, {"samples": 0, "shuffles": 0}, {"stride": 30}, {"best": -1}):
        with pytest.raises(UserError):
            coranking.build(**wrong)
