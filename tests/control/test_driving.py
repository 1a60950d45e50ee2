"""Following a car: one step by hand, a collision, and what a step's quantities are."""

import numpy as np
import palaestra as pl
import pytest
from palaestra.control.driving import CarState


class Still(np.random.Generator):
    """A stream in which the car in front never changes its goal."""

    def __init__(self):
        super().__init__(np.random.PCG64(0))

    def random(self, n):
        return np.ones(n)


def state(gap, speed, lead, goal=None, push=0.0):
    one = lambda x: np.array([float(x)])
    return CarState(gap_n=one(gap), speed_n=one(speed), lead_n=one(lead), goal_n=one(goal or lead), push_n=one(push))


def stepped(before, push):
    return pl.control.CarFollowing().step(before, np.full((1, 1, 1), push), Still())


def test_a_step_by_hand():
    """10 m/s and 2 m/s^2 for half a second is 11 m/s; the gap grows by (12 - 11) / 2 to 20.5 m, 1.86 s: no cost of
    closeness; 11 / 25 less 0.02 * 2^2 is 0.36."""
    after, paid, over = stepped(state(20, 10, 12), 2.0)
    assert (after.speed_n[0], after.gap_n[0], after.push_n[0]) == (11.0, 20.5, 2.0) and not over[0]
    assert paid[0, 0] == pytest.approx(0.36)
    seen = pl.control.CarFollowing().observe(after)[0, 0]
    assert seen == pytest.approx([0.41, 11 / 30, 0.1, 2 / 3])


def test_closeness_costs_and_a_collision_ends():
    """At 20 m/s behind a car as fast, 8 m are 0.4 s: 0.8 less 0.6. Half a metre behind one that is slower, it hits."""
    _, paid, _ = stepped(state(8, 20, 20), 0.0)
    assert paid[0, 0] == pytest.approx(0.2)
    _, paid, over = stepped(state(0.5, 20, 10), 0.0)
    assert over[0] and paid[0, 0] == -10.0
    after, _, _ = stepped(state(50, 20, 20, goal=2), 0.0)
    assert after.lead_n[0] == 18.0  # it brakes by 4 m/s^2 at most


def test_quantities_are_those_of_the_state_after():
    sim = pl.control.CarFollowing()
    games = pl.control.play_games(sim, lambda o, legal, rng: {"act": np.full((*o.shape[:2], 1), 2.0)}, 16, ("c",))
    columns = sim.quantities(games)
    gap, speed = games["next_obs"][..., 0] * 50, games["next_obs"][..., 1] * 30
    assert columns["time_gap"] == pytest.approx(gap / np.maximum(speed, 1)) and columns["speed"].max() <= 30
    assert games["over"].any() and (columns["collision"].sum((1, 2)) == games["over"].sum(1)).all()
    assert columns.keys() == sim.declared.keys() and columns["acceleration"] == pytest.approx(2.0)
