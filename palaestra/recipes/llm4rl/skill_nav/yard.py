"""A plane with walls, slow ground and narrow gaps, in cells of a metre, n games at a time.

Metres and seconds, a step lasts 0.25 s. H rows and W columns of a map, x to the right and y down. A robot moves
in its own frame, which is turned by yaw, and picks a gait: a fast one that slow ground nearly holds, or a high one
that is half as fast everywhere.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

import palaestra as pl

FLOOR, WALL, SLOW, NARROW = range(4)
SIGNS = {".": FLOOR, "#": WALL, "~": SLOW, "+": NARROW}
DT = 0.25
GAP = 0.2  # from the middle of a narrow gap, within which it is passed
FASTEST, HIGH, HELD = (
    1.0,
    0.5,
    0.15,
)  # m/s: on floor, in the high gait, and in the fast one on slow ground
NEAR = 0.3  # of a waypoint, at which it is reached
SCAN = np.array([(x, y) for x in range(-2, 3) for y in range(-2, 3)]) * 0.4  # the robot's frame
OWN = 6  # numbers of an observation before the scan: x, y, cos and sin of yaw, velocity in its own frame
ACTIONS = pl.control.Box(
    low=(-1.0, -1.0, -1.0), high=(1.0, 1.0, 1.0)
)  # velocity, and gait: high above 0


def read_map(drawing: str) -> np.ndarray:
    """[H, W] kinds of cells of a drawing: # wall, . floor, ~ slow ground, + narrow gap. Raises UserError for
    other signs, rows of unequal length, and a map that walls do not enclose.
    """
    rows = drawing.strip("\n").split("\n")
    if len({len(row) for row in rows}) != 1:
        raise pl.UserError("a map's rows have one length: " + ", ".join(str(len(r)) for r in rows))
    if unknown := sorted(set("".join(rows)) - set(SIGNS)):
        raise pl.UserError(f"a map has no sign {unknown[0]!r}; it has {' '.join(SIGNS)}")
    kind_HW = np.array([[SIGNS[sign] for sign in row] for row in rows])
    rim = np.concatenate([kind_HW[0], kind_HW[-1], kind_HW[:, 0], kind_HW[:, -1]])
    if (rim != WALL).any():
        raise pl.UserError("walls, #, enclose a map")
    return kind_HW


def kind_at(map_nHW: np.ndarray, place_nd: np.ndarray) -> np.ndarray:
    """[n, ...] kinds of the cells of places [n, ..., 2]; what lies outside is wall."""
    n, H, W = map_nHW.shape
    x, y = (np.floor(place_nd[..., i]).astype(int) for i in (0, 1))
    inside = (x >= 0) & (y >= 0) & (x < W) & (y < H)
    game = np.arange(n).reshape(n, *(1,) * (x.ndim - 1))
    kind = map_nHW[game, np.clip(y, 0, H - 1), np.clip(x, 0, W - 1)]
    return np.where(inside, kind, WALL)


def blocked_at(map_nHW: np.ndarray, place_nd: np.ndarray) -> np.ndarray:
    """[n, ...] where no robot can be: walls, and narrow gaps off their middle lines."""
    kind = kind_at(map_nHW, place_nd)
    off = np.abs(place_nd - np.floor(place_nd) - 0.5).min(-1)
    return (kind == WALL) | ((kind == NARROW) & (off > GAP))


def turned(vector_nd: np.ndarray, yaw_n: np.ndarray) -> np.ndarray:
    """[n, ..., 2] vectors of the robot's frame in that of the map; with -yaw the other way."""
    shape = (len(yaw_n), *(1,) * (vector_nd.ndim - 2))
    cos, sin = np.cos(yaw_n).reshape(shape), np.sin(yaw_n).reshape(shape)
    x, y = vector_nd[..., 0], vector_nd[..., 1]
    return np.stack([cos * x - sin * y, sin * x + cos * y], -1)


@pl.value_class
class YardState:
    map_nHW: np.ndarray
    place_n2: np.ndarray
    yaw_n: np.ndarray
    moved_n2: np.ndarray  # velocity of the last step, in the robot's frame
    hit_n: np.ndarray  # whether something was in the way


