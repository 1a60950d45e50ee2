"""Step times that others published beside what `sizing` predicts for their settings, with one set of
assumptions for all rows: none is fitted to a row.

Where a source does not say how long answers are (`answer_tokens` 0), its seconds of the update say it:
the length at which the prediction equals them. Its update is then no test, its other seconds are.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from palaestra.planning.model_sizes import ModelSize, size_named
from palaestra.planning.sizing import (
    GPUS,
    Assumptions,
    Gpu,
    Work,
    colocated,
    log_prob_seconds,
    rollout,
    separate,
    update_seconds,
)
from palaestra.types import value_class

FILE = Path(__file__).with_name("published.tsv")


@value_class
class Published:
    """A published number of seconds and the settings of its run; `what` = step, rollout, log-probs or
    update; `sampling` = GPUs that do nothing else, 0 = all take turns.
    """

    system: str
    source: str
    model: str
    gpu: str
    gpus: int
    sampling: int
    tensor: int
    mode: str
    work: Work
    sigma: float | None  # of answers' lengths where they are no sample
    what: str
    seconds: float


@value_class
class Compared:
    """`answer` = tokens of an answer, inferred where nobody published them."""

    row: Published
    answer: float
    predicted: float
    inferred: bool

    @property
    def ratio(self) -> float:
        """Predicted over published."""
        return self.predicted / self.row.seconds

    @property
    def tests(self) -> bool:
        """Whether the prediction could have been wrong."""
        return not (self.inferred and self.row.what == "update")


def read() -> list[Published]:
    """All rows of published.tsv."""
    with FILE.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader((x for x in file if not x.startswith("#")), delimiter="\t"))
    whole = ("prompts", "group", "prompt_tokens", "max_tokens", "old", "references")
    return [
        Published(
            system=x["system"],
            source=x["source"],
            model=x["model"],
            gpu=x["gpu"],
            mode=x["mode"],
            what=x["what"],
            gpus=int(x["gpus"]),
            sampling=int(x["sampling"]),
            tensor=int(x["tensor"]),
            work=Work(answer_tokens=float(x["answer_tokens"]), **{k: int(x[k]) for k in whole}),
            sigma=float(x["sigma"]) if x["sigma"] else None,
            seconds=float(x["seconds"]),
        )
        for x in lines
    ]


def compare(assume: Assumptions = Assumptions(), rows: Sequence[Published] = ()) -> list[Compared]:
    """Every row beside its prediction."""
    rows = rows or read()
    updates = {key(r): r.seconds for r in rows if r.what == "update"}
    compared = list[Compared]()
    for row in rows:
        size, gpu = size_named(row.model), GPUS[row.gpu]
        own = assume if row.sigma is None else replace(assume, sigma=row.sigma)
        inferred = row.work.answer_tokens == 0
        work = row.work
        if inferred:
            tokens = tokens_of_update(size, gpu, row.gpus, work, own, updates[key(row)])
            work = replace(work, answer_tokens=tokens)
        compared.append(
            Compared(
                row=row,
                answer=work.answer_tokens,
                predicted=predict(row, size, gpu, work, own),
                inferred=inferred,
            )
        )
    return compared


def key(row: Published) -> tuple[str, str, int]:
    """What the numbers of one run have in common."""
    return row.source, row.model, row.gpus


def tokens_of_update(
    size: ModelSize, gpu: Gpu, gpus: int, work: Work, assume: Assumptions, seconds: float
) -> float:
    """Tokens of an answer at which the update takes so many seconds."""
    low, high = 1.0, float(work.max_tokens)
    for _ in range(40):
        middle = (low + high) / 2
        long = replace(work, answer_tokens=middle)
        if update_seconds(size, gpu, gpus, long, assume) < seconds:
            low = middle
        else:
            high = middle
    return round((low + high) / 2)


def predict(row: Published, size: ModelSize, gpu: Gpu, work: Work, assume: Assumptions) -> float:
    """Seconds of what the row is about."""
    if row.what == "rollout":
        return rollout(size, gpu, row.gpus, row.tensor, work, assume).seconds
    if row.what == "log-probs":
        return log_prob_seconds(size, gpu, row.gpus, work, assume)
    if row.what == "update":
        return update_seconds(size, gpu, row.gpus, work, assume)
    if row.sampling:
        split = (row.sampling, row.gpus - row.sampling)
        ways = separate(size, gpu, split, row.tensor, work, assume)
        return next(way.step for way in ways if way.name == row.mode)
    return colocated(size, gpu, row.gpus, row.tensor, work, assume).step


def table(rows: Sequence[Compared]) -> list[list[str]]:
    """Cells of a table, a line for each."""
    return [
        [
            c.row.system,
            c.row.model,
            f"{c.row.gpus} {c.row.gpu}",
            c.row.mode if c.row.what == "step" else "",
            f"{c.row.work.prompts} x {c.row.work.group} x {c.answer:,.0f}{' (inferred)' if c.inferred else ''}",
            c.row.what,
            f"{c.row.seconds:,.0f}",
            f"{c.predicted:,.0f}",
            f"{c.ratio:.2f}" if c.tests else "(given)",
        ]
        for c in rows
    ]


HEAD = [
    "system",
    "model",
    "GPUs",
    "mode",
    "answers x tokens",
    "what",
    "published s",
    "predicted s",
    "ratio",
]
