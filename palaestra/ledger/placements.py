"""Where every row of the catalogue stands on the axes of `surveys/axes.toml`.

A built row is placed by its recipe (`ledger.read_off`). What no recipe can say is typed in
`surveys/placements.tsv`: a cell there holds all values of a row in a column, so what is read off
must be among them. An empty cell adds nothing. Texts about methods are typed alone.

`python -m palaestra.ledger.placements` names the cells that their recipe contradicts.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Any

from palaestra import catalogue
from palaestra.catalogue import Entry
from palaestra.errors import UserError
from palaestra.ledger.axes import FOLDER, columns
from palaestra.ledger.read_off import read_row
from palaestra.suggest import suggestion_or_all
from palaestra.types import value_class


@value_class
class PlacedCell:
    """The values of a row in a column: those that its recipe says, and those that are typed."""

    read: tuple[str, ...] = ()
    typed: tuple[str, ...] = ()

    @property
    def values(self) -> tuple[str, ...]:
        return tuple(sorted({*self.read, *self.typed}))

    @property
    def source(self) -> str:
        """ "computed", "typed", or "completed": computed, and more is typed."""
        if not self.read:
            return "typed"
        return "computed" if set(self.typed) <= set(self.read) else "completed"

    @property
    def contradicted(self) -> bool:
        """Whether the recipe says what is not among the typed values."""
        return bool(self.typed) and not set(self.read) <= set(self.typed)


@cache
def typed_cells() -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """What is typed, by row and column."""
    path = resources.files("palaestra").joinpath(FOLDER, "placements.tsv")
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return {
        row.pop("id"): {name: tuple(cell.split(",")) for name, cell in row.items() if cell}
        for row in rows
    }


@cache
def placed(entry: Entry) -> Mapping[str, PlacedCell]:
    """A row of the catalogue by column. The recipe of a built row is built for it."""
    read: Mapping[str, tuple[str, ...]] = read_row(entry.id) if entry.built else {}
    typed = typed_cells().get(entry.id, {})
    return {
        name: PlacedCell(read=read.get(name, ()), typed=typed.get(name, ())) for name in columns()
    }


def choose(entries: Iterable[Entry], wanted: Mapping[str, str]) -> list[Entry]:
    """The rows that have every wanted value, `{"reward": "verifiable"}`; several, with commas
    between them, must all be there.

    Raises:
        UserError: a column has no such value; the message suggests one.
    """
    asked = {name: text.split(",") for name, text in wanted.items() if text}
    for name, values in asked.items():
        known = list(columns()[name].values)
        for value in values:
            if value not in known:
                hint = suggestion_or_all(value, known)
                raise UserError(f"--{name} has no value {value!r}{hint}")
    return [
        entry
        for entry in entries
        if all(set(values) <= set(placed(entry)[name].values) for name, values in asked.items())
    ]


def contradictions() -> list[str]:
    """Typed cells that their recipe contradicts, and how each is mended."""
    return [
        f"placements.tsv, row {entry.id}, column {name}: the recipe says {','.join(cell.read)}, "
        f"typed is {','.join(cell.typed)}; write {','.join(cell.values)}, or leave the cell empty"
        for entry in catalogue.all_entries()
        for name, cell in placed(entry).items()
        if cell.contradicted
    ]


def counts(entries: Iterable[Entry]) -> dict[str, dict[str, int]]:
    """How many cells of each column are computed, completed by hand, and typed alone."""
    table: dict[str, dict[str, int]] = {}
    for name, cell in ((n, c) for entry in entries for n, c in placed(entry).items()):
        of = table.setdefault(name, dict.fromkeys(("computed", "completed", "typed"), 0))
        of[cell.source] += 1
    return table


def as_record(entry: Entry) -> dict[str, Any]:
    """The places of a row for a program: values by column."""
    return {name: list(cell.values) for name, cell in placed(entry).items()}


def main() -> int:
    contradicting = contradictions()
    print("".join(f"{line}\n" for line in contradicting), end="", file=sys.stderr)
    return 1 if contradicting else 0


if __name__ == "__main__":
    sys.exit(main())
