"""What the probes of a model say, as sentences, tables and lines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import palaestra as pl
from palaestra.recipes.analysis.sawmil.layer import LayerScore, VeracitySplit, score_layer
from palaestra.recipes.analysis.sawmil.margin import METHODS, Method

VERDICTS = ("true", "false", "neither")
CALLED: Mapping[Method, str] = {
    "sawmil": "sAwMIL",
    "svm": "support vectors, last token",
    "mean": "difference of means, last token",
}


@dataclass(frozen=True, slots=True, eq=False)
class LabelledStatements:
    """What is probed: tasks with their labels, entities and domains, and how many repeats there were."""

    tasks: Sequence[pl.Task]
    labels: Sequence[str]
    entities: Sequence[str]
    domains: Sequence[str]
    repeats: int = 0

    @property
    def classes(self) -> list[str]:
        return sorted({*self.labels})


@dataclass(frozen=True, slots=True, eq=False)
class VeracityFindings:
    """The fits of each model, place and method, and what follows from them."""

    rows: LabelledStatements
    split: VeracitySplit
    alpha: float
    fits: Mapping[str, Mapping[int, Mapping[Method, Any]]]

    @property
    def test(self) -> list[str]:
        return [self.rows.labels[i] for i in self.split.test]

    @property
    def guess(self) -> float:
        """The share of the fitted half's most frequent label among the measured statements."""
        fitted = [self.rows.labels[i] for i in self.split.train]
        return self.test.count(max(self.rows.classes, key=fitted.count)) / len(self.test)

    def judge(self, fit: Mapping[str, Any]) -> LayerScore:
        calibration = [self.rows.labels[i] for i in self.split.calibration]
        return score_layer(fit, self.rows.classes, calibration, self.test, self.alpha)

    def score(self, model: str, place: int, method: Method = "sawmil") -> LayerScore:
        return self.judge(self.fits[model][place][method])

    def place(self, model: str) -> int:
        """The one of the best correlation on the fitted half; of equal ones the first."""
        return max(self.fits[model], key=lambda p: self.fits[model][p]["sawmil"]["fitted"])

    def right(self, fit: Mapping[str, Any]) -> list[bool]:
        """Of statements of another domain."""
        predicted = np.array(fit["test"]).argmax(1)
        gold = [self.rows.labels[i] for i in fit["rows"]]
        return [self.rows.classes[a] == b for a, b in zip(predicted, gold, strict=True)]

    def moved(self, place: int) -> float:
        """The mean total variation between the probabilities of the model and the start at the model's
        place, or the start's last one where it has none of that number.
        """
        base = self.fits["base"]
        other = base[place if place in base else max(base)]["sawmil"]
        p, q = np.array(self.fits["policy"][place]["sawmil"]["test"]), np.array(other["test"])
        return float(np.abs(p - q).sum(1).mean() / 2)

    def lines(self, place: int) -> list[dict[str, Any]]:
        """A line for each measured statement."""
        sets = self.score("policy", place).sets
        p_NC = {m: np.array(f[self.place(m)]["sawmil"]["test"]) for m, f in self.fits.items()}
        return [
            {
                "id": self.rows.tasks[i].id,
                "statement": last_text(self.rows.tasks[i]),
                "label": self.rows.labels[i],
                "entity": self.rows.entities[i],
                "set": list(sets[k]),
                **{
                    m: dict(zip(self.rows.classes, p[k].tolist(), strict=True))
                    for m, p in p_NC.items()
                },
            }
            for k, i in enumerate(self.split.test)
        ]


def last_text(task: pl.Task) -> str:
    return str(task.prompt[-1].content)


