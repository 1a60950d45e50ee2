"""What the arms show: by level, without media, of their thoughts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import palaestra as pl

Interval = pl.stats.Interval


@dataclass(frozen=True, slots=True)
class LevelArm:
    """A model and its answers to the held-out problems, in their order."""

    name: str
    items: Sequence[Mapping[str, Any]]

    def right(self, level: str | None = None, of: str = "right") -> list[float]:
        """1 or 0 of each problem of a level, None = all."""
        return [float(x[of]) for x in self.items if level is None or x["level"] == level]

    def share(self, level: str | None = None, of: str = "right") -> Interval:
        right = self.right(level, of)
        return pl.stats.proportion(sum(right), len(right))

    @property
    def consistency(self) -> Interval | None:
        """Of the answers that choose an option and whose thought supports one, the share where it is the
        same.
        """
        agree = [x["consistent"] for x in self.items if x["consistent"] is not None]
        return pl.stats.proportion(sum(agree), len(agree)) if agree else None

    @property
    def silent(self) -> float:
        """Share of answers without a choice, or whose thought supports nothing."""
        return float(np.mean([x["consistent"] is None for x in self.items]))

    @property
    def mass(self) -> tuple[float, float] | None:
        """Attention to pictures, and what even attention would be."""
        masses = [(x["mass"], x["uniform"]) for x in self.items if "mass" in x]
        return (float(np.mean([m for m, _ in masses])), float(np.mean([u for _, u in masses]))) if masses else None  # fmt: skip

    def differs(self, other: "LevelArm") -> float:
        """The share of answers that are not word for word those of another model."""
        return float(
            np.mean([x["text"] != y["text"] for x, y in zip(self.items, other.items, strict=True)])
        )


def levels_of(arm: LevelArm) -> list[str]:
    return sorted({x["level"] for x in arm.items})


def report(arms: Sequence[LevelArm]) -> pl.studies.StudyReport:
    """What the models show, the first of which is the start."""
    start, levels = arms[0], levels_of(arms[0])
    others = arms[1:]
    pairs = max(1, len(others) * len(levels))
    gains = {
        (a.name, level): pl.stats.paired_share_difference(
            start.right(level), a.right(level), 1 - 0.05 / pairs
        )
        for a in others
        for level in levels
    }
    against = rivals(arms, levels)
    names = [a.name for a in rival_arms(arms) or ()]
    numbers: dict[str, float | Interval] = {
        "moved": float(np.mean([a.differs(start) for a in others] or [0.0])),
        **{f"right_{a.name}": a.share() for a in arms},
        **{f"right_{a.name}_{level}": a.share(level) for a in arms for level in levels if level},
        **{f"{of}_{a.name}": a.share(of=of) for a in arms for of in controls(arms)},
        **{f"consistent_{a.name}": x for a in arms if (x := a.consistency) is not None},
        **{f"lenient_{a.name}": float(np.mean(a.right(of="lenient"))) for a in arms},
        **{f"gain_{name}_{level or 'all'}": x for (name, level), x in gains.items()},
        **{f"rl_over_sft_{level or 'all'}": x for level, x in against.items()},
        **{f"attention_{a.name}": m[0] for a in arms if (m := a.mass) is not None},
    }
    return pl.studies.StudyReport(
        study="seed-bench-r1",
        question="",
        findings=tell(arms, against, gains, names),
        numbers=numbers,
        protocol={"intervals": f"of gains: {pairs} of them hold together with 95%"},
        tables=[level_table(arms, levels), control_table(arms)],
        charts=[],
        items=[
            {**{k: x[k] for k in ("id", "level", "question", "gold")}}
            | {"models": {a.name: a.items[i] for a in arms}}
            for i, x in enumerate(start.items)
        ],
    )


def controls(arms: Sequence[LevelArm]) -> list[str]:
    return [c for c in ("removed", "swapped") if arms[0].items and c in arms[0].items[0]]


def rival_arms(arms: Sequence[LevelArm]) -> tuple[LevelArm, LevelArm] | None:
    """grpo and sft; where one of them is not there, grpo-fixed and sft-answers stand for it."""
    by = {a.name: a for a in arms}
    paid = by.get("grpo") or by.get("grpo-fixed")
    imitated = by.get("sft") or by.get("sft-answers")
    return (paid, imitated) if paid and imitated else None


def rivals(arms: Sequence[LevelArm], levels: Sequence[str]) -> dict[str, Interval]:
    """By how much the first of `rival_arms` is better than the second, by level."""
    if (both := rival_arms(arms)) is None:
        return {}
    paid, imitated = both
    level = 1 - 0.05 / len(levels)
    return {
        x: pl.stats.paired_share_difference(imitated.right(x), paid.right(x), level) for x in levels
    }


def points(x: Interval) -> str:
    return pl.studies.tell_interval(x, signed=True)


def tell(
    arms: Sequence[LevelArm],
    against: Mapping[str, Interval],
    gains: Mapping[tuple[str, str], Interval],
    rivals: Sequence[str],
) -> list[str]:
    """The findings as sentences, the answer first."""
    lines = list[str]()
    for level, x in against.items():
        verdict = "better than" if x.low > 0 else "worse than" if x.high < 0 else "not seen to differ from"  # fmt: skip
        where = f" at level {level}" if level else ""
        paid, imitated = rivals
        what = "imitation" if imitated == "sft" else "imitation of the letters alone"
        lines.append(
            f"Reinforcement learning ({paid}) is {verdict} {what} ({imitated}){where}: {points(x)}."
        )
    for a in arms[1:]:
        gain_texts = [f"{points(x)}{f' at level {v}' if v else ''}" for (n, v), x in gains.items() if n == a.name]  # fmt: skip
        lines.append(f"Against the start, {a.name}: {'; '.join(gain_texts)}.")
    for a in arms:
        if "removed" in controls(arms):
            seen, blind = a.share(), a.share(of="removed")
            lines.append(
                f"{a.name} is right on {pl.studies.tell_interval(seen)} of the problems, and without their "
                f"pictures on {pl.studies.tell_interval(blind)}."
            )
        if (x := a.consistency) is not None:
            lines.append(
                f"The thoughts of {a.name} support the chosen option in {pl.studies.tell_interval(x)} of the "
                f"answers where both are told; in {a.silent:.0%} one of them is not."
            )
    return lines


def level_table(arms: Sequence[LevelArm], levels: Sequence[str]) -> pl.studies.StudyTable:
    rows = [
        (a.name, *(pl.studies.tell_interval(a.share(v)) for v in levels), f"{np.mean(a.right(of='lenient')):.1%}")
        for a in arms
    ]  # fmt: skip
    sizes = {v: len(arms[0].right(v)) for v in levels}
    columns = tuple(f"{f'level {v}' if v else 'right'} (n = {sizes[v]})" for v in levels)
    note = (
        "Greedy answers, options in one order for all models. The last column are answers that are right by "
        "their first character alone."
    )
    return pl.studies.StudyTable("Right answers", ("model", *columns, "by the letter rule alone"), rows, note)  # fmt: skip


def control_table(arms: Sequence[LevelArm]) -> pl.studies.StudyTable:
    named = controls(arms)
    rows: list[tuple[str, ...]] = []
    for a in arms:
        consistent = a.consistency
        mass = a.mass
        rows.append(
            (
                a.name,
                *(pl.studies.tell_interval(a.share(of=c)) for c in named),
                pl.studies.tell_interval(consistent) if consistent is not None else "",
                f"{a.silent:.0%}",
                f"{mass[0]:.1%} ({mass[1]:.1%})" if mass is not None else "",
            )
        )
    words = {"removed": "right without pictures", "swapped": "right with another problem's pictures"}  # fmt: skip
    columns = (
        "model",
        *(words[c] for c in named),
        "thought supports the choice",
        "no thought or no choice",
        "attention to pictures (if even)",
    )
    return pl.studies.StudyTable("What answers rest on", columns, rows)
