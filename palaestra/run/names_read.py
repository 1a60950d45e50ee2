"""Before the first step: whether what parts of a recipe read of episodes and tasks by name is
written by anybody. See `palaestra.declared`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from palaestra.abilities import split_size
from palaestra.declared import (
    ANYTHING,
    KNOWN_FACTS,
    NamesFacts,
    ReadsColumns,
    ReadsFacts,
    WritesColumns,
    WritesFacts,
)
from palaestra.errors import UserError
from palaestra.identity import PACKAGE
from palaestra.suggest import suggestion_or_all
from palaestra.tasks.mixture import Mixture
from palaestra.types import Tasks
from palaestra.values import walk

if TYPE_CHECKING:
    from palaestra.context import Bench
    from palaestra.method import Recipe

BY_EVERY_RUN = ("states", "legal_mass", "error", "labels")  # facts, see `rollout.play`


def check_names_read(recipe: Recipe, bench: Bench) -> None:
    """Raises UserError, of one line, for a fact or a column that a part needs and nobody writes.

    A fact that is only named, as by `Fact`, which has 0 where there is none, may also be one that
    code of other runs declares (`KNOWN_FACTS`): it is refused where its name is not known.

    A part that is not of this package and declares nothing may write anything, and so may a world
    that is adapted from elsewhere: with one of them nothing is refused.
    """
    parts = list(parts_of(recipe, bench))
    facts = {name for _, part in parts for name in facts_of(part)}
    facts |= set(BY_EVERY_RUN)
    for path, part in parts if ANYTHING not in facts else ():
        for name in part.reads_facts if isinstance(part, ReadsFacts) else ():
            if name not in facts:
                raise UserError(_unknown(path, part, "fact", name, facts))
        for name in part.names_facts if isinstance(part, NamesFacts) else ():
            if name not in facts | KNOWN_FACTS:
                raise UserError(_unknown(path, part, "fact", name, facts))
    readers = [(path, part) for path, part in parts if isinstance(part, ReadsColumns)]
    columns = {name for _, part in parts for name in columns_of(part)} if readers else set[str]()
    if not readers or ANYTHING in columns or split_size(bench.tasks, "train") == 0:
        return
    columns |= {name for source in sources(bench.tasks) for name in source.task("train", 0).meta}
    for path, part in readers:
        for name in part.reads_columns:
            if name not in columns:
                raise UserError(_unknown(path, part, "column", name, columns))


def _unknown(path: str, part: Any, kind: str, name: str, known: Iterable[str]) -> str:
    owner = getattr(part, "__name__", type(part).__name__)
    names = sorted(known)
    hint = suggestion_or_all(name, names) if names else "; they write none"
    return f"{path}: {owner} reads the {kind} {name!r}, which no part of this run writes{hint}"


def parts_of(recipe: Recipe, bench: Bench) -> Iterator[tuple[str, Any]]:
    """What may write names or read them, by its path: stages, and the problem of the run."""
    stages = {
        "draw": recipe.draw,
        "collect": recipe.collect,
        "pool": recipe.pool,
        "observe": recipe.observe,
        **{f"learners.{name}.credit": x.credit for name, x in recipe.learners.items()},
        "world": bench.world,
        "reward": bench.reward,
    }
    for path, stage in stages.items():
        yield path, stage
        yield from walk(stage, path)


def facts_of(part: Any) -> list[str]:
    """Names of facts that a part writes."""
    if isinstance(part, WritesFacts):
        return [each.name for each in part.writes_facts]
    return [ANYTHING] if is_foreign(part) else []


def columns_of(part: Any) -> list[str]:
    """Names of columns that a part gives to tasks."""
    if isinstance(part, WritesColumns):
        return [each.name for each in part.writes_columns]
    return [ANYTHING] if is_foreign(part) else []


def is_foreign(part: Any) -> bool:
    """Whether this is code of a user or of another package."""
    if not callable(part) and not hasattr(part, "reset"):
        return False
    own = getattr(part, "__module__", None) or type(part).__module__
    return own.partition(".")[0] not in {PACKAGE, "builtins", "numpy", "functools", "operator"}


def sources(tasks: Tasks) -> Iterator[Tasks]:
    """A source of tasks, or each that a mixture is of."""
    if isinstance(tasks, Mixture):
        for part, _ in tasks.parts:
            yield from sources(part)
    else:
        yield tasks
