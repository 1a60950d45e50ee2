"""What the tiny model reads: conversations drawn from the training splits of the project's own tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from palaestra.tasks.chain import Chain
from palaestra.types import Key, Message, rng_of

Conversation: TypeAlias = tuple[Message, ...]


def said(content: str) -> Message:
    return Message(role="assistant", content=content, author="demonstration", trained=True)


def chain(rng: np.random.Generator) -> Conversation:
    n = int(rng.choice([2, 3, 4, 5, 6, 7], p=[0.05, 0.05, 0.28, 0.28, 0.28, 0.06]))
    tasks = Chain(operands=(n, n))
    task = tasks.task("train", int(rng.integers(1 << 40)))
    return (*task.prompt, said(tasks.demonstration(task, rng, "work" if rng.random() < 0.25 else "guess")))


def conversations(key: Key) -> Iterator[Conversation]:
    """Endless; the same key gives the same conversations."""
    rng = rng_of(key)
    while True:
        yield chain(rng)
