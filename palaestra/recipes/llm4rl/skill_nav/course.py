"""What the low level is trained in: waypoints one after another, or velocities, with their rewards.

n games, L waypoints of a game. Each step lasts 0.25 s.
"""

from dataclasses import replace
from typing import Literal

import numpy as np

import palaestra as pl
from palaestra.recipes.llm4rl.skill_nav.yard import (
    ACTIONS,
    DT,
    FASTEST,
    NARROW,
    NEAR,
    SLOW,
    TOLD,
    WALL,
    YardState,
    blocked_at,
    kind_at,
    moved_state,
    seen_state,
    told_policy,
    turned,
)

Reach = Literal["each", "elapsed"]
EPS = 0.001
STRAY = 0.1  # cosine to the waypoint's direction, below which a step is punished
REACH, STAY, TRACK, HIT, EFFORT = 1.0, 0.1, 0.1, 0.05, 0.01  # weights
ROWS, COLUMNS = 5, 15  # of a map of obstacles in rows
MATRIX = 10  # rows and columns of obstacles of a random map
CHANGE = 8  # steps after which a velocity is drawn anew


def reach_reward(reached: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """r_reach = n_p / (t + eps): of three waypoints after 4 s 3 / 4.001 = 0.749813."""
    return reached / (seconds + EPS)


def cosine_to(velocity: np.ndarray, way: np.ndarray) -> np.ndarray:
    """[...] of vectors [..., 2]; 0 where one is 0."""
    size = np.linalg.norm(velocity, axis=-1) * np.linalg.norm(way, axis=-1)
    return (velocity * way).sum(-1) / np.where(size > 0, size, 1.0)


def track_reward(velocity: np.ndarray, way: np.ndarray) -> np.ndarray:
    """r_track: -1 where the cosine of velocity and the way to the waypoint is below 0.1, else the cosine. Of
    (1, 0.05) and (0, 1) it is 0.049938 and the reward -1; of (1, 0.2) 0.196116, which is the reward.
    """
    cosine = cosine_to(velocity, way)
    return np.where(cosine < STRAY, -1.0, cosine)


@pl.value_class
class CourseState:
    yard: YardState
    way_nL2: np.ndarray  # waypoints; a random course has one, drawn anew
    at_n: np.ndarray  # the number of the next waypoint
    reached_n: np.ndarray  # waypoints reached
    seconds_n: np.ndarray  # since the waypoint was given
    steps: int
    dwelt_n: np.ndarray  # steps at the waypoint since it was reached; 0 = on the way


@pl.stage
class WaypointCourse:
    """Games in which a robot is told one waypoint at a time; the next one comes after `dwell` seconds at one
    that it reached. Games end at the horizon alone.

        r = r_reach + 0.1 r_stay + 0.1 r_track - 0.05 hit - 0.01 |a|^2

    r_stay = 1 - |v| while it is at the waypoint and waits for the next, where r_track counts nothing.

    "fixed" maps have obstacles in rows, of one kind each, with waypoints between; "random" ones a matrix of
    obstacles, and waypoints 0.5 m to 3 m away in any direction, to which no wall is in the way. r_track is
    added in "random" maps.

    Args:
        reach: "each" pays 1 / (t + eps) where a waypoint is reached, t since it was given; "elapsed" pays
            n_p / (t + eps) in every step, t since the game began, so early waypoints are paid for ever.
    """

    maps: Literal["fixed", "random"] = "random"
    reach: Reach = "each"
    dwell: float = 1.0
    horizon: int = 60

    @property
    def agents(self) -> int:
        return 1

    @property
    def actions(self) -> pl.control.Box:
        return ACTIONS

    @property
    def observation(self) -> int:
        return TOLD

    def reset(self, rng: np.random.Generator, n: int) -> CourseState:
        yard, way_nL2 = fixed_games(rng, n) if self.maps == "fixed" else random_games(rng, n)
        zero = np.zeros(n, int)
        if self.maps == "random":
            way_nL2 = drawn_waypoints(yard, rng)[:, None]
        return CourseState(
            yard=yard, way_nL2=way_nL2, at_n=zero, reached_n=zero, seconds_n=np.zeros(n), steps=0, dwelt_n=zero
        )  # fmt: skip

    def observe(self, state: CourseState) -> np.ndarray:
        ahead = turned(self._way(state), -state.yard.yaw_n)
        return told_policy(seen_state(state.yard), ahead)[:, None]

    def legal(self, state: CourseState) -> None:
        return None

    def step(
        self, state: CourseState, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[CourseState, np.ndarray, np.ndarray]:
        act_n3, before_n2 = act_nA[:, 0], self._way(state)
        yard = moved_state(state.yard, act_n3)
        moved = replace(state, yard=yard, steps=state.steps + 1, seconds_n=state.seconds_n + DT)
        there_n = np.linalg.norm(self._way(moved), axis=-1) <= NEAR
        waits_n, new_n = state.dwelt_n > 0, there_n & (state.dwelt_n == 0)
        reached_n = state.reached_n + new_n
        if self.reach == "each":
            paid_n = np.where(new_n, reach_reward(np.ones(len(new_n)), moved.seconds_n), 0.0)
        else:
            paid_n = reach_reward(reached_n, np.full(len(new_n), moved.steps * DT))
        speed_n = np.linalg.norm(yard.moved_n2, axis=-1)
        stay_n = np.where(there_n & waits_n, 1 - speed_n / FASTEST, 0.0)
        heads_n2 = turned(yard.moved_n2, yard.yaw_n)
        track_n = np.where(waits_n, 0.0, track_reward(heads_n2, before_n2))
        reward_n = REACH * paid_n + STAY * stay_n + TRACK * track_n * (self.maps == "random")
        reward_n = reward_n - HIT * yard.hit_n - EFFORT * np.square(act_n3[:, :2]).sum(-1)
        dwelt_n = np.where(waits_n | new_n, state.dwelt_n + 1, 0)
        after = replace(moved, reached_n=reached_n, dwelt_n=dwelt_n)
        after = self._next(after, dwelt_n > round(self.dwell / DT), rng)
        return after, reward_n[:, None], np.zeros(len(new_n), bool)

    def _next(
        self, state: CourseState, which_n: np.ndarray, rng: np.random.Generator
    ) -> CourseState:
        """The next waypoint of some games; a fixed course begins again after its last."""
        way_nL2, at_n = state.way_nL2, state.at_n
        if self.maps == "random":
            drawn = drawn_waypoints(state.yard, rng)[:, None]
            way_nL2 = np.where(which_n[:, None, None], drawn, way_nL2)
        else:
            at_n = np.where(which_n, (at_n + 1) % way_nL2.shape[1], at_n)
        return replace(
            state,
            way_nL2=way_nL2,
            at_n=at_n,
            dwelt_n=np.where(which_n, 0, state.dwelt_n),
            seconds_n=np.where(which_n, 0.0, state.seconds_n),
        )

    def _way(self, state: CourseState) -> np.ndarray:
        """[n, 2] from each robot to its waypoint, in the map's frame."""
        return state.way_nL2[np.arange(len(state.at_n)), state.at_n] - state.yard.place_n2


@pl.value_class
class VelocityState:
    yard: YardState
    wish_n2: np.ndarray
    steps: int


@pl.stage
class VelocityCourse:
    """The interface that is compared: a robot is told a velocity in its frame, drawn anew every 2 s, and is paid

        exp(-|v - wish|^2 / 0.25) - 0.05 hit - 0.01 |a|^2

    on maps with a matrix of obstacles.
    """

    horizon: int = 60

    @property
    def agents(self) -> int:
        return 1

    @property
    def actions(self) -> pl.control.Box:
        return ACTIONS

    @property
    def observation(self) -> int:
        return TOLD

    def reset(self, rng: np.random.Generator, n: int) -> VelocityState:
        return VelocityState(yard=random_games(rng, n)[0], wish_n2=drawn_wish(rng, n), steps=0)

    def observe(self, state: VelocityState) -> np.ndarray:
        return told_policy(seen_state(state.yard), state.wish_n2)[:, None]

    def legal(self, state: VelocityState) -> None:
        return None

    def step(
        self, state: VelocityState, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[VelocityState, np.ndarray, np.ndarray]:
        act_n3, n = act_nA[:, 0], len(act_nA)
        yard = moved_state(state.yard, act_n3)
        off_n = np.square(yard.moved_n2 - state.wish_n2).sum(-1)
        reward_n = np.exp(-off_n / 0.25) - HIT * yard.hit_n
        reward_n = reward_n - EFFORT * np.square(act_n3[:, :2]).sum(-1)
        steps = state.steps + 1
        wish_n2 = state.wish_n2 if steps % CHANGE else drawn_wish(rng, n)
        after = VelocityState(yard=yard, wish_n2=wish_n2, steps=steps)
        return after, reward_n[:, None], np.zeros(n, bool)


def drawn_wish(rng: np.random.Generator, n: int) -> np.ndarray:
    """[n, 2] velocities of any direction, up to the fastest."""
    angle_n, size_n = rng.uniform(-np.pi, np.pi, n), rng.uniform(0, FASTEST, n)
    return size_n[:, None] * np.stack([np.cos(angle_n), np.sin(angle_n)], 1)


# ---- maps


def fresh_yard(map_nHW: np.ndarray, place_n2: np.ndarray, rng: np.random.Generator) -> YardState:
    n = len(place_n2)
    return YardState(
        map_nHW=map_nHW,
        place_n2=place_n2,
        yaw_n=rng.uniform(-np.pi, np.pi, n),
        moved_n2=np.zeros((n, 2)),
        hit_n=np.zeros(n, bool),
    )


def fixed_games(rng: np.random.Generator, n: int) -> tuple[YardState, np.ndarray]:
    """Corridors with rows of obstacles across: slow ground, or a wall with a narrow gap. A waypoint lies
    before and one behind each.
    """
    map_nHW = np.full((n, ROWS + 2, COLUMNS), WALL)
    map_nHW[:, 1:-1, 1:-1] = 0
    middle, across = ROWS // 2 + 1, range(3, COLUMNS - 2, 3)
    for x in across:
        slow_n = rng.random(n) < 0.5
        map_nHW[slow_n, 1:-1, x] = SLOW
        map_nHW[~slow_n, 1:-1, x] = WALL
        map_nHW[~slow_n, middle, x] = NARROW
    stops = [x + side for x in across for side in (-0.5, 1.5)]
    way_nL2 = np.tile([[(x, middle + 0.5) for x in stops]], (n, 1, 1)).astype(float)
    start_n2 = np.stack([rng.uniform(1.2, 2.0, n), rng.uniform(middle, middle + 1, n)], 1)
    return fresh_yard(map_nHW, start_n2, rng), way_nL2


def random_games(rng: np.random.Generator, n: int) -> tuple[YardState, np.ndarray]:
    """A matrix of obstacles: 15% of cells are walls, 20% slow, 8% narrow; robots begin in the middle of a
    cell that is none.
    """
    draw_nHW = rng.random((n, MATRIX + 2, MATRIX + 2))
    map_nHW = np.select(
        [draw_nHW < 0.15, draw_nHW < 0.35, draw_nHW < 0.43], [WALL, SLOW, NARROW], 0
    )
    map_nHW[:, [0, -1]], map_nHW[:, :, [0, -1]] = WALL, WALL
    cell_n2 = rng.integers(2, MATRIX, size=(n, 2))
    map_nHW[np.arange(n), cell_n2[:, 1], cell_n2[:, 0]] = 0
    return fresh_yard(map_nHW, cell_n2 + 0.5, rng), np.zeros((n, 1, 2))


def drawn_waypoints(yard: YardState, rng: np.random.Generator, tries: int = 8) -> np.ndarray:
    """[n, 2] waypoints 0.5 m to 3 m away, in any direction of the robot's frame; the first of some draws to
    which no wall is in the way and where a robot can be, else its own place.
    """
    n = len(yard.yaw_n)
    found_n, way_n2 = np.zeros(n, bool), yard.place_n2.copy()
    for _ in range(tries):
        angle_n, far_n = rng.uniform(-np.pi, np.pi, n), rng.uniform(0.5, 3.0, n)
        ahead = far_n[:, None] * np.stack([np.cos(angle_n), np.sin(angle_n)], 1)
        to_n2 = yard.place_n2 + turned(ahead, yard.yaw_n)
        share = np.linspace(0, 1, 13)[None, :, None]
        line = yard.place_n2[:, None] * (1 - share) + to_n2[:, None] * share
        wall_n = (kind_at(yard.map_nHW, line) == WALL).any(1)
        free_n = ~wall_n & ~blocked_at(yard.map_nHW, to_n2) & ~found_n
        way_n2[free_n], found_n = to_n2[free_n], found_n | free_n
    return way_n2
