"""T-competitions: two kinds of small tables, drawn from a seed, in which a label or a number is predicted.

    plants   two kinds of flowers on a checkerboard of length and width, accuracy: near rows tell most
    prices   a straight line in four columns, and noise, root mean squared error

A program may import the baseline models as `kit`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from palaestra.toys import kit
from palaestra.types import rng_of

KINDS = ("plants", "prices")
TRAIN, TEST = 60, 40  # rows
KIT = Path(kit.__file__)


class DrawnCompetition(NamedTuple):
    """A competition as files. `public` are those that programs see, by name."""

    description: str
    metric: str
    target: str
    public: dict[str, str]
    answers: str
    solutions: tuple[str, ...]


def draw_competition(kind: str, seed: int) -> DrawnCompetition:
    """The competition of a kind and a seed."""
    rng = rng_of(("competitions", kind, seed))
    n = TRAIN + TEST
    if kind == "plants":
        names, target, metric = ("length", "width"), "kind", "accuracy"
        x_ND = rng.uniform(0, 3, (n, 2)).round(3)
        labels = np.array(["lily", "rose"])[(np.floor(x_ND).sum(1) % 2).astype(int)]
        y_N = [str(v) for v in labels]
    else:
        names, target, metric = ("area", "rooms", "age", "floor"), "price", "rmse"
        x_ND = rng.normal(0, 1, (n, 4)).round(3)
        noisy = 10 + x_ND @ rng.uniform(1, 3, 4) + rng.normal(0, 0.5, n)
        y_N = [repr(float(v)) for v in noisy.round(3)]
    rows = [[str(i), *(repr(float(v)) for v in x)] for i, x in enumerate(x_ND)]
    head = ("id", *names)
    public = {
        "train.csv": as_csv(
            (*head, target), ([*r, y] for r, y in zip(rows[:TRAIN], y_N, strict=False))
        ),
        "test.csv": as_csv(head, rows[TRAIN:]),
        "sample_submission.csv": as_csv(("id", target), ([r[0], y_N[0]] for r in rows[TRAIN:])),
        "kit.py": kit_text("label" if kind == "plants" else "number"),
    }
    answers = as_csv(
        ("id", target), ([r[0], y] for r, y in zip(rows[TRAIN:], y_N[TRAIN:], strict=True))
    )
    solutions = tuple(f"import kit\nkit.run({name!r})" for name in kit.MODELS)
    return DrawnCompetition(f"{kind} {seed}", metric, target, public, answers, solutions)


def kit_text(predicts: str) -> str:
    """The file of baseline models, as programs import it."""
    return f"{KIT.read_text()}\n\nPREDICTS = {predicts!r}\n"


def as_csv(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return out.getvalue()
