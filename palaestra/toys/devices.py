"""T-devices: test scripts for made-up devices. Which calls a test needs cannot be guessed from its name,
but earlier scripts have them.

user: test mako on bako        open(bako)
                               tiru(bako)
                               soze(bako)
                               close(bako)
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from palaestra.declared import declare
from palaestra.tasks.procedural import answer_lines, draw_task, question_task
from palaestra.toys.wiki import SYLLABLES
from palaestra.types import Task, need_at_least, rng_of, stage


@declare(columns=(("topic", int, "the number of what a test is about"),))
@stage
class DeviceTasks:
    """Intents, and the script of each. A topic has two words, either of which an intent may say, and
    two calls of its own out of `calls`; a device's name says nothing of the calls.
    """

    topics: int = 16
    devices: int = 48
    calls: int = 20
    seed: int = 0
    name: str = "devices"
    size: int | None = None
    max_tokens: int = 48

    def __post_init__(self) -> None:
        need_at_least(self, topics=2, devices=2, calls=4)

    def check(self, text: str, task: Task) -> float:
        """1 for the right lines, in their order."""
        return float([x.strip() for x in answer_lines(text)] == answer_lines(task.answer))

    def task(self, split: str, index: int) -> Task:
        return draw_task(self, split, index, self._draw)

    def _draw(self, rng: np.random.Generator) -> Task:
        words, devices, calls = names_of(self.topics, self.devices, self.calls, self.seed)
        topic = int(rng.integers(self.topics))
        word = words[2 * topic + int(rng.integers(2))]
        device = devices[int(rng.integers(self.devices))]
        own = rng_of(("topic", self.seed, topic)).choice(self.calls, 2, replace=False)
        lines = ("open", *(calls[int(i)] for i in own), "close")
        script = "\n".join(f"{call}({device})" for call in lines)
        return question_task(self.name, f"test {word} on {device}", script, {"topic": topic})


@lru_cache(8)
def names_of(
    topics: int, devices: int, calls: int, seed: int
) -> tuple[list[str], list[str], list[str]]:
    """Words of the topics, two each, names of devices and of calls, all different."""
    n = 2 * topics + devices + calls
    numbers = rng_of(("devices", seed)).choice(len(SYLLABLES) ** 2, n, replace=False)
    names = [SYLLABLES[i // len(SYLLABLES)] + SYLLABLES[i % len(SYLLABLES)] for i in numbers]
    return names[: 2 * topics], names[2 * topics : -calls], names[-calls:]
