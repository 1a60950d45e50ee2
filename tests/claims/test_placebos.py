"""Placebos take a reason away and leave all else as it is; what claims measure by themselves."""

import asyncio
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import palaestra as pl
import pytest
from palaestra.claims.objectives.asymre import Collapse
from palaestra.claims.objectives.cola import Twice
from palaestra.claims.objectives.kimi_k1_5 import MixedLengthReward
from palaestra.claims.rewards.rlcf import KL, best_within
from palaestra.claims.rewards.salu import MixedPunishments
from palaestra.claims.rewards.self_rewarding import MixedVerdicts
from palaestra.claims.starts import unmoved
from palaestra.credit.table import Table
from palaestra.run.plan import Plan
from palaestra.tasks.oracle import episode_saying
from palaestra.types import Episode, Group, Reward, Row, Segment, Task

TASK = Task(id="t", answer="1")


def group(*texts):
    return Group(task=TASK, episodes=tuple(episode_saying(t) for t in texts))


def pay(*totals):
    """A reward that pays a group's answers in their order."""

    async def reward(ctx, group):
        return [Reward(total=x, parts={"mine": float(i)}) for i, x in enumerate(totals)]

    return reward


def total(found):
    return [r.total for r in found]


def test_mixed_verdicts_call_as_many_right_and_others():
    texts, ctx = [f"= {i}" for i in range(8)], SimpleNamespace(seed=0)
    mixed = [
        total(asyncio.run(MixedVerdicts(pay(1, 1, 1, 0, 0, 0, 0, 0))(ctx, group(*texts[i:], *texts[:i]))))
        for i in range(8)
    ]
    assert all(Counter(m) == {1: 3, 0: 5} for m in mixed) and len(set(map(tuple, mixed))) > 4


def test_mixed_punishments_are_those_of_the_false_answers_in_another_order():
    totals, ctx = (1.0, -1.2, -1.4, -0.5, -1.6, -1.8, -2.0, 1.0), SimpleNamespace(seed=0)
    honest = pay(*totals)
    honest.wrong = -1.0
    found = [asyncio.run(MixedPunishments(honest)(ctx, group(*(f"{k} {i}" for i in range(8))))) for k in range(6)]
    for rewards in found:
        assert Counter(total(rewards)) == Counter(totals)
        kept = [i for i, x in enumerate(totals) if x > -1]
        assert [rewards[i].total for i in kept] == [totals[i] for i in kept]
        assert [r.parts["mine"] for r in rewards] == list(range(8))
    assert len({tuple(total(r)) for r in found}) > 3


def test_mixed_length_rewards_stay_among_the_right_and_among_the_wrong():
    def answer(length, right):
        row = Row(segments=(Segment(ids=(1,) * length, trained=True, logp=(0.0,) * length),))
        return Episode(rows=(row,), reward=Reward(total=float(right), solved=bool(right)))

    lengths, right = [1, 2, 3, 4, 5, 6, 7, 8], [1, 1, 1, 1, 0, 0, 0, 0]
    table = Table([Group(task=TASK, episodes=tuple(map(answer, lengths, right)))], [], {})
    zero = pl.Values(level="episode", x_N=np.zeros(8))
    plain, mixed = (stage(zero, table).x_N for stage in (pl.credit.LengthReward(2.0), MixedLengthReward(2.0)))
    assert sorted(plain[:4]) == sorted(mixed[:4]) and sorted(plain[4:]) == sorted(mixed[4:])
    assert mixed.tolist() != plain.tolist() and plain[0] == 1.0
    assert MixedLengthReward.spreads is pl.credit.LengthReward.spreads is True


def test_a_fall_is_measured_from_the_best_window():
    steps = [{"reward": x} for x in (0.0, 0.5, 1.0, 1.0, 0.2, 0.0)]
    assert Collapse(window=2)(pl.ledger.Cell(summary={}, steps=steps)) == pytest.approx(0.9)
    assert Collapse(window=2)(pl.ledger.Cell(summary={}, steps=steps[:4])) == 0.0
    assert np.isnan(Collapse(window=7)(pl.ledger.Cell(summary={}, steps=steps)))


def test_twice_has_twice_the_tokens():
    class Ctx:
        plan = Plan(tokens=100)

        async def train(self, recipe):
            return (recipe, self.plan.tokens)

    assert asyncio.run(Twice("recipe").run(Ctx())) == ("recipe", 200)


def test_writers_are_equally_far_from_where_they_began():
    start_N = np.full(5, 0.2)
    for scale in (0.01, 1.0, 50.0):
        pi_N = best_within(0.5, start_N, scale * np.arange(5.0))
        assert float(pi_N @ np.log(pi_N / start_N)) == pytest.approx(0.5, abs=1e-6)
        assert np.all(np.diff(pi_N) > 0) and pi_N.sum() == pytest.approx(1)
    assert KL > 0


def test_what_does_not_move_takes_a_rate_of_nothing():
    still = unmoved(pl.recipe("grpo"), steps=3)
    assert {x.optimiser.lr for x in still.learners.values()} == {0.0} and still.schedule.steps == 3
    moving = pl.recipe("grpo")
    assert replace(still, learners=moving.learners, schedule=moving.schedule) == moving
