"""What a run's summary says of the held-out problems, before the first step and after the last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from palaestra.stats import Interval
from palaestra.types import value_class

__all__ = [
    "HeldOut",
    "at_ends",
]

End = Literal["before", "after"]
ENDS: tuple[End, ...] = ("before", "after")
HeldOutKind: TypeAlias = Literal["accuracy", "reward", "ranking", "margin", "loss"]
# what each is called; of several that one run measures, the first here is the main one
HELD_OUT: Mapping[HeldOutKind, str] = {
    "accuracy": "held-out accuracy",
    "reward": "mean held-out reward",
    "ranking": "held-out pairs ranked right",
    "margin": "held-out margin",
    "loss": "held-out loss",
}
# in a summary: the data have no answers that those to held-out problems could be judged by
NOT_JUDGED: Mapping[str, bool] = {"answers_judged": False}
SHARES = ("accuracy", "ranking")
# of a summary, what is no finding of the run
HOUSEKEEPING = (
    "version", "recipe", "task", "model", "command", "resume_command", "packages", "caveat", "seed", "steps",
    "sampled_tokens", "seconds", "tools", "answers_judged", "changed", "set", "made_with", "spent", "out",
    "phase_seconds", "peak_memory_mb", "weights_sha256", "artifacts", "part", "parts",
    "evaluations", "best",
)  # fmt: skip


@value_class
class HeldOut:
    """How good a model is on held-out problems.

    `of` answers: "accuracy" where all were judged to be right or wrong, else a mean "reward" in its
    own unit. Of recorded pairs: the share of right "ranking", in which a tie counts one half, and
    the mean "margin" in the objective's `unit`. Of recorded answers: the "loss", in nats a token.
    """

    of: HeldOutKind
    interval: Interval
    unit: str = ""  # of the mean; "" = a share, or one that nobody names

    @property
    def is_share(self) -> bool:
        return self.of in SHARES

    def json(self) -> dict[str, Any]:
        unit = {"unit": self.unit} if self.unit else {}
        return {"of": self.of, **self.interval.json(), **unit}

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> HeldOut | None:
        """The inverse of `json`; None where nothing was measured. Without "of", as older runs wrote
        it, an accuracy where its bounds allow that.
        """
        if record.get("mean") is None:
            return None
        of: HeldOutKind = "accuracy" if may_be_share(record) else "reward"
        for kind in HELD_OUT:
            of = kind if kind == record.get("of") else of
        return cls(of=of, interval=Interval.of(record), unit=str(record.get("unit") or ""))


def may_be_share(record: Mapping[str, Any]) -> bool:
    """Whether a mean and its interval lie between 0 and 1."""
    return all(0 <= x <= 1 for k in ("mean", "low", "high") if (x := record.get(k)) is not None)


def evaluation_of(held: Sequence[HeldOut]) -> dict[str, Any]:
    """One evaluation as a record: the main thing measured, with the others "beside" it."""
    if not held:
        return {}
    main, *others = sorted(held, key=lambda h: list(HELD_OUT).index(h.of))
    return main.json() | ({"beside": [h.json() for h in others]} if others else {})


def parts_of(evaluation: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All that an evaluation measured, the main thing first."""
    main = {k: v for k, v in evaluation.items() if k != "beside"}
    return [main, *map(dict, evaluation.get("beside", ()))] if main else []


