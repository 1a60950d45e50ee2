"""T-experts: small functions over drawn photos and words, and tasks that take several of them in the right
order.

    user: dark mirrored photo to loud name    lighten    mirror    name    loud    done

A photo is 6 x 6 grey values. It was mirrored first, then got noise, then dark, so it is mended the other
way round. What is in it has no bearing on the plan: a task is a description, with four inputs and targets.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from itertools import permutations
from typing import Any, NewType

import numpy as np

from palaestra.declared import declare
from palaestra.tasks.procedural import split_of
from palaestra.tasks.user_code import VALUES
from palaestra.types import Message, Task, rng_of, stage

Photo = NewType("Photo", np.ndarray)

SIDE, DARK, NOISE = 6, 0.4, 0.3
SHAPES = {  # white squares; each is another one's mirror image
    "hook": ((0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (5, 1), (5, 2)),
    "cane": ((0, 5), (1, 5), (2, 5), (3, 5), (4, 5), (5, 5), (5, 4), (5, 3)),
    "flag": ((0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (2, 1), (3, 1), (4, 1)),
    "sail": ((0, 4), (0, 3), (0, 2), (1, 4), (1, 3), (2, 4), (3, 4), (4, 4)),
    "rise": ((5, 0), (4, 1), (3, 2), (2, 3), (1, 4), (0, 5), (5, 1), (4, 2)),
    "fall": ((5, 5), (4, 4), (3, 3), (2, 2), (1, 1), (0, 0), (5, 4), (4, 3)),
}
GERMAN = {
    "hook": "haken", "cane": "stock", "flag": "fahne", "sail": "segel", "rise": "aufstieg",
    "fall": "abstieg",
}  # fmt: skip
INPUTS = 4  # of a task


def drawing(shape: str) -> Photo:
    """The clean photo of a shape."""
    photo = np.zeros((SIDE, SIDE))
    photo[tuple(zip(*SHAPES[shape], strict=True))] = 1.0
    return Photo(photo)


def lighten(photo: Photo) -> Photo:
    """Undoes darkness: each value over 0.4, at most 1."""
    return Photo(np.minimum(np.asarray(photo) / DARK, 1.0))


def denoise(photo: Photo) -> Photo:
    """Makes each value black or white, whichever is nearer."""
    return Photo(np.round(photo))


def mirror(photo: Photo) -> Photo:
    """Exchanges left and right."""
    return Photo(np.asarray(photo)[:, ::-1].copy())


def name(photo: Photo) -> str:
    """The name of the shape whose clean photo is nearest."""
    return min(SHAPES, key=lambda shape: float(np.abs(drawing(shape) - photo).sum()))


def german(text: str) -> str:
    """A name in German; what is not known stays."""
    return GERMAN.get(text, text)


def loud(text: str) -> str:
    """Capital letters."""
    return text.upper()


def backward(text: str) -> str:
    """The letters from the last to the first."""
    return text[::-1]


def decode(text: str) -> str:
    """Each letter 13 places on in the alphabet."""
    return codecs.decode(text, "rot13")


EXPERTS: tuple[Callable[[Any], Any], ...] = (
    lighten, denoise, mirror, name, german, loud, backward, decode,
)  # fmt: skip
EXPERT_NAMES = tuple(f"experts:{f.__name__}" for f in EXPERTS)
VALUES.update(dict(zip(EXPERT_NAMES, EXPERTS, strict=True)))
MEND = {"dark": "lighten", "noisy": "denoise", "mirrored": "mirror"}  # in the order of mending
STYLES = ("german", "loud", "backward")  # in the order of their experts


def orders(words: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The subsets of words, each in all its orders."""
    return [x for n in range(len(words) + 1) for x in permutations(words, n)]


def descriptions() -> dict[str, tuple[str, ...]]:
    """The plan of each description. Its words may come in any order, its experts in one alone."""
    plans = dict[str, tuple[str, ...]]()
    for damage in orders(tuple(MEND)):
        mended = tuple(MEND[w] for w in MEND if w in damage)
        if damage:
            plans[" ".join((*damage, "photo to photo"))] = mended
        for style in orders(STYLES):
            styles = tuple(w for w in STYLES if w in style)
            plans[" ".join((*damage, "photo to", *style, "name"))] = (*mended, "name", *styles)
    for style in orders(STYLES):
        styles = tuple(w for w in STYLES if w in style)
        plans[" ".join(("coded word to", *style, "word"))] = ("decode", *styles)
    return plans


PLANS = descriptions()


@declare(
    columns=(
        ("inputs", list, "what a plan is run on"),
        ("targets", list, "what it should make of each input"),
        ("takes", str, "the type of the inputs"),
        ("gives", str, "the type of the targets"),
        "plan",
    )
)
@stage
class ExpertTasks:
    """287 descriptions of 79 plans. An eighth of the plans is held out, with all their descriptions."""

    name: str = "experts"
    size: int | None = None

    def task(self, split: str, index: int) -> Task:
        rng = rng_of((self.name, split, index))
        texts = [x for x, plan in PLANS.items() if split_of(" ".join(plan)) == split]
        text = texts[int(rng.integers(len(texts)))]
        plan = PLANS[text]
        shapes = [list(SHAPES)[int(i)] for i in rng.integers(0, len(SHAPES), INPUTS)]
        by_name = dict(zip((f.__name__ for f in EXPERTS), EXPERTS, strict=True))
        inputs = [spoil(shape, text, rng) for shape in shapes]
        targets = list[Any]()
        for value in inputs:
            for expert in plan:
                value = by_name[expert](value)
            targets.append(value)
        photo = text.endswith("to photo")
        meta = {
            "inputs": tuple(map(as_json, inputs)),
            "targets": tuple(map(as_json, targets)),
            "takes": "str" if plan[0] == "decode" else "Photo",
            "gives": "Photo" if photo else "str",
            "plan": plan,
        }
        return Task(
            id=f"{self.name}/{split}/{index}",
            prompt=(Message(role="user", content=text),),
            meta=meta,
            domain=self.name,
        )


def spoil(shape: str, text: str, rng: np.random.Generator) -> Any:
    """An input of a task: a coded word, or a photo with the damage that its description names."""
    if text.startswith("coded"):
        return decode(shape)
    photo = np.asarray(drawing(shape))
    photo = photo[:, ::-1] if "mirrored" in text else photo
    if "noisy" in text:
        photo = np.abs(photo - rng.uniform(0, NOISE, photo.shape).round(2))
    return Photo(photo * DARK if "dark" in text else photo)


def as_json(value: Any) -> Any:
    return value if isinstance(value, str) else [[float(x) for x in row] for row in value]
