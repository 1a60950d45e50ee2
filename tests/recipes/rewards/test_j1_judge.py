"""J1: rewards of both orders of a pair, compared within an order."""

import math

import numpy as np
import pytest
from palaestra.credit.table import Table, Values
from palaestra.explanation.method import explain
from palaestra.recipes.base import grpo
from palaestra.recipes.rewards import j1_judge
from palaestra.run.driver import prepare
from palaestra.step import start, step
from palaestra.types import Act, Ask, Episode, Event, Group, Message, Reward, Row, Segment, Task
from palaestra.worlds.pair import Pair, is_higher, rating

from tests.fake import task
from tests.recipes.rewards.helpers import run


def pair(first, second):
    """A rollout of both orders, paid 0.5 for each that is right."""
    return {"turn_lengths": [2, 3], "turn_rewards": [0.5 * first, 0.5 * second]}


def credited(mode, *rollouts):
    """What each judgement is worth before its order's mean is taken off: [rollout][order]."""
    link, found = j1_judge.BothOrders(mode), []
    groups = [Group(task=task("p", (0,), ()), episodes=tuple(two_rows(*r) for r in rollouts))]
    table = Table(groups, [], {})
    found = link(Values(level="episode", x_N=table.reward_E), table).x_N
    return found.reshape(len(rollouts), 2).tolist(), {k: v.x_N.tolist() for k, v in table.columns.items()}


def two_rows(first, second):
    def row(turn):
        said = Segment(
            ids=(1, 2), author="policy", policy="policy", trained=True, logp=(0.0, 0.0), turn=turn, version=0
        )
        return Row(segments=(Segment(ids=(0,), turn=turn), said), thread=str(turn))

    events = tuple(Event(row=r, token=2, value=0.5 * x) for r, x in enumerate((first, second)))
    paid = Reward(total=0.5 * (first + second), events=events)
    return Episode(rows=(row(0), row(1)), reward=paid, status="finished")


def test_j1_rewards_of_the_catalogue():
    """Orders (right, wrong) and (right, right)."""
    assert credited("correctness", (1, 0), (1, 1))[0] == [[1, 0], [1, 1]]
    assert credited("consistency", (1, 0), (1, 1))[0] == [[0, 0], [1, 1]]
    assert credited("sum", (1, 0), (1, 1))[0] == [[1, 0], [2, 2]]
    _, columns = credited("sum", (1, 1), (1, 0), (0, 1), (0, 0))  # RR, RW, WR, WW
    assert np.mean(columns["consistent"]) == 1 / 4 and np.mean(columns["correct"]) == 0.5
    assert columns["flips"] == [0, 0, 1, 1, 1, 1, 0, 0]


def test_j1_compares_within_an_order():
    rollouts = [pair(1, 0), pair(1, 1)]
    found = explain(j1_judge.build(), [rollouts])["advantages"][0]
    z = 1 / math.sqrt(2)
    assert found[0] == pytest.approx([-z] * 2 + [-z] * 3, abs=1e-5) and found[1] == pytest.approx([z] * 5, abs=1e-5)
    found = explain(j1_judge.build("correctness"), [rollouts])["advantages"][0]
    assert found[0] == pytest.approx([0] * 2 + [-z] * 3, abs=1e-5)  # both are right in the first order
    assert explain(j1_judge.build(), [[pair(1, 1)]])["advantages"] == [[[0.0] * 5]]
    single = [[{"reward": r} for r in (1, 0, 0, 0)]]  # on single questions it is grpo
    by_token = np.repeat(explain(grpo.build(), single)["advantages"][0], 4).reshape(4, 4)
    assert np.array(explain(j1_judge.build(), single)["advantages"][0]) == pytest.approx(by_token)


def test_j1_pointwise_scores():
    assert is_higher("= 6.5", "= 6.0") == 1 and is_higher("= 6.0", "= 6.0") == 0 == is_higher("= 6", "= 6.5")
    assert is_higher("= right", "3+4=7\n= wrong") == 1 and is_higher("= right", "= right") == 0 == is_higher(
        "= right", "what"
    )
    assert rating("= 7 of 10") is None and rating("") is None and rating("= inf") is None


def test_j1_pairwise_scores():
    a, b = Task(id="a", answer="A"), Task(id="b", answer="2")
    said = "<think>8?</think><score_A>{}</score_A><score_B>{}</score_B>".format
    assert j1_judge.score_verdict(said(7, 6), a) == 1 == j1_judge.score_verdict(said(6, 6.5), b)
    assert j1_judge.score_verdict(said(7, 7), a) == 0 == j1_judge.score_verdict(said(7, 7), b)
    assert (
        j1_judge.score_verdict(said(7, 8), a)
        == 0
        == j1_judge.score_verdict("A is better", a)
        == j1_judge.score_verdict("", b)
    )


def test_a_pair_is_two_rows_paid_apart(context, small):
    for bench in ("compare-pairs", "judge-pairs"):
        recipe, ctx = small(j1_judge.build()), context(bench)
        prepare(recipe, ctx)
        _, metrics = run(step(recipe, ctx, start(0)))
        assert metrics["errors"] == 0 and {"correct", "consistent", "flips"} <= set(metrics)
        for e in (e for g in ctx.seen for e in g.episodes):
            first, second = (ev.value for ev in e.reward.events)
            assert len(e.rows) == 2 and e.total == first + second and {first, second} <= {0, 0.5}
            verdicts, halves = e.facts["verdicts"], ctx.seen[0].task.meta["halves"]
            assert (
                bench == "judge-pairs"
                or e not in ctx.seen[0].episodes
                or first == 0.5 * (verdicts[0] == halves[0].answer)
            )
            assert bench == "compare-pairs" or first == second == 0.5 * (verdicts == ("right", "wrong"))


PAIR = Task(
    id="p",
    prompt=(Message(role="user", content="Capital of Norway?"),),
    meta={"chosen": "Oslo [[A]] </a>", "rejected": "Rome"},
)


def test_a_users_pair_is_asked_in_both_orders():
    first, second = j1_judge.both_orders(PAIR, "verdict")
    a, b = (t.prompt[0].content for t in (first, second))
    assert (first.answer, second.answer) == ("A", "B")
    assert a.index("Oslo") < a.index("Rome") and b.index("Rome") < b.index("Oslo")
    assert a.count("</a>") == 1 and "[[A]]" not in a and "`= A` or `= B`" in a
    alone, other = (t.prompt[0].content for t in j1_judge.both_orders(PAIR, "points"))
    assert ("Oslo" in alone, "Rome" in alone, "Oslo" in other, "Rome" in other) == (True, False, False, True)


def test_scores_of_a_pair_are_paid_by_the_better_response():
    said = "<score_A>{}</score_A><score_B>{}</score_B>".format
    halves = j1_judge.both_orders(PAIR, "scores")
    for world, texts, pay in (
        (j1_judge.ScoredPair(), (said(7, 3), said(7, 3)), (0.5, 0.0)),
        (Pair(), ("= A", "= B"), (0.5, 0.5)),
        (Pair(apart=True), ("= 7", "= 3"), (0.5, 0.5)),
    ):
        acts = tuple(Act(ask=Ask(seat="policy"), text=t, call=None, finish="eos", n_tokens=1) for t in texts)
        found = world.step(halves, acts, ()).pay
        assert tuple(found[("policy", name)] for name in ("first", "second")) == pay
