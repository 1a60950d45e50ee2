"""Runs that are over, compared by their own evaluations: problem by problem where they had the same
ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from palaestra.api.run import Run, read_episodes
from palaestra.ends import ENDS, HELD_OUT, HeldOut, HeldOutKind, end_of
from palaestra.errors import UserError
from palaestra.markdown import escape_controls
from palaestra.run.evaluators import OWN_EVALUATION
from palaestra.run.origin import Provenance
from palaestra.stats import (
    Interval,
    difference,
    paired_share_difference,
    unbounded_interval,
)
from palaestra.store.columns import evaluation_path, sampled_from
from palaestra.types import value_class

MOST_PAIRS = 5  # runs or methods of which every two are compared; of more, each with the first
COLUMNS = {"accuracy": "solved", "reward": "reward"}  # what a problem's answers say of a measure
BY_PROBLEM = "by problem"
EVALUATION_ALONE = "evaluation"  # in a summary: the folder holds one, and no training
SAMPLED = f"{OWN_EVALUATION} samples"  # the table of an evaluation's k attempts
FIRST = {"accuracy": "pass@1", "reward": "best@1"}  # what one of them is worth, by measure

Problem: TypeAlias = tuple[Any, ...]  # identity, domain, prompt and reference


@value_class
class ProblemScores:
    """What a run's answers to each of its held-out problems were worth after its last step, a mean
    over answers; None = none could be scored. `lack`: why that is not known.
    """

    scores: Mapping[Problem, float | None]
    lack: str = ""


def compare_runs(runs: Sequence[Run], whole: bool) -> dict[str, Any]:
    """Runs that are over, by what each measured at its end.

    Args:
        whole: nothing else is to be compared with them.

    Returns:
        {"methods": {folder: {"method", "before", "after"}}, "differences": {"b - a": interval with
        "paired": "by problem", or "" and "why" not}, "sampled": {"pass@1" or "best@1": such
        differences of evaluations with k attempts}, "notes": lines of text}
    """
    if not whole:
        raise UserError(
            "compare takes methods or runs, not both: train the method first, then compare the runs"
        )
    names = {str(r.folder): r for r in runs}
    if len(names) < 2:
        raise UserError(f"compare needs two runs, and {min(names)} is one")
    ends = {n: ends_of(r) for n, r in names.items()}
    after = {n: HeldOut.read(e["after"]) for n, e in ends.items()}
    if missing := [n for n, held in after.items() if held is None]:
        raise UserError(f"{missing[0]} has no evaluation at its end, so it cannot be compared")
    known = {n: held for n, held in after.items() if held is not None}
    kinds: set[HeldOutKind] = {held.of for held in known.values()}
    if len(kinds) > 1:
        what = " cannot be compared with ".join(HELD_OUT[k] for k in HELD_OUT if k in kinds)
        raise UserError(f"{what}: {', '.join(names)}")
    (of,) = kinds
    sampled = {n: held for n, r in names.items() if (held := first_attempt(r, of)) is not None}
    drawn = {FIRST[of]: differences(names, sampled, SAMPLED)} if len(sampled) > 1 else {}
    return {
        "methods": {n: {"method": method_of(r), **ends[n]} for n, r in names.items()},
        "differences": differences(names, known),
        "sampled": drawn,
        "notes": [
            *unlike_sizes({n: held.interval.n for n, held in known.items()}),
            *unlike_temperatures([names[n] for n in sampled]),
        ],
    }


def differences(
    runs: Mapping[str, Run], measured: Mapping[str, HeldOut], table: str = OWN_EVALUATION
) -> dict[str, dict[str, Any]]:
    """The differences of what was `measured` of some runs from the answers in a table, by "b - a"."""
    problems = {n: scores_by_problem(runs[n], held, table) for n, held in measured.items()}
    found: dict[str, dict[str, Any]] = {}
    for a, b in pairs_of(measured):
        held = measured[a]
        why = judged_unlike(runs[a], runs[b]) or why_not_paired(problems[a], problems[b])
        interval = (
            difference(held.interval, measured[b].interval)
            if why
            else paired_by_problem(held, problems[a], problems[b])
        )
        told = {"paired": "", "why": why} if why else {"paired": BY_PROBLEM}
        unit = {"unit": held.unit} if held.unit else {}
        found[f"{b} - {a}"] = {"of": held.of, **interval.json(), **unit, **told}
    return found


def pairs_of(names: Iterable[str]) -> list[tuple[str, str]]:
    """What is compared with what, the earlier one first: all pairs of a few, else each with the
    first.
    """
    first, *others = names
    if len(others) < MOST_PAIRS:
        return list(combinations((first, *others), 2))
    return [(first, n) for n in others]


def ends_of(run: Run) -> dict[str, dict[str, Any]]:
    """What a run measured before its first step and after its last; of an evaluation, which has no
    steps, its greedy answers, as what came after.
    """
    alone = run.summary.get(EVALUATION_ALONE)
    if alone is not None:
        return {"before": {}, "after": alone["greedy"]}
    return {end: end_of(run.summary, end) for end in ENDS}


def first_attempt(run: Run, of: HeldOutKind) -> HeldOut | None:
    """What one of an evaluation's k attempts was worth; None = there are none."""
    found = run.summary.get(EVALUATION_ALONE, {}).get(FIRST.get(of))
    return HeldOut.read(found) if found else None


