"""A motorway of several lanes in arrays, with the rewards and the actions of highway-env.

n games, L lanes (0 = the leftmost), V other cars. Metres, seconds, metres a second.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

import palaestra as pl

ACTIONS = ("left", "idle", "right", "faster", "slower")
LEFT, IDLE, RIGHT, FASTER, SLOWER = range(5)
SPEEDS = (20.0, 25.0, 30.0)  # that the own car holds
SUBSTEPS, DT = 4, 0.25  # of a step of one second
LENGTH, SPACE = 5.0, 120.0  # of a car; of the road before and behind the own one that is looked at
GAP = 10.0  # to a car beside, in metres, below which a lane is occupied
LEAST_TTC = 3.0  # seconds to a collision with the car in front, below which FASTER is masked
CAREFUL_TTC = 5.0  # of a cautious driver
FAR = 100.0  # a gap that is as good as none
ABOUT = """A car drives on a motorway. Each second it changes the lane, holds, or changes its speed. A step pays more \
on the right lanes and at 30 m/s, and a collision ends the drive."""


def base_reward(crash: np.ndarray, right: np.ndarray, speed: np.ndarray) -> np.ndarray:
    """-1 crash + 0.1 right + 0.4 clip((v - 20) / 10, 0, 1), from [-1, 0.5] to [0, 1] (highway-env).

    Args:
        right: the lane's share of the way from the leftmost to the rightmost one.
    """
    raw = -1.0 * crash + 0.1 * right + 0.4 * np.clip((speed - 20) / 10, 0, 1)
    return (raw + 1) / 1.5


def time_to_collision(gap: np.ndarray, own: np.ndarray, front: np.ndarray) -> np.ndarray:
    """Seconds until a gap in metres is closed, infinite where it is not."""
    closing = own - front
    return np.where(closing > 0, gap / np.maximum(closing, 1e-9), np.inf)


@pl.value_class
class LanesState:
    lane_n: np.ndarray
    speed_n: np.ndarray
    goal_n: np.ndarray  # the speed that the own car changes to, a number in SPEEDS
    x_nV: np.ndarray  # of the others, from the own car on
    lane_nV: np.ndarray
    speed_nV: np.ndarray
    wish_nV: np.ndarray  # the speed that a car has where nothing is in front
    crash_n: np.ndarray


@pl.stage
class Lanes:
    """An observation has speed / 30, the speed's goal / 30, the lane from 0 to 1, and of the left, the own
    and the right lane whether it is there, the gaps in front and behind / 100, and both speeds less the
    own one / 10. With `mask` what is not safe is not legal: a change into an occupied lane, and FASTER
    with less than 3 s to a collision; where the road leaves nothing else, SLOWER stands.
    """

    lanes: int = 4
    cars: int = 12
    horizon: int = 40
    mask: bool = True
    about: str = ABOUT

    def __post_init__(self) -> None:
        if self.lanes < 2 or self.cars < 1 or self.horizon < 1:
            raise pl.UserError("Lanes: 2 lanes or more, 1 car and 1 step or more")

    @property
    def agents(self) -> int:
        return 1

    @property
    def actions(self) -> int:
        return len(ACTIONS)

    @property
    def action_names(self) -> tuple[str, ...]:
        return ACTIONS

    @property
    def observation(self) -> int:
        return 3 + 3 * 5

    @property
    def speeds(self) -> tuple[float, float]:
        return SPEEDS[0], SPEEDS[-1]

    @property
    def unmasked(self) -> "Lanes":
        return replace(self, mask=False)

    def reset(self, rng: np.random.Generator, n: int) -> LanesState:
        V = self.cars
        # each car has a stretch of road of its own, and none begins beside the own car or close in its lane
        stretch = 2 * SPACE / V
        x_nV = -SPACE + stretch * (np.arange(V) + rng.uniform(0.2, 0.8, (n, V)))
        x_nV = np.where(np.abs(x_nV) < 15, x_nV + np.where(x_nV < 0, -20, 20), x_nV)
        wish_nV = rng.uniform(18, 26, (n, V))
        goal_n = rng.integers(len(SPEEDS), size=n)
        lane_n, lane_nV = rng.integers(self.lanes, size=n), rng.integers(self.lanes, size=(n, V))
        close_nV = (np.abs(x_nV) < 45) & (lane_nV == lane_n[:, None])
        return LanesState(
            lane_n=lane_n,
            speed_n=np.array(SPEEDS)[goal_n],
            goal_n=goal_n,
            x_nV=x_nV,
            lane_nV=np.where(close_nV, (lane_nV + 1) % self.lanes, lane_nV),
            speed_nV=wish_nV,
            wish_nV=wish_nV,
            crash_n=np.zeros(n, bool),
        )

    def neighbours(
        self, state: LanesState, lane_n: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """[n] the gaps to the next cars of a lane, in front and behind, and their speeds."""
        there = state.lane_nV == lane_n[:, None]
        games = np.arange(len(lane_n))
        front_nV = np.where(there & (state.x_nV >= 0), state.x_nV, np.inf)
        rear_nV = np.where(there & (state.x_nV < 0), -state.x_nV, np.inf)
        front_n, rear_n = front_nV.argmin(1), rear_nV.argmin(1)
        gap = lambda x_nV, at_n: np.minimum(x_nV[games, at_n] - LENGTH, FAR)
        speed = lambda x_nV, at_n: np.where(
            np.isfinite(x_nV[games, at_n]), state.speed_nV[games, at_n], state.speed_n
        )
        return (
            gap(front_nV, front_n),
            gap(rear_nV, rear_n),
            speed(front_nV, front_n),
            speed(rear_nV, rear_n),
        )

    def observe(self, state: LanesState) -> np.ndarray:
        own = (state.speed_n / 30, np.array(SPEEDS)[state.goal_n] / 30)
        columns = [*own, state.lane_n / (self.lanes - 1)]
        for side in (-1, 0, 1):
            lane_n = state.lane_n + side
            front, rear, front_speed, rear_speed = self.neighbours(state, lane_n)
            there = ((lane_n >= 0) & (lane_n < self.lanes)).astype(float)
            near = (front / FAR, rear / FAR)
            relative = ((front_speed - state.speed_n) / 10, (rear_speed - state.speed_n) / 10)
            columns += [there, *(x * there for x in (*near, *relative))]
        return np.stack(columns, -1)[:, None]

    def lane_and_speed(self, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[...] the own lane and speed, of observations [..., O]."""
        return np.round(obs[..., 2] * (self.lanes - 1)), obs[..., 0] * 30

    def legal(self, state: LanesState) -> np.ndarray:
        """[n, 1, 5] what the road has, and with the mask what is safe."""
        return self.safe(state, np.full(len(state.lane_n), LEAST_TTC))[:, None]

    def safe(self, state: LanesState, least_n: np.ndarray) -> np.ndarray:
        """[n, 5] as `legal`, with `least_n` seconds to a collision for FASTER."""
        legal = np.ones((len(state.lane_n), len(ACTIONS)), bool)
        for action, side in ((LEFT, -1), (RIGHT, 1)):
            lane_n = state.lane_n + side
            legal[:, action] = (lane_n >= 0) & (lane_n < self.lanes)
            if self.mask:
                front, rear, front_speed, rear_speed = self.neighbours(state, lane_n)
                free = (front >= GAP) & (rear >= GAP)
                free &= time_to_collision(front, state.speed_n, front_speed) >= LEAST_TTC
                free &= time_to_collision(rear, rear_speed, state.speed_n) >= LEAST_TTC
                legal[:, action] &= free
        if self.mask:
            front, _, front_speed, _ = self.neighbours(state, state.lane_n)
            own = np.array(SPEEDS)[np.minimum(state.goal_n + 1, len(SPEEDS) - 1)]
            legal[:, FASTER] = time_to_collision(front, own, front_speed) >= least_n
            # to go for the speed's goal, too, is no choice where the car in front is that near
            own = np.maximum(state.speed_n, np.array(SPEEDS)[state.goal_n])
            legal[:, IDLE] = time_to_collision(front, own, front_speed) >= LEAST_TTC
        return legal

    def step(
        self, state: LanesState, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[LanesState, np.ndarray, np.ndarray]:
        act_n, n = act_nA[:, 0], len(state.lane_n)
        side_n = np.where(act_n == LEFT, -1, 0) + np.where(act_n == RIGHT, 1, 0)
        lane_n = np.clip(state.lane_n + side_n, 0, self.lanes - 1)
        change_n = np.where(act_n == FASTER, 1, 0) - np.where(act_n == SLOWER, 1, 0)
        goal_n = np.clip(state.goal_n + change_n, 0, len(SPEEDS) - 1)
        x_nV, speed_nV, speed_n = state.x_nV, state.speed_nV, state.speed_n
        crash_n = state.crash_n
        # a car wants another speed now and then, and may brake
        wish_nV = np.where(
            rng.random(x_nV.shape) < 0.05, rng.uniform(16, 26, x_nV.shape), state.wish_nV
        )
        # where the speed's goal is the lowest, SLOWER brakes for the car in front
        brake_n = (act_n == SLOWER) & (state.goal_n == 0)
        for _ in range(SUBSTEPS):
            limit_nV = self.limits(x_nV, state.lane_nV, speed_nV, lane_n, speed_n)
            push_nV = np.clip((np.minimum(wish_nV, limit_nV) - speed_nV) / DT, -6.0, 2.0)
            goal_speed_n = np.where(brake_n, 10.0, np.array(SPEEDS)[goal_n])
            push_n = np.clip((goal_speed_n - speed_n) / DT, -5.0, 5.0)
            speed_nV, speed_n = np.maximum(speed_nV + push_nV * DT, 0), speed_n + push_n * DT
            x_nV = x_nV + (speed_nV - speed_n[:, None]) * DT
            crash_n = crash_n | ((state.lane_nV == lane_n[:, None]) & (np.abs(x_nV) < LENGTH)).any(
                1
            )
        # who is out of sight comes back at the other end, in any lane
        gone_nV = np.abs(x_nV) > SPACE
        after = LanesState(
            lane_n=lane_n,
            speed_n=speed_n,
            goal_n=goal_n,
            x_nV=np.where(gone_nV, -np.sign(x_nV) * SPACE, x_nV),
            lane_nV=np.where(gone_nV, rng.integers(self.lanes, size=x_nV.shape), state.lane_nV),
            speed_nV=speed_nV,
            wish_nV=wish_nV,
            crash_n=crash_n,
        )
        paid_n = base_reward(crash_n, lane_n / (self.lanes - 1), speed_n)
        return after, paid_n.reshape(n, 1), crash_n

    def limits(
        self,
        x_nV: np.ndarray,
        lane_nV: np.ndarray,
        speed_nV: np.ndarray,
        lane_n: np.ndarray,
        speed_n: np.ndarray,
    ) -> np.ndarray:
        """[n, V] the speed that a car has at most for the next one in front, the own one included: that
        one's, less what closes the gap to 8 m in two seconds.
        """
        x_nW = np.concatenate([x_nV, np.zeros((len(x_nV), 1))], 1)
        lane_nW = np.concatenate([lane_nV, lane_n[:, None]], 1)
        speed_nW = np.concatenate([speed_nV, speed_n[:, None]], 1)
        far_nVW = x_nW[:, None] - x_nV[..., None]
        ahead_nVW = (far_nVW > 0) & (lane_nW[:, None] == lane_nV[..., None])
        far_nVW = np.where(ahead_nVW, far_nVW, np.inf)
        next_nV = far_nVW.argmin(2)
        gap_nV = np.take_along_axis(far_nVW, next_nV[..., None], 2)[..., 0] - LENGTH
        return np.take_along_axis(speed_nW, next_nV, 1) + (gap_nV - 8.0) / 2

    def facts(self, state: LanesState) -> Mapping[str, np.ndarray]:
        return {"crash": state.crash_n[:, None].astype(float)}

    def scene(self, state: LanesState) -> list[str]:
        """What is told of each game: lane, speed, and the car in front."""
        front, _, front_speed, _ = self.neighbours(state, state.lane_n)
        return [
            f"Your car is in lane {lane + 1} of {self.lanes} (1 is the leftmost), at {speed:.0f} m/s. "
            + (
                "The lane in front is free."
                if gap >= FAR
                else f"The car in front is {gap:.0f} m away, at {other:.0f} m/s."
            )
            for lane, speed, gap, other in zip(
                state.lane_n, state.speed_n, front, front_speed, strict=True
            )
        ]
