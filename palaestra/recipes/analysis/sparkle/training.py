"""What the arms of the training part show."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import palaestra as pl

NAMES = {
    "hard": "hard problems alone",
    "mixed": "hard and other problems",
    "all": "hard problems with all beginnings of their solutions",
    "half": "hard problems with the first half of the beginnings",
    "shuffled": "hard problems with beginnings of other solutions",
}


@dataclass(frozen=True, slots=True)
class ScaffoldArm:
    """An arm: training prompts, held-out answers behind it, the share of its groups that teach something, and
    what it sampled.
    """

    name: str
    prompts: int
    items: Sequence[pl.studies.Item]
    signal: float
    sampled: float

    @property
    def right(self) -> list[float]:
        return pl.studies.right_shares(self.items)


def report(start: Sequence[pl.studies.Item], arms: Sequence[ScaffoldArm]) -> pl.studies.StudyReport:
    """What the arms show, one of which is "hard"."""
    by = {a.name: a for a in arms}
    none, pairs = by["hard"], max(1, len(arms) - 1)
    level = 1 - 0.05 / pairs
    over = {
        n: pl.stats.paired_share_difference(none.right, a.right, level)
        for n, a in by.items()
        if a is not none
    }
    before = pl.studies.right_shares(start)
    never = [i for i, s in enumerate(before) if not s]
    gains = {n: pl.stats.paired_share_difference(before, a.right) for n, a in by.items()}
    numbers: dict[str, float | pl.stats.Interval] = {
        "right_start": pl.stats.bounded_interval(before),
        **{f"right_{n}": pl.stats.bounded_interval(a.right) for n, a in by.items()},
        **{f"over_hard_{n}": x for n, x in over.items()},
        **{f"signal_{n}": a.signal for n, a in by.items()},
        "moved": float(
            np.mean([abs(x - y) for a in arms for x, y in zip(before, a.right, strict=True)])
        ),
    }
    return pl.studies.StudyReport(
        study="sparkle",
        question="",
        findings=tell(by, over, gains),
        numbers=numbers,
        protocol={
            "intervals": f"of differences from the arm hard: {pairs} of them hold together with 95%"
        },
        tables=[table(start, arms, never)],
        charts=[],
        items=[
            {
                **{k: x[k] for k in ("problem", "id", "prompt", "gold")},
                "start": x["right"],
                "arms": {
                    n: {"right": a.items[i]["right"], "texts": a.items[i]["texts"]}
                    for n, a in by.items()
                },
            }
            for i, x in enumerate(start)
        ],
    )


def tell(
    by: dict[str, ScaffoldArm],
    over: dict[str, pl.stats.Interval],
    gains: dict[str, pl.stats.Interval],
) -> list[str]:
    """The findings as sentences, the answer first."""
    points = lambda x: pl.studies.tell_interval(x, signed=True)
    lines = list[str]()
    if "all" in over:
        x = over["all"]
        verdict = (
            "are better with the beginnings of their solutions than alone"
            if x.low > 0
            else "are worse with the beginnings of their solutions than alone"
            if x.high < 0
            else "are not seen to be better with the beginnings of their solutions than alone"
        )
        lines.append(
            f"Hard problems {verdict}: {points(x)} on held-out problems without a scaffold."
        )
    rest = [f"{NAMES[n]} {points(x)}" for n, x in over.items() if n != "all"]
    if rest:
        lines.append(f"Against hard problems alone: {'; '.join(rest)}.")
    gain_texts = [f"{points(x)} with {NAMES[n]}" for n, x in gains.items()]
    lines.append(f"Against the start: {'; '.join(gain_texts)}.")
    signal = [f"{100 * a.signal:.0f}% with {NAMES[n]}" for n, a in by.items()]
    lines.append(f"Groups with right and wrong answers, which alone teach: {'; '.join(signal)}.")
    return lines


def table(
    start: Sequence[pl.studies.Item], arms: Sequence[ScaffoldArm], never: Sequence[int]
) -> pl.studies.StudyTable:
    """All arms, on all held-out problems and on those that the start never solved."""

    def cells(items: Sequence[pl.studies.Item]) -> tuple[str, str]:
        right = pl.studies.right_shares(items)
        some = [right[i] for i in never]
        intervals = [pl.studies.tell_interval(pl.stats.bounded_interval(x)) for x in (right, some)]
        return intervals[0], intervals[1] if some else ""

    rows = [("start", "", *cells(start), "", "")]
    rows += [
        (a.name, str(a.prompts), *cells(a.items), f"{100 * a.signal:.0f}%", f"{a.sampled:,.0f}")
        for a in arms
    ]
    columns = (
        "arm",
        "training prompts",
        "right",
        f"right of the {len(never)} that the start never solved",
        "groups that teach",
        "sampled tokens",
    )
    note = "Problems that the start never solved were chosen by few answers, so luck is among the reasons."
    return pl.studies.StudyTable("The arms, without a scaffold", columns, rows, note)
