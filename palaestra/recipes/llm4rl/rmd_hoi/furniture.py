"""A plane with things of each kind: a drawer and a door on joints, a cup that is carried, a button that stays, n games at
a time. A game has several goals, one after the other.

Metres and seconds. A step takes 0.1 s; an action is for each of two fingers its velocity, up to 1 m/s an axis, and a grip,
closed above 0. The drawer slides along -y by up to `SLIDE` (a prismatic joint), the door turns about a hinge by up to
pi / 2 (a revolute one). An observation is the places of left, right, drawer, door, cup, mat and button, a one-hot of the
goal, all zero behind the last, and the share of goals that are done.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

import palaestra as pl
from palaestra.recipes.llm4rl.rmd_hoi.fingers import TwoFingers

DT, EDGE, HOLD = 0.1, 1.0, 0.15  # s; the field is from -EDGE to EDGE; how near a finger grips
DRAWER, SLIDE = np.array([-0.6, 0.7]), 0.4  # its handle when closed, and its way
HINGE, LEAF = np.array([0.7, 0.7]), 0.4  # of the door, and from there to its handle
PLACES = ("left", "right", "drawer", "door", "cup", "mat", "button")
GOALS = {
    "drawer": "Open the drawer: pull its handle down with the left finger.",
    "door": "Open the door: turn its handle down about the hinge with the left finger.",
    "cup": "Bring the cup onto the mat.",
    "button": "Touch the button with the left finger.",
}
OPEN, TURNED, ON_MAT, TOUCH = 0.75 * SLIDE, 1.2, 0.15, 0.1
SCENE = f"""Two fingers, "left" and "right", move in a plane and can grip. The handle "drawer" is at (-0.6, 0.7) when closed \
and slides straight down by {SLIDE:g}. The handle "door" is at (0.3, 0.7) when closed and turns about a hinge at (0.7, 0.7), \
until it is at (0.7, 0.3). "cup" can be carried, "mat" and "button" stay where they are. Tasks follow one another."""


def drawer_place(slide_n: np.ndarray) -> np.ndarray:
    """[n, 2] the handle of a drawer that is open by `slide_n`."""
    return DRAWER - slide_n[:, None] * np.array([0.0, 1.0])


def door_place(turn_n: np.ndarray) -> np.ndarray:
    """[n, 2] the handle of a door that is open by `turn_n` radians."""
    return HINGE + LEAF * np.stack([-np.cos(turn_n), -np.sin(turn_n)], -1)


@pl.value_class
class FurnitureState:
    finger_n2d: np.ndarray
    slide_n: np.ndarray
    turn_n: np.ndarray
    cup_nd: np.ndarray
    mat_nd: np.ndarray
    button_nd: np.ndarray
    order_nR: np.ndarray  # the goals of a game, by number
    round_n: np.ndarray  # how many are done


@pl.stage
class Furniture(TwoFingers):
    """A step pays the share of a game's goals that are done; no game ends before the horizon. A goal is done once it holds
    in a step, and then the next one counts.

    A finger that is closed within `HOLD` of a handle or the cup moves it with it, a handle along its joint alone; the
    nearest one where there are two.

    Args:
        goals: names of `GOALS`, each once a game, in an order that is drawn.
    """

    names: ClassVar[tuple[str, ...]] = PLACES
    goals: tuple[str, ...] = ("drawer", "door", "cup", "button")
    horizon: int = 80

    def __post_init__(self) -> None:
        if strange := [g for g in self.goals if g not in GOALS] or not self.goals:
            raise pl.UserError(f"furniture: goals are some of {', '.join(GOALS)}, not {strange}")

    @property
    def about(self) -> str:
        return SCENE

    @property
    def tasks(self) -> tuple[str, ...]:
        """What is wanted of each goal, in words."""
        return tuple(GOALS[g] for g in self.goals)

    @property
    def rounds(self) -> int:
        """Goals of a game."""
        return len(self.goals)

    @property
    def agents(self) -> int:
        return 1

    @property
    def actions(self) -> pl.control.Box:
        return pl.control.Box(low=(-1.0,) * 6, high=(1.0,) * 6)

    @property
    def observation(self) -> int:
        return 2 * len(PLACES) + len(self.goals) + 1

    def task_of(self, obs: np.ndarray) -> np.ndarray:
        """[...] the number of the goal that counts; behind the last one 0."""
        return obs[..., 2 * len(PLACES) : -1].argmax(-1)

    def round_of(self, obs: np.ndarray) -> np.ndarray:
        """[...] how many goals are done."""
        return np.round(obs[..., -1] * self.rounds).astype(int)

    def reset(self, rng: np.random.Generator, n: int) -> FurnitureState:
        draw = lambda low, high: rng.uniform(low, high, (n, 2))
        side = np.array([[-0.15, 0.0], [0.15, 0.0]])
        return FurnitureState(
            finger_n2d=draw((-0.3, -0.2), (0.3, 0.2))[:, None] + side,
            slide_n=np.zeros(n),
            turn_n=np.zeros(n),
            cup_nd=draw((-0.8, -0.5), (-0.3, -0.2)),
            mat_nd=draw((0.3, -0.4), (0.8, 0.0)),
            button_nd=draw((-0.2, -0.9), (0.4, -0.7)),
            order_nR=np.stack([rng.permutation(self.rounds) for _ in range(n)]),
            round_n=np.zeros(n, int),
        )

    def observe(self, state: FurnitureState) -> np.ndarray:
        n, R = state.order_nR.shape
        now = np.take_along_axis(state.order_nR, np.minimum(state.round_n, R - 1)[:, None], 1)
        goal = (now == np.arange(R)) & (state.round_n < R)[:, None]
        handles = (drawer_place(state.slide_n), door_place(state.turn_n))
        fixed = (state.cup_nd, state.mat_nd, state.button_nd)
        share = state.round_n[:, None] / R
        seen = (state.finger_n2d.reshape(n, 4), *handles, *fixed, goal, share)
        return np.concatenate(seen, -1)[:, None]

    def legal(self, state: FurnitureState) -> None:
        return None

    def step(
        self, state: FurnitureState, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[FurnitureState, np.ndarray, np.ndarray]:
        act = act_nA[:, 0].reshape(-1, 2, 3)
        before = state.finger_n2d
        finger = np.clip(before + DT * act[..., :2], -EDGE, EDGE)
        things = (drawer_place(state.slide_n), door_place(state.turn_n), state.cup_nd)
        away_n2T = np.stack([np.linalg.norm(before - x[:, None], axis=-1) for x in things], -1)
        holds_n2T = (act[..., 2:] > 0) & (away_n2T < HOLD)
        holds_n2T &= away_n2T == away_n2T.min(-1, keepdims=True)
        by_n2T = holds_n2T / np.maximum(holds_n2T.sum(1, keepdims=True), 1)
        pull_nTd = np.einsum("nft,nfd->ntd", by_n2T, finger - before)
        slide_n = np.clip(state.slide_n - pull_nTd[:, 0, 1], 0.0, SLIDE)
        tangent = np.stack([np.sin(state.turn_n), -np.cos(state.turn_n)], -1)
        turn_n = np.clip(state.turn_n + (pull_nTd[:, 1] * tangent).sum(-1) / LEAF, 0.0, np.pi / 2)
        moved = FurnitureState(
            finger_n2d=finger,
            slide_n=slide_n,
            turn_n=turn_n,
            cup_nd=np.clip(state.cup_nd + pull_nTd[:, 2], -EDGE, EDGE),
            mat_nd=state.mat_nd,
            button_nd=state.button_nd,
            order_nR=state.order_nR,
            round_n=state.round_n,
        )
        after = self._counted(moved)
        return after, (after.round_n / self.rounds)[:, None], np.zeros(len(finger), bool)

    def _counted(self, state: FurnitureState) -> FurnitureState:
        """With one round more where the goal that counts holds."""
        left = state.finger_n2d[:, 0]
        far = lambda x, y: np.linalg.norm(x - y, axis=-1)
        holds = {
            "drawer": state.slide_n >= OPEN,
            "door": state.turn_n >= TURNED,
            "cup": far(state.cup_nd, state.mat_nd) < ON_MAT,
            "button": far(left, state.button_nd) < TOUCH,
        }
        seen = self.observe(state)[:, 0]
        now = self.task_of(seen)
        done = np.stack([holds[g] for g in self.goals], -1)[np.arange(len(now)), now]
        round_n = np.minimum(state.round_n + done, self.rounds)
        return replace(state, round_n=round_n)

    def demonstrate(self, obs: np.ndarray) -> np.ndarray:
        """[n, A, 6] what a hand does that knows every goal, of observations [n, A, O]: the left finger goes to the thing,
        closes, and moves it; the right one stays.
        """
        at, now = self.places(obs), self.task_of(obs)
        left, angle = at["left"], at["door"] - HINGE
        turn = np.arctan2(-angle[..., 1], -angle[..., 0]) + 0.3
        arc = HINGE + LEAF * np.stack([-np.cos(turn), -np.sin(turn)], -1)
        ways = {  # the thing, and where it should be next
            "drawer": (at["drawer"], at["drawer"] - np.array([0.0, DT])),
            "door": (at["door"], arc),
            "cup": (at["cup"], left + at["mat"] - at["cup"]),
            "button": (at["button"], at["button"]),
        }
        pick = lambda i: np.take_along_axis(
            np.stack([ways[g][i] for g in self.goals], -2), now[..., None, None], -2
        )[..., 0, :]
        thing, goal = pick(0), pick(1)
        near = np.linalg.norm(thing - left, axis=-1, keepdims=True) < HOLD / 2
        way = np.where(near, goal, thing) - left
        move = way / DT / np.maximum(np.abs(way).max(-1, keepdims=True) / DT, 1.0)
        grip = np.where(near, 1.0, -1.0)
        return np.concatenate([move, grip, np.zeros_like(move), -np.ones_like(grip)], -1)
