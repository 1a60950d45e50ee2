"""The pages of the surveys.

A survey is `texts/ID.toml`: its own order in our words, with rows that are placed there by hand
(`rows`) or by the axes (`where`), and what it asks of software. The pages are written to
`docs/surveys` by `python -m tools.pages`, beside the tables that surveys ask for.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any

from palaestra import catalogue
from palaestra.catalogue import Entry
from palaestra.errors import UserError
from palaestra.ledger.placements import choose, placed
from palaestra.markdown import paper_link
from palaestra.types import value_class
from tools.pages.essay import essay_facts
from tools.pages.invariance import shifted_rows
from tools.pages.rendering import TEXTS, render
from tools.pages.survey_tables import (
    choose_page,
    comparison_page,
    row_link,
    taxonomy_page,
)

SURVEYS = Path("docs/surveys")
MOST = 12  # rows that a question to the table names; the others are counted
ROOT = Path(__file__).parents[2]
LOCI = {"policy": "weights", "grader": "weights", "scaffold": "scaffold", "memory": "scaffold"}


@value_class
class SurveyNode:
    """A place in a survey's order; `rows` are placed by hand, `where` asks the axes."""

    level: int
    text: str
    rows: tuple[str, ...] = ()
    where: Mapping[str, str] = field(default_factory=dict)


@value_class
class Demand:
    """What a survey asks of software, what is here (`where`: "FILE:NAME"), and what is missing."""

    asked: str
    have: str = ""
    where: tuple[str, ...] = ()
    missing: str = ""

    @property
    def met(self) -> str:
        if not self.missing:
            return "yes"
        return "in part" if self.have else "no"


@value_class
class Survey:
    """A survey or an essay: where it is published, what of it was read, its order and demands."""

    paper: str
    cites: str
    read: str
    about: str
    nodes: tuple[SurveyNode, ...]
    demands: tuple[Demand, ...]
    evidence: tuple[Mapping[str, str], ...] = ()


@cache
def read_survey(name: str) -> Survey:
    """The text of a survey. Raises UserError where there is none."""
    path = TEXTS / f"{name}.toml"
    if not path.is_file():
        raise UserError(f"there is no survey {name!r}")
    found = tomllib.loads(path.read_text(encoding="utf-8"))
    return Survey(
        nodes=tuple(SurveyNode(**with_tuples(n)) for n in found.pop("node")),
        demands=tuple(Demand(**with_tuples(d)) for d in found.pop("demand")),
        evidence=tuple(found.pop("evidence", ())),
        **found,
    )


def with_tuples(row: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}


def survey_pages() -> dict[Path, str]:
    """Every page of `docs/surveys` by its path."""
    texts = [entry for entry in catalogue.all_entries() if entry.page]
    tables = {
        "taxonomy": taxonomy_page(),
        "comparison": comparison_page(),
        "choose": choose_page(),
    }
    return {SURVEYS / f"{name}.md": text for name, text in tables.items()} | {
        Path(entry.page): survey_page(entry) for entry in texts
    }


# ---- one survey


def survey_page(entry: Entry) -> str:
    """A survey's order with our rows in it, and its demands; of the essay, what rewards say."""
    survey = read_survey(entry.id)
    given: dict[str, Any] = {
        "entry": entry,
        "survey": survey,
        "paper": paper_link(survey.paper),
        "nodes": [node_line(node) for node in survey.nodes],
        "demands": [demand_row(demand) for demand in survey.demands],
    }
    if entry.kind == "essay":
        return render("essay.md", **given, **essay_facts(survey.evidence))
    loci = locus_rows(survey) if entry.id == "survey-model-native" else []
    shifted = shift_rows() if entry.id == "survey-irl" else []
    return render("survey.md", **given, loci=loci, shifted=shifted)


def node_line(node: SurveyNode) -> str:
    """A line of a nested list: the place, and who stands there."""
    found = members(node)
    if not found:
        return f"{'  ' * (node.level - 1)}- {node.text}"
    shown = found if node.rows else found[:MOST]
    told = ", ".join(map(row_link, shown))
    if len(found) > len(shown):
        flags = " ".join(f"--{name} {value}" for name, value in node.where.items())
        told += f" and {len(found) - len(shown)} more: `palaestra list {flags}`"
    return f"{'  ' * (node.level - 1)}- {node.text}: {told}"


def members(node: SurveyNode) -> list[Entry]:
    """The rows of a node: those that are named, in their order; of a question to the axes those of
    the literature, first those that are built.
    """
    by_id = {entry.id: entry for entry in catalogue.all_entries()}
    if node.rows:
        return [by_id[name] for name in node.rows]
    if not node.where:
        return []
    return sorted(choose(catalogue.rows(), node.where), key=lambda entry: not entry.built)


def demand_row(demand: Demand) -> tuple[str, ...]:
    places = ", ".join(f"[`{p.split(':')[1]}`](../../{p.split(':')[0]})" for p in demand.where)
    have = f"{demand.have} ({places})" if places else demand.have
    return demand.asked, demand.met, have or "nothing", demand.missing


def lost_places(survey: Survey) -> list[str]:
    """Places in the code that a survey's page names and that are not there."""
    return [place for d in survey.demands for place in d.where if not is_there(place)]


def is_there(place: str) -> bool:
    """Whether a file of the package has a class, function or constant of that name at its top."""
    file, _, name = place.partition(":")
    path = ROOT / file
    return path.is_file() and name in defined_names(path.read_text(encoding="utf-8"))


def defined_names(source: str) -> set[str]:
    found: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {t.id for t in node.targets if isinstance(t, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


def locus_rows(survey: Survey) -> list[tuple[str, ...]]:
    """For each ability that heads a survey's list, which of its rows change weights, which what
    stands around them, and which both.
    """
    heads: dict[str, list[Entry]] = {}
    for node in survey.nodes:
        head = node.text if node.level == 1 else next(reversed(heads))
        heads.setdefault(head, []).extend(members(node))
    rows: list[tuple[str, ...]] = []
    for head, entries in heads.items():
        by_locus: dict[str, list[str]] = {"weights": [], "both": [], "scaffold": [], "neither": []}
        for entry in dict.fromkeys(entries):
            by_locus[locus_of(entry)].append(row_link(entry))
        rows.append((head.split(":")[0], *(", ".join(names) for names in by_locus.values())))
    return rows


def locus_of(entry: Entry) -> str:
    """Where the ability lives that a row improves, by what it optimises."""
    found = {LOCI[value] for value in placed(entry)["target"].values if value in LOCI}
    return "both" if len(found) == 2 else next(iter(found), "neither")


def shift_rows() -> list[tuple[str, str, str]]:
    """What a constant added to a prompt's rewards does to the built recipes."""
    told = {
        "same": "no advantage changes",
        "moved": "advantages change",
        "unknown": "rewards and lengths alone do not give its advantages",
    }
    return [
        (told[what], str(len(names)), ", ".join(f"[{n}](../methods/{n}.md)" for n in names))
        for what, names in shifted_rows().items()
    ]
