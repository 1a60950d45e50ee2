"""The tables that surveys ask for: all rows on the axes, what methods need and what was measured of
them, and methods by the feedback that one has.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

from palaestra import catalogue
from palaestra.catalogue import Entry
from palaestra.ledger.axes import columns
from palaestra.ledger.changes import changes_of
from palaestra.ledger.files import read_result
from palaestra.ledger.needs import as_cells, needs_of
from palaestra.ledger.placements import choose, counts, placed
from palaestra.ledger.standing import is_doubted, standing
from palaestra.ledger.wording import ends, time_of
from tools.pages.rendering import TEXTS, render

# Of published results, the best for a claim first; an illustration or what is not testable is none.
VERDICTS = ("reproduced", "smaller", "inconclusive", "not-reproduced", "reversed")
SOURCE_MARKS = {"computed": "", "completed": "+", "typed": "*"}


def row_link(entry: Entry) -> str:
    """The name of a row, linked to its page."""
    return f"[{entry.id}]({entry.page.rpartition('/')[2] or f'../methods/{entry.id}.md'})"


def measured(entry: Entry) -> tuple[str, str]:
    """What was measured of a row, "" where that is stale or under review, and where it stands."""
    result = read_result(entry.id) if entry.built else None
    if not result or not result.get("arms") or is_doubted(entry):
        return "", told_standing(entry)
    return f"{ends(result)} {result['metric']}", told_standing(entry)


def told_standing(entry: Entry) -> str:
    found = standing(entry)
    return found.status + (f" ({found.note})" if found.note else "")


def taxonomy_page() -> str:
    """All rows on the three axes."""
    rows = catalogue.rows()
    built = [entry for entry in rows if entry.built]
    return render(
        "taxonomy.md",
        columns=columns().values(),
        axes=list(dict.fromkeys(c.axis for c in columns().values())),
        rows=[taxonomy_row(entry) for entry in rows],
        n=len(rows),
        built=len(built),
        shares=[(name, *share_cells(of)) for name, of in counts(rows).items()],
        built_shares=[(name, *share_cells(of)) for name, of in counts(built).items()],
        all_share=share(counts(rows)),
        built_share=share(counts(built)),
    )


def taxonomy_row(entry: Entry) -> tuple[str, ...]:
    cells = [", ".join(cell.values) + SOURCE_MARKS[cell.source] for cell in placed(entry).values()]
    changes = ", ".join(changes_of(entry)) if entry.built else ""
    return row_link(entry), *cells, changes, entry.shape, standing(entry).status


def share(found: Mapping[str, Mapping[str, int]]) -> str:
    cells = [n for of in found.values() for n in of.values()]
    computed = sum(of["computed"] for of in found.values())
    return f"{computed:,} of {sum(cells):,} cells, {computed / max(1, sum(cells)):.0%}"


def share_cells(of: Mapping[str, int]) -> tuple[str, ...]:
    return (*map(str, of.values()), f"{of['computed'] / max(1, sum(of.values())):.0%}")


def comparison_page() -> str:
    """What each built method needs, and what was measured of it."""
    rows = [comparison_row(entry) for entry in catalogue.all_entries() if entry.built]
    return render("comparison.md", rows=rows)


def comparison_row(entry: Entry) -> tuple[str, ...]:
    effect, said = measured(entry)
    result = read_result(entry.id)
    cost = time_of(result) if result and result.get("arms") else ""
    return row_link(entry), *as_cells(needs_of(entry.id)), cost, effect, said


def choose_page() -> str:
    """Methods by the feedback that one has: those with a verdict in a table, the others named."""
    found: list[tuple[Any, ...]] = []
    for asked in read_questions():
        where: dict[str, str] = asked["where"]
        built = [e for e in choose(catalogue.all_entries(), where) if e.built]
        judged = sorted((e for e in built if verdict_rank(e) < len(VERDICTS)), key=verdict_rank)
        others = [row_link(e) for e in built if verdict_rank(e) == len(VERDICTS)]
        rows = [choice_row(e) for e in judged]
        found.append((asked["have"], asked["said"], rows, others, where))
    return render("choose.md", found=found, near=near)


def near(*methods: str) -> str:
    """Methods that were measured near a symptom, each with where it stands and by what measure."""
    entries = [catalogue.entry_of(method) for method in methods]
    return "; ".join(
        f"{row_link(e)}, {', '.join(filter(None, (told_standing(e), measure_of(e))))}"
        for e in entries
    )


def measure_of(entry: Entry) -> str:
    """By what number the verdict of a row was found; "" where it has none."""
    result = read_result(entry.id)
    return result["metric"] if result and verdict_rank(entry) < len(VERDICTS) else ""


def read_questions() -> list[dict[str, Any]]:
    """What one may have to learn from, and the question to the axes that finds methods for it."""
    return tomllib.loads((TEXTS / "choose.toml").read_text(encoding="utf-8"))["question"]


def verdict_rank(entry: Entry) -> int:
    """The place of a row's verdict among all, the best first; their number for one without."""
    found = standing(entry).status
    return VERDICTS.index(found) if found in VERDICTS else len(VERDICTS)


def choice_row(entry: Entry) -> tuple[str, ...]:
    optimised = ", ".join(placed(entry)["optimiser"].values)
    return row_link(entry), entry.title, optimised, told_standing(entry), measure_of(entry)
