"""Programs that look at a model and train nothing."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from palaestra.context import Context
from palaestra.pipeline import Pipeline
from palaestra.types import Result


@runtime_checkable
class Study(Protocol):
    """A program that looks at a model and trains nothing: what `palaestra study` runs.

    `question` is what it answers, in one line. `check_up` says that it needs no more than the model,
    what it was before training and problems, so that `palaestra study all` runs it. It may be measured on all rows of its data.
    """

    @property
    def question(self) -> str: ...
    @property
    def check_up(self) -> bool: ...
    async def run(self, ctx: Context) -> Result: ...


def study_of(runnable: object) -> Study | None:
    """The study that a program is or that a pipeline ends with; None = it is neither."""
    if isinstance(runnable, Pipeline):
        runnable = list(runnable.parts.values())[-1].runnable
    return runnable if isinstance(runnable, Study) else None
