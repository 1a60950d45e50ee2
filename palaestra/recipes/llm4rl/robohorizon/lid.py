"""A lid to open and an item to put under it, in a plane, n games at a time.

A hand moves by up to 0.1 an axis and step and grips where its third action is above 0. The lid turns about
a hinge at the left of a box, its handle at the other end: closed at the angle q = 0, open at pi / 2. An
observation is the places of hand and item, the grip, the lid's angle and its handle's place.
"""

import numpy as np

import palaestra as pl
from palaestra.recipes.llm4rl.robohorizon.views import draw_spots

STEP, REACH = 0.1, 0.2  # a hand's way in a step; how near it is to what it grips
HINGE, LENGTH = np.array([0.3, -0.3]), 0.5
CENTRE, OPEN = (
    np.array([0.55, -0.3]),
    1.2,
)  # of the box, and the angle from which on the lid is open
INSIDE = 0.2
PIXELS = 12  # a camera's side
ABOUT = """A hand moves in a plane with a box and an item. The lid of the box is closed: it has to be opened \
by its handle, gripped and turned from angle 0 to pi/2. Then the item has to be gripped and brought to the \
centre of the box, where it should stay. The hand grips where it is within 0.2 of what it grips."""
QUANTITIES: pl.control.Quantities = {
    "lid_angle": pl.control.Quantity(low=0.0, high=1.5708, about="0 = closed; open from 1.2 on"),
    "handle_distance": pl.control.Quantity(low=0.0, high=3.0, about="from the hand to the handle"),
    "item_distance": pl.control.Quantity(low=0.0, high=3.0, about="from the hand to the item"),
    "box_distance": pl.control.Quantity(
        low=0.0, high=3.0, about="from the item to the centre of the box; inside below 0.2"
    ),
    "hand_speed": pl.control.Quantity(low=0.0, high=0.15, about="of the hand, a step"),
    "gripping": pl.control.Quantity(low=0.0, high=1.0, about="1 where the hand is closed"),
}


@pl.value_class
class LidState:
    hand_nd: np.ndarray
    item_nd: np.ndarray
    angle_n: np.ndarray
    grip_n: np.ndarray


def handle_of(angle_n: np.ndarray) -> np.ndarray:
    """[n, 2] where the handle is."""
    return HINGE + LENGTH * np.stack([np.cos(angle_n), np.sin(angle_n)], -1)


