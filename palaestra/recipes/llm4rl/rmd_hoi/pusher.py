"""A planar pusher: two fingers, a box, a mat and a button, n games at a time.

Metres and seconds. A step takes 0.1 s; an action is the velocity of each finger, up to 1 m/s an axis. An
observation is the places of left, right, box, mat and button, and whether the button was pressed.
"""

from typing import ClassVar, Literal

import numpy as np

import palaestra as pl
from palaestra.recipes.llm4rl.rmd_hoi.fingers import TwoFingers

Wanted = Literal["push", "press", "both"]
DT, EDGE = 0.1, 1.0  # the field is from -EDGE to EDGE
RADIUS, GRIP = 0.1, 0.03  # of the box; how far from its rim a finger touches it
NEAR, AWAY = 0.2, 0.5  # box and mat, in place; fingers and button, left
PLACES = ("left", "right", "box", "mat", "button")
SCENE = """Two fingers, "left" and "right", move in a plane with a round box, which they can push or carry \
between them, a mat and a button. All begin somewhere in a field of 2 m by 2 m. """
TASKS: dict[Wanted, str] = {
    "push": "Bring the box onto the mat.",
    "press": "Press the button with the left finger, then take both fingers away from it.",
    "both": "Bring the box onto the mat, then press the button with the left finger, then take both "
    "fingers away from it.",
}


@pl.value_class
class PusherState:
    finger_n2d: np.ndarray
    box_nd: np.ndarray
    mat_nd: np.ndarray
    button_nd: np.ndarray
    pressed_n: np.ndarray


@pl.stage
class Pusher(TwoFingers):
    """A step pays 1 where all that is wanted holds, else 0; no game ends before the horizon.

    A finger in the box pushes it out of its way; between two fingers that touch it from opposite sides it
    moves with them. The button counts as pressed from the left finger's first touch on, of "both" the
    first one while the box lies on the mat.
    """

    names: ClassVar[tuple[str, ...]] = PLACES
    wanted: Wanted = "press"
    horizon: int = 80

    @property
    def about(self) -> str:
        return SCENE + TASKS[self.wanted]

    @property
    def agents(self) -> int:
        return 1

    @property
    def actions(self) -> pl.control.Box:
        return pl.control.Box(low=(-1.0,) * 4, high=(1.0,) * 4)

    @property
    def observation(self) -> int:
        return 2 * len(PLACES) + 1

    def reset(self, rng: np.random.Generator, n: int) -> PusherState:
        draw = lambda low, high: rng.uniform(low, high, (n, 2))
        hand_nd = draw((-0.3, -0.9), (0.3, -0.6))
        side = np.array([[-0.15, 0.0], [0.15, 0.0]])
        return PusherState(
            finger_n2d=hand_nd[:, None] + side,
            box_nd=draw((-0.4, -0.3), (0.4, 0.1)),
            mat_nd=draw((-0.6, 0.4), (0.0, 0.7)),
            button_nd=draw((0.4, 0.3), (0.7, 0.7)),
            pressed_n=np.zeros(n, bool),
        )

    def observe(self, state: PusherState) -> np.ndarray:
        fingers = state.finger_n2d.reshape(len(state.box_nd), 4)
        seen = (fingers, state.box_nd, state.mat_nd, state.button_nd, state.pressed_n[:, None])
        return np.concatenate(seen, -1)[:, None]

    def legal(self, state: PusherState) -> None:
        return None

    def step(
        self, state: PusherState, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[PusherState, np.ndarray, np.ndarray]:
        before = state.finger_n2d
        finger = np.clip(before + DT * act_nA[:, 0].reshape(-1, 2, 2), -EDGE, EDGE)
        arms = before - state.box_nd[:, None]
        touch_n2 = np.linalg.norm(arms, axis=-1) < RADIUS + GRIP
        opposite_n = (arms[:, 0] * arms[:, 1]).sum(-1) < 0
        held_n = touch_n2.all(-1) & opposite_n
        box = state.box_nd + np.where(held_n[:, None], (finger - before).mean(1), 0.0)
        away = box[:, None] - finger
        far = np.linalg.norm(away, axis=-1, keepdims=True)
        inside = np.maximum(RADIUS - far, 0.0) * away / np.maximum(far, 1e-9)
        box = np.clip(box + inside.sum(1), -EDGE, EDGE)
        placed_n = np.linalg.norm(box - state.mat_nd, axis=-1) < NEAR
        to_button = np.linalg.norm(finger - state.button_nd[:, None], axis=-1)
        touched_n = to_button[:, 0] < RADIUS
        allowed_n = placed_n if self.wanted == "both" else np.ones(len(box), bool)
        pressed_n = state.pressed_n | (touched_n & allowed_n)
        after = PusherState(
            finger_n2d=finger,
            box_nd=box,
            mat_nd=state.mat_nd,
            button_nd=state.button_nd,
            pressed_n=pressed_n,
        )
        left_n = pressed_n & (to_button > AWAY).all(-1)
        done = {"push": placed_n, "press": left_n, "both": placed_n & left_n}[self.wanted]
        return after, done.astype(float)[:, None], np.zeros(len(box), bool)
