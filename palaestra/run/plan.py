"""How a run is driven; not part of the method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from palaestra.settings.fields import DriveSettings
from palaestra.types import value_class

if TYPE_CHECKING:
    from palaestra.context import Evaluator, Runnable


@value_class
class PartRun:
    """A part of a longer run that is asked for, see `Context.once`."""

    name: str
    runnable: Runnable
    model: str | None = None  # the folder that its policy starts from; None = the run's start
    models: Mapping[str, str] = field(default_factory=dict)
    problem: Mapping[str, str] = field(default_factory=dict)  # settings; nothing = the run's
    shared: bool = False
    seed: int | None = None


@dataclass(frozen=True, kw_only=True)
class Plan(DriveSettings):
    """How a run is driven, and what else its driver asks; `labels` goes to summary.json as it is."""

    # ends at the first step after which so many have been sampled, not with the schedule
    tokens: int | None = None
    budget: Mapping[str, float] = field(default_factory=dict)  # of a program, by meter
    answers: bool = True  # whether answers to held-out tasks can be judged
    samples: int = 0  # answers drawn for each held-out task at the end, for pass@k and maj@k
    exams: Mapping[str, Evaluator] = field(default_factory=dict)  # beside those of the recipe
    # what its numbers are made from, by kind; see `origin.conditions`
    conditions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    labels: Mapping[str, Any] = field(default_factory=dict)
