"""Versions of the code that results depend on.

A change of behaviour that moves a canary (see `ledger.canaries`) is either a fault to repair, or a
line in `versions.tsv`: the name of a class or of a subsystem, its new version, the date and why.
What is not listed is at version 1. A result keeps the versions of its parts, so that only results
with a part that has a newer version are said to be older than today's code.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources

from palaestra.types import value_class

# what every run uses, whatever its recipe
SUBSYSTEMS = ("sampling", "forward", "update", "loop", "evaluation", "player", "statistics")


@value_class
class Version:
    """One line of the table: a part has `version` since `date` (ISO), because of `why`."""

    part: str
    version: int
    date: str
    why: str


@cache
def history() -> tuple[Version, ...]:
    """The lines of `versions.tsv`, in their order.

    Raises:
        ValueError: versions of a part do not count 2, 3, ... down the table.
    """
    text = resources.files("palaestra.ledger").joinpath("versions.tsv").read_text(encoding="utf-8")
    lines = tuple(
        Version(part=row["part"], version=int(row["version"]), date=row["date"], why=row["why"])
        for row in csv.DictReader(text.splitlines(), delimiter="\t")
    )
    last: dict[str, int] = {}
    for line in lines:
        if line.version != last.get(line.part, 1) + 1:
            raise ValueError(
                f"versions.tsv: {line.part} goes from {last.get(line.part, 1)} to {line.version}"
            )
        last[line.part] = line.version
    return lines


def versions_of(parts: Iterable[str]) -> dict[str, int]:
    """The versions of `parts` and of all subsystems that are not at 1, by name."""
    wanted = {*parts, *SUBSYSTEMS}
    return {v.part: v.version for v in history() if v.part in wanted}


def reasons(then: Mapping[str, int], now: Mapping[str, int]) -> list[str]:
    """Why the versions of a result are not today's, a clause a part: "Center 2 (divides by ...)"."""
    lines = {(v.part, v.version): v for v in history()}
    changed = [p for p in sorted({*then, *now}) if then.get(p, 1) != now.get(p, 1)]
    clauses: list[str] = []
    for part in changed:
        version = now.get(part, 1)
        line = lines.get((part, version))
        clauses.append(f"version {version} of {part}" + (f" ({line.why})" if line else ""))
    return clauses
