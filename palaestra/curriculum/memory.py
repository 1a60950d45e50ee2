"""What is remembered between episodes: texts, with where each comes from, in the state of the draw.

    draw=Recalled(put=...), observe=Memorise(extract=...)

Only what is trained on is observed, so nothing of the held-out split enters; the order is that of
the groups in the step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from palaestra.context import Draw
from palaestra.curriculum.pool import Shuffled
from palaestra.types import (
    Example,
    Group,
    Groups,
    Key,
    State,
    Task,
    need_at_least,
    rng_of,
    stage,
    value_class,
)

if TYPE_CHECKING:
    from palaestra.context import Context


@value_class
class Note:
    """A text that is remembered. `version` is that of the weights that wrote it, None = nobody's of
    the run; `facts` is what else is known of it.
    """

    text: str
    task: str = ""  # the id of the task it was written for
    about: str = ""  # what it is about, by which it is found; of each there is one, the newest
    version: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


def notes_of(state: State) -> list[Note]:
    """What is remembered, the newest last."""
    return list(state.get("memory", []))


def forget_notes(state: State, tasks: Collection[str]) -> State:
    """The state without what was written for tasks of these ids."""
    return {**state, "memory": [n for n in notes_of(state) if n.task not in tasks]}


@stage
class Memorise:
    """Keeps the newest `most` different texts. A text that comes again is kept in its first place,
    with what is known of it now. A note about something takes the place of the older one about it,
    and is the newest then.

    Args:
        extract: the notes that a group gives, each with its text at least; where they name no task
            or version, these are filled in.
    """

    extract: Callable[[Group], Sequence[Note]]
    most: int = 100

    def __post_init__(self) -> None:
        need_at_least(self, most=1)

    def __call__(self, seen: Groups, examples: Mapping[str, list[Example]], state: State) -> State:
        kept = {_place(n): n for n in notes_of(state)}
        for group in seen:
            ages = [age for e in group.valid if (age := e.oldest()) is not None]
            for note in self.extract(group):
                if note.about:
                    kept.pop(_place(note), None)
                kept[_place(note)] = replace(
                    note,
                    task=note.task or group.task.id,
                    version=min(ages, default=None) if note.version is None else note.version,
                )
        return {**state, "memory": list(kept.values())[-self.most :]}


def _place(note: Note) -> tuple[str, str]:
    """What only one note that is kept has: a subject, or a text."""
    return ("about", note.about) if note.about else ("text", note.text)


@stage
class Recalled:
    """Tasks into which `put` writes what is remembered: up to `most` notes in a fresh order.

    Args:
        put: the task with the notes, which may be none.
        also: notes that the drawn tasks themselves bring, which are not kept.
        about: what a task is about: only notes about that are put into it. None = all may be.
    """

    put: Callable[[Task, Sequence[Note]], Task]
    most: int = 8
    draw: Draw = Shuffled()
    also: Callable[[Task], Sequence[Note]] | None = None
    about: Callable[[Task], str] | None = None

    def __call__(self, ctx: Context, key: Key, n: int, state: State) -> tuple[list[Task], State]:
        tasks, state = self.draw(ctx, key, n, state)
        known = [*notes_of(state), *(x for t in tasks for x in (self.also(t) if self.also else ()))]
        order = rng_of((*key, "shots")).permutation(len(known))
        shuffled = [known[i] for i in order]
        return [self.put(t, self._fitting(t, shuffled)[: self.most]) for t in tasks], state

    def _fitting(self, task: Task, notes: Sequence[Note]) -> Sequence[Note]:
        about = self.about and self.about(task)
        return notes if about is None else [n for n in notes if n.about == about]
