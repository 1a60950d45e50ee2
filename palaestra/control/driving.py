"""Following a car in one lane, n games at a time: one agent, which accelerates and brakes.

Metres, seconds, metres a second. An observation is (gap / 50, speed / 30, (leader's speed - speed) / 10,
acceleration before / 3).
"""

from __future__ import annotations

import numpy as np

from palaestra.control.language import Quantities, Quantity
from palaestra.control.simulators import Box, Paths
from palaestra.types import stage, value_class

DT, FASTEST, FARTHEST = 0.5, 30.0, 150.0
BRAKE, ACCELERATE = -3.0, 2.0  # of the agent; the leader brakes by 4 at most
CRUISE, HEADWAY = (
    25.0,
    1.0,
)  # a speed that pays 1 a step, and a time gap below which a step pays less
ABOUT = """A car follows another one in a lane for 30 seconds. Driving faster pays more, up to 25 m/s; a \
time gap below 1 s and changes of acceleration cost a little, a collision costs 10 and ends the game. The \
car in front changes its speed, and may brake hard."""
QUANTITIES: Quantities = {
    "time_gap": Quantity(low=0.0, high=6.0, about="seconds to the car in front, at the own speed"),
    "speed": Quantity(low=0.0, high=FASTEST, about="own speed in m/s"),
    "closing": Quantity(low=-10.0, high=10.0, about="m/s by which the gap shrinks"),
    "acceleration": Quantity(low=BRAKE, high=ACCELERATE, about="own acceleration in m/s^2"),
    "collision": Quantity(low=0.0, high=1.0, about="1 where the cars collided"),
}


@value_class
class CarState:
    gap_n: np.ndarray
    speed_n: np.ndarray
    lead_n: np.ndarray  # speed of the car in front
    goal_n: np.ndarray  # the speed that it changes to
    push_n: np.ndarray  # own acceleration before


@stage
class CarFollowing:
    """A step pays speed / 25, at most 1, less max(0, 1 - time gap) and 0.02 (change of acceleration)^2;
    a collision pays -10 and ends the game.
    """

    horizon: int = 60
    about: str = ABOUT

    @property
    def agents(self) -> int:
        return 1

    @property
    def actions(self) -> Box:
        return Box(low=(BRAKE,), high=(ACCELERATE,))

    @property
    def observation(self) -> int:
        return 4

    def reset(self, rng: np.random.Generator, n: int) -> CarState:
        lead_n = rng.uniform(8.0, 20.0, n)
        return CarState(
            gap_n=rng.uniform(10.0, 40.0, n),
            speed_n=rng.uniform(8.0, 20.0, n),
            lead_n=lead_n,
            goal_n=lead_n,
            push_n=np.zeros(n),
        )

    def observe(self, state: CarState) -> np.ndarray:
        closing_n = state.lead_n - state.speed_n
        seen = (state.gap_n / 50, state.speed_n / 30, closing_n / 10, state.push_n / 3)
        return np.stack(seen, -1)[:, None]

    def legal(self, state: CarState) -> None:
        return None

    def step(
        self, state: CarState, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[CarState, np.ndarray, np.ndarray]:
        n, push_n = len(state.gap_n), act_nA[:, 0, 0]
        new_n = rng.random(n) < 0.08
        goal_n = np.where(new_n, rng.uniform(2.0, 25.0, n), state.goal_n)
        lead_n = state.lead_n + np.clip((goal_n - state.lead_n) / DT, -4.0, 2.0) * DT
        speed_n = np.clip(state.speed_n + push_n * DT, 0.0, FASTEST)
        gap_n = np.minimum(state.gap_n + (lead_n - speed_n) * DT, FARTHEST)
        over_n = gap_n <= 0
        close_n = np.maximum(0.0, HEADWAY - gap_n / np.maximum(speed_n, 1.0))
        paid_n = np.minimum(speed_n / CRUISE, 1.0) - close_n - 0.02 * (push_n - state.push_n) ** 2
        after = CarState(gap_n=gap_n, speed_n=speed_n, lead_n=lead_n, goal_n=goal_n, push_n=push_n)
        return after, np.where(over_n, -10.0, paid_n)[:, None], over_n

    @property
    def declared(self) -> Quantities:
        return QUANTITIES

    def quantities(self, paths: Paths) -> dict[str, np.ndarray]:
        """[n, A, T] of the state after a step."""
        gap, speed, closing, push = np.moveaxis(paths["next_obs"], -1, 0)
        return {
            "time_gap": gap * 50 / np.maximum(speed * 30, 1.0),
            "speed": speed * 30,
            "closing": -closing * 10,
            "acceleration": push * 3,
            "collision": np.broadcast_to(paths["over"][:, None], gap.shape).astype(float),
        }
