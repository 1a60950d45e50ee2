"""What parts of a recipe leave for one another by name: facts of an episode (`Episode.facts`) and
columns of a task (`Task.meta`).

Whoever writes a name declares it, with its type and meaning; whoever cannot do without one says
that it reads it. Before the first step a run looks for a writer of each (`run.names_read`).

    @pl.declare(facts=(("right", bool, "whether the solution was right"), "step_ends"))
    @pl.stage
    class Verdict: ...

A part whose names follow its settings has a property `writes_facts` or `reads_facts` instead, as
`Mark` has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

from palaestra.suggest import suggestion

P = TypeVar("P", bound=Callable[..., object])


@dataclass(frozen=True)
class Declared:
    """A name that a part writes: what kind of value it has, and what the value says."""

    name: str
    kind: type
    meaning: str


@runtime_checkable
class WritesFacts(Protocol):
    """A part that leaves facts in episodes."""

    @property
    def writes_facts(self) -> tuple[Declared, ...]: ...


@runtime_checkable
class ReadsFacts(Protocol):
    """A part that can do nothing useful without certain facts."""

    @property
    def reads_facts(self) -> tuple[str, ...]: ...


@runtime_checkable
class WritesColumns(Protocol):
    """A part that gives tasks columns."""

    @property
    def writes_columns(self) -> tuple[Declared, ...]: ...


@runtime_checkable
class ReadsColumns(Protocol):
    """A part that can do nothing useful without certain columns of a task."""

    @property
    def reads_columns(self) -> tuple[str, ...]: ...


Entry: TypeAlias = Declared | tuple[str, type, str] | str


def declare(
    *,
    facts: tuple[Entry, ...] = (),
    columns: tuple[Entry, ...] = (),
    reads: tuple[str, ...] = (),
    reads_columns: tuple[str, ...] = (),
) -> Callable[[P], P]:
    """A decorator that says what a class or function leaves in episodes and tasks, and what it needs.

    Args:
        facts: of episodes that it writes, each as (name, type, meaning), or as the name alone of
            one of `COMMON`.
        columns: of tasks that it writes, likewise.
        reads: names of facts that it cannot do without; one that it has a default for is not listed.
        reads_columns: names of columns that it cannot do without.

    Raises:
        ValueError: a name alone is none of `COMMON`.
    """
    names: dict[str, tuple[object, ...]] = {
        "writes_facts": tuple(map(_entry, facts)),
        "writes_columns": tuple(map(_entry, columns)),
        "reads_facts": reads,
        "reads_columns": reads_columns,
    }

    def decorate(part: P) -> P:
        for attribute, value in names.items():
            if value:
                setattr(part, attribute, value)
        return part

    return decorate


def _entry(entry: Entry) -> Declared:
    if isinstance(entry, Declared):
        return entry
    if isinstance(entry, tuple):
        return Declared(*entry)
    if entry not in COMMON:
        raise ValueError(
            f"{entry!r} has no type and meaning: write (name, type, meaning)"
            f"{suggestion(entry, COMMON)}"
        )
    return COMMON[entry]


# facts that several worlds and links write
COMMON = {
    name: Declared(name, kind, meaning)
    for name, kind, meaning in (
        ("turns", int, "turns that the policy took"),
        ("correct", bool, "whether the world counts the episode as solved"),
        ("executed", tuple, "by turn, whether its action could be done"),
        ("answered", bool, "whether the policy came to an answer"),
        ("answer", object, "the answer that was given; None = none"),
        ("malformed", int, "turns that could not be read"),
        ("invalid", int, "turns whose action was none or impossible"),
        ("step_ends", tuple, "(row, token) of the end of each step of the answer"),
        ("prefix_values", tuple, "the chance of success at the start and after each step"),
        ("stratum", int, 'which episodes `Center("stratum")` compares with one another'),
        ("error", str, "what the infrastructure fault said that ended the episode"),
        ("result", object, "how the game ended"),
        ("guided", float, "1 where the policy was shown more than the task"),
        ("demonstration", float, "1 where the answer is a demonstration"),
    )
}