@pl.stage
class LidTask:
    """A step pays 1 where the item lies in the open box, else 0; no game ends before the horizon. A hand
    that grips near the handle turns the lid; else one near the item carries it.
    """

    horizon: int = 50
    about: str = ABOUT

    @property
    def agents(self) -> int:
        return 1

    @property
    def actions(self) -> pl.control.Box:
        return pl.control.Box(low=(-1.0,) * 3, high=(1.0,) * 3)

    @property
    def observation(self) -> int:
        return 8

    def reset(self, rng: np.random.Generator, n: int) -> LidState:
        return LidState(
            hand_nd=rng.uniform((-0.3, -0.2), (0.3, 0.3), (n, 2)),
            item_nd=rng.uniform((-0.8, -0.8), (-0.2, -0.4), (n, 2)),
            angle_n=np.zeros(n),
            grip_n=np.zeros(n),
        )

    def observe(self, state: LidState) -> np.ndarray:
        marks = np.stack([state.grip_n, state.angle_n], -1)
        seen = (state.hand_nd, state.item_nd, marks, handle_of(state.angle_n))
        return np.concatenate(seen, -1)[:, None]

    def legal(self, state: LidState) -> None:
        return None

    def step(
        self, state: LidState, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[LidState, np.ndarray, np.ndarray]:
        act = act_nA[:, 0]
        grip_n = act[:, 2] > 0
        near = lambda place: np.linalg.norm(state.hand_nd - place, axis=-1) < REACH
        turns_n = grip_n & near(handle_of(state.angle_n))
        carries_n = grip_n & ~turns_n & near(state.item_nd)
        hand = np.clip(state.hand_nd + STEP * act[:, :2], -1.0, 1.0)
        away = hand - HINGE
        turned = np.clip(np.arctan2(away[:, 1], away[:, 0]), 0.0, np.pi / 2)
        after = LidState(
            hand_nd=hand,
            item_nd=state.item_nd + np.where(carries_n[:, None], hand - state.hand_nd, 0.0),
            angle_n=np.where(turns_n, turned, state.angle_n),
            grip_n=grip_n.astype(float),
        )
        inside_n = np.linalg.norm(after.item_nd - CENTRE, axis=-1) < INSIDE
        paid_n = (inside_n & (after.angle_n > OPEN)).astype(float)
        return after, paid_n[:, None], np.zeros(len(paid_n), bool)

    @property
    def declared(self) -> pl.control.Quantities:
        return QUANTITIES

    def quantities(self, paths: pl.control.Paths) -> dict[str, np.ndarray]:
        """[n, A, T] of the state after a step, by observations alone."""
        seen = paths["next_obs"]
        hand, item, handle = seen[..., :2], seen[..., 2:4], seen[..., 6:8]
        away = lambda x: np.linalg.norm(x, axis=-1)
        return {
            "lid_angle": seen[..., 5],
            "handle_distance": away(hand - handle),
            "item_distance": away(hand - item),
            "box_distance": away(item - CENTRE),
            "hand_speed": away(hand - paths["obs"][..., :2]),
            "gripping": seen[..., 4],
        }

    @property
    def camera_shape(self) -> tuple[int, int, int]:
        return 3, 3, PIXELS

    def render(self, obs: np.ndarray) -> np.ndarray:
        """[n, 3, 3, s, s] of observations [n, O]: the whole plane, the surroundings of the box, and those of the hand; the
        channels are the hand, brighter when it grips, the item, and the lid.
        """
        hand, item, grip, angle = obs[:, :2], obs[:, 2:4], obs[:, 4], obs[:, 5]
        way = LENGTH * np.stack([np.cos(angle), np.sin(angle)], -1)
        lid = HINGE + way[:, None] * np.linspace(0.2, 1.0, 5)[:, None]
        fixed = lambda at: np.broadcast_to(at, hand.shape)
        windows = ((fixed(np.zeros(2)), 1.0), (fixed(CENTRE), 0.45), (hand, 0.45))
        bright = (0.5 + 0.5 * grip)[:, None, None]
        views = list[np.ndarray]()
        for centre, half in windows:
            spots = [
                draw_spots(x, centre, half, PIXELS) for x in (hand[:, None], item[:, None], lid)
            ]
            views.append(np.stack([spots[0] * bright, spots[1], spots[2]], 1))
        return np.stack(views, 1)

    def demonstrate(self, obs: np.ndarray) -> np.ndarray:
        """[n, A, 3] what a hand does that knows the task, of observations [n, A, O]: it rests where it
        closes or opens, as people do.
        """
        hand, item, handle = obs[..., :2], obs[..., 2:4], obs[..., 6:8]
        grip, angle = obs[..., 4] > 0, obs[..., 5]
        far = lambda x: np.linalg.norm(x - hand, axis=-1)
        lid, done = angle <= OPEN, np.linalg.norm(item - CENTRE, axis=-1) < INSIDE / 2
        target = np.where(lid[..., None], handle, item)
        at = far(target) < REACH / 3
        turn = HINGE + LENGTH * np.stack([np.cos(angle + 0.3), np.sin(angle + 0.3)], -1)
        holds = at & grip
        goal = np.where(lid[..., None], turn, hand + CENTRE - item)
        way = np.where(holds[..., None], goal, target) - hand
        rest = (at & ~grip) | (done & ~lid)
        way = np.where(rest[..., None], 0.0, way)
        size = np.maximum(np.abs(way).max(-1, keepdims=True) / STEP, 1e-9)
        move = way / STEP / np.maximum(size, 1.0)
        return np.concatenate([move, np.where(at, 1.0, -1.0)[..., None]], -1)
