"""Kitchens: which step of a recipe comes next, after a clip of what was done.

Pictures of 32 x 32 pixels show a kitchen of 4 x 4 cells with four stations, a colour for each step. The
station where the agent works is full and has a white dot; the others are small. Three frames show the
first k steps of the recipe in order, a fourth picture the present:

    [3 frames][now]cut>mix>fry>eat next?      ->     <think>mix so fry</think><answer>C.</answer>
    A. cut
    B. mix
    C. fry
    D. eat

Held-out problems have three levels, as SEED-Bench-R1 has (arXiv:2503.24376): 1 as in training, 2 new
backgrounds and noise, 3 these and recipes of another grammar, in which a step is repeated, so that the
last frame alone does not say how far the recipe is.

With `asks="now"` there is the last picture alone, and the answer is the step that it shows; what a small
model learns to see by.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from palaestra.abilities import Habit
from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.pictures import PICTURE_MARK, Picture
from palaestra.tasks.options import LETTERS, letter_options, option_texts
from palaestra.tasks.procedural import REDRAWS, split_of, stream_of
from palaestra.toys.screen import CELL, CELLS, COLOURS
from palaestra.types import Message, Task, rng_of, stage

STEPS: Mapping[str, tuple[int, int, int]] = dict(
    zip(("cut", "mix", "fry", "eat"), COLOURS.values(), strict=True)
)
FRAMES = 3  # of a clip, before the picture of the present
FLOOR = (30, 30, 40)  # of the kitchens that are trained on
FLOORS = ((90, 60, 40), (60, 80, 80), (100, 95, 90))  # of others
NOISE = 24  # largest change of a channel in other kitchens
LEVELS = (1, 2, 3)


@declare(
    columns=(
        ("done", tuple, "the steps that the clip shows, in order"),
        ("options", tuple, "the answers to choose from"),
    )
)
@stage
class Kitchens:
    """Clips with a question of four options; no kitchen with its recipe is in both splits.

    `mixed` gives options in an order of the problem's own; else they stand as above, since a small model
    does not learn in minutes to look the letter of an option up.
    `level` is that of all held-out problems, 0 = one after the other; training problems are of
    level 1. `thinking`: whether demonstrations name the steps before the answer.
    """

    level: int = 0
    thinking: bool = True
    mixed: bool = False
    asks: Literal["next", "now"] = "next"
    name: str = "kitchens"
    size: int | None = None
    max_tokens: int = 72

    def __post_init__(self) -> None:
        if self.level not in (0, *LEVELS):
            raise UserError(f"kitchens: level is one of 0, 1, 2, 3, not {self.level}")

    def task(self, split: str, index: int) -> Task:
        if split not in ("train", "test"):
            raise UserError(f"{self.name} has no split {split!r}; use 'train' or 'test'")
        level = 1 if split == "train" else self.level or LEVELS[index % len(LEVELS)]
        stream = stream_of(Kitchens())  # the same problems, whatever is demonstrated
        for attempt in range(REDRAWS):
            rng = rng_of((stream, split, level, index, attempt))
            cells = [int(c) for c in rng.choice(CELLS * CELLS, len(STEPS), replace=False)]
            recipe = draw_recipe(rng, repeats=level == 3)
            if split_of(f"clips {cells} {recipe}") == split:
                return self._task(f"{self.name}/{split}/{index}", level, rng, cells, recipe)
        raise UserError(f"{self!r} has too few kitchens for a {split} split")

    def _task(
        self,
        identity: str,
        level: int,
        rng: np.random.Generator,
        cells: list[int],
        recipe: tuple[str, ...],
    ) -> Task:
        k = int(rng.integers(1, len(STEPS)))
        floor = FLOOR if level == 1 else FLOORS[int(rng.integers(len(FLOORS)))]
        places = dict(zip(STEPS, cells, strict=True))
        states = [recipe[i * k // FRAMES] for i in range(FRAMES)] + [recipe[k - 1]]
        frames = tuple(
            draw_kitchen(places, at, floor, rng, NOISE if level > 1 else 0) for at in states
        )
        drawn = tuple(list(STEPS)[int(i)] for i in rng.permutation(len(STEPS)))
        options = drawn if self.mixed else tuple(STEPS)
        meta = {"options": options, "level": level, "done": recipe[:k]}
        if self.asks == "now":
            now = Message(role="user", content=f"{PICTURE_MARK}now?", pictures=frames[-1:])
            return Task(
                id=identity,
                prompt=(now,),
                answer=recipe[k - 1],
                meta={"level": level},
                domain=self.name,
            )
        asked = f"{PICTURE_MARK * len(frames)}{'>'.join(recipe)} next?\n{letter_options(options)}"
        return Task(
            id=identity,
            prompt=(Message(role="user", content=asked, pictures=frames),),
            answer=recipe[k],
            meta=meta,
            domain=self.name,
        )

    def check(self, text: str, task: Task) -> Mapping[str, float]:
        """1 where the answer's tags hold the letter of the right option and a point, or the letter alone."""
        if self.asks == "now":
            return {"exact": float(text.strip() == task.answer)}
        inside = text.rpartition("<answer>")[2].partition("</answer>")[0].strip().rstrip(".")
        return {"exact": float("<answer>" in text and inside == right_letter(task))}

    def demonstration(self, task: Task, rng: np.random.Generator, habit: Habit) -> str:
        """The step that the present shows and the next one, then the letter of this among the options
        as they are shown.
        """
        if self.asks == "now":
            return str(task.answer)
        thought = (
            f"<think>{task.meta['done'][-1]} so {task.answer}</think>" if self.thinking else ""
        )
        return f"{thought}<answer>{right_letter(task)}.</answer>"


def right_letter(task: Task) -> str:
    """Under which the right option is shown."""
    return LETTERS[option_texts(task.meta).index(str(task.answer))]


def draw_recipe(rng: np.random.Generator, *, repeats: bool) -> tuple[str, ...]:
    """Four steps, all different, or with one that comes twice and not at once."""
    order = [list(STEPS)[int(i)] for i in rng.permutation(len(STEPS))]
    if repeats:
        first = int(rng.integers(0, len(STEPS) - 2))
        order[int(rng.integers(first + 2, len(STEPS)))] = order[first]
    return tuple(order)


def draw_kitchen(
    places: Mapping[str, int],
    at: str,
    floor: tuple[int, int, int],
    rng: np.random.Generator,
    noise: int = 0,
) -> Picture:
    """A frame: stations by step and cell, the agent at one of them."""
    side = CELLS * CELL
    pixels = np.full((side, side, 3), floor, np.int16)
    for step, cell in places.items():
        left, top = CELL * (cell % CELLS), CELL * (cell // CELLS)
        inset = 0 if step == at else 2
        pixels[top + inset : top + CELL - inset, left + inset : left + CELL - inset] = STEPS[step]
        if step == at:
            pixels[top + 2 : top + 6, left + 2 : left + 6] = 255
    if noise:
        pixels += rng.integers(-noise, noise + 1, pixels.shape, np.int16)
    return Picture(shape=(side, side, 3), data=np.clip(pixels, 0, 255).astype(np.uint8).tobytes())
