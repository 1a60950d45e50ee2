"""What a small picture shows, by program: things of one colour, counted and placed."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import palaestra as pl

NAMED = {
    "black": (0, 0, 0),
    "white": (255, 255, 255),
    "grey": (128, 128, 128),
    "red": (230, 50, 40),
    "green": (40, 180, 60),
    "blue": (50, 80, 230),
    "yellow": (240, 210, 40),
    "orange": (240, 140, 30),
    "purple": (140, 60, 170),
    "brown": (120, 75, 40),
    "pink": (240, 150, 190),
}
SIDES = ("left", "right", "top", "bottom")


@dataclass(frozen=True)
class Thing:
    """A connected patch of one colour: its cells, its middle (x, y) in cells, and the share of its
    bounding box that it fills.
    """

    colour: str
    area: int
    middle: tuple[float, float]
    fill: float


@dataclass(frozen=True)
class Sized:
    """Which patches count as things: sizes in cells, and the least share of their bounding box. The
    default is everything, a single cell too.
    """

    least: int = 1
    most: int = 1 << 30
    fill: float = 0.0

    def takes(self, thing: Thing) -> bool:
        return self.least <= thing.area <= self.most and thing.fill >= self.fill - 1e-9

    @classmethod
    def of(cls, pictures: Iterable[np.ndarray]) -> "Sized":
        """As the things of given pictures are; one in a hundred may be smaller, larger or sparser."""
        things = [t for p in pictures for t in things_in(p)]
        if not things:
            return cls()
        area, fill = np.array([t.area for t in things]), np.array([t.fill for t in things])
        low, high = np.quantile(area, (0.01, 0.99), method="nearest")
        return cls(int(low), int(high), float(np.quantile(fill, 0.01, method="nearest")))


def colours_of(pixels_HWC: np.ndarray) -> np.ndarray:
    """[H, W] the name of each cell's nearest colour, by distance of red, green and blue."""
    names, values = list(NAMED), np.array(list(NAMED.values()), float)
    gap_HWN = ((pixels_HWC[..., None, :].astype(float) - values) ** 2).sum(-1)
    return np.array(names, object)[gap_HWN.argmin(-1)]


def things_in(pixels_HWC: np.ndarray) -> list[Thing]:
    """Patches of cells that touch at a side and have one colour, but for the commonest colour, which is
    the ground.
    """
    named = colours_of(pixels_HWC)
    ground = ground_of(pixels_HWC)
    height, width = named.shape
    left = {(y, x) for y in range(height) for x in range(width) if named[y, x] != ground}
    things = list[Thing]()
    while left:
        first = min(left)
        colour, cells, todo = str(named[first]), list[tuple[int, int]](), [first]
        left.remove(first)
        while todo:
            y, x = todo.pop()
            cells.append((y, x))
            for near in ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)):
                if near in left and named[near] == colour:
                    left.remove(near)
                    todo.append(near)
        at = np.array(cells)
        box = np.prod(at.max(0) - at.min(0) + 1)
        middle = (float(at[:, 1].mean()), float(at[:, 0].mean()))
        things.append(Thing(colour, len(cells), middle, len(cells) / float(box)))
    return things


def on_side(middles: Sequence[tuple[float, float]], side: str, size: tuple[int, int]) -> bool:
    """Whether all points lie on a side of the middle of a picture of (height, width) cells."""
    axis = 0 if side in ("left", "right") else 1
    half = (size[1 - axis] - 1) / 2
    low = side in ("left", "top")
    return all(m[axis] < half if low else m[axis] > half for m in middles)


def check_tests(tests: Any, of: str) -> list[Mapping[str, Any]]:
    """Raises UserError for what is no list of tests."""
    if not isinstance(tests, list | tuple) or not tests:
        raise pl.UserError(
            f'{of}: `shows` is a list of tests, such as [{{"colour": "red", "count": 2}}], not {tests!r}'
        )
    checked = [check_test(t, of) for t in tests]
    if all(t.get("count") == 0 for t in checked):
        raise pl.UserError(
            f"{of}: `shows` asks for nothing but counts of 0, which an empty picture passes; name something that is there"
        )
    return checked


def check_test(t: Any, of: str) -> Mapping[str, Any]:
    """Raises UserError for what is no test."""
    odd = not isinstance(t, Mapping) or t.get("colour") not in NAMED or not {"count", "side"} & {*t}
    count, side = (t.get("count", 0), t.get("side", "left")) if not odd else (0, "left")
    whole = isinstance(count, int) and not isinstance(count, bool) and count >= 0
    if odd or not whole or side not in SIDES:
        raise pl.UserError(
            f"{of}: {t!r} is no test of a picture; give a `colour` ({', '.join(NAMED)}) with a `count` or a "
            f"`side` ({', '.join(SIDES)})"
        )
    return t


def ground_of(pixels_HWC: np.ndarray) -> str:
    """The commonest colour of cells; of equally common ones the first in the picture."""
    return str(Counter(colours_of(pixels_HWC).flatten().tolist()).most_common(1)[0][0])


def passed(
    tests: Sequence[Mapping[str, Any]], pixels_HWC: np.ndarray, sized: Sized = Sized()
) -> list[bool]:
    """Whether a picture passes each test: a count, or a side on which all things of the colour lie, of
    which there is at least one. A picture whose ground has a colour that is not to be there does not pass.
    """
    things = [t for t in things_in(pixels_HWC) if sized.takes(t)]
    ground = ground_of(pixels_HWC)
    results = list[bool]()
    for test in tests:
        own = [t.middle for t in things if t.colour == test["colour"]]
        right = "count" not in test or len(own) == test["count"]
        right = right and (test.get("count") != 0 or ground != test["colour"])
        if "side" in test:
            right = right and bool(own) and on_side(own, test["side"], pixels_HWC.shape[:2])
        results.append(right)
    return results


def score(
    tests: Sequence[Mapping[str, Any]], pixels_HWC: np.ndarray, sized: Sized = Sized()
) -> float:
    """The mean of the tests, between 0 and 1."""
    return float(np.mean(passed(tests, pixels_HWC, sized)))
