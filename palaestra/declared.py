"""What parts of a recipe leave for one another by name: facts of an episode (`Episode.facts`) and
columns of a task (`Task.meta`).

Whoever writes a name declares it, with its type and meaning; whoever cannot do without one says
that it reads it. Before the first step a run looks for a writer of each (`run.names_read`).

    @pl.declare(facts=(("right", bool, "whether the solution was right"), "step_ends"))
    @pl.stage
    class Verdict: ...

A part whose names follow its settings has a property `writes_facts` instead, as `Mark` has, or
`names_facts`, as `Fact`: such a name need not be written by this run, but must be a known one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

from palaestra.suggest import suggestion

P = TypeVar("P", bound=Callable[..., object])


@dataclass(frozen=True)
class DeclaredName:
    """A name that a part writes: what kind of value it has, and what the value says."""

    name: str
    kind: type
    meaning: str


@runtime_checkable
class WritesFacts(Protocol):
    """A part that leaves facts in episodes."""

    @property
    def writes_facts(self) -> tuple[DeclaredName, ...]: ...


@runtime_checkable
class ReadsFacts(Protocol):
    """A part that can do nothing useful without certain facts."""

    @property
    def reads_facts(self) -> tuple[str, ...]: ...


@runtime_checkable
class NamesFacts(Protocol):
    """A part that does nothing in episodes without certain facts, whose names are set by hand."""

    @property
    def names_facts(self) -> tuple[str, ...]: ...


@runtime_checkable
class WritesColumns(Protocol):
    """A part that gives tasks columns."""

    @property
    def writes_columns(self) -> tuple[DeclaredName, ...]: ...


@runtime_checkable
class ReadsColumns(Protocol):
    """A part that can do nothing useful without certain columns of a task."""

    @property
    def reads_columns(self) -> tuple[str, ...]: ...


Entry: TypeAlias = DeclaredName | tuple[str, type, str] | str


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
            one of `COMMON_FACTS`.
        columns: of tasks that it writes, likewise, with `COMMON_COLUMNS`.
        reads: names of facts that it cannot do without; one that it has a default for is not listed.
        reads_columns: names of columns that it cannot do without.

    Raises:
        ValueError: a name alone is none of those.
    """
    names: dict[str, tuple[object, ...]] = {
        "writes_facts": tuple(map(_fact, facts)),
        "writes_columns": tuple(_entry(e, COMMON_COLUMNS) for e in columns),
        "reads_facts": reads,
        "reads_columns": reads_columns,
    }

    KNOWN_FACTS.update(entry.name for entry in map(_fact, facts))

    def decorate(part: P) -> P:
        for attribute, value in names.items():
            if value:
                setattr(part, attribute, value)
        return part

    return decorate


def _fact(entry: Entry) -> DeclaredName:
    return _entry(entry, COMMON_FACTS)


def _entry(entry: Entry, common: Mapping[str, DeclaredName]) -> DeclaredName:
    if isinstance(entry, DeclaredName):
        return entry
    if isinstance(entry, tuple):
        return DeclaredName(*entry)
    if entry not in common:
        raise ValueError(
            f"{entry!r} has no type and meaning: write (name, type, meaning)"
            f"{suggestion(entry, common)}"
        )
    return common[entry]


ANYTHING = "*"  # in the place of a name: what a part writes is known to its user alone

# facts that several worlds and links write
COMMON_FACTS = {
    name: DeclaredName(name, kind, meaning)
    for name, kind, meaning in (
        (ANYTHING, object, "what the world says of its episodes, by names of its own"),
        ("agent", object, "who acted, where that is not said by the seat"),
        ("turns", int, "turns that the policy took"),
        ("tool_calls", int, "calls of tools, searches of documents included"),
        ("tool_malformed", int, "calls that could not be read"),
        ("tool_errors", int, "calls that gave an error or found nothing"),
        ("tools_used", tuple, "names of the tools of which a call gave no error, each once"),
        (
            "tool_log",
            tuple,
            'by call: its turn, from 1, the tool ("" = none), and "result", "error" or "malformed"',
        ),
        ("tool_seconds", object, "by call, the seconds that it took, by the clock"),
        ("tools_offered", tuple, "names of the tools that could be called"),
        ("tool_used", tuple, "by call, whether its result was used later, see `Uptake`"),
        ("correct", bool, "whether the world counts the episode as solved"),
        ("executed", tuple, "by turn, whether its action could be done"),
        ("reward_parts", dict, "named values that the world's pay was made of, or beside it"),
        ("answered", bool, "whether the policy came to an answer"),
        ("answer", object, "the answer that was given; None = none"),
        ("query", str, "the query that was written"),
        (
            "copied",
            bool,
            "whether the query has the given one's words in order and adds at most stop words",
        ),
        ("ndcg", float, "of the ranking that the policy's answer leads to"),
        ("ndcg_plain", float, "of the ranking without the policy"),
        (
            "ranking",
            tuple,
            "ids of the documents in the order that the answer leads to, best first",
        ),
        (
            "ranking_plain",
            tuple,
            "ids of the documents in the order without the policy, best first",
        ),
        ("malformed", int, "turns that could not be read"),
        ("invalid", int, "turns whose action was none or impossible"),
        ("step_ends", tuple, "(row, token) of the end of each step of the answer"),
        ("prefix_values", tuple, "the chance of success at the start and after each step"),
        ("stratum", int, 'which episodes `Center("stratum")` compares with one another'),
        ("error", str, "what the infrastructure fault said that ended the episode"),
        ("result", object, "how the game ended"),
        ("guided", float, "above 0 where the policy was shown more than the task"),
        ("demonstration", float, "1 where the answer is a demonstration"),
    )
}
# names of the facts that all code declares which is loaded, in this run or for another
KNOWN_FACTS = set(COMMON_FACTS)

# columns that several sources of tasks have
COMMON_COLUMNS = {
    name: DeclaredName(name, kind, meaning)
    for name, kind, meaning in (
        ("numbers", tuple, "the numbers of the problem"),
        ("entity", str, "what a question begins with, or a statement is about"),
        ("steps", tuple, "the lines of the worked solution"),
        ("d", int, "how difficult the task is"),
        ("plan", object, "the way to the answer: its steps as text, or the experts of it in order"),
        ("start", object, "the state that the world begins in"),
        ("path", tuple, "what is looked up one after the other on the way to the answer"),
        ("judged", object, "the task whose answers are judged"),
        ("criteria", tuple, "what a good answer has, each as a sentence"),
        ("points", tuple, "of each of the criteria"),
        ("chosen", str, "the better of two recorded answers"),
        ("rejected", str, "the worse of two recorded answers"),
        ("gap", float, "by how much the better of two answers is better"),
        ("label", bool, "whether the solution that is shown is right"),
        ("seed", int, "the seed that the environment starts with"),
        ("plays", str, "the seat that the policy has"),
        ("hint", str, "a text that helps with the task"),
        ("demonstrations", tuple, "several worked answers"),
        ("asked", object, "what the answer is judged for"),
        ("concepts", tuple, "the concepts that the problem is about"),
        ("program", str, "Python that prints the answer"),
        ("cut_texts", tuple, "the columns of recorded text that have lost their end"),
        ("database", str, "the path of the sqlite file that queries are run on"),
        (
            "written_columns",
            dict,
            "its columns that a model wrote, and the share of records so far that none could write",
        ),
    )
}
