"""Edge cases of following a car, which nobody trains on: cars that cut in, and leaders that brake to a stop."""

from dataclasses import replace
from typing import Any

import numpy as np

import palaestra as pl

CUTS = 0.05  # probability that a car cuts in, in a step
NEAR = (5.0, 12.0)  # metres, within which it does
SLOWER = (0.5, 0.9)  # its speed, as a share of the own one


@pl.stage
class CutIns(pl.control.CarFollowing):
    """`CarFollowing` in which a game begins close behind a car that brakes to a stop or a crawl, and in which slower
    cars cut in closely now and then. Observations, actions and what is paid are the same.
    """

    def reset(self, rng: np.random.Generator, n: int) -> Any:
        state = super().reset(rng, n)
        return replace(state, gap_n=rng.uniform(*NEAR, n) + 3.0, goal_n=rng.uniform(0.0, 4.0, n))

    def step(
        self, state: Any, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[Any, np.ndarray, np.ndarray]:
        n = len(state.gap_n)
        cuts_n, gap_n, share_n = (
            rng.random(n) < CUTS,
            rng.uniform(*NEAR, n),
            rng.uniform(*SLOWER, n),
        )
        cuts_n &= state.gap_n > gap_n
        lead_n = np.where(cuts_n, share_n * state.speed_n, state.lead_n)
        other = replace(
            state,
            gap_n=np.where(cuts_n, gap_n, state.gap_n),
            lead_n=lead_n,
            goal_n=np.where(cuts_n, lead_n, state.goal_n),
        )
        return super().step(other, act_nA, rng)
