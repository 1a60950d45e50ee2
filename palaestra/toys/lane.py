"""T-lane: a simulated game of one lane, whose logs say only at times what the player was about.

user: {"front":-2,"dragon":3,"gold":1}                                              assistant: defend

`front` is where the armies meet, from -3 (lost) to 3 (won); each frame the enemy moves it by -1 with
probability 0.4. An action takes two frames: in the first it is prepared and nothing shows, in the second
it happens, and the log has an event of its name.

    push    front + 1, for 1 gold           defend   front + 2, to 0 at most
    farm    gold + 2, to 3 at most          dragon   front + 2 if `dragon` is 0, which then is 6 again

The expert defends at -2, else takes the dragon when it is there, farms without gold, and pushes otherwise;
in a share `noise` of its decisions it does something at random. An action that is not possible does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from palaestra.schedule import check_bounds
from palaestra.tasks.procedural import draw_task, question_task
from palaestra.tasks.relabel import relabel_frames, state_text
from palaestra.types import Task, need_at_least, stage, value_class

LANE_ACTIONS = ("defend", "dragon", "farm", "push")  # the most important one first
PRESSURE, FAR, MOST_FRAMES, AWAY, MOST_GOLD = 0.4, 3, 40, 6, 3


@value_class
class LaneState:
    """What a player sees: the front, frames until the dragon is there, and gold."""

    front: int = 0
    dragon: int = 3
    gold: int = 1

    @staticmethod
    def every() -> list[LaneState]:
        """Every state in which an action can be chosen."""
        return [
            LaneState(front=front, dragon=dragon, gold=gold)
            for front in range(1 - FAR, FAR)
            for dragon in range(AWAY + 1)
            for gold in range(MOST_GOLD + 1)
        ]

    @property
    def text(self) -> str:
        return state_text({"front": self.front, "dragon": self.dragon, "gold": self.gold})

    @property
    def over(self) -> bool:
        return abs(self.front) >= FAR

    def legal(self) -> tuple[str, ...]:
        """The actions that would do something."""
        can = {"defend": self.front < 0, "dragon": self.dragon == 0, "push": self.gold > 0}
        return tuple(x for x in LANE_ACTIONS if can.get(x, True))


def expert_action(state: LaneState) -> str:
    """What is best in a state, by the expert's rule."""
    if state.front <= -2:
        return "defend"
    if state.dragon == 0:
        return "dragon"
    return "push" if state.gold else "farm"


def acted(state: LaneState, action: str) -> LaneState:
    """The state after an action has happened; one that is not possible changes nothing."""
    if action not in state.legal():
        return state
    if action == "defend":
        return replace(state, front=min(0, state.front + 2))
    if action == "dragon":
        return replace(state, front=min(FAR, state.front + 2), dragon=AWAY)
    if action == "farm":
        return replace(state, gold=min(MOST_GOLD, state.gold + 2))
    return replace(state, front=state.front + 1, gold=state.gold - 1)


def passed(state: LaneState, rng: np.random.Generator) -> LaneState:
    """The state a frame later."""
    front = state.front - int(rng.random() < PRESSURE)
    return replace(state, front=max(-FAR, front), dragon=max(0, state.dragon - 1))


def play_lane(
    choose: Callable[[LaneState, np.random.Generator], str], rng: np.random.Generator
) -> tuple[list[tuple[LaneState, str]], bool]:
    """A game: its frames, each as the state and the event in it ("" = none), and whether it was won, which
    at the last frame is a front above 0.
    """
    state, frames = LaneState(), list[tuple[LaneState, str]]()
    while len(frames) < MOST_FRAMES and not state.over:
        action = choose(state, rng)
        frames.append((state, ""))
        state = passed(state, rng)
        if state.over:
            break
        frames.append((state, action))
        state = passed(acted(state, action), rng)
    return frames, state.front > 0


@stage
class LaneTasks:
    """What is best to do in a state, labelled by the events of an expert's games with this `noise`, up to
    `window` frames before them; 0 = those in the frames of events alone.
    """

    window: int = 1
    noise: float = 0.1
    name: str = "lane"
    size: int | None = None

    def __post_init__(self) -> None:
        need_at_least(self, window=0)
        check_bounds("lane: noise", self.noise, least=0, most=1)

    def task(self, split: str, index: int) -> Task:
        return draw_task(self, split, index, self._draw)

    def _draw(self, rng: np.random.Generator) -> Task:
        def choose(state: LaneState, rng: np.random.Generator) -> str:
            noisy = rng.random() < self.noise
            return str(rng.choice(LANE_ACTIONS)) if noisy else expert_action(state)

        frames, _ = play_lane(choose, rng)
        events = [(event,) if event else () for _, event in frames]
        labels = relabel_frames(range(len(frames)), events, self.window, LANE_ACTIONS)
        labelled = [(s, x) for (s, _), x in zip(frames, labels, strict=True) if x is not None]
        state, label = labelled[int(rng.integers(len(labelled)))]
        meta = {
            "macro_actions": LANE_ACTIONS, "legal": state.legal(), "ahead": float(label.ahead),
        }  # fmt: skip
        return question_task(self.name, state.text, label.action, meta)
