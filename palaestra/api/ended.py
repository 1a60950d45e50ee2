"""Runs that are over, compared by their own evaluations: problem by problem where they had the same
ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from palaestra.api.run import Run
from palaestra.ends import ENDS, HELD_OUT, HeldOut, HeldOutKind, end_of
from palaestra.errors import UserError
from palaestra.markdown import escape_controls
from palaestra.run.evaluators import OWN_EVALUATION
from palaestra.run.origin import Provenance
from palaestra.stats import difference
from palaestra.store.by_problem import (
    ProblemScores,
    paired_by_problem,
    read_scores,
    why_not_paired,
)
from palaestra.store.columns import evaluation_path

MOST_PAIRS = 5  # runs or methods of which every two are compared; of more, each with the first
BY_PROBLEM = "by problem"
EVALUATION_ALONE = "evaluation"  # in a summary: the folder holds one, and no training
SAMPLED = f"{OWN_EVALUATION} samples"  # the table of an evaluation's k attempts
AT_K = {"accuracy": "pass@", "reward": "best@"}  # what several of them are worth, by measure


def compare_runs(runs: Sequence[Run], whole: bool) -> dict[str, Any]:
    """Runs that are over, by what each measured at its end.

    Args:
        whole: nothing else is to be compared with them.

    Returns:
        {"methods": {folder: {"method", "before", "after"}}, "differences": {"b - a": interval with
        "paired": "by problem", or "" and "why" not}, "sampled": {"pass@1", "pass@2", ... or
        "best@1", ...: such differences of evaluations with k attempts}, "notes": lines of text}
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
    drawn, sampled = differences_at_k(names, of)
    return {
        "methods": {n: {"method": method_of(r), **ends[n]} for n, r in names.items()},
        "differences": differences(names, known),
        "sampled": drawn,
        "notes": [
            *unlike_sizes({n: held.interval.n for n, held in known.items()}),
            *unlike_temperatures([names[n] for n in names if n in sampled]),
        ],
    }


def differences(
    runs: Mapping[str, Run],
    measured: Mapping[str, HeldOut],
    table: str = OWN_EVALUATION,
    k: int = 1,
) -> dict[str, dict[str, Any]]:
    """The differences of what was `measured` of some runs from the answers in a table, by "b - a"; of
    `k` answers to each problem.
    """
    problems = {n: scores_by_problem(runs[n], held, table, k) for n, held in measured.items()}
    comparisons: dict[str, dict[str, Any]] = {}
    for a, b in pairs_of(measured):
        held = measured[a]
        why = judged_unlike(runs[a], runs[b]) or why_not_paired(problems[a], problems[b])
        interval = (
            difference(held.interval, measured[b].interval)
            if why
            else paired_by_problem(held, problems[a], problems[b])
        )
        pairing = {"paired": "", "why": why} if why else {"paired": BY_PROBLEM}
        unit = {"unit": held.unit} if held.unit else {}
        comparisons[f"{b} - {a}"] = {"of": held.of, **interval.json(), **unit, **pairing}
    return comparisons


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


def differences_at_k(
    runs: Mapping[str, Run], of: HeldOutKind
) -> tuple[dict[str, dict[str, Any]], set[str]]:
    """The differences of what k attempts were worth, for each k that two evaluations have, and the
    names of the runs that were compared so.
    """
    prefix = AT_K.get(of, "")
    evaluations = {n: r.summary.get(EVALUATION_ALONE, {}) for n, r in runs.items()}
    numbers = {x for e in evaluations.values() for x in e if prefix and x.startswith(prefix)}
    drawn: dict[str, dict[str, Any]] = {}
    compared: set[str] = set()
    for k in sorted(int(x.removeprefix(prefix)) for x in numbers):
        name = f"{prefix}{k}"
        sampled = {
            n: held for n, e in evaluations.items() if name in e and (held := HeldOut.read(e[name]))
        }
        if len(sampled) > 1:
            drawn[name] = differences(runs, sampled, SAMPLED, k)
            compared |= set(sampled)
    return drawn, compared


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
    sizes_text = ", ".join(f"{name} on {n}" for name, n in sizes.items())
    return [
        f"they were measured on unlike numbers of held-out problems: {sizes_text}; the fewer, the less a "
        "number says"
    ]


def unlike_temperatures(runs: Sequence[Run]) -> list[str]:
    """A line where the attempts of evaluations were sampled at unlike temperatures."""
    known = {str(r.folder): r.summary[EVALUATION_ALONE].get("temperature") for r in runs}
    if len(set(known.values()) - {None}) < 2:
        return []
    temperatures_text = ", ".join(f"{name} at {t:g}" for name, t in known.items() if t is not None)
    return [f"their attempts were sampled at unlike temperatures: {temperatures_text}"]


# ---- by problem


def scores_by_problem(
    run: Run, held: HeldOut, table: str = OWN_EVALUATION, k: int = 1
) -> ProblemScores:
    """What `k` answers were worth that a run keeps of its last evaluation in a table, by problem."""
    # of a pipeline the evaluation at its end is that of its last part
    home = run.folder / [*(run.summary.get("parts") or [""])][-1]
    start = evaluation_path(home, table, 0)
    file = max(start.parent.glob("step-*.parquet"), default=start)
    return read_scores(file, held, run.folder, k)


def judged_unlike(a: Run, b: Run) -> str:
    """Why two runs' numbers are of different things, where their settings or the files that these
    name say so.
    """
    files = [
        provenance.files if (provenance := Provenance.read(r.folder)) else None for r in (a, b)
    ]
    for name, what in (("reward", "rewards"), ("env", "environments")):
        asked = {str(r.config.get(name) or "") for r in (a, b)}
        # of a run that keeps no digests, nothing is known of its files
        code = {tuple(sorted(f.get(name, {}).values())) for f in files if f is not None}
        if len(asked) > 1 or len(code) > 1:
            return f"they were judged by different {what}"
    return ""
