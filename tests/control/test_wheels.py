"""Simulators that the papers of guided learners used, where their wheels are installed: each opens by its
name, and a learner plays and learns a few hundred steps of it.
"""

import asyncio

import numpy as np
import palaestra as pl
import pytest

LIBRARY = {  # what has to be there, and the command that brings it
    "highway_env": "pip install highway-env",
    "minigrid": "pip install 'palaestra[minigrid]'",
    "dm_control": "pip install dm-control 'mujoco<4' shimmy imageio",
    "shimmy": "pip install dm-control 'mujoco<4' shimmy imageio",
    "imageio": "pip install dm-control 'mujoco<4' shimmy imageio",
}
NAMES = {
    # dictionary observations with a part that is text
    "gymnasium:minigrid:MiniGrid-Empty-5x5-v0(horizon=60)": (("minigrid",), 4 + 7 * 7 * 3, 7, 60),
    # no limit of steps is registered
    "gymnasium:highway_env:highway-fast-v0(horizon=30)": (("highway_env",), 25, 5, 30),
    # a dictionary of goals, and continuous actions
    "gymnasium:highway_env:parking-v0(horizon=40)": (("highway_env",), 18, 2, 40),
    # dm_env's form and float64, by shimmy
    "gymnasium:shimmy:dm_control/cartpole-balance-v0(horizon=50)": (("dm_control", "shimmy", "imageio"), 5, 1, 50),
    "gymnasium:shimmy:dm_control/reacher-easy-v0(horizon=50)": (("dm_control", "shimmy", "imageio"), 6, 2, 50),
}


@pytest.fixture(autouse=True)
def _without_display(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "disable")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")


def need(*libraries):
    for name in libraries:
        pytest.importorskip(name, reason=f"{name} is missing: {LIBRARY[name]}", exc_type=ImportError)


@pytest.mark.parametrize("name", NAMES)
def test_a_learner_learns_from_a_wheel(name):
    libraries, observation, actions, horizon = NAMES[name]
    pytest.importorskip("gymnasium")
    need(*libraries)
    sim = pl.control.simulator_by_name(name)
    size = sim.actions.size if isinstance(sim.actions, pl.control.Box) else sim.actions
    assert (sim.observation, size, sim.horizon) == (observation, actions, horizon)
    learner, log = pl.control.PPO(games=2, epochs=1, width=8, part_steps=32, bootstrap=True), []
    learn = lambda log=None: asyncio.run(learner.learn(sim, 200, ("wheel", name), log=log and log.append))
    policy = learn(log or [])
    again = learn()
    assert all(bool((a == b).all()) for a, b in zip(policy.parameters(), again.parameters(), strict=True))
    games = pl.control.play_games(sim, policy.act, 2, ("test",))
    assert np.isfinite(games["obs"]).all() and np.isfinite(pl.control.returns_of(games)).all()
    assert games["obs"].std() > 0
    sim.close()
