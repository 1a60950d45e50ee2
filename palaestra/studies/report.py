"""What a study found, as data: sentences, numbers, tables, lines to draw, and every item."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from palaestra.stats import Interval
from palaestra.types import value_class


@dataclass(frozen=True, slots=True)
class StudyTable:
    """Rows of cells as text, under a title and the names of the columns."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True, slots=True)
class StudyLine:
    """Points of a line: x, y and the ends of their intervals, if they have any."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class StudyChart:
    """Lines over one axis. `share`: y is drawn from 0 to 100%."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[StudyLine]
    share: bool = False
    log_x: bool = False


@value_class
class StudyReport:
    """What a study found.

    Args:
        study: its name.
        question: what was asked.
        findings: sentences, the answer first, each with its numbers.
        numbers: by name: a number, or a mean with its interval.
        protocol: how it was measured, by what is said of it.
        items: everything that was counted, a line of plain data for each problem.
        pages: others that this one leads to, by their names, as paths from its folder.
    """

    study: str
    question: str
    findings: Sequence[str]
    numbers: Mapping[str, float | Interval]
    protocol: Mapping[str, str]
    tables: Sequence[StudyTable] = ()
    charts: Sequence[StudyChart] = ()
    items: Sequence[Mapping[str, Any]] = field(default=(), repr=False)
    pages: Mapping[str, str] = field(default_factory=dict)


def tell_interval(x: Interval, *, share: bool = True, signed: bool = False) -> str:
    """ "41.2% (36.0 to 46.6)", and of differences "+3.1 points (−1.0 to +7.2)"."""
    if not math.isfinite(x.mean):
        return "?"
    sign, scale = "+" if signed else "", 100 if share else 1
    digits = 1 if share else 3
    number = lambda v: f"{scale * v + 0.0:{sign}.{digits}f}".replace("-", "−")
    unit = (" points" if signed else "%") if share else ""
    bounds = f" ({number(x.low)} to {number(x.high)})" if math.isfinite(x.low) else ""
    return f"{number(x.mean)}{unit}{bounds}"
