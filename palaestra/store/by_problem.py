"""What the answers to each held-out problem were worth, as an evaluation keeps them, and the
difference of two evaluations of the same problems.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from palaestra.ends import HeldOut
from palaestra.stats import (
    Interval,
    best_at_k,
    paired_share_difference,
    pass_at_k,
    unbounded_interval,
)
from palaestra.store.columns import read_episodes, sampled_from
from palaestra.types import value_class

MEASURES = {"accuracy": "solved", "reward": "reward"}  # what a problem's answers say of a measure
IDENTITY = ("task_id", "domain", "prompt", "answer")

Problem: TypeAlias = tuple[Any, ...]  # identity, domain, prompt and reference


@value_class
class ProblemScores:
    """What answers to each problem were worth, a mean over answers; None = none could be scored.
    `lack`: why that is not known.
    """

    scores: Mapping[Problem, float | None]
    lack: str = ""


def read_scores(file: Path, held: HeldOut, folder: Path, k: int = 1) -> ProblemScores:
    """The answers in a table of a run's folder, where they are all those that `held`, a mean over
    problems, was made from. With `k` above 1 a problem has its pass@k, or best@k, in place of the
    mean; one with fewer answers that could be scored has none.
    """
    lack = lambda why: ProblemScores(scores={}, lack=why)
    if (column := MEASURES.get(held.of)) is None:
        return lack("results of recorded data are not kept one by one")
    try:
        whole = file.is_file() and sampled_from(file) is None
        episodes = read_episodes([file] if whole else [], tokens=False)
    except (OSError, ValueError):  # pyarrow's errors are these two
        return lack(f"the answers in {folder} cannot be read")
    if not whole:
        return lack(f"{folder} does not keep its answers to all held-out problems")
    by_problem: dict[Problem, list[float]] = {}
    by_group: dict[int, list[float]] = {}  # an environment may ask a problem more than once
    groups: dict[int, Problem] = {}
    for row in episodes.to_pylist():
        of_problem = by_problem.setdefault(problem := tuple(row[x] for x in IDENTITY), [])
        groups[row["group"]] = problem
        if row[column] is not None and not row["status"].startswith("error:"):
            of_problem.append(float(row[column]))
            by_group.setdefault(row["group"], []).append(float(row[column]))
    at_k = {g: score_at_k(held, xs, k) for g, xs in by_group.items() if len(xs) >= k}
    means = list(at_k.values())
    if len(means) != held.interval.n or not np.isclose(np.mean(means), held.interval.mean):
        return lack(f"the answers in {folder} are not those of its evaluation at the end")
    if k > 1:
        by_problem = {p: [x for g, x in at_k.items() if groups[g] == p] for p in by_problem}
    scores = {p: float(np.mean(xs)) if xs else None for p, xs in by_problem.items()}
    return ProblemScores(scores=scores)


def score_at_k(held: HeldOut, values: Sequence[float], k: int) -> float:
    """What `k` of several answers to a problem were worth: their mean where k is 1, else pass@k of
    a share and best@k of a reward.
    """
    if k == 1:
        return float(np.mean(values))
    if held.is_share:
        return pass_at_k(len(values), round(sum(values)), k)
    return best_at_k(values, k)


def why_not_paired(a: ProblemScores, b: ProblemScores) -> str:
    """Why two evaluations cannot be compared problem by problem; "" = they can."""
    if a.lack or b.lack:
        return a.lack or b.lack
    if a.scores.keys() != b.scores.keys():
        both = len(a.scores.keys() & b.scores.keys())
        return (
            "they had not the same held-out problems "
            f"({len(a.scores)} and {len(b.scores)}, {both} of them in both)"
        )
    return "" if pairs(a, b) else "no problem could be scored in both"


def pairs(a: ProblemScores, b: ProblemScores) -> list[tuple[float, float]]:
    """The scores in a and in b of each problem that has some in both."""
    return [
        (x, y) for p, x in a.scores.items() if x is not None and (y := b.scores.get(p)) is not None
    ]


def paired_by_problem(held: HeldOut, a: ProblemScores, b: ProblemScores) -> Interval:
    """b - a over the problems that both could be scored on, in the measure of `held`."""
    both = pairs(a, b)
    a_N, b_N = ([pair[i] for pair in both] for i in (0, 1))
    if held.is_share:
        return paired_share_difference(a_N, b_N)
    scale = max(1.0, *a_N, *b_N) - min(0.0, *a_N, *b_N)
    return unbounded_interval([y - x for x, y in both], scale)