def at_ends(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Two evaluations as entries of a summary: "accuracy_before" or "reward_before", and likewise
    "..._after". What was not measured has none.
    """
    ends = {"before": before, "after": after}
    return {
        f"{value.get('of', 'accuracy')}_{end}": value
        for end, evaluation in ends.items()
        for value in parts_of(evaluation)
    }


def beside_ends(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What evaluators found at both ends, by their names: {"before": ..., "after": ...}. Before the
    first step nobody measured what was asked for later.
    """
    ends = {"before": before, "after": after}
    return {n: {e: value[n] for e, value in ends.items() if n in value} for n in after}


def numbers_in(record: Mapping[str, Any], prefix: str = "") -> list[tuple[str, HeldOut | float]]:
    """The numbers of plain data by their paths, with "/" between; a record of `HeldOut.json` is
    one. What is no number is left out.
    """
    lines: list[tuple[str, HeldOut | float]] = []
    for name, x in record.items():
        path = f"{prefix}{name}"
        if isinstance(x, Mapping):
            held = HeldOut.read(x) if {"mean", "low"} <= x.keys() else None
            lines += [(path, held)] if held else numbers_in(x, f"{path}/")
        elif isinstance(x, int | float) and not isinstance(x, bool):
            lines.append((path, float(x)))
    return lines


def found_beside(summary: Mapping[str, Any]) -> dict[str, list[HeldOut | float]]:
    """What a run found beside its held-out problems, by name: of an evaluator the number before and
    the one after, of a program its numbers.
    """
    values_beside: dict[str, list[HeldOut | float]] = {}
    for name, ends in summary.get("evaluations", {}).items():
        given = [ends.get(end) for end in ENDS] if isinstance(ends, Mapping) else []
        for numbers in (x for x in given if isinstance(x, Mapping)):
            for path, x in numbers_in(numbers, f"{name}/"):
                values_beside.setdefault(path, []).append(x)
    known = {*HOUSEKEEPING, *(f"{kind}_{end}" for kind in HELD_OUT for end in ENDS)}
    own = numbers_in({k: v for k, v in summary.items() if k not in known})
    return {**values_beside, **{path: [x] for path, x in own}}


def end_of(summary: Mapping[str, Any], end: End) -> dict[str, Any]:
    """The main evaluation of a summary, with what it is "of"; nothing where there is none."""
    return next(iter(all_of(summary, end)), {})


def all_of(summary: Mapping[str, Any], end: End) -> list[dict[str, Any]]:
    """All that a summary says of the held-out problems at an end, the main thing first."""
    values_at_end = ((kind, summary.get(f"{kind}_{end}")) for kind in HELD_OUT)
    some = [(kind, x) for kind, x in values_at_end if isinstance(x, Mapping) and x]
    # older runs called every mean an accuracy
    mean = lambda kind, x: kind == "accuracy" and "of" not in x and not may_be_share(x)
    return [{"of": "reward" if mean(kind, x) else kind, **x} for kind, x in some]


def kinds_of(summary: Mapping[str, Any]) -> set[str]:
    """The kinds of what a summary says of held-out problems, at either end, as its entries call
    them.
    """
    return {kind for kind in HELD_OUT for end in ENDS if summary.get(f"{kind}_{end}")}


def describe_changes_on_the_way(summary: Mapping[str, Any]) -> str:
    """What a run was changed in while it went on, in a line; "" = nothing."""
    descriptions = [
        f"after {x.get('after')}"
        + (f": {', '.join(map(str, what))}" if (what := x.get("what")) else "")
        for x in summary.get("changed", ())
    ]
    if not descriptions:
        return ""
    gone = any(x.get("problem") for x in summary["changed"])
    left = "; the evaluation before is of what was there then, so it is left out" if gone else ""
    return (
        f"the run was changed on the way ({'; '.join(descriptions)}){left}; a run in a new folder "
        "measures one setting from end to end"
    )


def with_before(metrics: Mapping[str, Any], first: Mapping[str, Any]) -> dict[str, Any]:
    """A summary that begins where another one does: with that one's evaluation before, of what both
    measure. How a reward model ranks pairs says nothing of the policy that comes after it.
    """
    begun = {f"{kind}_before" for kind in HELD_OUT}
    measured = {f"{kind}_before" for kind in kinds_of(metrics)}
    kept = {k: v for k, v in metrics.items() if k not in begun}
    if others := kept.get("evaluations"):
        befores, afters = (
            {n: x[end] for n, x in value.items() if end in x}
            for value, end in ((first.get("evaluations", {}), "before"), (others, "after"))
        )
        kept["evaluations"] = beside_ends(befores, afters)
    return kept | {k: v for k, v in first.items() if k in begun & measured}
