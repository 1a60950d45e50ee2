"""The check-up at a glance: what several studies measured as the change between a start and a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from palaestra.stats import Interval
from palaestra.studies.report import StudyChart, StudyLine, StudyTable, tell_interval

# study, its number, what it is, whether it is a share, and which way is better: 1 more, -1 less, 0 neither
MEASURES: Sequence[tuple[str, str, str, bool, int]] = (
    ("math-beyond", "sharper", "accuracy: one sampled answer is right", True, 1),
    ("math-beyond", "within_n", "pass@k: solved within all sampled answers", True, 1),
    ("rlhf-diversity", "diversity_within", "diversity: distinct n-grams of a problem's answers", False, 0),
    ("rlhf-diversity", "lost_beyond_sharpening", "diversity lost beyond what a colder start loses", False, -1),
    ("calibration", "more_ece", "calibration error", True, -1),
    ("calibration", "more_sure", "confidence less share of right answers", True, 0),
    ("forgetting", "accuracy", "forgetting: one sampled answer elsewhere is right", True, 1),
    ("forgetting", "likelihood", "forgetting: nats a token of right answers elsewhere", False, 1),
    ("forgetting", "choice", "forgetting: the right option elsewhere is the likeliest", True, 1),
    ("sawmil", "more", "probes: true and false statements told apart by hidden states", True, 1),
)  # fmt: skip


def in_order(names: Iterable[str]) -> list[str]:
    """Studies as the table has them, accuracy first; others behind."""
    known = [study for study, *_ in MEASURES]
    return sorted(names, key=lambda n: known.index(n) if n in known else len(known))


def glance(reports: Mapping[str, Mapping[str, Any]]) -> StudyTable:
    """A row for each measure that the reports have, with its interval and whether a change is seen."""
    rows: list[tuple[str, str, str, str]] = []
    for study, number, label, share, way in MEASURES:
        record = reports.get(study, {}).get("numbers", {}).get(number)
        if isinstance(record, Mapping):
            x = Interval.of(record)
            rows.append((label, tell_interval(x, share=share, signed=True), verdict(x, way), study))
    return StudyTable(
        "At a glance",
        ("measure", "change after training", "", "study"),
        rows,
        "95% intervals over problems; nothing is corrected for the number of rows.",
    )


def verdict(x: Interval, way: int) -> str:
    """What an interval of a change says: better, worse, more, less, or that no change is seen."""
    if not (x.low > 0 or x.high < 0):
        return "no change is seen"
    up = x.low > 0
    if not way:
        return "more" if up else "less"
    return "better" if up == (way > 0) else "worse"


def charts_of(report: Mapping[str, Any]) -> list[StudyChart]:
    """The charts of a report that was read."""
    charts: list[dict[str, Any]] = [
        {**c, "lines": [StudyLine(**x) for x in c["lines"]]} for c in report["charts"]
    ]
    return [StudyChart(**c) for c in charts]
