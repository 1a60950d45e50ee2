"""T-scenes: pictures of three shapes whose truth is known, and questions about them with a right and a wrong reply.

A picture of 32 x 32 pixels holds a circle, a square and a triangle, each of one colour, exactly one of
them large, anywhere without overlap. A question is about a colour, a place, a size, an order or a number:

    colour of circle   ->  red            where is square     ->  top left
    size of triangle   ->  large          circle left of square  ->  yes
    how many red       ->  2

The wrong reply, `rejected`, differs from the right one, `chosen`, in this attribute alone. `caption`
asks for all of a picture in one line, by which eyes are first fitted to a language model. Beside the
questions stand what a probe of the eyes is judged by: `traits` of the picture, and the `boxes` of
the shapes with the names of those that the question is `about`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from palaestra.abilities import Habit
from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.pictures import PICTURE_MARK, Picture
from palaestra.tasks.procedural import REDRAWS, split_of, stream_of
from palaestra.toys.screen import COLOURS, THEMES, Box
from palaestra.types import Message, Task, rng_of, stage

SIDE = 32  # pixels of a picture
FIGURES = ("circle", "square", "triangle")
SIZES = {"small": 7, "large": 12}  # pixels of a side
KINDS = ("colour", "where", "size", "left", "count")
Ask = Literal["all", "colour", "where", "size", "left", "count", "caption"]


@dataclass(frozen=True)
class Figure:
    """A shape of a scene: its name, colour, size and upper left pixel."""

    name: str
    colour: str
    size: str
    left: int
    top: int

    @property
    def box(self) -> Box:
        side = SIZES[self.size] - 1
        return self.left, self.top, self.left + side, self.top + side

    @property
    def where(self) -> str:
        """The quarter of the picture that its middle lies in."""
        left, top, right, bottom = self.box
        row = "top" if top + bottom < SIDE - 1 else "bottom"
        return f"{row} {'left' if left + right < SIDE - 1 else 'right'}"

    @property
    def pixels(self) -> np.ndarray:
        """[side, side] whether a pixel of its box is its own."""
        n = SIZES[self.size]
        y, x = np.mgrid[:n, :n] - (n - 1) / 2
        if self.name == "circle":
            return x**2 + y**2 <= (n / 2) ** 2
        if self.name == "square":
            return np.ones((n, n), bool)
        return np.abs(x) <= (y + n / 2 + 0.5) / 2  # the triangle stands on its base


@declare(
    columns=(
        "chosen",
        "rejected",
        ("traits", dict, "classes that a picture is of, by what they say of it"),
        ("boxes", dict, "left, top, right and bottom of each thing, in pixels of the picture"),
        ("about", list, "names of the things that a question is about"),
    )
)
@stage
class Scenes:
    """Questions about scenes; no two splits share a layout, the shapes with their colours and quarters.

    Args:
        asks: the kind of question; "all" = one of the five, drawn.
    """

    asks: Ask = "all"
    name: str = "scenes"
    size: int | None = None

    def __post_init__(self) -> None:
        if self.asks not in ("all", "caption", *KINDS):
            raise UserError(
                f"scenes: asks is one of all, caption, {', '.join(KINDS)}, not {self.asks!r}"
            )

    @property
    def max_tokens(self) -> int:
        """Of an answer."""
        return 64 if self.asks == "caption" else 16

    def task(self, split: str, index: int) -> Task:
        stream = stream_of(Scenes())  # the same pictures whatever is asked of them
        if split not in ("train", "test"):
            raise UserError(f"{self.name} has no split {split!r}; use 'train' or 'test'")
        for attempt in range(REDRAWS):
            rng = rng_of((stream, split, index, attempt))
            figures = draw_figures(rng)
            layout = " ".join(f"{f.name} {f.colour} {f.where}" for f in figures.values())
            if split_of(f"scenes {layout}") == split:
                return self._task(f"{self.name}/{split}/{index}", rng, figures)
        raise UserError(f"{self!r} has too few layouts for a {split} split")

    def _task(self, identity: str, rng: np.random.Generator, figures: Mapping[str, Figure]) -> Task:
        kind = self.asks if self.asks != "all" else KINDS[int(rng.integers(len(KINDS)))]
        question, right, wrong, about = ask_scene(kind, figures, rng)
        picture = draw_scene(tuple(figures.values()))
        message = Message(role="user", content=f"{PICTURE_MARK}{question}", pictures=(picture,))
        meta = {
            "chosen": right,
            "rejected": wrong,
            "traits": traits_of(figures),
            "boxes": {n: f.box for n, f in figures.items()},
            "about": about,
        }
        return Task(id=identity, prompt=(message,), answer=right, meta=meta, domain=kind)

    def check(self, text: str, task: Task) -> float:
        """1 for exactly the right reply."""
        return float(text.strip() == task.answer)

    def demonstration(self, task: Task, rng: np.random.Generator, habit: Habit) -> str:
        return str(task.answer)


def draw_figures(rng: np.random.Generator) -> dict[str, Figure]:
    """Three shapes by their names, none of which touches another."""
    large = FIGURES[int(rng.integers(len(FIGURES)))]
    for _ in range(REDRAWS):
        figures = dict[str, Figure]()
        for name in FIGURES:
            size = "large" if name == large else "small"
            colour = list(COLOURS)[int(rng.integers(len(COLOURS)))]
            left, top = (int(x) for x in rng.integers(0, SIDE - SIZES[size] + 1, 2))
            figures[name] = Figure(name, colour, size, left, top)
        boxes = [f.box for f in figures.values()]
        if not any(touch(a, b) for i, a in enumerate(boxes) for b in boxes[:i]):
            return figures
    raise UserError("no scene without an overlap was drawn")


def touch(a: Box, b: Box) -> bool:
    """Whether two boxes overlap or are neighbours."""
    apart = a[2] + 1 < b[0] or b[2] + 1 < a[0] or a[3] + 1 < b[1] or b[3] + 1 < a[1]
    return not apart


def ask_scene(
    kind: str, figures: Mapping[str, Figure], rng: np.random.Generator
) -> tuple[str, str, str, list[str]]:
    """A question, its right reply, one that is wrong in the attribute alone, and what it is about."""
    first, second = (FIGURES[int(i)] for i in rng.permutation(len(FIGURES))[:2])
    one, other = figures[first], figures[second]

    def another(right: str, all_of: tuple[str, ...]) -> str:
        wrong = [x for x in all_of if x != right]
        return wrong[int(rng.integers(len(wrong)))]

    if kind == "caption":
        wrong = another(one.colour, tuple(COLOURS))
        changed = {**figures, first: Figure(first, wrong, one.size, one.left, one.top)}
        return "caption", caption(figures), caption(changed), [*FIGURES]
    if kind == "colour":
        return f"colour of {first}", one.colour, another(one.colour, tuple(COLOURS)), [first]
    if kind == "where":
        quarters = tuple(f"{y} {x}" for y in ("top", "bottom") for x in ("left", "right"))
        return f"where is {first}", one.where, another(one.where, quarters), [first]
    if kind == "size":
        return f"size of {first}", one.size, another(one.size, tuple(SIZES)), [first]
    if kind == "left":
        right = "yes" if one.box[0] + one.box[2] < other.box[0] + other.box[2] else "no"
        return f"{first} left of {second}", right, another(right, ("yes", "no")), [first, second]
    colour = one.colour if rng.random() < 0.5 else another(one.colour, tuple(COLOURS))
    counted = [n for n, f in figures.items() if f.colour == colour]
    n = len(counted)
    wrong = another(str(n), tuple(str(k) for k in (n - 1, n + 1) if 0 <= k <= len(FIGURES)))
    return f"how many {colour}", str(n), wrong, counted


def caption(figures: Mapping[str, Figure]) -> str:
    """Colours and quarters of a scene in one line, in the order of FIGURES: "red top left, blue ..."."""
    return ", ".join(f"{f.colour} {f.where}" for f in figures.values())


def traits_of(figures: Mapping[str, Figure]) -> dict[str, str]:
    """What a linear probe of the picture may read: which shape is large, and of the circle colour and
    quarter.
    """
    large = next(n for n, f in figures.items() if f.size == "large")
    return {"shape": large, "colour": figures["circle"].colour, "position": figures["circle"].where}


def draw_scene(figures: tuple[Figure, ...]) -> Picture:
    """The picture of a scene, on the dark background of `screen`."""
    pixels = np.full((SIDE, SIDE, 3), THEMES["dark"], np.uint8)
    for f in figures:
        left, top, right, bottom = f.box
        pixels[top : bottom + 1, left : right + 1][f.pixels] = COLOURS[f.colour]
    return Picture(shape=(SIDE, SIDE, 3), data=pixels.tobytes())
