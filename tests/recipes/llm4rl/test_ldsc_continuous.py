"""LDSC on a user's simulator with continuous actions: a point that is pushed."""

import asyncio
import copy
from dataclasses import dataclass, replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.recipes.llm4rl import ldsc
from palaestra.recipes.llm4rl.ldsc.binned import BinnedActions, countable

LEARNER = pl.control.DoubleQ(gamma=0.9, games=2, updates=1, width=8, explore=0.5)
POINT = """
import numpy as np
import palaestra as pl

class Point:
    agents, horizon, observation = 1, 8, 2
    actions = pl.control.Box(low=(-1.0, -0.5), high=(1.0, 0.5))
    about = "A point in a field, which is pushed to the right."

    def reset(self, rng, n):
        return np.zeros((n, 2))

    def observe(self, state):
        return state[:, None]

    def legal(self, state):
        return None

    def step(self, state, act, rng):
        assert act.shape == (len(state), 1, 2) and (np.abs(act) <= [1, 0.5]).all()
        after = state + act[:, 0]
        over = after[:, 0] >= 3
        return after, over[:, None].astype(float), over
"""


@dataclass(frozen=True)
class Spaces:
    actions: pl.control.Box
    agents: int = 1


def test_actions_are_all_combinations_of_bins():
    sim = BinnedActions(Spaces(pl.control.Box(low=(-1.0, 0.0), high=(1.0, 4.0))), 3)
    assert sim.actions == 9 and sim.agents == 1
    assert sim.value_KD.tolist() == [[a, b] for a in (-1, 0, 1) for b in (0, 2, 4)]
    assert copy.deepcopy(sim).actions == 9
    with pytest.raises(UserError, match="729 actions"):
        BinnedActions(Spaces(pl.control.Box(low=(0.0,) * 6, high=(1.0,) * 6)), 3)
    with pytest.raises(UserError, match="bins=1"):
        BinnedActions(Spaces(pl.control.Box(low=(0.0,), high=(1.0,))), 1)
    with pytest.raises(UserError, match="bounds"):
        BinnedActions(Spaces(pl.control.Box(low=(-np.inf,), high=(1.0,))), 3)
    maze = pl.control.Maze()
    assert countable(maze, 3) is maze


def test_a_point_that_is_pushed_has_subgoals_and_options(context, tmp_path):
    (tmp_path / "own.py").write_text(POINT)
    asked = []

    def answer(request):
        asked.append(request.messages[0].content)
        return {"subgoals": [{"name": "the right side", "number_0": 2.0, "number_1": 0.0, "radius": 1.0}]}

    made = ldsc.build(asked=pl.Scripted(answer), sim=f"{tmp_path}/own.py:Point", games=4, steps=400)
    made = replace(made, learner=replace(LEARNER, games=8, updates=8))
    found = asyncio.run(made.run(context())).metrics
    assert "A point in a field" in asked[0] and list(found["arms"]) == ["none", "guide", "without reuse", "shuffled"]
    assert made.tasks[0].actions == 9 and found["by_options"] > 0
    five = ldsc.build(asked=pl.Scripted(answer), sim=f"{tmp_path}/own.py:Point", bins=5)
    assert five.tasks[0].actions == 25
