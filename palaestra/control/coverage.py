"""Cooperative navigation of which agents see a part: SimpleSpread with a radius of sight.

A agents, as many landmarks L, d = 2 dimensions.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from palaestra.control.language import Quantities, Quantity
from palaestra.control.simulators import Paths
from palaestra.control.spread import SIZE, SimpleSpread, SpreadState, distances
from palaestra.types import stage

ABOUT = """Three agents move in a plane with three landmarks, for 25 steps. As a team they should cover \
all landmarks, one agent each, and not bump into one another. An agent sees landmarks and agents within \
0.8 alone. Each step pays the team less the farther landmarks are from their nearest agent, and less for \
each collision."""
FAR = 9.0  # a distance to what is not seen
FACTS: Quantities = {
    "own_distance": Quantity(low=0.0, high=6.0, about="from the agent to its nearest landmark"),
    "team_distance": Quantity(
        low=0.0,
        high=12.0,
        about="of each landmark to its nearest agent, summed; equal for all agents",
    ),
    "worst_distance": Quantity(
        low=0.0,
        high=6.0,
        about="of the landmark whose nearest agent is farthest away, to that agent",
    ),
    "contribution": Quantity(
        low=0.0, high=6.0, about="how much team_distance would grow if the agent were not there"
    ),
    "touching": Quantity(low=0.0, high=2.0, about="number of agents that the agent touches"),
}


@stage
class Coverage(SimpleSpread):
    """SimpleSpread in which an agent sees landmarks and agents within `sight` alone; the places of
    the others are zeros. Behind what SimpleSpread shows stand flags of who is seen, landmarks first.

    Its facts, of the state after a step, are what agents do not see.
    """

    sight: float = 0.8
    about: str = ABOUT

    @property
    def observation(self) -> int:
        return 4 + 3 * self.agents + 3 * (self.agents - 1)

    def observe(self, state: SpreadState) -> np.ndarray:
        whole = super().observe(state)
        places = whole[..., 4:].reshape(*whole.shape[:-1], -1, 2)
        seen = (np.linalg.norm(places, axis=-1) <= self.sight).astype(float)
        visible = (places * seen[..., None]).reshape(*whole.shape[:-1], -1)
        return np.concatenate([whole[..., :4], visible, seen], -1)

    @property
    def whole(self) -> Coverage:
        """The same games with nothing hidden, for an oracle."""
        return replace(self, sight=FAR)

    def facts(self, state: SpreadState) -> dict[str, np.ndarray]:
        """[n, A] of a state: `FACTS`, and how many landmarks are covered."""
        away_nLA = np.linalg.norm(state.goal_nLd[:, :, None] - state.at_nAd[:, None], axis=-1)
        A = away_nLA.shape[-1]
        ranked = np.sort(away_nLA, -1)
        best_nL, second_nL = ranked[..., 0], ranked[..., min(1, A - 1)]
        _, apart_nAA = distances(state.at_nAd)
        gain_nLA = (away_nLA == best_nL[..., None]) * (second_nL - best_nL)[..., None]
        same = lambda x: np.repeat(x[:, None], A, 1)
        return {
            "own_distance": away_nLA.min(1),
            "team_distance": same(best_nL.sum(1)),
            "worst_distance": same(best_nL.max(1)),
            "contribution": gain_nLA.sum(1),
            "touching": (apart_nAA < 2 * SIZE).sum(-1).astype(float),
            "covered": same((best_nL < SIZE).sum(1).astype(float)),
        }

    @property
    def declared(self) -> Quantities:
        return FACTS

    def quantities(self, paths: Paths) -> dict[str, np.ndarray]:
        """[n, A, T] the facts of games that were played."""
        return {name: paths[name] for name in FACTS}

    @property
    def visible(self) -> Quantities:
        """What `view` gives."""
        A, near = self.agents, min(self.sight, FAR)
        of = lambda low, high, about: Quantity(low=low, high=high, about=about)
        quantities = {
            "speed_x": of(-2.0, 2.0, "of the agent"),
            "speed_y": of(-2.0, 2.0, "of the agent"),
            "x": of(-3.0, 3.0, "of the agent"),
            "y": of(-3.0, 3.0, "of the agent"),
        }
        for thing, count in (("landmark", A), ("other", A - 1)):
            for i in range(count):
                name = f"{thing}_{i}"
                quantities |= {
                    f"{name}_x": of(-near, near, "as seen from the agent; 0 if it is not seen"),
                    f"{name}_y": of(-near, near, "as seen from the agent; 0 if it is not seen"),
                    f"{name}_seen": of(0.0, 1.0, "1 if it is seen"),
                    f"{name}_distance": of(0.0, FAR, f"to the agent; {FAR:g} if it is not seen"),
                }
        for i in range(A):
            quantities[f"landmark_{i}_rival"] = of(
                0.0,
                FAR,
                f"its distance to the nearest other agent that is seen; {FAR:g} if none is",
            )
        return quantities

    def view(self, obs: np.ndarray) -> dict[str, np.ndarray]:
        """[...] what an agent can tell from its observation [..., O], by name."""
        A = self.agents
        places = obs[..., 4 : 4 + 2 * (2 * A - 1)].reshape(*obs.shape[:-1], -1, 2)
        seen = obs[..., 4 + 2 * (2 * A - 1) : self.observation]
        away = np.where(seen > 0, np.linalg.norm(places, axis=-1), FAR)
        columns = dict(
            zip(("speed_x", "speed_y", "x", "y"), np.moveaxis(obs[..., :4], -1, 0), strict=True)
        )
        for k in range(2 * A - 1):
            name = f"landmark_{k}" if k < A else f"other_{k - A}"
            columns |= {
                f"{name}_x": places[..., k, 0],
                f"{name}_y": places[..., k, 1],
                f"{name}_seen": seen[..., k],
                f"{name}_distance": away[..., k],
            }
        apart = np.linalg.norm(places[..., :A, None, :] - places[..., None, A:, :], axis=-1)
        both = (seen[..., :A, None] > 0) & (seen[..., None, A:] > 0)
        rival = np.where(both, apart, FAR).min(-1) if A > 1 else np.full(away[..., :A].shape, FAR)
        return columns | {f"landmark_{k}_rival": rival[..., k] for k in range(A)}
