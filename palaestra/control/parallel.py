"""Any parallel environment of PettingZoo as a simulator of several agents, n copies of it stepped one
after the other. A state is used once, as in `palaestra.control.gym`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from palaestra.control.gym import GymCopies, GymState
from palaestra.control.simulators import Box
from palaestra.errors import UserError


class ParallelSimulator(GymCopies):
    """Environments that `make` makes, whose agents have equal spaces: flat observations, and Discrete
    or flat Box actions.

    A game lasts `horizon` steps, without one the environment's `max_cycles`, and is cut there, not
    over. It is over when no agent is left; who left before sees zeros and is paid nothing.

    Raises UserError for agents with different spaces, and where nothing says how long a game is.
    """

    def __init__(self, make: Callable[[], Any], horizon: int = 0):
        import gymnasium

        self._spaces: Any = gymnasium.spaces
        self._make, first = make, make()
        self._names: list[str] = list(first.possible_agents)
        horizon = horizon or int(getattr(first.unwrapped, "max_cycles", 0))
        if not horizon:
            raise UserError("a parallel environment needs `max_cycles`, the steps of a game")
        views = [first.observation_space(a) for a in self._names]
        acts = [first.action_space(a) for a in self._names]
        if any(v != views[0] for v in views) or any(a != acts[0] for a in acts):
            raise UserError(
                "the agents of a simulator share a policy, and those of this environment have different "
                "spaces; supersuit.pad_observations_v0 and pad_action_space_v0 make them equal"
            )
        self._view, self._envs = views[0], [first]
        self.agents, self.horizon = len(self._names), horizon
        self.observation = int(self._spaces.flatdim(self._view))
        self.actions: int | Box = self._read_actions(acts[0])

    def _read_actions(self, space: Any) -> int | Box:
        if isinstance(space, self._spaces.Discrete) and not space.start:
            return int(space.n)
        if isinstance(space, self._spaces.Box) and len(space.shape) == 1:
            return Box(low=tuple(map(float, space.low)), high=tuple(map(float, space.high)))
        raise UserError(f"a simulator has Discrete actions or those of a flat Box, not {space}")

    def reset(self, rng: np.random.Generator, n: int) -> GymState:
        while len(self._envs) < n:
            self._envs.append(self._make())
        seeds = rng.integers(1 << 31, size=n).tolist()
        views = [e.reset(seed=s)[0] for e, s in zip(self._envs, seeds, strict=False)]
        self._steps = 0
        return self._state(np.stack([self._flat(v) for v in views]), np.zeros(n, bool))

    def step(
        self, state: GymState, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[GymState, np.ndarray, np.ndarray]:
        """Who is over is not stepped on."""
        self._check(state)
        obs, over_n = state.obs_nAO.copy(), state.over_n.copy()
        paid_nA = np.zeros(obs.shape[:2])
        self._steps += 1
        for i in np.flatnonzero(~state.over_n):
            env, given = self._envs[i], dict(zip(self._names, act_nA[i], strict=True))
            acts = {
                a: given[a] if isinstance(self.actions, Box) else int(given[a]) for a in env.agents
            }
            views, paid, ended, cut, _ = env.step(acts)
            obs[i] = self._flat(views)
            paid_nA[i] = [float(paid.get(a, 0.0)) for a in self._names]
            at_limit = self._steps >= self.horizon and not any(ended.values()) and any(cut.values())
            over_n[i] = not env.agents and not at_limit
        return self._state(obs, over_n), paid_nA, over_n

    @property
    def environment(self) -> Any:
        """One of the copies, without its wrappers."""
        return self._envs[0].unwrapped

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _flat(self, views: Mapping[str, Any]) -> np.ndarray:
        """[A, O]"""
        nothing = np.zeros(self.observation, np.float32)
        flat = lambda x: np.asarray(self._spaces.flatten(self._view, x), np.float32)
        return np.stack([flat(views[a]) if a in views else nothing for a in self._names])
