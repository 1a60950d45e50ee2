"""T-screen: one step on a screen that is a picture. What a widget is good for, and where it lies,
can only be seen.

A picture of 32 x 32 pixels has 4 x 4 cells, and each widget fills one. The question names a colour;
the action to take is that of the widget of this colour, at its place:

    use red      ->     <think>c2 click</think><answer>{action: click, [10,6]}</answer>
    find red     ->     c2 click

The second question (`asks="find"`) is what a model learns to see by: nearly all of its answer is in
the picture.

Answers are read as UI-R1 reads them (arXiv:2503.21620; github.com/lll6gg/UI-R1, verifier of
actions): the first action's name and the first pair of numbers inside of the answer's tags, quoted
or not. A point is in the pixels of the picture as the model saw it, here 16 x 16, and is scaled to
those of the screen and cut to whole pixels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import numpy as np

from palaestra.abilities import Habit
from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.pictures import PICTURE_MARK, Picture
from palaestra.tasks.procedural import REDRAWS, split_of, stream_of
from palaestra.types import Message, Task, rng_of, stage

CELLS, CELL = 4, 8  # a side of the screen in cells, a side of a cell in pixels
INSET = 1  # pixels of a cell around its widget's box
SCALE = (2.0, 2.0)  # of the screen to what points are said in
COLOURS = {
    "red": (230, 50, 40),
    "green": (40, 180, 60),
    "blue": (50, 80, 230),
    "yellow": (240, 210, 40),
}
ACTIONS = ("click", "open_app", "scroll", "navigate_back", "input_text")
# 6 x 6 pixels of each action's widget: a button, an icon, a list, an arrow, a field
SHAPES = {
    "click": ("......", "######", "######", "######", "######", "......"),
    "open_app": ("##..##", "##..##", "......", "......", "##..##", "##..##"),
    "scroll": ("######", "......", "######", "......", "######", "......"),
    "navigate_back": ("...#..", "..##..", ".#####", ".#####", "..##..", "...#.."),
    "input_text": ("######", "#....#", "#....#", "#....#", "#....#", "######"),
}
THEMES = {"dark": (20, 20, 30), "grey": (70, 70, 80), "light": (235, 235, 225)}  # the background
TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
ACTION = re.compile(r"""['"]?action['"]?\s*:\s*['"]?(\w+)""")
POINT = re.compile(r"\[\s*(-?\d{1,6})\s*,\s*(-?\d{1,6})\s*\]")
FORMS = {
    True: re.compile(r"\s*<think>.*?</think>\s*<answer>.*?</answer>\s*", re.DOTALL),
    False: re.compile(r"\s*<answer>.*?</answer>\s*", re.DOTALL),
}

Point = tuple[int, int]
Box = tuple[int, int, int, int]  # left, top, right, bottom, all inside


def read_action(text: str) -> tuple[str, Point]:
    """The first action's name and the first pair of numbers inside of the answer's tags; "" and
    (0, 0) where there is none.
    """
    tagged = TAGGED.search(text)
    inside = tagged[1] if tagged else ""
    name, pair = ACTION.search(inside), POINT.search(inside)
    return name[1] if name else "", (int(pair[1]), int(pair[2])) if pair else (0, 0)


def point_in_box(point: Point, box: Box, scale: tuple[float, float] = (1.0, 1.0)) -> bool:
    """Whether a point lies in a box of the original picture, its borders included, once it is
    multiplied by `scale` = original / processed size and cut to whole pixels.
    """
    x, y = (int(p * s) for p, s in zip(point, scale, strict=True))
    left, top, right, bottom = box
    return left <= x <= right and top <= y <= bottom


def action_parts(
    text: str,
    action: str,
    box: Box,
    scale: tuple[float, float] = (1.0, 1.0),
    *,
    thinking: bool = True,
) -> dict[str, float]:
    """UI-R1's reward by its parts, each 0 or 1: "type", the action is the right one; "point", it is
    and, for a click, its point lies in the box; "format", the whole text is a thought and an
    answer (not `thinking`: an answer alone).
    """
    name, point = read_action(text)
    right = name == action
    hit = right and (action != "click" or point_in_box(point, box, scale))
    form = FORMS[thinking].fullmatch(text) is not None
    return {"type": float(right), "point": float(hit), "format": float(form)}


@declare(
    columns=(
        ("action", str, "the action that is asked for"),
        ("box", tuple, "where the target is, in pixels of the screen"),
        ("cell", int, "pixels of a cell"),
        ("scale", tuple, "pixels of the screen for one of the picture"),
        ("name", str, "what the target is called"),
    )
)
@stage
class Screen:
    """Screens with `widgets` widgets of different colours; no two splits share a layout, the cells
    that are filled.

    `theme` is the background: "grey" and "light" are meant as what was never trained on, near to
    "dark" and far from it. `blind` leaves the
    picture out of the same question. `thinking`: whether an answer has the form with a thought.
    `clicks` is the share of questions whose widget is a button; the others are as many each.
    `asks` is the question, see above.
    """

    widgets: int = 2
    theme: Literal["dark", "grey", "light"] = "dark"
    blind: bool = False
    thinking: bool = True
    clicks: float = 0.5
    asks: Literal["use", "find"] = "use"
    name: str = "screen"
    size: int | None = None
    max_tokens: int = 96

    def __post_init__(self) -> None:
        if not 1 <= self.widgets <= len(COLOURS):
            raise UserError(f"screen: widgets is from 1 to {len(COLOURS)}, not {self.widgets}")
        if self.theme not in THEMES:
            raise UserError(f"screen: no theme {self.theme!r}; there are {', '.join(THEMES)}")

    def task(self, split: str, index: int) -> Task:
        # the same screens with a picture and without, in both themes
        stream = stream_of(Screen(widgets=self.widgets, clicks=self.clicks))
        if split not in ("train", "test"):
            raise UserError(f"{self.name} has no split {split!r}; use 'train' or 'test'")
        for attempt in range(REDRAWS):
            rng = rng_of((stream, split, index, attempt))
            cells = sorted(int(c) for c in rng.choice(CELLS * CELLS, self.widgets, replace=False))
            if split_of(f"screen {cells}") == split:
                return self._task(f"{self.name}/{split}/{index}", rng, cells)
        raise UserError(f"{self!r} has too few layouts for a {split} split")

    def _task(self, identity: str, rng: np.random.Generator, cells: list[int]) -> Task:
        order = rng.permutation(self.widgets)
        colours = [list(COLOURS)[int(i)] for i in rng.permutation(len(COLOURS))[: self.widgets]]
        actions = [ACTIONS[int(i)] for i in rng.integers(0, len(ACTIONS), self.widgets)]
        others = [a for a in ACTIONS if a != "click"]
        actions[0] = "click" if rng.random() < self.clicks else others[int(rng.integers(4))]
        cells = [cells[int(i)] for i in order]
        asked = f"{self.asks} {colours[0]}"
        picture = draw_screen(tuple(zip(colours, cells, actions, strict=True)), THEMES[self.theme])
        message = Message(role="user", content=asked)
        if not self.blind:
            message = Message(role="user", content=f"{PICTURE_MARK}{asked}", pictures=(picture,))
        name, cell, action = f"{cell_name(cells[0])} {actions[0]}", cells[0], actions[0]
        meta = {"action": action, "box": box_of(cell), "cell": cell, "scale": SCALE, "name": name}
        answer = name if self.asks == "find" else write_action(action, cell)
        return Task(id=identity, prompt=(message,), answer=answer, meta=meta, domain=self.name)

    def check(self, text: str, task: Task) -> Mapping[str, float]:
        """1 for the right action at the right place, however it is written; with the three parts.
        Of a thing to find, 1 for its name.
        """
        if self.asks == "find":
            return {"exact": float(text.strip() == task.answer)}
        action, box = task.meta["action"], task.meta["box"]
        parts = action_parts(text, action, box, SCALE, thinking=self.thinking)
        return {**parts, "total": parts["point"], "solved": parts["point"]}

    def demonstration(self, task: Task, rng: np.random.Generator, habit: Habit) -> str:
        """A thought names the widget before the answer."""
        if self.asks == "find":
            return str(task.answer)
        thought = f"<think>{task.meta['name']}</think>" if self.thinking else ""
        return f"{thought}<answer>{task.answer}</answer>"


def box_of(cell: int) -> Box:
    """Of the widget in a cell, in pixels of the screen."""
    left, top = CELL * (cell % CELLS) + INSET, CELL * (cell // CELLS) + INSET
    side = CELL - 2 * INSET - 1
    return left, top, left + side, top + side


def cell_name(cell: int) -> str:
    return "abcd"[cell % CELLS] + str(cell // CELLS + 1)


def write_action(action: str, cell: int) -> str:
    """The answer's text; a point is the middle of the cell."""
    x, y = (
        int((CELL * at + CELL // 2) / s)
        for at, s in zip((cell % CELLS, cell // CELLS), SCALE, strict=True)
    )
    return f"{{action: {action}, [{x},{y}]}}"


def draw_screen(
    widgets: tuple[tuple[str, int, str], ...], background: tuple[int, int, int]
) -> Picture:
    """A picture of widgets: (colour, cell, action) each."""
    side = CELLS * CELL
    pixels = np.full((side, side, 3), background, np.uint8)
    for colour, cell, action in widgets:
        on = np.array([[c == "#" for c in line] for line in SHAPES[action]])
        left, top, right, bottom = box_of(cell)
        pixels[top : bottom + 1, left : right + 1][on] = COLOURS[colour]
    return Picture(shape=(side, side, 3), data=pixels.tobytes())
