"""What the claims about bandits share: what the arms do that the bandit is compared with."""

import asyncio

import palaestra as pl
import pytest
from palaestra.claims.arms import EASY_TO_HARD, HARD_ARMS, SIX_ARMS, DrawnShare, FrozenAfter
from palaestra.claims.data.dump import EXPERIMENT
from palaestra.ledger.experiment import experiment_of
from palaestra.types import Group, Task

from tests.fake import episode


def group(*totals):
    return Group(task=Task(id="a/0", domain="a"), episodes=tuple(episode((0,), (1,), float(r)) for r in totals))


def test_a_frozen_bandit_stops_to_learn():
    frozen, state = FrozenAfter(pl.curriculum.Learnability(ddof=0, alpha=1.0), steps=2), {}
    values = []
    for totals in ((1, 0), (1, 1), (1, 0)):
        state = frozen([group(*totals)], {}, state)
        values.append(state["arms"]["a"]["value"])
    assert values == [pytest.approx(1.0, abs=1e-5), 0.0, 0.0] and state["observed"] == 3


def test_easy_arms_come_before_hard_ones(context):
    tasks, _ = asyncio.run(EASY_TO_HARD(context(SIX_ARMS), (0,), 640, {}))
    d = [t.meta["d"] for t in tasks]
    assert d == sorted(d) and sorted(d.count(k) for k in range(1, 7)) == [106, 106, 107, 107, 107, 107]


def test_the_share_of_the_hard_arms():
    """A step that draws from one arm says nothing of shares."""
    steps = [{"drawn/knights(d=1)": 0.5, f"drawn/{HARD_ARMS[0]}": 0.5}, {"reward": 1.0}]
    steps.append({f"drawn/{HARD_ARMS[1]}": 0.75, f"drawn/{HARD_ARMS[2]}": 0.25, "drawn/knights(d=2)": None})
    cell = pl.ledger.Cell(summary={}, steps=steps)
    assert DrawnShare()(cell) == 0.75 and DrawnShare(skip=1)(cell) == 1.0
    assert DrawnShare(skip=2)(cell) != DrawnShare(skip=2)(cell)


def test_all_arms_have_one_rate():
    """What is measured moves with it."""
    for method in ("dump", "sec", "pcl"):
        e = experiment_of(method)
        assert {tuple(e.settings_of(a)[0].values()) for a in e.arms} == {(1e-4,)}
        assert not e.sweep(e.every_arm) and not e.lacks() and e.expect.by > 0


def test_arms_differ_in_the_draw_and_in_what_is_observed_alone():
    first = EXPERIMENT.arms["uniform"]
    for arm in EXPERIMENT.arms.values():
        assert pl.vary(arm, draw=first.draw, observe=first.observe) == first
