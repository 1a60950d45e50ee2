"""What a run keeps of its steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from palaestra.run.describe import describe
from palaestra.run.faces.judging import RunJudging
from palaestra.run.faces.training import RunTraining
from palaestra.run.mismatch import mismatch
from palaestra.run.moves import trace_of
from palaestra.store.rollouts import NOTHING, StepTrace
from palaestra.types import Example, Group, Groups, Key, Metrics


@dataclass(kw_only=True)
class RunRecording(RunTraining, RunJudging):
    """The episodes and numbers that a run keeps."""

    seen: list[Group] = field(init=False, repr=False, compare=False, default_factory=list)
    trace: StepTrace = field(init=False, repr=False, compare=False, default=NOTHING)
    # of the evaluation under way, by their labels; None = nobody keeps them
    attempts: dict[str, list[Group]] | None = field(init=False, default=None)
    measured_at: int = field(init=False, default=0)  # the step after which it is

    @property
    def folder(self) -> Path:
        if self.out is None:
            raise ValueError("this run has no folder")
        return self.out

    def describe(self, seen: Groups, ready: Groups) -> Metrics:
        engines = self.learners_engines
        chats = {
            f"chat/{name}/{k}": v
            for name, meter in self.meters().items()
            for k, v in meter.numbers().items()
        }
        gaps = mismatch(self.context, engines, len(self.optimisers), ready)
        return describe(seen, ready, self.bench.name) | gaps | chats | self.carrier.numbers()

    def record(
        self, seen: Groups, examples: Mapping[str, list[Example]], kept: Mapping[Key, str]
    ) -> None:
        """Keeps the step's episodes and what it made of them for the run folder."""
        self.seen = list(seen)
        self.trace = trace_of(seen, examples, kept, self.moves)
        self.moves.clear()

    def attempted(self, label: str, groups: Groups) -> None:
        """Keeps the attempts of an evaluation for the run folder."""
        if self.attempts is not None:
            self.attempts.setdefault(label, []).extend(groups)
