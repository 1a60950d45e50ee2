"""Programs that answer a question about a model, with intervals and a page."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from palaestra.context import Context
from palaestra.pipeline import Pipeline
from palaestra.types import Result


@runtime_checkable
class Study(Protocol):
    """A program that answers a question about a model: what `palaestra study` runs.

    `question` is what it answers, in one line. `check_up` says that it needs no more than the model,
    what it was before training and problems, so that `palaestra study all` runs it. It may be measured
    on all rows of its data, unless it trains.
    """

    @property
    def question(self) -> str: ...
    @property
    def check_up(self) -> bool: ...
    async def run(self, ctx: Context) -> Result: ...


@runtime_checkable
class TrainingStudy(Protocol):
    """A study that trains copies of the model to compare them: rows of its data are held out."""

    @property
    def trains(self) -> bool: ...


def holds_out(study: Study | None) -> bool:
    """Whether a program needs rows that it is not trained on: any but a study that trains nothing."""
    return study is None or (isinstance(study, TrainingStudy) and study.trains)


def verb_of(runnable: object) -> str:
    """The verb of the command line that runs it."""
    return "train" if study_of(runnable) is None else "study"


def study_of(runnable: object) -> Study | None:
    """The study that a program is or that a pipeline ends with; None = it is neither."""
    if isinstance(runnable, Pipeline):
        runnable = list(runnable.parts.values())[-1].runnable
    return runnable if isinstance(runnable, Study) else None
