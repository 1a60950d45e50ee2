"""T-grids: small pictures of coloured squares, described by what they must show.

A picture of 8 x 8 cells is dark but for one to four squares of 2 x 2 cells, red, green or blue, none of
which touches another. A prompt names the colours, how many there are of each and, where all of a colour
lie on one side, which: "2 red, 1 blue left". `shows` says the same as a list of tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.pictures import PICTURE_MARK, Picture
from palaestra.tasks.procedural import REDRAWS, split_of, stream_of
from palaestra.types import Message, Task, rng_of, stage

CELLS, SQUARE = 8, 2  # a side of the picture and of a square, in cells
INK = {"red": (230, 50, 40), "green": (40, 180, 60), "blue": (50, 80, 230)}
GROUND = (20, 20, 30)
SIDES = ("left", "right", "top", "bottom")
Place = tuple[str, int, int]  # colour, column and row of the upper left cell


@declare(columns=(("shows", list, "tests of a picture: a colour with a count or a side each"),))
@stage
class Grids:
    """Prompts for pictures of up to `most` squares; no prompt is in both splits. The task's own picture
    is in its prompt, to be learned from.
    """

    most: int = 3
    name: str = "grids"
    size: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.most <= 4:
            raise UserError(f"grids: most is from 1 to 4, not {self.most}")

    def task(self, split: str, index: int) -> Task:
        if split not in ("train", "test"):
            raise UserError(f"{self.name} has no split {split!r}; use 'train' or 'test'")
        for attempt in range(REDRAWS):
            rng = rng_of((stream_of(self), split, index, attempt))
            squares = draw_squares(rng, self.most)
            shows = tests_of(squares)
            if split_of(f"grids {describe_tests(shows)}") == split:
                message = Message(
                    role="user",
                    content=f"{PICTURE_MARK}{describe_tests(shows)}",
                    pictures=(draw_grid(squares),),
                )
                return Task(
                    id=f"{self.name}/{split}/{index}",
                    prompt=(message,),
                    answer=None,
                    meta={"shows": shows},
                    domain=self.name,
                )
        raise UserError(f"{self!r} has too few prompts for a {split} split")

    def check(self, text: str, task: Task) -> float:
        """0: a picture is judged by `selftok`, which decodes it."""
        return 0.0


def draw_squares(rng: np.random.Generator, most: int) -> list[Place]:
    """One to `most` squares, none of which touches another, not even at a corner."""
    n, squares = int(rng.integers(1, most + 1)), list[Place]()
    while len(squares) < n:
        x, y = (int(v) for v in rng.integers(0, CELLS - SQUARE + 1, 2))
        if all(max(abs(x - a), abs(y - b)) > SQUARE for _, a, b in squares):
            squares.append((list(INK)[int(rng.integers(len(INK)))], x, y))
        elif rng.random() < 0.05:  # where no room is left the picture begins anew
            squares = []
    return squares


def side_of(middles: Sequence[tuple[float, float]], side: str, cells: int) -> bool:
    """Whether all points (x, y) lie on a side of the middle of a picture, in cells."""
    along = [m[0] if side in ("left", "right") else m[1] for m in middles]
    half = (cells - 1) / 2
    return all(v < half if side in ("left", "top") else v > half for v in along)


def tests_of(squares: Sequence[Place]) -> list[dict[str, Any]]:
    """Counts of the colours there are, and of each the first side on which all of its squares lie."""
    tests = list[dict[str, Any]]()
    for colour in INK:
        own = [(x + 0.5, y + 0.5) for c, x, y in squares if c == colour]
        if not own:
            continue
        tests.append({"colour": colour, "count": len(own)})
        if side := next((s for s in SIDES if side_of(own, s, CELLS)), ""):
            tests.append({"colour": colour, "side": side})
    return tests


def describe_tests(tests: Sequence[Mapping[str, Any]]) -> str:
    """As a prompt: "2 red, 1 blue left"."""
    words = {str(t["colour"]): f"{t['count']} {t['colour']}" for t in tests if "count" in t}
    for t in tests:
        if "side" in t:
            words[t["colour"]] = f"{words.get(t['colour'], t['colour'])} {t['side']}"
    return ", ".join(words.values())


def draw_grid(squares: Sequence[Place]) -> Picture:
    """A pixel for each cell."""
    pixels = np.full((CELLS, CELLS, 3), GROUND, np.uint8)
    for colour, x, y in squares:
        pixels[y : y + SQUARE, x : x + SQUARE] = INK[colour]
    return Picture(shape=(CELLS, CELLS, 3), data=pixels.tobytes())
