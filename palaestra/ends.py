"""What a run's summary says of the held-out problems, before the first step and after the last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from palaestra.stats import Interval
from palaestra.types import value_class

End = Literal["before", "after"]
KINDS = ("accuracy", "reward")


@value_class
class HeldOut:
    """How good answers to held-out problems are: an "accuracy" where all of them were judged to be
    right or wrong, else a mean "reward" in its own unit.
    """

    of: Literal["accuracy", "reward"]
    interval: Interval

    def json(self) -> dict[str, Any]:
        return {"of": self.of, **self.interval.json()}

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> HeldOut | None:
        """The inverse of `json`; None where nothing was measured. Without "of", an accuracy."""
        if found.get("mean") is None:
            return None
        return cls(
            of="reward" if found.get("of") == "reward" else "accuracy", interval=Interval.of(found)
        )


def at_ends(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Two evaluations as entries of a summary: "accuracy_before" or "reward_before", and likewise
    "..._after". What was not measured has none.
    """
    ends = {"before": before, "after": after}
    return {
        f"{found.get('of', 'accuracy')}_{end}": dict(found) for end, found in ends.items() if found
    }


def end_of(summary: Mapping[str, Any], end: End) -> dict[str, Any]:
    """The evaluation of a summary, with what it is "of"; nothing where there is none."""
    for kind in KINDS:
        found = summary.get(f"{kind}_{end}")
        if isinstance(found, Mapping) and found:
            return {"of": kind, **found}
    return {}


def with_before(metrics: Mapping[str, Any], first: Mapping[str, Any]) -> dict[str, Any]:
    """A summary that begins where another one does: with that one's evaluation before."""
    begun = {f"{kind}_before" for kind in KINDS}
    kept = {k: v for k, v in metrics.items() if k not in begun}
    return kept | {k: v for k, v in first.items() if k in begun}
