"""What the arms of the study show: numbers, sentences, tables and a chart."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import palaestra as pl
from palaestra.recipes.analysis.compose_skills.functions import ComposedProblem

DEEP = 3  # calls from which on a composition is deeper than any that is trained on
REACH = 0.1  # pass@k of stage 1 at depth 2 under which an arm has too little to learn from


@dataclass(frozen=True, slots=True, eq=False)
class ComposeArm:
    """A model and its answers to the held-out problems, in their order."""

    name: str
    items: Sequence[pl.studies.Item]

    def right(self, at: Sequence[int]) -> list[float]:
        return pl.studies.right_shares([self.items[i] for i in at])

    def share(self, at: Sequence[int]) -> pl.stats.Interval:
        return pl.stats.bounded_interval(self.right(at))

    def passed(self, at: Sequence[int], k: int) -> float:
        return float(np.mean(pl.studies.passed([self.items[i] for i in at], k)))

    def written(self, problems: Sequence[ComposedProblem], at: Sequence[int]) -> float:
        """The share of answers that contain the value of each inner call."""
        all_said = [
            all(value in text for _, value in problems[i].composition.calls[:-1])
            for i in at
            for text in self.items[i]["texts"]
        ]
        return float(np.mean(all_said)) if all_said else 0.0

    def differs(self, other: "ComposeArm") -> float:
        """The share of answers that are not word for word those of another arm."""
        pairs = [
            a != b
            for x, y in zip(self.items, other.items, strict=True)
            for a, b in zip(x["texts"], y["texts"], strict=False)
        ]
        return float(np.mean(pairs)) if pairs else 0.0


def cells_of(problems: Sequence[ComposedProblem]) -> dict[tuple[str, int], list[int]]:
    """The problems of each set of functions and depth."""
    cells = dict[tuple[str, int], list[int]]()
    for i, p in enumerate(problems):
        cells.setdefault((p.skills, p.level), []).append(i)
    return cells


def report(
    arms: Sequence[ComposeArm], problems: Sequence[ComposedProblem], first: str, k: int
) -> pl.studies.StudyReport:
    """What the arms show, the first of which is stage 1.

    Args:
        arms: each with answers to all problems.
        problems: held out.
        first: the name of the functions that are composed in training; others are of the transfer.
        k: answers to each problem.
    """
    start, cells = arms[0], cells_of(problems)
    two = cells.get((first, 2), [])
    deep = [i for i, p in enumerate(problems) if p.skills == first and p.level >= DEEP]
    away = [i for i, p in enumerate(problems) if p.skills != first and p.level > 1]
    pairs = max(1, len(arms) - 1)
    gains = {
        (name, arm.name): pl.stats.paired_share_difference(
            start.right(at), arm.right(at), 1 - 0.05 / pairs
        )
        for name, at in (("two", two), ("deep", deep), ("transfer", away))
        for arm in arms[1:]
        if at
    }
    numbers: dict[str, float | pl.stats.Interval] = {
        "moved": float(np.mean([arm.differs(start) for arm in arms[1:]] or [0.0])),
        **({"reach": start.passed(two, k)} if two else {}),
        **{
            f"right_{arm.name}_{skills}{depth}": arm.share(at)
            for arm in arms
            for (skills, depth), at in cells.items()
        },
        **{f"gain_{name}_{arm}": x for (name, arm), x in gains.items()},
        **({f"written_{arm.name}": arm.written(problems, deep) for arm in arms} if deep else {}),
    }
    return pl.studies.StudyReport(
        study="compose-skills",
        question="",
        findings=[*tell(arms, gains, two, deep, away, problems), *tell_reach(start, two, k)],
        numbers=numbers,
        protocol={"intervals": f"of differences: {pairs} of them hold together with 95%"},
        tables=[table(arms, cells, first)],
        charts=[chart(arms, cells, first)],
        items=[
            {
                **{x: item[x] for x in ("id", "prompt", "gold")},
                "depth": problems[i].level,
                "functions": problems[i].skills,
                "arms": {
                    arm.name: {x: arm.items[i][x] for x in ("right", "texts", "tokens")}
                    for arm in arms
                },
            }
            for i, item in enumerate(start.items)
        ],
    )


def points(x: pl.stats.Interval) -> str:
    return pl.studies.tell_interval(x, signed=True)


def tell(
    arms: Sequence[ComposeArm],
    gains: dict[tuple[str, str], pl.stats.Interval],
    two: Sequence[int],
    deep: Sequence[int],
    away: Sequence[int],
    problems: Sequence[ComposedProblem],
) -> list[str]:
    """The answer first: compositions as deep as in training, deeper ones, then the other task."""
    which = {
        "two": (two, "Of compositions of 2 calls, of functions never composed in training"),
        "deep": (deep, f"Of those of {DEEP} calls and more"),
        "transfer": (away, "Of compositions in the other task, where no arm was trained"),
    }
    lines = list[str]()
    for name, (at, words) in which.items():
        if at:
            share = lambda arm, at=at: f"{100 * arm.share(at).mean:.0f}%"
            each = [f"{a.name} {share(a)} ({points(gains[name, a.name])})" for a in arms[1:]]
            sentence = "; ".join(each) or "no arm was trained"
            lines.append(f"{words}, stage 1 solves {share(arms[0])}; {sentence}.")
    lines += tell_claim(
        {a.name: a for a in arms}, {"at depth 2": two, "deeper": deep}, len(arms) - 1
    )
    if deep:
        written = [f"{a.name} {100 * a.written(problems, deep):.0f}%" for a in arms]
        lines.append(
            f"Deep answers that write the value of every inner call: {', '.join(written)}."
        )
    return lines or ["Only single calls were measured."]


def tell_claim(by: dict[str, ComposeArm], cells: dict[str, Sequence[int]], pairs: int) -> list[str]:
    """Reinforcement learning on depth 2 against the two arms that lack one of its parts."""
    lines = list[str]()
    for other, lacks in (
        ("rft-2", "imitation of the same problems"),
        ("rl-1", "RL on single calls"),
    ):
        if other in by and "rl-2" in by:
            gaps = [
                f"{words} {seen_gap(by[other].right(at), by['rl-2'].right(at), pairs)}"
                for words, at in cells.items()
                if at
            ]
            if gaps:
                lines.append(f"RL on depth 2 against {lacks}: {'; '.join(gaps)}.")
    return lines


def seen_gap(before: Sequence[float], after: Sequence[float], pairs: int) -> str:
    gap = pl.stats.paired_share_difference(before, after, 1 - 0.05 / max(1, pairs))
    seen = "more" if gap.low > 0 else "less" if gap.high < 0 else "no difference is seen"
    return f"{seen}, {points(gap)}"


def tell_reach(start: ComposeArm, two: Sequence[int], k: int) -> list[str]:
    if not two or (reach := start.passed(two, k)) > REACH:
        return []
    return [
        f"At depth 2 stage 1 solves {100 * reach:.0f}% of problems in {k} tries: training on depth 2 had little to learn "
        "from. Show it the form (shown=0.05), or try more (samples=64)."
    ]


def table(
    arms: Sequence[ComposeArm], cells: dict[tuple[str, int], list[int]], first: str
) -> pl.studies.StudyTable:
    rows = [
        (
            "the same" if skills == first else "the other task",
            str(depth),
            str(len(at)),
            *(pl.studies.tell_interval(arm.share(at)) for arm in arms),
        )
        for (skills, depth), at in cells.items()
    ]
    note = "Single calls are of all functions; deeper ones of those that are never composed in training."
    columns = ("functions", "depth", "problems", *(arm.name for arm in arms))
    return pl.studies.StudyTable("Right answers by depth", columns, rows, note)


def chart(
    arms: Sequence[ComposeArm], cells: dict[tuple[str, int], list[int]], first: str
) -> pl.studies.StudyChart:
    depths = {depth: at for (skills, depth), at in cells.items() if skills == first}
    shares = {arm.name: [arm.share(at) for at in depths.values()] for arm in arms}
    lines = [
        pl.studies.StudyLine(
            name,
            list(depths),
            [p.mean for p in some],
            [p.low for p in some],
            [p.high for p in some],
        )
        for name, some in shares.items()
    ]
    return pl.studies.StudyChart(
        "Right answers by depth", "calls", "right answers", lines, share=True
    )
