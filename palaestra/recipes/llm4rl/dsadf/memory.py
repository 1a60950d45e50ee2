"""System 1's memory of how well it reaches each goal, and the gates that read it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

import palaestra as pl
from palaestra.recipes.llm4rl.dsadf.errands import cosine

GateRule = Literal["lcb", "mean", "random", "fast", "slow"]
# the code of a goal, and a stream, to whether System 1 acts
Gate: TypeAlias = Callable[[np.ndarray, np.random.Generator], bool]


@pl.value_class
class GoalRecord:
    """Successes and failures at a goal, later ones weighing more where some are forgotten."""

    successes: float = 0.0
    failures: float = 0.0

    @property
    def mean(self) -> float:
        """(1 + s) / (2 + s + f): 8/12 = 0.666667 of 7 and 3."""
        return (1 + self.successes) / (2 + self.successes + self.failures)

    def bound(self, level: float) -> float:
        """The `level` quantile of Beta(1 + s, 1 + f): at 10% 0.489239 of 7 and 3."""
        return pl.stats.beta_quantile(level, 1 + self.successes, 1 + self.failures)


@dataclass
class SkillMemory:
    """A record for each goal that was tried, by its code; one that was not counts as the most like one whose
    cosine is `like` at least.

    Args:
        forget: share of a record that a new outcome takes the place of. With 5 and 5, a success at 0.1
            leaves 5.5 and 4.5: a running average goes from 0.5 to 0.55.
    """

    like: float = 0.85
    forget: float = 0.1
    codes: list[np.ndarray] = field(default_factory=list)
    records: list[GoalRecord] = field(default_factory=list)

    def find(self, code: np.ndarray) -> int:
        """The record that counts for a goal; -1 = it is unfamiliar."""
        near = [cosine(code, own) for own in self.codes]
        return int(np.argmax(near)) if near and max(near) >= self.like else -1

    def record(self, code: np.ndarray) -> GoalRecord | None:
        at = self.find(code)
        return None if at < 0 else self.records[at]

    def note(self, code: np.ndarray, success: bool) -> None:
        """Adds an outcome to the record of this goal, not to one that is like it."""
        same = (i for i, own in enumerate(self.codes) if np.array_equal(own, code))
        if (at := next(same, -1)) < 0:
            self.codes.append(code)
            self.records.append(GoalRecord())
        old, keep = self.records[at], 1 - self.forget
        self.records[at] = GoalRecord(
            successes=keep * old.successes + success, failures=keep * old.failures + (not success)
        )

    def plain(self) -> list[dict[str, Any]]:
        return [
            {"code": c.tolist(), "successes": r.successes, "failures": r.failures}
            for c, r in zip(self.codes, self.records, strict=True)
        ]


def gate_of(rule: GateRule, memory: SkillMemory, tau: float, level: float, share: float) -> Gate:
    """The gate of a rule. "random" gives a `share` of goals to System 2, whatever they are."""

    def gate(code: np.ndarray, rng: np.random.Generator) -> bool:
        if rule in ("fast", "slow"):
            return rule == "fast"
        if rule == "random":
            return bool(rng.random() >= share)
        if (record := memory.record(code)) is None:
            return False
        return (record.bound(level) if rule == "lcb" else record.mean) >= tau

    return gate
