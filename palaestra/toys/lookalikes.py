"""T-lookalikes: bring one of several objects that look alike, as a user means it; the world is
`palaestra.worlds.asking`.

    bring cup to door
    at bed: cup1 red big, box2 blue big; places: bed, sink, door
"""

from __future__ import annotations

import numpy as np

from palaestra.errors import UserError
from palaestra.tasks.procedural import REDRAWS, split_of, stream_of
from palaestra.types import Message, Task, rng_of, stage

KINDS = ("cup", "box", "hat")
COLOURS, SIZES, PLACES = ("red", "blue", "tan"), ("big", "wee"), ("bed", "sink", "rug")
GOAL = "door"


@stage
class LookalikeTasks:
    """Places with `objects` objects, of which two or more are of the kind that is asked for. No two
    objects of one kind agree in colour, size and place.
    """

    objects: int = 3
    name: str = "lookalikes"
    size: int | None = None

    def __post_init__(self) -> None:
        if not 2 <= self.objects <= 8:
            raise UserError(f"lookalikes: objects is from 2 to 8, not {self.objects}")

    def task(self, split: str, index: int) -> Task:
        if split not in ("train", "test"):
            raise UserError(f"{self.name} has no split {split!r}; use 'train' or 'test'")
        for attempt in range(REDRAWS):
            rng = rng_of((stream_of(self), split, index, attempt))
            task = self._draw(rng, f"{self.name}/{split}/{index}")
            if split_of(f"lookalikes {task.meta}") == split:
                return task
        raise UserError(f"{self!r} has too few rooms for a {split} split")

    def _draw(self, rng: np.random.Generator, identity: str) -> Task:
        alike = int(rng.integers(2, self.objects + 1))
        kind, other = (KINDS[int(i)] for i in rng.permutation(len(KINDS))[:2])
        looks = list[tuple[str, ...]]()
        while len(looks) < self.objects:
            own = kind if len(looks) < alike else other
            values = (own, *(str(rng.choice(v)) for v in (COLOURS, SIZES, PLACES)))
            if values not in looks:
                looks.append(values)
        order = rng.permutation(self.objects).tolist()
        names = [f"{looks[i][0]}{n + 1}" for n, i in enumerate(order)]
        objects = tuple(
            {"name": name, **dict(zip(("kind", "colour", "size", "place"), looks[i], strict=True))}
            for name, i in zip(names, order, strict=True)
        )
        meta = {"objects": objects, "wanted": names[order.index(0)], "bring_to": GOAL}
        return Task(
            id=identity,
            prompt=(Message(role="user", content=f"bring {kind} to {GOAL}"),),
            answer=meta["wanted"],
            meta=meta,
            domain=self.name,
        )
