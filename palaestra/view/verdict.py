"""What a run's evaluations before and after say of it, in plain words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from palaestra.ends import ENDS, HELD_OUT, HeldOut, all_of, describe_changes_on_the_way, end_of
from palaestra.run.evaluators import OWN_EVALUATION
from palaestra.stats import LEVEL, Interval, difference, fisher
from palaestra.store.by_problem import paired_by_problem, read_scores, why_not_paired
from palaestra.store.columns import evaluation_path
from palaestra.store.folder import RunFolder
from palaestra.view.drawing import percent, short_number

UNSEEN_PROBLEMS = "on problems that it was not trained on"


def ends(run: RunFolder) -> tuple[Interval | None, Interval | None]:
    """The evaluations before and after, of the summary or of the log so far."""
    intervals: list[Interval | None] = []
    for end in ENDS:
        held = HeldOut.read(end_of(run.summary, end))
        intervals.append(None if held is None else held.interval)
    if intervals[0] is None and run.evaluations and run.evaluations[0][0] == 0:
        intervals[0] = run.evaluations[0][1]
    if intervals[1] is None and run.evaluations and run.evaluations[-1][0] > 0:
        intervals[1] = run.evaluations[-1][1]
    return intervals[0], intervals[1]


def verdict(run: RunFolder) -> dict[str, Any]:
    """Before and after with a judgement in plain words."""
    before, after = ends(run)
    share = run.is_share
    tell = percent if share else short_number
    rows = [
        {
            "label": label,
            "mean": tell(e.mean),
            "low": tell(e.low),
            "high": tell(e.high),
            "n": f"{e.n:,}",
        }
        for label, e in (("before", before), ("after", after))
        if e is not None
    ]
    where = "on the held-out problems" if run.name("caveat") or run.name("env") else UNSEEN_PROBLEMS
    if (changed := describe_changes_on_the_way(run.summary)) and before is None:
        words = f"Whether the model became better is not known: {changed}."
    elif before is not None and after is None and not run.steps:
        words = "This is one evaluation, and no step of training."
    else:
        paired = change_by_problem(run)
        words = judge_change(before, after, share, where, falls=run.of == "loss", paired=paired)
    return {
        "ends": rows,
        "words": words,
        "what": capital(HELD_OUT[run.of]) + (f" ({unit})" if (unit := run.unit) else ""),
        "beside": beside(run),
    }


def change_by_problem(run: RunFolder) -> Interval | None:
    """The difference of the two evaluations over the held-out problems; None where the run does not
    keep its answers to the same ones, some could not be scored, or it has several parts.
    """
    first, last = (HeldOut.read(end_of(run.summary, end)) for end in ENDS)
    steps = run.summary.get("steps")
    if first is None or last is None or first.of != last.of or run.parts or not steps:
        return None
    a, b = (
        read_scores(evaluation_path(run.folder, OWN_EVALUATION, step), held, run.folder)
        for step, held in ((0, first), (steps, last))
    )
    if why_not_paired(a, b) or None in (*a.scores.values(), *b.scores.values()):
        return None
    return paired_by_problem(first, a, b)


def beside(run: RunFolder) -> list[str]:
    """What else was measured on held-out problems, each in a line."""
    values = {end: all_of(run.summary, end)[1:] for end in ENDS}
    lines: list[str] = []
    for last in values["after"]:
        first = next((x for x in values["before"] if x["of"] == last["of"]), None)
        lines.append(f"{capital(HELD_OUT[last['of']])}: {tell_change(first, last)}.")
    return lines


def tell_mean(record: Mapping[str, Any]) -> str:
    """The mean of an evaluation: a share in per cent, anything else in its own unit."""
    held = HeldOut.read(record)
    if held is None:
        return "?"
    return (percent if held.is_share else short_number)(held.interval.mean)


def tell_change(*record: Mapping[str, Any] | None) -> str:
    """Evaluations one after the other, with their unit."""
    some = [x for x in record if x]
    units = {str(x["unit"]) for x in some if x.get("unit")}
    return " ".join([" → ".join(map(tell_mean, some)), *units])


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def judge_change(
    before: Interval | None,
    after: Interval | None,
    share: bool = True,
    where: str = UNSEEN_PROBLEMS,
    falls: bool = False,
    paired: Interval | None = None,
) -> str:
    """What the difference says, in a sentence; `share`: in points of a hundred, `falls`: less is
    better, `paired`: what is known of it problem by problem.
    """
    if before is None or after is None:
        return (
            "There is no evaluation before and after, so whether the model became better is not "
            "known."
        )
    d = paired or (difference(after, before) if falls else difference(before, after))
    if not math.isfinite(d.low + d.high):
        return (
            "The evaluations are too small for an interval, so whether the model became better is "
            "not known."
        )

    def tell(x: float) -> str:
        return f"{100 * x:.0f}".replace("-", "−") if share else short_number(x)

    unit = " points" if share else ""
    chance = share and not paired and _alike(before, after)
    how = ", problem by problem" if paired else ""
    if d.low > 0 and not chance:
        size = f"by {tell(d.mean)}{unit} (95% interval {tell(d.low)} to {tell(d.high)}{how})"
        return f"Better, beyond what chance explains: {where}, the model improved {size}."
    if d.high < 0 and not chance:
        size = f"by {tell(-d.mean)}{unit} (95% interval {tell(-d.high)} to {tell(-d.low)}{how})"
        return f"Worse, beyond what chance explains: {where}, the model fell {size}."
    if chance and (d.low > 0 or d.high < 0):
        return (
            f"No change that can be told from chance: {after.n} problems are too few to tell a "
            f"difference of {tell(abs(d.mean))}{unit}."
        )
    span = f"{tell(d.low)} and {tell(d.high)}{unit}"
    return (
        f"No change that can be told from chance: the difference lies between {span}{how}, with zero "
        "inside."
    )


def _alike(before: Interval, after: Interval) -> bool:
    """Whether two shares may well be one and the same, by Fisher's exact test: of few problems the
    intervals alone say too much.
    """
    a, b = (round(e.mean * e.n) for e in (before, after))
    return fisher(a, before.n, b, after.n) >= 1 - LEVEL