def method_of(run: Run) -> str:
    """What a run was trained by: a recipe's name, or that of its file; of an evaluation its model, as
    it was asked for, since checkpoints of many runs have one name.
    """
    recipe = run.summary.get("recipe") or run.config.get("recipe")
    name = Path(recipe).name if recipe else run.config.get("model") or ""
    return escape_controls(str(name))


def unlike_sizes(sizes: Mapping[str, int]) -> list[str]:
    """A line where runs were measured on unlike numbers of held-out problems."""
    if len(set(sizes.values())) < 2:
        return []
    told = ", ".join(f"{name} on {n}" for name, n in sizes.items())
    return [
        f"they were measured on unlike numbers of held-out problems: {told}; the fewer, the less a "
        "number says"
    ]


def unlike_temperatures(runs: Sequence[Run]) -> list[str]:
    """A line where the attempts of evaluations were sampled at unlike temperatures."""
    known = {str(r.folder): r.summary[EVALUATION_ALONE].get("temperature") for r in runs}
    if len(set(known.values()) - {None}) < 2:
        return []
    told = ", ".join(f"{name} at {t:g}" for name, t in known.items() if t is not None)
    return [f"their attempts were sampled at unlike temperatures: {told}"]


# ---- by problem


def scores_by_problem(run: Run, held: HeldOut, table: str = OWN_EVALUATION) -> ProblemScores:
    """The answers that a run keeps of its last evaluation in a table, where they are all those that
    `held`, a mean over problems, was made from.
    """
    lack = lambda why: ProblemScores(scores={}, lack=why)
    if (column := COLUMNS.get(held.of)) is None:
        return lack("results of recorded data are not kept one by one")
    # of a pipeline the evaluation at its end is that of its last part
    home = run.folder / [*(run.summary.get("parts") or [""])][-1]
    files = sorted(evaluation_path(home, table, 0).parent.glob("step-*.parquet"))
    if not files or sampled_from(files[-1]) is not None:
        return lack(f"{run.folder} does not keep its answers to all held-out problems")
    by_problem: dict[Problem, list[float]] = {}
    by_group: dict[int, list[float]] = {}  # an environment may ask a problem more than once
    for row in read_episodes(files[-1:], tokens=False).to_pylist():
        problem = tuple(row[k] for k in ("task_id", "domain", "prompt", "answer"))
        of_problem = by_problem.setdefault(problem, [])
        if row[column] is not None and not row["status"].startswith("error:"):
            of_problem.append(float(row[column]))
            by_group.setdefault(row["group"], []).append(float(row[column]))
    means = list(map(np.mean, by_group.values()))
    if len(means) != held.interval.n or not np.isclose(np.mean(means), held.interval.mean):
        return lack(f"the answers in {run.folder} are not those of its evaluation at the end")
    scores = {p: float(np.mean(xs)) if xs else None for p, xs in by_problem.items()}
    return ProblemScores(scores=scores)


def judged_unlike(a: Run, b: Run) -> str:
    """Why two runs' numbers are of different things, where their settings or the files that these
    name say so.
    """
    files = [found.files if (found := Provenance.read(r.folder)) else None for r in (a, b)]
    for name, what in (("reward", "rewards"), ("env", "environments")):
        asked = {str(r.config.get(name) or "") for r in (a, b)}
        # of a run that keeps no digests, nothing is known of its files
        code = {tuple(sorted(f.get(name, {}).values())) for f in files if f is not None}
        if len(asked) > 1 or len(code) > 1:
            return f"they were judged by different {what}"
    return ""


def why_not_paired(a: ProblemScores, b: ProblemScores) -> str:
    """Why two runs cannot be compared problem by problem; "" = they can."""
    if a.lack or b.lack:
        return a.lack or b.lack
    if a.scores.keys() != b.scores.keys():
        both = len(a.scores.keys() & b.scores.keys())
        return (
            "they had not the same held-out problems "
            f"({len(a.scores)} and {len(b.scores)}, {both} of them in both)"
        )
    if not any(x is not None and b.scores[p] is not None for p, x in a.scores.items()):
        return "no problem could be scored in both"
    return ""


def paired_by_problem(held: HeldOut, a: ProblemScores, b: ProblemScores) -> Interval:
    """b - a over the problems that both could be scored on, in the measure of `held`."""
    both = [(x, y) for p, x in a.scores.items() if x is not None and (y := b.scores[p]) is not None]
    a_N, b_N = ([pair[i] for pair in both] for i in (0, 1))
    if held.is_share:
        return paired_share_difference(a_N, b_N)
    scale = max(1.0, *a_N, *b_N) - min(0.0, *a_N, *b_N)
    return unbounded_interval([y - x for x, y in both], scale)