def tell(
    study: VeracityFindings,
    best: LayerScore,
    shuffled: Sequence[LayerScore],
    depth: int,
    alpha: float,
    steering: Mapping[str, float],
    transfer: Mapping[str, pl.stats.Interval],
) -> list[str]:
    """The findings as sentences, the answer first."""
    n, place = len(study.test), study.place("policy")
    *some, last = [y for y in VERDICTS if y in study.rows.classes]
    labels = f"{', '.join(some)} and {last}"
    share = pl.stats.proportion(sum(best.right), n)
    chance = [float(np.mean(s.right)) for s in shuffled]
    seen = share.low > max(study.guess, *chance)
    first = (
        f"{'Hidden states tell' if seen else 'Hidden states are not seen to tell'} {labels} apart: at place {place} "
        f"of {depth} the probe is right on {pl.studies.tell_interval(share)} of {n} statements about entities that "
        f"it was not fitted to"
    )
    controls = (
        f"{np.mean(chance):.1%} with shuffled labels ({min(chance):.1%} to {max(chance):.1%} in {len(chance)} "
        f"shuffles), {study.guess:.1%} by the most frequent label"
    )
    lines = [
        f"{first}; {controls}.",
        f"Sets that may miss the label {alpha:.0%} of the time hold it in {best.coverage:.1%}, and {best.acceptance:.1%} "
        f"of them hold nothing else; wMCC is {best.wmcc:.3f} (MCC of all statements {best.mcc:.3f}, with shuffled "
        f"labels {np.mean([s.mcc for s in shuffled]):.3f}).",
    ]
    if "base" in study.fits:
        at = study.place("base")
        start = study.score("base", at)
        more = pl.stats.paired_share_difference(start.right, best.right)
        lines.append(
            f"In the start, at its place {at}, the probe is right on {np.mean(start.right):.1%}: training added "
            f"{pl.studies.tell_interval(more, signed=True)}."
        )
    if steering:
        lines.append(
            f'Adding the direction of true less false moves log p("true") - log p("false") by {steering["own"]:+.2f} '
            f"nats, random ones of the same length by {steering['random']:.2f} either way."
        )
    lines += [
        f"On {d}, from the statements of all other domains, {pl.studies.tell_interval(x)} are right."
        for d, x in transfer.items()
    ]
    return lines


def methods_table(study: VeracityFindings, place: int) -> pl.studies.StudyTable:
    """All probes at the chosen place, and the start's."""
    rows = []
    for model in reversed(list(study.fits)):
        at = place if model == "policy" else study.place(model)
        for method in METHODS:
            s = study.score(model, at, method)
            rows.append(
                (
                    "model" if model == "policy" else "start",
                    str(at),
                    CALLED[method],
                    f"{np.mean(s.right):.1%}",
                    f"{s.mcc:.3f}",
                    f"{s.acceptance:.1%}",
                    f"{s.wmcc:.3f}",
                    f"{s.coverage:.1%}",
                )
            )
    columns = ("of", "place", "probe", "right", "MCC", "one label", "wMCC", "coverage")
    return pl.studies.StudyTable("Probes at the chosen place", columns, rows)


def places_table(study: VeracityFindings) -> list[pl.studies.StudyTable]:
    """sAwMIL at every place of the model, label by label."""
    test, rows = study.test, []
    for place in study.fits["policy"]:
        s = study.score("policy", place)
        of = lambda label, s=s: [r for r, y in zip(s.right, test, strict=True) if y == label]
        shares = [f"{np.mean(of(c)):.1%}" if of(c) else "?" for c in study.rows.classes]
        rows.append((str(place), f"{s.mcc:.3f}", f"{s.wmcc:.3f}", f"{s.coverage:.1%}", *shares))
    columns = ("place", "MCC", "wMCC", "coverage", *(f"right of {c}" for c in study.rows.classes))
    note = "Where one label is right less often than another, their signals are not mirror images."
    return [pl.studies.StudyTable("The model, place by place", columns, rows, note)]


def chart(study: VeracityFindings) -> pl.studies.StudyChart:
    """The share of right statements over places."""
    lines = []
    for model, places in reversed(list(study.fits.items())):
        points = [
            pl.stats.proportion(sum(study.score(model, p).right), len(study.test)) for p in places
        ]
        lines.append(
            pl.studies.StudyLine(
                "model" if model == "policy" else "start",
                list(places),
                [p.mean for p in points],
                [p.low for p in points],
                [p.high for p in points],
            )
        )
    places = list(study.fits["policy"])
    lines.append(pl.studies.StudyLine("guess", places, [study.guess] * len(places)))
    return pl.studies.StudyChart(
        "Statements whose label is read off, by place",
        "place (0 = embeddings)",
        "right",
        lines,
        share=True,
    )
