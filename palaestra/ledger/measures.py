"""Measures: what an experiment reads from a finished run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from palaestra.ends import end_of
from palaestra.errors import UserError
from palaestra.store.reading import StepRollouts
from palaestra.types import stage, value_class

# of a judge, as logged: both shares are of all answers
VERDICTS = ("part/right and said so", "part/wrong and said so")
AT_TEMPERATURE = "at_temperature"  # in the summary of a start: what it samples, by temperature


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
        return float(self._at(cell, self.path.split(".")))

    def problems(self, cell: Cell) -> int | None:
        """The number of problems of which it is the solved share; None = it is something else."""
        *where, last = self.path.split(".")
        scores = self._at(cell, where)
        return scores.get("n") if last == "mean" and scores.get("of") == "accuracy" else None

    def _at(self, cell: Cell, path: Sequence[str]) -> Any:
        value: Any = {**cell.summary, "before": end_of(cell.summary, "before")}
        value |= {"after": end_of(cell.summary, "after")}
        for name in path:
            if not isinstance(value, Mapping) or name not in value:
                raise UserError(
                    f"the summary of the run has no {self.path!r}; it has {', '.join(cell.summary)}"
                )
            value = value[name]
        return value


@stage
class Logged:
    """Mean of a metric over the last `last` steps that have it; 0 = over all but the first `skip`.
    NaN where there is none.
    """

    metric: str
    last: int = 10
    skip: int = 0

    def __call__(self, cell: Cell) -> float:
        values = [float(s[self.metric]) for s in cell.steps if s.get(self.metric) is not None]
        values = [x for x in values if np.isfinite(x)]
        values = values[self.skip :][-self.last :]
        return float(np.mean(values)) if values else float("nan")


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
        rewards = [s["reward"] for s in moving][: self.first or None]
        return float(np.mean(rewards)) if len(rewards) >= max(1, self.first) else float("nan")


@stage
class Balanced:
    """Mean of a judge's accuracies on right and on wrong answers; a constant verdict scores one
    half.

    Of the last ten steps, or the `first` ones, that log "part/right and said so" and "part/wrong
    and said so"; `right` is the metric that says how many answers are right. Where it is a part of
    the reward and no step logs these, they are counted in the rollouts, whose reward then is the
    verdict, 0 or 1. NaN where all are right, or none, or nobody knows.
    """

    right: str = "reward"
    first: int = 0

    def __call__(self, cell: Cell) -> float:
        names = (self.right, *VERDICTS)
        seen = [s for s in cell.steps if VERDICTS[0] in s]
        shares = [[float(s[n]) for n in names] for s in self._some(seen)] or self._counted(cell)
        if not shares:
            return float("nan")
        right, on_right, on_wrong = np.mean(shares, 0).tolist()
        return (on_right / right + on_wrong / (1 - right)) / 2 if 0 < right < 1 else float("nan")

    def _some(self, steps: Sequence[Any]) -> Sequence[Any]:
        return steps[: self.first] if self.first else steps[-10:]

    def _counted(self, cell: Cell) -> list[list[float]]:
        """Of every rollout of these steps, in the last part of the run that has any: right, right
        and said so, wrong and said so.
        """
        part = self.right.removeprefix("part/")
        if cell.folder is None or part == self.right:
            return []
        places = [cell.folder / p for p in cell.summary.get("parts", {})] or [cell.folder]
        written = [sorted((p / "rollouts").glob("step-*.parquet")) for p in places]
        files = next((count for count in written[::-1] if count), [])
        rollouts = [r for file in self._some(files) for r in StepRollouts(file).valid]
        pairs = [(r.reward_parts[part], r.reward) for r in rollouts if part in r.reward_parts]
        verdicts = [(x, answer) for x, answer in pairs if {x, answer} <= {0.0, 1.0}]
        return [[x, x * answer, (1 - x) * (1 - answer)] for x, answer in verdicts]


@stage
class Less:
    """`of` less another measure: for what is better the less there is of it."""

    measure: Measure
    of: float = 0.0

    def __call__(self, cell: Cell) -> float:
        return self.of - self.measure(cell)


@stage
class Area:
    """The area under the learning curve over the sampled tokens, as a mean: the training reward
    that an average token was sampled at. NaN with fewer than two steps that sample.
    """

    metric: str = "reward"

    def __call__(self, cell: Cell) -> float:
        tokens_N, y_N = course(cell, self.metric)
        if len(tokens_N) < 2:
            return float("nan")
        width_N = np.diff(tokens_N)
        return float(((y_N[1:] + y_N[:-1]) / 2 * width_N).sum() / width_N.sum())


@stage
class TokensTo:
    """Sampled tokens, in thousands, after which the mean of a metric over `window` steps first
    reaches `level`. NaN where it never does.
    """

    level: float
    metric: str = "reward"
    window: int = 5

    def __call__(self, cell: Cell) -> float:
        tokens_N, y_N = course(cell, self.metric)
        if len(y_N) < self.window:
            return float("nan")
        smooth_N = np.convolve(y_N, np.ones(self.window) / self.window, mode="valid")
        reached = np.flatnonzero(smooth_N >= self.level)
        return (
            float(tokens_N[reached[0] + self.window - 1]) / 1000 if len(reached) else float("nan")
        )


def course(cell: Cell, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Sampled tokens, rising, and a metric at these, over the steps that have both."""
    known = [
        (float(s["sampled_tokens"]), float(s[metric]))
        for s in cell.steps
        if s.get("sampled_tokens") and s.get(metric) is not None and np.isfinite(s[metric])
    ]
    rising = [p for i, p in enumerate(known) if not i or p[0] > known[i - 1][0]]
    points = np.array(rising, np.float64).reshape(-1, 2)
    return points[:, 0], points[:, 1]


@runtime_checkable
class BesideStart(Protocol):
    """A measure that also reads the untrained start of the same seed."""

    def beside(self, cell: Cell, start: Cell) -> float: ...


def reads_start(measure: Measure) -> bool:
    return isinstance(measure, BesideStart)


@stage
class OverMatchedStart:
    """pass@k above that of the untrained start at the temperature at which the start has the same
    pass@1: what training adds to lowering a temperature.

    The start's pass@k as a function of its pass@1 goes straight between the temperatures that
    `Untrained` samples at, and is constant beyond them.
    """

    k: int = 8

    def __call__(self, cell: Cell) -> float:
        raise UserError(
            "OverMatchedStart also reads the untrained start of the same seed: it is a measure of an "
            "experiment that has the arm `start`"
        )

    def beside(self, cell: Cell, start: Cell) -> float:
        shares = start.summary.get(AT_TEMPERATURE, {}).values()
        points = sorted((s["pass@1"]["mean"], s[f"pass@{self.k}"]["mean"]) for s in shares)
        if not points:
            raise UserError(f"the start has no {AT_TEMPERATURE!r}; declare start=Untrained(...)")
        ones, ks = zip(*points, strict=True)
        own = cell.summary["sampled_after"]
        return float(own[f"pass@{self.k}"]["mean"] - np.interp(own["pass@1"]["mean"], ones, ks))
