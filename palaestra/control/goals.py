"""Goals in the observation: games in which a policy learns to reach whatever it is told to.

n games, A agents, O numbers of an observation, G of a goal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from palaestra.control.options import with_goal
from palaestra.control.simulators import Box, Simulator
from palaestra.types import need_at_least, stage, value_class

# (the stream, observations [n, A, O]) to goals [n, G]
GoalDraw: TypeAlias = Callable[[np.random.Generator, np.ndarray], np.ndarray]
# (observations [n, A, O], goals [n, G]) to [n] bool
GoalReached: TypeAlias = Callable[[np.ndarray, np.ndarray], np.ndarray]


@value_class
class GoalState:
    inner: Any  # of the simulator
    goal_nG: np.ndarray
    spent_n: np.ndarray  # steps since the goal was drawn
    over_n: np.ndarray  # which games of the simulator are over
    taken_n: np.ndarray  # steps of the game


@stage
class GoalSimulator:
    """A simulator whose agents are told a goal behind their observation, and are paid for it alone: a
    step pays 1 where the goal is reached, less `cost`. Where the simulator's game is over elsewhere, that
    step pays -cost for each step that the game had left, itself included, so no end is cheaper than the way.

    Where a goal is reached, or was not within `timeout` steps, the next one is drawn, so that later
    goals begin where earlier ones ended; with `single` the game ends at the first one. A game lasts as
    long as the simulator's, and with `single` at most `timeout` steps.

    A policy that learns here is the `act` of options with a `goal`.

    Args:
        goals: draws the goal of each game from its observation.
        reached: whether a goal is reached at an observation.
    """

    sim: Simulator
    goals: GoalDraw
    reached: GoalReached
    size: int  # numbers of a goal
    timeout: int
    cost: float = 0.0
    single: bool = False

    def __post_init__(self) -> None:
        need_at_least(self, size=1, timeout=1, cost=0)

    @property
    def agents(self) -> int:
        return self.sim.agents

    @property
    def horizon(self) -> int:
        return min(self.sim.horizon, self.timeout) if self.single else self.sim.horizon

    @property
    def observation(self) -> int:
        return self.sim.observation + self.size

    @property
    def actions(self) -> int | Box:
        return self.sim.actions

    def reset(self, rng: np.random.Generator, n: int) -> GoalState:
        inner = self.sim.reset(rng, n)
        return GoalState(
            inner=inner,
            goal_nG=self.goals(rng, self.sim.observe(inner)),
            spent_n=np.zeros(n, int),
            over_n=np.zeros(n, bool),
            taken_n=np.zeros(n, int),
        )

    def observe(self, state: GoalState) -> np.ndarray:
        return with_goal(self.sim.observe(state.inner), state.goal_nG)

    def legal(self, state: GoalState) -> np.ndarray | None:
        return self.sim.legal(state.inner)

    def step(
        self, state: GoalState, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[GoalState, np.ndarray, np.ndarray]:
        inner, _, over_n = self.sim.step(state.inner, act_nA, rng)
        obs = self.sim.observe(inner)
        reached_n = self.reached(obs, state.goal_nG)
        spent_n = state.spent_n + 1
        costs_n = np.where(over_n & ~reached_n, self.horizon - state.taken_n, 1)
        paid_nA = np.repeat((reached_n - self.cost * costs_n)[:, None], self.agents, 1)
        over_n = over_n | reached_n if self.single else over_n
        after = replace(
            state, inner=inner, spent_n=spent_n, over_n=over_n, taken_n=state.taken_n + 1
        )
        if not self.single and (change_n := reached_n | (spent_n >= self.timeout)).any():
            drawn_nG = self.goals(rng, obs)
            after = replace(
                after,
                goal_nG=np.where(change_n[:, None], drawn_nG, state.goal_nG),
                spent_n=np.where(change_n, 0, spent_n),
            )
        return after, paid_nA, over_n
