"""Cooperative navigation with a radius of sight: who is seen, and what a state's facts are."""

import numpy as np
import palaestra as pl
import pytest
from palaestra.control.spread import SpreadState

AT = np.array([[[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]]])
GOAL = np.array([[[0.0, 0.5], [1.0, 0.2], [0.3, 2.0]]])
STATE = SpreadState(at_nAd=AT, speed_nAd=np.zeros_like(AT), goal_nLd=GOAL)


def test_facts_of_a_state_by_hand():
    """Nearest agents are 0.5, 0.2 and 0.3 away; without agent 0 landmark 0 is sqrt(1.25) from agent 1, and so on."""
    facts = pl.control.Coverage().facts(STATE)
    assert facts["own_distance"][0] == pytest.approx([0.5, 0.2, 0.3])
    assert facts["team_distance"][0] == pytest.approx([1.0] * 3)
    assert facts["worst_distance"][0] == pytest.approx([0.5] * 3)
    assert facts["contribution"][0] == pytest.approx([1.25**0.5 - 0.5, 1.04**0.5 - 0.2, 4.09**0.5 - 0.3])
    assert facts["covered"][0].tolist() == [0, 0, 0] and facts["touching"][0].tolist() == [0, 0, 0]


def test_an_agent_sees_what_is_near():
    sim = pl.control.Coverage()
    seen = sim.observe(STATE)[0, 0]
    assert len(seen) == sim.observation == 19
    assert seen[4:].tolist() == [0.0, 0.5, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]
    whole = sim.whole.observe(STATE)[0, 0]
    assert (whole[:14] == pl.control.SimpleSpread().observe(STATE)[0, 0]).all() and whole[14:].all()
    view = sim.view(sim.observe(STATE))
    assert view.keys() == sim.visible.keys()
    assert view["landmark_0_distance"][0].tolist() == [0.5, 9.0, 9.0] and view["landmark_0_rival"][0, 0] == 9.0


def test_quantities_are_within_what_is_declared():
    sim = pl.control.Coverage()
    games = pl.control.play_games(sim, pl.control.PPO().start(sim, ("c",)).act, 32, ("c",))
    columns = sim.quantities(games) | {f"view {k}": v for k, v in sim.view(games["obs"]).items()}
    bounds = dict(sim.declared) | {f"view {k}": v for k, v in sim.visible.items()}
    for name, x in columns.items():
        assert x.shape == (32, 3, 25) and ((x >= bounds[name].low) & (x <= bounds[name].high)).mean() > 0.99, name


def test_facts_are_noted_beside_the_games():
    sim = pl.control.Coverage()
    games = pl.control.play_games(sim, pl.control.PPO().start(sim, ("c",)).act, 2, ("c",))
    paid = -0.5 * games["team_distance"] - 0.5 * games["touching"]
    assert games["reward"] == pytest.approx(paid)
