"""The findings of the study as sentences and a table."""

from collections.abc import Mapping, Sequence

import numpy as np

import palaestra as pl
from palaestra.recipes.analysis.disagreement.measures import (
    DisagreementScore,
    distance,
    score,
    variance,
)

QUESTION = "Does the model know how people disagree, or the majority alone?"
LEAST = 0.005  # a distance that is called a difference
CHANGE = 0.2  # of an item's distance, for what can be seen


def findings(
    p_NK: np.ndarray,
    q: Mapping[str, np.ndarray],
    fitted: np.ndarray | None,
    halves: Sequence[float],
    lost: Mapping[str, int],
    varied: float,
    protocol: Mapping[str, str],
) -> pl.studies.StudyReport:
    """What the shares of labels show, as the study's report. `varied`: see `Disagreement`."""
    models = {"start": q["base"], "model": q["policy"]}
    if fitted is not None:
        models["regression on the start's states"] = fitted
    order = np.argsort(-variance(p_NK), kind="stable")
    parts = {
        "all": np.arange(len(p_NK)),
        "most disputed": order[: max(2, round(varied * len(p_NK)))],
    }
    scores = {
        (part, name): score(p_NK[at], each[at])
        for part, at in parts.items()
        for name, each in models.items()
    }
    farther = pl.stats.paired_difference(distance(p_NK, q["base"]), distance(p_NK, q["policy"]))
    before, after = scores["all", "start"], scores["all", "model"]
    floor = [h for h in halves if h == h]
    numbers: dict[str, float | pl.stats.Interval] = {
        "moved": float(np.mean(distance(q["base"], q["policy"]))),
        "distance": after.distance,
        "farther": farther,
        "f1": after.f1,
        **({"varcorr": after.varcorr} if after.varcorr is not None else {}),
        **({"distance_of_halves": float(np.mean(floor))} if floor else {}),
    }
    return pl.studies.StudyReport(
        study="disagreement",
        question=QUESTION,
        findings=tell(before, after, farther, floor, lost),
        numbers=numbers,
        protocol=protocol,
        tables=[scores_table(scores)],
    )


def scores_table(scores: Mapping[tuple[str, str], DisagreementScore]) -> pl.studies.StudyTable:
    """By items and who says the shares."""
    return pl.studies.StudyTable(
        "How well disagreement is said",
        ("items", "by", "VarCorr", "distance", "F1 of the majority", "n"),
        [
            (part, name, tell_number(s.varcorr), f"{s.distance:.3f}", f"{s.f1:.3f}", str(s.n))
            for (part, name), s in scores.items()
        ],
        note="The regression is fitted on half of the items at a time and measured on the others.",
    )


def tell_reach(ctx: pl.Context, n: int) -> str:
    """The sentence about the difference in distance that is seen, which is also said at the terminal."""
    least = pl.studies.least_difference(n, CHANGE**2)
    line = (
        f"with {n} items a difference of {least:.3f} in the distance of two models is seen four times out of "
        f"five, if changes of single items have a standard deviation of {CHANGE:g}"
    )
    ctx.say(line)
    return line


def tell_number(x: float | None) -> str:
    return "?" if x is None else f"{x:.3f}"


def tell(
    before: DisagreementScore,
    after: DisagreementScore,
    farther: pl.stats.Interval,
    floor: Sequence[float],
    lost: Mapping[str, int],
) -> list[str]:
    """The findings as sentences, the answer first."""
    gap = pl.studies.tell_interval(farther, share=False, signed=True)
    if farther.low > LEAST and after.f1 > before.f1:
        first = (
            "Training made the picture of annotators worse, and a better majority score hides it"
        )
    elif farther.low > LEAST:
        first = "Training made the picture of annotators worse"
    elif farther.high < -LEAST:
        first = "Training made the picture of annotators better"
    else:
        first = f"No difference of over {LEAST:g} in the picture of annotators is seen"
    lines = [
        f"{first}: the distance from their shares is {after.distance:.3f} after and {before.distance:.3f} "
        f"before, {gap}; F1 of the majority is {after.f1:.3f} and {before.f1:.3f}.",
        f"VarCorr is {tell_number(after.varcorr)} after and {tell_number(before.varcorr)} before.",
    ]
    if floor:
        lines.append(f"Two halves of the annotators are {np.mean(floor):.3f} apart.")
    if any(lost.values()):
        lines.append(
            f"{max(lost.values())} items had no answer that names one label, and are left out."
        )
    return lines
