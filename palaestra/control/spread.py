"""Cooperative navigation, simple_spread of MPE (arXiv:1706.02275), for n games at a time.

Equal to mpe2's `simple_spread_v3`, contacts included, but for observations without the silent
agents' messages, which are zeros there. A agents, as many landmarks L, d = 2 dimensions. Actions: 0
stay, 1 left, 2 right, 3 down, 4 up.
"""

from __future__ import annotations

import numpy as np

from palaestra.control.simulators import Paths
from palaestra.types import stage, value_class

MOVES = np.array([(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)], float)
DT, DAMPING, FORCE, SIZE = 0.1, 0.25, 5.0, 0.15  # seconds, a step, newtons, radius of an agent
CONTACT_FORCE, CONTACT_MARGIN = 100.0, 1e-3


@value_class
class SpreadState:
    at_nAd: np.ndarray
    speed_nAd: np.ndarray
    goal_nLd: np.ndarray


@stage
class SimpleSpread:
    """Every landmark wants an agent near it, and no two agents want to touch.

    A step pays (1 - local) * -(distance of each landmark to its nearest agent, summed) to every
    agent, and local * -(the number of agents that it touches) to each.
    """

    agents: int = 3
    horizon: int = 25
    local: float = 0.5

    @property
    def actions(self) -> int:
        return len(MOVES)

    @property
    def observation(self) -> int:
        return 4 + 2 * self.agents + 2 * (self.agents - 1)

    def reset(self, rng: np.random.Generator, n: int) -> SpreadState:
        at_nAd, goal_nLd = rng.uniform(-1, 1, (2, n, self.agents, 2))
        return SpreadState(at_nAd=at_nAd, speed_nAd=np.zeros_like(at_nAd), goal_nLd=goal_nLd)

    def observe(self, state: SpreadState) -> np.ndarray:
        """[n, A, O]: own speed and place, landmarks and the others as seen from there."""
        n, A, _ = state.at_nAd.shape
        goals = (state.goal_nLd[:, None] - state.at_nAd[:, :, None]).reshape(n, A, -1)
        apart = state.at_nAd[:, None] - state.at_nAd[:, :, None]
        others = [np.delete(apart[:, a], a, 1).reshape(n, -1) for a in range(A)]
        return np.concatenate([state.speed_nAd, state.at_nAd, goals, np.stack(others, 1)], -1)

    def legal(self, state: SpreadState) -> None:
        return None

    def step(
        self, state: SpreadState, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[SpreadState, np.ndarray, np.ndarray]:
        force_nAd = MOVES[act_nA] * FORCE + contact_forces(state.at_nAd)
        after = SpreadState(
            at_nAd=state.at_nAd + state.speed_nAd * DT,  # by the old speed, as in mpe2
            speed_nAd=state.speed_nAd * (1 - DAMPING) + force_nAd * DT,
            goal_nLd=state.goal_nLd,
        )
        away_nLA = np.linalg.norm(after.goal_nLd[:, :, None] - after.at_nAd[:, None], axis=-1)
        _, apart_nAA = distances(after.at_nAd)
        touched_nA = (apart_nAA < 2 * SIZE).sum(-1)
        paid_nA = -(1 - self.local) * away_nLA.min(2).sum(1)[:, None] - self.local * touched_nA
        return after, paid_nA, np.zeros(len(paid_nA), bool)

    def quantities(self, paths: Paths) -> dict[str, np.ndarray]:
        """[n, A, T] what an agent can tell of a step from what it sees alone, by name."""
        before, after = paths["obs"], paths["next_obs"]
        A = self.agents
        relative = lambda x, i: x[..., i : i + 2 * A].reshape(*x.shape[:-1], -1, 2)
        near = lambda x: np.linalg.norm(relative(x, 4), axis=-1).min(-1)
        others = np.linalg.norm(relative(after[..., 4 + 2 * A :], 0), axis=-1)
        return {
            "nearest_landmark": near(after),
            "all_landmarks": np.linalg.norm(relative(after, 4), axis=-1).sum(-1),
            "approach": near(before) - near(after),
            "nearest_agent": others.min(-1),
            "touching": (others < 2 * SIZE).sum(-1).astype(float),
            "speed": np.linalg.norm(after[..., :2], axis=-1),
            "from_centre": np.linalg.norm(after[..., 2:4], axis=-1),
        }


def distances(at_nAd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """From the second agent to the first [n, A, A, d], and how far [n, A, A]; infinite from oneself."""
    delta = at_nAd[:, :, None] - at_nAd[:, None]
    away = np.sqrt(np.square(delta).sum(-1))
    away[:, range(away.shape[1]), range(away.shape[1])] = np.inf
    return delta, away


def contact_forces(at_nAd: np.ndarray) -> np.ndarray:
    """[n, A, d] what pushes agents apart: 100 N times a softplus of how deep they are in another."""
    delta, away = distances(at_nAd)
    deep = np.logaddexp(0, -(away - 2 * SIZE) / CONTACT_MARGIN) * CONTACT_MARGIN
    return (CONTACT_FORCE * delta / away[..., None] * deep[..., None]).sum(2)
