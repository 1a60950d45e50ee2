"""The pages of all methods, with their formulas as mathematics, and one table of them all that sorts and
filters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from palaestra import catalogue
from palaestra.catalogue import Entry
from palaestra.ledger import needs
from palaestra.ledger.changes import LEGEND, changes_of
from palaestra.ledger.files import read_result
from palaestra.ledger.standing import is_doubted, standing
from palaestra.ledger.wording import ends, time_of
from palaestra.markdown import render
from palaestra.site.formulas import article
from palaestra.types import value_class
from palaestra.values import walk

METHODS = "docs/methods"
DOCSTRING = re.compile(r"## Method\n\n```text\n(.*?)\n```", re.DOTALL)
# a cell of code that is folded up
LONG_CELL = re.compile(r"(?<=\| )`([^`\n]{160,})`(?= \|)")


@value_class
class MethodRow:
    """One line of the table."""

    id: str
    title: str
    family: str
    status: str
    changes: tuple[str, ...]
    needs: tuple[str, ...]
    effect: str = ""
    size: float | None = None  # of the effect
    cost: str = ""
    minutes: float | None = None  # of the experiment
    page: str = ""  # of a text, which is no method

    @property
    def place(self) -> str:
        return self.page or f"{METHODS}/{self.id}.md"


FURTHER: Mapping[str, str] = {  # by the class of a part, what the table of needs does not have
    "Endpoint": "a chat endpoint", "Code": "the sandbox", "LoRA": "adapters",
}  # fmt: skip
LABELS = {"preferences": "pairs of answers", "demonstrations": "demonstrations"}


def needs_of(entry: Entry) -> tuple[str, ...]:
    """What a built method needs beside a model, problems with answers and a reward."""
    method_needs, built = needs.needs_of(entry.id), catalogue.find(entry.id).build()
    names = {type(part).__name__ for _, part in walk(built)}
    models = ["a critic"] * method_needs.critic + ["a reference model"] * method_needs.reference
    models += [f"a {grader}" for grader in method_needs.graders]
    models += [LABELS[label] for label in method_needs.labels if label in LABELS]
    models += [need for name, need in FURTHER.items() if name in names]
    return (*models, *(["several learners"] if len(getattr(built, "learners", ())) > 1 else []))


# ---- the rows


def rows() -> list[MethodRow]:
    """Every method of the catalogue, in its order."""
    return [row_of(e) for e in catalogue.all_entries()]


def row_of(entry: Entry) -> MethodRow:
    common: dict[str, Any] = {"id": entry.id, "title": entry.title, "family": entry.family}
    if not entry.built:
        return MethodRow(
            **common,
            changes=("analysis",),
            needs=(),
            status=standing(entry).status,
            page=entry.page,
        )
    result = None if is_doubted(entry) else read_result(entry.id)
    effect, size, cost, minutes = "", None, "", None
    if result and result.get("effect") is not None:
        effect, size = ends(result), float(result["effect"])
    if result and result["arms"]:
        cost = time_of(result)
        minutes = (result.get("processor_seconds") or result.get("seconds") or 0) / 60 or None
        cost = cost if minutes else ""
    return MethodRow(
        **common,
        status=standing(entry).status,
        changes=changes_of(entry),
        needs=needs_of(entry),
        effect=effect,
        size=size,
        cost=cost.replace(" processor minutes", " min").replace(
            " wall-clock minutes", " min, wall clock"
        ),
        minutes=minutes,
    )


# ---- the pages


def pages() -> dict[str, str]:
    """The table of all methods."""
    return {"methods.md": table_page(rows())}


def with_formulas(text: str) -> str:
    """The page of a built method with the formulas of its docstring as mathematics, the docstring as
    it stands in the code folded up below, and long cells of tables folded up as well.
    """
    match = DOCSTRING.search(text)
    if match is None:
        return text
    formula = f'<div class="method">\n{article(match[1])}\n</div>'
    code = "\n".join(f"    {line}".rstrip() for line in match[1].splitlines())
    folded = f'??? note "As it stands in the code"\n\n    ```text\n{code}\n    ```'
    page = text.replace(match[0], f"## Method\n\n{formula}\n\n{folded}")
    return LONG_CELL.sub(fold, page)


def fold(match: re.Match[str]) -> str:
    """A long cell of code, one link of a chain a line, behind its first words."""
    text = match[1].replace("\\|", "|")
    first = re.split(r"[(\s]", text)[0]
    body = "<br>".join(escape(line) for line in text.split(" -> "))
    body = body.replace("|", "&#124;")
    return (
        f"<details><summary><code>{escape(first)} …</code></summary><code>{body}</code></details>"
    )


def table_page(everything: Sequence[MethodRow]) -> str:
    count = {name: sum(name in r.changes for r in everything) for name in LEGEND}
    return render(
        "methods.md",
        rows=everything,
        families=list(dict.fromkeys(r.family for r in everything)),
        statuses=sorted({r.status for r in everything}),
        legend={n: t for n, t in LEGEND.items() if count[n]},
        needs=sorted({n for r in everything for n in r.needs}),
        built=sum(not r.page for r in everything),
        literature=len(catalogue.rows()),
    )


def add_formulas(tree: Path) -> None:
    """Writes the formulas into the pages of built methods that were copied."""
    for page in (tree / METHODS).glob("*.md"):
        page.write_text(with_formulas(page.read_text(encoding="utf-8")), encoding="utf-8")
