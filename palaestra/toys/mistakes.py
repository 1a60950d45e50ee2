"""Wrong answers to toy problems: a demonstration with a letter of its working exchanged."""

from __future__ import annotations

from typing import Any

import numpy as np

from palaestra.types import Task


def spoil(text: str, rng: np.random.Generator) -> str:
    """The text with one letter of one of its results exchanged for another of the same kind."""
    kinds = ("0123456789", "TF", "KN", "abcd", "efgh", "ijkl", "mnop", "+-*")
    lines = text.split("\n")
    at = int(rng.integers(len(lines)))
    start = lines[at].rfind("=") + 1
    places = [i for i in range(start, len(lines[at])) if any(lines[at][i] in k for k in kinds)]
    if not places:
        return text
    i = int(rng.choice(places))
    kind = next(k for k in kinds if lines[at][i] in k).replace(lines[at][i], "")
    lines[at] = lines[at][:i] + str(rng.choice(list(kind))) + lines[at][i + 1 :]
    return "\n".join(lines)


def wrong_answer(tasks: Any, task: Task, rng: np.random.Generator, how: Any) -> str:
    """A demonstration that went wrong, both in a step and in the end."""
    while True:
        text = spoil(tasks.demonstration(task, rng, how), rng)
        if tasks.check(text, task) < 1.0:
            return text
        if "\n" in text:
            lines = text.split("\n")
            text = "\n".join([*lines[:-1], spoil(lines[-1], rng)])
            if tasks.check(text, task) < 1.0:
                return text
