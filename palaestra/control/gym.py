"""Any environment of Gymnasium as a simulator, n copies of it stepped one after the other.

Environments hold their state themselves, so a state here is used once: from an older one nothing can
be stepped. Simulators in arrays are much faster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from palaestra.control.simulators import Box
from palaestra.errors import UserError
from palaestra.types import value_class


@value_class
class GymState:
    obs_nAO: np.ndarray
    over_n: np.ndarray
    number: int  # of the state among those of the simulator


class GymCopies:
    """What simulators over copies of an environment share: the copies move on, so only the newest state can
    be stepped from, and every action is legal.
    """

    _number = 0

    def observe(self, state: GymState) -> np.ndarray:
        return state.obs_nAO

    def legal(self, state: GymState) -> None:
        return None

    def _check(self, state: GymState) -> None:
        """Raises UserError for an older state than the newest."""
        if state.number != self._number:
            raise UserError("environments cannot be stepped from an older state")

    def _state(self, obs_nAO: np.ndarray, over_n: np.ndarray) -> GymState:
        self._number += 1
        return GymState(obs_nAO=obs_nAO, over_n=over_n, number=self._number)


class GymSimulator(GymCopies):
    """An environment by its id, or a function that makes one. It needs the extra `gymnasium`.

    A game that lasts `horizon` steps is cut there, not over; the limit that an id comes with is the
    default, and is taken off the environment. One that an environment cuts itself before is over.

    Raises UserError for spaces other than Discrete and Box actions, where gymnasium is missing, and
    for a function without a horizon.
    """

    def __init__(self, env: str | Callable[[], Any], horizon: int = 0):
        try:
            import gymnasium
        except ImportError:
            raise UserError("gymnasium is missing; `pip install 'palaestra[gymnasium]'`") from None
        self._spaces: Any = gymnasium.spaces
        if isinstance(env, str):
            try:
                limit = gymnasium.spec(env).max_episode_steps
            except gymnasium.error.Error as error:
                raise UserError(str(error)) from None
            self._make: Callable[[], Any] = lambda: gymnasium.make(env, max_episode_steps=-1)
            horizon = horizon or limit or 0
        else:
            self._make = env
        if not horizon:
            raise UserError("an environment without a limit of its own needs a horizon, in steps")
        self.horizon, self.agents = horizon, 1
        self._envs = [self._make()]
        self._steps = 0
        self._space = self._envs[0].observation_space
        self.observation = int(self._spaces.flatdim(self._space))
        self._first, self.actions = read_actions(self._spaces, self._envs[0].action_space)

    def reset(self, rng: np.random.Generator, n: int) -> GymState:
        while len(self._envs) < n:
            self._envs.append(self._make())
        seeds, self._steps = rng.integers(1 << 31, size=n).tolist(), 0
        observations = [e.reset(seed=s)[0] for e, s in zip(self._envs, seeds, strict=False)]
        return self._state(
            np.stack([self._flat(x) for x in observations])[:, None], np.zeros(n, bool)
        )

    def step(
        self, state: GymState, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[GymState, np.ndarray, np.ndarray]:
        """Who is over is not stepped on."""
        self._check(state)
        obs, over_n = state.obs_nAO[:, 0].copy(), state.over_n.copy()
        paid_n = np.zeros(len(obs))
        self._steps += 1
        for i in np.flatnonzero(~state.over_n):
            given = act_nA[i, 0]
            given = given if isinstance(self.actions, Box) else int(given) + self._first
            seen, paid_n[i], ended, cut, _ = self._envs[i].step(given)
            obs[i], over_n[i] = self._flat(seen), ended or (cut and self._steps < self.horizon)
        return self._state(obs[:, None], over_n), paid_n[:, None], over_n

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """[O] the least and the largest that each number of an observation may be."""
        flat = self._spaces.flatten_space(self._space)
        return np.asarray(flat.low, float), np.asarray(flat.high, float)

    @property
    def environment(self) -> Any:
        """One of the copies, without its wrappers."""
        return self._envs[0].unwrapped

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _flat(self, x: Any) -> np.ndarray:
        return np.asarray(self._spaces.flatten(self._space, x), np.float32)


def read_actions(spaces: Any, space: Any) -> tuple[int, int | Box]:
    """The number of the first action, and the actions of a space of Gymnasium's. Raises UserError for others."""
    if isinstance(space, spaces.Discrete):
        return int(space.start), int(space.n)
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        low, high = (tuple(map(float, x)) for x in (space.low, space.high))
        return 0, Box(low=low, high=high)
    raise UserError(f"a simulator has Discrete actions or those of a flat Box, not {space}")
