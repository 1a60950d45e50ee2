"""A vectorised environment of Gymnasium as a simulator: all copies are stepped by one call.

Environments hold their state themselves, so a state here is used once. A copy that is over begins anew
in the environment, whose further games nobody looks at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from palaestra.control.gym import (
    NO_SETTINGS,
    GymCopies,
    GymState,
    check_horizon,
    flat_numbers,
    numbers_of,
    read_actions,
    registered,
)
from palaestra.control.simulators import Box
from palaestra.errors import UserError


class VectorSimulator(GymCopies):
    """`gymnasium.make_vec` of an id, with the environment's own arrays where it has some (CartPole has),
    else its copies one after the other; or a function from a number of copies to a `VectorEnv`. It needs
    the extra `gymnasium`.

    A game that lasts `horizon` steps is cut there, not over; the limit of an id is the default, and a
    game that an environment cuts at the horizon is cut. It may reset a copy at the step after the last
    one, or in the same step and tell the last observation as "final_obs".

    Raises UserError for actions that are neither Discrete nor a Box of real numbers, where gymnasium is missing, and for
    a function without a horizon.
    """

    def __init__(
        self,
        env: str | Callable[[int], Any],
        horizon: int = 0,
        settings: Mapping[str, Any] = NO_SETTINGS,
    ):
        try:
            import gymnasium
        except ImportError:
            raise UserError("gymnasium is missing; `pip install 'palaestra[gymnasium]'`") from None
        self._library: Any = gymnasium
        if isinstance(env, str):
            name, limit = registered(gymnasium, env)
            mode = "vector_entry_point" if gymnasium.spec(name).vector_entry_point else "sync"
            self._make: Callable[[int], Any] = lambda n: gymnasium.make_vec(
                name, num_envs=n, vectorization_mode=mode, **settings
            )
            horizon = horizon or limit
        else:
            self._make = env
        check_horizon(env, horizon)
        self.horizon, self.agents = horizon, 1
        self._envs: dict[int, Any] = {1: self._make(1)}
        self._steps = 0
        self._space: Any = numbers_of(gymnasium.spaces, self._envs[1].single_observation_space)
        self.observation = int(gymnasium.spaces.flatdim(self._space))
        self._first, self.actions = read_actions(
            gymnasium.spaces, self._envs[1].single_action_space
        )

    def reset(self, rng: np.random.Generator, n: int) -> GymState:
        """Begins `n` games; an environment is made for each number of copies that is asked for."""
        if n not in self._envs:
            self._envs[n] = self._make(n)
        env, seeds = self._envs[n], rng.integers(1 << 31, size=n).tolist()
        self._steps = 0
        vector = self._library.vector
        single = isinstance(env.unwrapped, vector.SyncVectorEnv | vector.AsyncVectorEnv)
        seen, _ = env.reset(seed=seeds if single else seeds[0])
        return self._state(self._flat(seen, n)[:, None], np.zeros(n, bool))

    def step(
        self, state: GymState, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[GymState, np.ndarray, np.ndarray]:
        """What a copy that is over does counts for nothing."""
        self._check(state)
        n = len(act_nA)
        env, space = self._envs[n], self._envs[n].action_space
        given = act_nA[:, 0] if isinstance(self.actions, Box) else act_nA[:, 0] + self._first
        seen, paid_n, ended_n, cut_n, info = env.step(
            given.astype(space.dtype).reshape(space.shape)
        )
        self._steps += 1
        obs = np.where(state.over_n[:, None], state.obs_nAO[:, 0], self._flat(seen, n))
        for i in np.flatnonzero(np.asarray(info.get("_final_obs", np.zeros(n)), bool)):
            if not state.over_n[i]:
                obs[i] = flat_numbers(self._library.spaces, self._space, info["final_obs"][i])
        over_n = state.over_n | ended_n | (cut_n & (self._steps < self.horizon))
        paid_n = np.where(state.over_n, 0.0, np.asarray(paid_n, float))
        return self._state(obs[:, None], over_n), paid_n[:, None], over_n

    def close(self) -> None:
        for env in self._envs.values():
            env.close()

    def _flat(self, seen: Any, n: int) -> np.ndarray:
        """[n, O] of a batch of observations."""
        if isinstance(self._space, self._library.spaces.Box):
            return np.array(seen, np.float32).reshape(n, -1)
        each = self._library.vector.utils.iterate(self._envs[n].observation_space, seen)
        return np.stack([flat_numbers(self._library.spaces, self._space, x) for x in each])
