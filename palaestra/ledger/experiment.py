"""A paper's claim as a small experiment that can fail: arms, what is measured, what is expected.

`palaestra reproduce ID` runs the `EXPERIMENT` of a method's module in `palaestra.claims`: every arm
with the same seeds and the same budget of sampled tokens, one cell per (arm, seed). The effect is
the mean over seeds of the paired difference, with its t interval.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from palaestra import catalogue
from palaestra.context import Runnable
from palaestra.ends import end_of
from palaestra.errors import UserError
from palaestra.stats import Interval
from palaestra.types import stage, value_class

Verdict: TypeAlias = Literal["reproduced", "not-reproduced", "inconclusive"]


@value_class
class Cell:
    """One finished run of one arm: `summary` as in summary.json (of a Program: its metrics),
    `steps` as in metrics.jsonl.
    """

    summary: Mapping[str, Any]
    steps: Sequence[Mapping[str, Any]] = ()
    folder: Path | None = None


Measure: TypeAlias = Callable[[Cell], float]


@stage
class Final:
    """A number of the summary by its path: "sampled_after.pass@16.mean"; "after.mean" and
    "before.mean" are those of the held-out problems, whether accuracy or mean reward.
    """

    path: str = "after.mean"

    def __call__(self, cell: Cell) -> float:
        found: Any = {**cell.summary, "before": end_of(cell.summary, "before")}
        found |= {"after": end_of(cell.summary, "after")}
        for name in self.path.split("."):
            if not isinstance(found, Mapping) or name not in found:
                raise UserError(
                    f"the summary of the run has no {self.path!r}; it has {', '.join(cell.summary)}"
                )
            found = found[name]
        return float(found)


@stage
class Logged:
    """Mean of a metric over the last `last` steps that have it; 0 = over all but the first `skip`.
    NaN where there is none.
    """

    metric: str
    last: int = 10
    skip: int = 0

    def __call__(self, cell: Cell) -> float:
        found = [float(s[self.metric]) for s in cell.steps if s.get(self.metric) is not None]
        found = [x for x in found if np.isfinite(x)]
        found = found[self.skip :][-self.last :]
        return float(np.mean(found)) if found else float("nan")


@stage
class Moving:
    """Mean training reward over the steps that sample and move the policy: the first `first` (NaN:
    fewer), 0 = all.
    """

    first: int = 0

    def __call__(self, cell: Cell) -> float:
        moving = [
            s
            for s in cell.steps
            if s["sampled_tokens"]
            and (s.get("policy/updates") or s.get("updates"))
            and "reward" in s
        ]
        found = [s["reward"] for s in moving][: self.first or None]
        return float(np.mean(found)) if len(found) >= max(1, self.first) else float("nan")


@stage
class Balanced:
    """Mean of a judge's accuracies on right and on wrong answers; a constant verdict scores one
    half.

    Of the last ten steps, or the `first` ones, that log "part/right and said so" and "part/wrong
    and said so"; `right` is the metric that says how many answers are right. NaN where all are, or
    none.
    """

    right: str = "reward"
    first: int = 0

    def __call__(self, cell: Cell) -> float:
        seen = [s for s in cell.steps if "part/right and said so" in s]
        seen = seen[: self.first] if self.first else seen[-10:]
        names = (self.right, "part/right and said so", "part/wrong and said so")
        right, on_right, on_wrong = (sum(s[n] for s in seen) / max(1, len(seen)) for n in names)
        return (on_right / right + on_wrong / (1 - right)) / 2 if 0 < right < 1 else float("nan")


@stage
class Greater:
    """measure(better) > measure(than). `by` is the smallest difference that would be worth the
    claim.

    Reproduced: the interval lies above 0, and the mean is `by` or more. Not reproduced: the
    interval lies below `by`. Else inconclusive.
    """

    better: str
    than: str
    by: float = 0.02

    @property
    def arms(self) -> tuple[str, str]:
        return self.than, self.better

    def verdict(self, effect: Interval) -> Verdict:
        if effect.low > 0 and effect.mean >= self.by:
            return "reproduced"
        return "not-reproduced" if effect.high < self.by else "inconclusive"

    def __str__(self) -> str:
        return (
            f"{self.better} - {self.than} > 0; a difference below {self.by:g} would not support "
            "the claim"
        )


@stage
class Same:
    """measure(one) and measure(other) differ by less than `within`: an equivalence.

    Reproduced: the interval lies inside +-within. Not reproduced: it lies outside. Else
    inconclusive.
    """

    one: str
    other: str
    within: float = 0.02

    @property
    def arms(self) -> tuple[str, str]:
        return self.other, self.one

    def verdict(self, effect: Interval) -> Verdict:
        if -self.within < effect.low and effect.high < self.within:
            return "reproduced"
        return (
            "not-reproduced"
            if effect.low > self.within or effect.high < -self.within
            else "inconclusive"
        )

    def __str__(self) -> str:
        return f"|{self.one} - {self.other}| < {self.within:g}"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """`expect` compares two arms; further arms are controls and ablations, reported beside them.

    Arms share every setting that the claim is not about. `tokens` is the budget of a cell, of a
    pipeline that of each part: all tokens that its steps sample count, by whatever model. A cell
    should take well under two minutes on one core, and then has at least 5 seeds.
    """

    claim: str  # as it can be tested here: one sentence with its quantity
    arms: Mapping[str, Runnable]
    expect: Greater | Same
    falsified_if: str
    measure: Measure = Final()
    metric: str = "held-out accuracy (greedy)"  # what `measure` is, with its unit
    # of several: a cell for each, and interquartile means over all
    task: str | tuple[str, ...] = "chain"
    model: str = "tiny"
    tokens: int = 100_000
    evaluate: int = 256  # held-out tasks
    # answers drawn per held-out task at the end; > 0 adds "sampled_after" to the summary
    samples: int = 0
    seeds: int = 5
    seconds: float = 60.0  # of one cell, roughly; said before it starts
    controls: Mapping[str, Measure] = field(default_factory=dict)  # further numbers of every cell
    note: str = ""  # what differs from the paper's setting, and what scale would decide

    @property
    def tasks(self) -> tuple[str, ...]:
        return (self.task,) if isinstance(self.task, str) else self.task

    def __post_init__(self) -> None:
        for arm in self.arms:
            if "," in arm:
                raise ValueError(
                    f"the arm {arm!r} has a comma, which parts the names of --arms; call it "
                    "otherwise"
                )
        for arm in self.expect.arms:
            if arm not in self.arms:
                raise ValueError(
                    f"the expectation names an arm {arm!r} that does not exist; there are "
                    f"{list(self.arms)}"
                )


def experiment_of(method: str) -> Experiment:
    """The experiment of a method's claim, or the `EXPERIMENT` of a user's recipe file. Raises
    UserError where there is none.
    """
    if catalogue.is_own_file(method):
        found = getattr(catalogue.find(method), "EXPERIMENT", None)
        if not isinstance(found, Experiment):
            raise UserError(
                f"{method} defines no EXPERIMENT; compare it with: palaestra compare grpo {method}"
            )
        return found
    entry = catalogue.entry_of(method)
    if not entry.claim:
        raise UserError(
            f"{method} has no experiment: no claim of it is written in palaestra.claims"
        )
    return importlib.import_module(entry.claim).EXPERIMENT