def moved_state(state: YardState, act_n3: np.ndarray) -> YardState:
    """After a step. What is in the way stops the part of the way that leads into it."""
    kind_n, high_n = kind_at(state.map_nHW, state.place_n2), act_n3[:, 2] > 0
    most_n = np.where(high_n, HIGH, np.where(kind_n == SLOW, HELD, FASTEST))
    wish_n2 = act_n3[:, :2] / np.maximum(1.0, np.linalg.norm(act_n3[:, :2], axis=1))[:, None]
    way_n2 = turned(wish_n2 * most_n[:, None] * DT, state.yaw_n)
    place_n2, hit_n = state.place_n2.copy(), np.zeros(len(kind_n), bool)
    for axis in (0, 1):
        tried = place_n2.copy()
        tried[:, axis] += way_n2[:, axis]
        stop_n = blocked_at(state.map_nHW, tried)
        place_n2, hit_n = np.where(stop_n[:, None], place_n2, tried), hit_n | stop_n
    real_n2 = turned((place_n2 - state.place_n2) / DT, -state.yaw_n)
    return YardState(
        map_nHW=state.map_nHW, place_n2=place_n2, yaw_n=state.yaw_n, moved_n2=real_n2, hit_n=hit_n
    )


def seen_state(state: YardState) -> np.ndarray:
    """[n, OWN + 2 S] place, yaw and velocity, then of S points around the robot whether it can be there, and
    whether the ground is slow.
    """
    at = state.place_n2[:, None] + turned(np.tile(SCAN, (len(state.yaw_n), 1, 1)), state.yaw_n)
    wall, slow = blocked_at(state.map_nHW, at), kind_at(state.map_nHW, at) == SLOW
    turn = np.stack([np.cos(state.yaw_n), np.sin(state.yaw_n)], 1)
    return np.concatenate([state.place_n2, turn, state.moved_n2, wall, slow], 1)


def told_policy(obs: np.ndarray, command: np.ndarray) -> np.ndarray:
    """[m, 4 + 2 + 2 S] what a policy sees: a command in its frame, how long that is, 1 if it is near, its
    velocity, and the scan. No place: nothing of a map can be learned by heart.

    Args:
        obs: [m, OWN + 2 S], see `seen_state`.
        command: [m, 2], a waypoint in metres or a velocity.
    """
    far = np.linalg.norm(command, axis=-1, keepdims=True)
    short = command / np.maximum(1.0, far / 3.0)
    return np.concatenate([short, np.minimum(far, 3.0), far <= NEAR, obs[..., 4:]], -1)


TOLD = 4 + OWN - 4 + 2 * len(SCAN)


@pl.stage
class Yard:
    """Games on one map from given places, a metre's cell each, to wherever options lead. Nothing is paid; the
    goal is that of whoever plans.

    Args:
        starts: column and row; games take them in turn.
    """

    drawing: str
    starts: tuple[tuple[int, int], ...]
    horizon: int = 240

    @property
    def agents(self) -> int:
        return 1

    @property
    def actions(self) -> pl.control.Box:
        return ACTIONS

    @property
    def observation(self) -> int:
        return OWN + 2 * len(SCAN)

    @cached_property
    def map_HW(self) -> np.ndarray:
        return read_map(self.drawing)

    def reset(self, rng: np.random.Generator, n: int) -> YardState:
        place_n2 = np.array([self.starts[i % len(self.starts)] for i in range(n)]) + 0.5
        return YardState(
            map_nHW=np.tile(self.map_HW, (n, 1, 1)),
            place_n2=place_n2,
            yaw_n=rng.uniform(-np.pi, np.pi, n),
            moved_n2=np.zeros((n, 2)),
            hit_n=np.zeros(n, bool),
        )

    def observe(self, state: YardState) -> np.ndarray:
        return seen_state(state)[:, None]

    def legal(self, state: YardState) -> None:
        return None

    def step(
        self, state: YardState, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[YardState, np.ndarray, np.ndarray]:
        n = len(state.yaw_n)
        return moved_state(state, act_nA[:, 0]), np.zeros((n, 1)), np.zeros(n, bool)


def cells_of(map_HW: np.ndarray) -> list[tuple[int, int]]:
    """Column and row of the cells that are no walls."""
    return [(int(x), int(y)) for y, x in zip(*np.nonzero(map_HW != WALL), strict=True)]


def near_place(place: Sequence[float]) -> pl.control.Condition:
    """Whether a robot is within NEAR of a place."""
    return lambda obs: np.linalg.norm(obs[:, 0, :2] - np.array(place), axis=-1) <= NEAR
