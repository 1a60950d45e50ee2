"""The running mean of a role as the baseline: its closed form, whose mean it is, and in which order."""

from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.credit.table import Table, Values
from palaestra.credit.turns import TurnReturns
from palaestra.errors import UserError
from palaestra.types import Group, Reward, payment

from tests.fake import episode, task


def played(reward, seat="p0", name="t", domain="kuhn", trained=True):
    """A group of one game in which one seat spoke."""
    made = episode((0,), (1, 2), float(reward))
    row = replace(made.rows[0], seat=seat)
    if not trained:
        row = replace(row, segments=tuple(replace(s, trained=False) for s in row.segments))
    return Group(task=replace(task(name, (0,), ()), domain=domain), episodes=(replace(made, rows=(row,)),))


def credit(ema, groups, state=None):
    """Advantages in the groups' order, and the means."""
    table = Table(groups, [], state or {})
    found = ema(Values(level="episode", x_N=table.reward_E), table)
    return found.x_N, table.state


@pytest.mark.parametrize(("read_first", "expected"), [(True, [1, -1.05, 1.0025]), (False, [0.95, -0.9975, 0.952375])])
def test_reference_values(read_first, expected):
    """The catalogue's: returns 1, -1, 1 with decay 0.95, all at once and step by step."""
    ema = pl.credit.Ema(0.95, read_first=read_first)
    rewards = (1, -1, 1)
    at_once, state = credit(ema, [played(r, name=f"t{i}") for i, r in enumerate(rewards)])
    np.testing.assert_allclose(at_once, expected, rtol=1e-12)
    assert state["running means"] == {"kuhn/p0": pytest.approx(0.047625)}
    one_by_one, state = [], {}
    for r in rewards:
        found, state = credit(ema, [played(r)], state)
        one_by_one += found.tolist()
    np.testing.assert_allclose(one_by_one, expected, rtol=1e-12)


@pytest.mark.parametrize(("role", "n"), [("batch", 1), ("domain", 2), ("seat", 3)])
def test_whose_mean_it_is(role, n):
    games = [played(1, "p0"), played(-1, "p1"), played(1, "p0", domain="nim")]
    found, state = credit(pl.credit.Ema(role=role), games)
    assert len(state["running means"]) == n
    assert found[2] == pytest.approx({"batch": 1.0025, "domain": 1.0, "seat": 1.0}[role])


def test_the_order_is_that_of_the_tasks_not_of_arrival():
    games = [played(r, name=f"t{i}") for i, r in enumerate((1, -1, 1, 1))]
    first, state = credit(pl.credit.Ema(), games)
    turned, again = credit(pl.credit.Ema(), games[::-1])
    assert turned[::-1].tolist() == first.tolist() and state == again


def test_both_seats_of_a_game_have_their_own_mean():
    """One game of self-play is an observation of each role."""
    made = episode((0,), (1, 2), 2.0)
    rows = tuple(replace(made.rows[0], seat=s) for s in ("p0", "p1"))
    reward = Reward(total=2.0, parts={payment("p0"): 2.0, payment("p1"): -2.0})
    group = Group(task=task("t", (0,), ()), episodes=(replace(made, rows=rows, reward=reward),))
    examples, state = pl.chain(pl.credit.Ema())([group], [], {})
    assert state["running means"] == {"/p0": pytest.approx(0.1), "/p1": pytest.approx(-0.1)}
    assert {e.row.seat: e.columns["advantage"].max() + e.columns["advantage"].min() for e in examples if
            any(s.trained for s in e.row.segments)} == {"p0": 2.0, "p1": -2.0}  # fmt: skip


def test_a_rivals_game_is_nobodys():
    found, state = credit(pl.credit.Ema(), [played(5, trained=False), played(1)])
    assert found.tolist() == [0, 1] and state["running means"] == {"kuhn/p0": pytest.approx(0.05)}


def test_what_it_does_not_take():
    with pytest.raises(UserError, match=r"decay is 1\.5"):
        pl.credit.Ema(1.5)
    with pytest.raises(UserError, match="not values by turn"):
        pl.chain(TurnReturns(), pl.credit.Ema())([played(1)], [], {})
    assert pl.chain(pl.credit.Ema()).keeps_equal
