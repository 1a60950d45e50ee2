"""What the arms of the study show: numbers, sentences, tables and charts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

import palaestra as pl
from palaestra.recipes.analysis.backtracking.traces import TraceForm

KINDS = ("always", "at times", "never")


@dataclass(frozen=True, slots=True)
class Traces:
    """The traces of an arm: back-steps that are wanted and written, a mean, and tokens, a mean."""

    name: str
    back_steps: int = 0
    file: str = ""
    tokens: float = 0.0
    written: float = 0.0


@dataclass(frozen=True, slots=True)
class Arm:
    """An arm: steps of imitation, answers before and after reinforcement learning, and its rewards."""

    trace: Traces
    steps: int
    before: Sequence[pl.studies.Item]
    after: Sequence[pl.studies.Item]
    curve: Sequence[float]

    @property
    def right(self) -> list[float]:
        return pl.studies.right_shares(self.after)

    @property
    def mean(self) -> float:
        return float(np.mean(self.right))

    @property
    def tokens(self) -> float:
        return float(np.mean([t for x in self.after for t in x["tokens"]]))

    def back_steps(self, form: TraceForm, *, after: bool = True) -> float:
        """A mean over answers."""
        items = self.after if after else self.before
        return float(np.mean([form.count(t) for x in items for t in x["texts"]]))

    def differs(self, other: "Arm") -> float:
        """The share of answers that are not word for word those of another arm."""
        pairs = zip(self.after, other.after, strict=True)
        return float(
            np.mean(
                [a != b for x, y in pairs for a, b in zip(x["texts"], y["texts"], strict=False)]
            )
        )


def report(
    start: Sequence[pl.studies.Item], arms: Sequence[Arm], form: TraceForm
) -> pl.studies.StudyReport:
    """What the arms show, one of which is "back-0"; `start` are the answers of the start."""
    by = {arm.trace.name: arm for arm in arms}
    none, pairs = by["back-0"], max(1, len(arms) - 1)
    over = {
        n: pl.stats.paired_share_difference(none.right, arm.right, 1 - 0.05 / pairs)
        for n, arm in by.items()
        if arm is not none
    }
    backs = {a.trace.back_steps: a for n, a in by.items() if n.startswith("back-")}
    backs = dict(sorted(backs.items()))
    kinds = difficulty(start)
    moved = [none.differs(arm) for b, arm in backs.items() if b]
    numbers: dict[str, float | pl.stats.Interval] = {
        "moved": float(np.mean(moved)) if moved else 0.0,
        "best": best_of(backs),
        "right_start": pl.stats.bounded_interval(pl.studies.right_shares(start)),
        **{f"right_{n}": pl.stats.bounded_interval(arm.right) for n, arm in by.items()},
        **{f"gain_{n}": x for n, x in over.items()},
        **{f"back_steps_{n}": arm.back_steps(form) for n, arm in by.items()},
        **{f"drawdown_{n}": pl.studies.drawdown(arm.curve) for n, arm in by.items()},
    }
    return pl.studies.StudyReport(
        study="backtracking",
        question="",
        findings=tell(backs, by, over, kinds, form),
        numbers=numbers,
        protocol={"intervals": f"of differences: {pairs} of them hold together with 95%"},
        tables=[arms_table(start, by, form), *kinds_table(start, backs, kinds)],
        charts=[by_backs(backs), curves(by)],
        items=[
            {
                **{k: x[k] for k in ("problem", "id", "prompt", "gold")},
                "start": x["right"],
                "kind": kinds[i],
                "arms": {
                    n: {"right": arm.after[i]["right"], "texts": arm.after[i]["texts"]}
                    for n, arm in by.items()
                },
            }
            for i, x in enumerate(start)
        ],
    )


def best_of(backs: Mapping[int, Arm]) -> int:
    """The number of back-steps with the most right answers; of equal ones the least."""
    return max(backs, key=lambda b: (backs[b].mean, -b))


def difficulty(start: Sequence[pl.studies.Item]) -> list[str]:
    """Of each problem, how often the start is right."""
    return [KINDS[0 if x == 1 else 1 if x else 2] for x in pl.studies.right_shares(start)]


def tell(
    backs: Mapping[int, Arm],
    by: Mapping[str, Arm],
    over: Mapping[str, pl.stats.Interval],
    kinds: Sequence[str],
    form: TraceForm,
) -> list[str]:
    """The findings as sentences, the answer first."""
    points = lambda x: pl.studies.tell_interval(x, signed=True)
    best = best_of(backs)
    means = ", ".join(f"{100 * arm.mean:.1f}% with {b}" for b, arm in backs.items())
    if best and over[f"back-{best}"].low > 0:
        first = f"{best} back-steps before RL are better than none: {points(over[f'back-{best}'])}"
    elif len(backs) == 1:
        first = "Nothing to compare: there is one number of back-steps"
    else:
        first = "No number of back-steps is seen to be better than none"
        worse = [b for b in backs if b and over[f"back-{b}"].high < 0]
        first += f", and {' and '.join(map(str, worse))} are worse" if worse else ""
    lines = [f"{first}. Right after RL: {means}."]
    back_steps = ", ".join(
        f"{a.back_steps(form, after=False):.1f} and {a.back_steps(form):.1f} with {b}"
        for b, a in backs.items()
    )
    lines.append(f"Back-steps in an answer before and after RL: {back_steps}.")
    for name, arm in by.items():
        real = by.get(f"back-{arm.trace.back_steps}")
        if name.startswith("shuffled") and real is not None:
            gap = pl.stats.paired_share_difference(real.right, arm.right)
            lines.append(f"Senseless wrong steps instead of those of the problem: {points(gap)}.")
    if "cold" in over:
        lines.append(
            f"RL without traces, against traces without back-steps: {points(over['cold'])}."
        )
    parts = [
        f"{best_of_kind(backs, kinds, k)} where the start is {k} right" for k in KINDS if k in kinds
    ]
    if len(parts) > 1 and len(backs) > 1:
        lines.append(f"Most right answers by difficulty: with {', '.join(parts)}.")
    return lines


def share_of_kind(arm: Arm, kinds: Sequence[str], kind: str) -> float:
    return float(np.mean([x for x, k in zip(arm.right, kinds, strict=True) if k == kind]))


def best_of_kind(backs: Mapping[int, Arm], kinds: Sequence[str], kind: str) -> int:
    """Likewise among the problems of a kind."""
    return max(backs, key=lambda b: (share_of_kind(backs[b], kinds, kind), -b))


def arms_table(
    start: Sequence[pl.studies.Item], by: Mapping[str, Arm], form: TraceForm
) -> pl.studies.StudyTable:
    """All arms."""
    share = lambda items: pl.studies.tell_interval(
        pl.stats.bounded_interval(pl.studies.right_shares(items))
    )
    rows = [("start", "", "", share(start), "", "", "", "")]
    rows += [
        (
            name,
            f"{arm.steps} of {arm.trace.tokens:.0f} tokens" if arm.steps else "",
            f"{arm.trace.written:.1f}" if arm.steps else "",
            share(arm.before),
            share(arm.after),
            f"{arm.back_steps(form):.2f}",
            f"{arm.tokens:.0f}",
            f"{pl.studies.drawdown(arm.curve):.3f}",
        )
        for name, arm in by.items()
    ]
    columns = (
        "arm",
        "steps of imitation",
        "back-steps of a trace",
        "right before RL",
        "right after RL",
        "back-steps of an answer",
        "tokens of an answer",
        "worst fall of the reward",
    )
    return pl.studies.StudyTable("The arms", columns, rows)


def kinds_table(
    start: Sequence[pl.studies.Item], backs: Mapping[int, Arm], kinds: Sequence[str]
) -> list[pl.studies.StudyTable]:
    """Right answers by how often the start is right."""
    rows = [
        (
            k,
            str(sum(x == k for x in kinds)),
            *(f"{100 * share_of_kind(a, kinds, k):.1f}%" for a in backs.values()),
        )
        for k in KINDS
        if k in kinds
    ]
    columns = ("the start is right", "problems", *(f"{b} back-steps" for b in backs))
    note = "Problems are sorted by few answers of the start, so luck is among the reasons."
    return [pl.studies.StudyTable("By difficulty, after RL", columns, rows, note)]


def by_backs(backs: Mapping[int, Arm]) -> pl.studies.StudyChart:
    """Right answers over numbers of back-steps, before and after reinforcement learning."""
    lines = [
        line_of(
            name,
            list(backs),
            [pl.stats.bounded_interval(pl.studies.right_shares(x)) for x in some],
        )
        for name, some in (
            ("after RL", [a.after for a in backs.values()]),
            ("before RL", [a.before for a in backs.values()]),
        )
    ]
    return pl.studies.StudyChart(
        "Right answers by back-steps of a trace", "back-steps", "right answers", lines, share=True
    )


def line_of(
    name: str, x: Sequence[float], points: Sequence[pl.stats.Interval]
) -> pl.studies.StudyLine:
    return pl.studies.StudyLine(
        name, x, [p.mean for p in points], [p.low for p in points], [p.high for p in points]
    )


def curves(by: Mapping[str, Arm]) -> pl.studies.StudyChart:
    """The reward of each arm by step."""
    lines = [
        pl.studies.StudyLine(name, list(range(1, len(arm.curve) + 1)), arm.curve)
        for name, arm in by.items()
        if arm.curve
    ]
    return pl.studies.StudyChart("Reward during RL", "step", "reward", lines)
