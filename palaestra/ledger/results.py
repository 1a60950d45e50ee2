"""Results of experiments: from finished cells to a verdict, and whether a published one still
holds.
"""

from __future__ import annotations

import math
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from palaestra import catalogue
from palaestra.catalogue import Entry
from palaestra.errors import UserError
from palaestra.ledger.cells import CellOutcome, CellRequest, run_all
from palaestra.ledger.digests import code_sha256, configuration, packages, sha256
from palaestra.ledger.experiment import Experiment, Measure, experiment_of
from palaestra.ledger.files import PACKAGE, read_result
from palaestra.run.headway import Headway
from palaestra.run.settings import Settings
from palaestra.run.setup import bench_of
from palaestra.stats import (
    Interval,
    interquartile_mean,
    mean_interval,
    paired_difference,
    stratified_bootstrap,
)
from palaestra.types import value_class
from palaestra.view.drawing import series, smooth

LEAST_SEEDS = 3  # seeds, below which an interval says nothing about a claim
POINTS = 24  # of a learning curve

# by task, one per seed; None = failed or not measured
ValuesByTask = Mapping[str, Sequence[float | None]]


# ---- running


def requests(
    experiment: Experiment, method: str, arms: Sequence[str], seeds: int, tokens: int
) -> list[CellRequest]:
    """Every cell of an experiment; all arms of a seed before the next seed."""
    return [
        CellRequest(
            label=f"{arm}, seed {seed}" + (f", {task}" if len(experiment.tasks) > 1 else ""),
            settings=settings(experiment, task, seed),
            tokens=tokens,
            samples=experiment.samples,
            arm=f"{method}:{arm}",
        )
        for seed in range(seeds)
        for task in experiment.tasks
        for arm in arms
    ]


def settings(experiment: Experiment, task: str, seed: int = 0) -> Settings:
    return Settings(
        recipe="",
        task=task,
        model=experiment.model,
        seed=seed,
        evaluate=experiment.evaluate,
        device="cpu",
    )


def arm_record(
    experiment: Experiment, arm: str, found: Sequence[CellOutcome], tokens: int
) -> dict[str, Any]:
    """What a result says of an arm beside its values: what it was made from, and what it used."""
    packages = arm_packages(experiment, arm)
    return {
        "config_sha256": arm_sha256(experiment, arm, tokens),
        "code_sha256": arm_code(experiment, arm),
        **({"packages": packages} if packages else {}),
        "sampled_tokens": [
            o.cell.summary.get("sampled_tokens", 0) if o.cell else None for o in found
        ],
        "failed": {o.request.label: o.error for o in found if o.error},
        "curve": curve([o.cell.steps for o in found if o.cell]),
    }


def reproduce(
    method: str,
    *,
    out: Path,
    headway: Headway,
    seeds: int = 0,
    arms: Sequence[str] = (),
    tokens: int = 0,
    jobs: int = 0,
) -> dict[str, Any]:
    """Runs the experiment of a method, or some of its arms; what 0 and () leave open the experiment
    says.
    """
    experiment = experiment_of(method)
    arms, seeds, tokens = (
        arms or list(experiment.arms),
        seeds or experiment.seeds,
        tokens or experiment.tokens,
    )
    unknown = [a for a in arms if a not in experiment.arms]
    if unknown:
        raise UserError(
            f"{method} has no arm {unknown[0]!r}; its experiment has {', '.join(experiment.arms)}"
        )
    outcomes = run_all(requests(experiment, method, arms, seeds, tokens), out, headway, jobs)
    by_arm = {a: [o for o in outcomes if o.request.arm == f"{method}:{a}"] for a in arms}
    result = judge_arms(
        experiment, {a: values_by_task(experiment.measure, found) for a, found in by_arm.items()}
    )
    for arm, found in by_arm.items():
        result["arms"][arm] |= arm_record(experiment, arm, found, tokens)
    wall = [o.cell.summary["wall_seconds"] for o in outcomes if o.cell]
    named = {
        name: {a: list(means(values_by_task(m, found))) for a, found in by_arm.items()}
        for name, m in experiment.controls.items()
    }
    return {
        "id": catalogue.entry_of(method).id,
        "claim": experiment.claim,
        "metric": experiment.metric,
        "expected": str(experiment.expect),
        "falsified_if": experiment.falsified_if,
        **result,
        "controls": named,
        "task": list(experiment.tasks),
        "model": experiment.model,
        "budget_tokens": tokens,
        "seeds": seeds,
        "sampled_tokens": sum(t or 0 for a in arms for t in result["arms"][a]["sampled_tokens"]),
        "seconds": None if None in wall else round(sum(wall), 1),
        "note": experiment.note,
        "commit": commit(),
        "machine": machine(),
    }


def values_by_task(
    measure: Measure, outcomes: Sequence[CellOutcome]
) -> dict[str, list[float | None]]:
    """What was measured, by task, one per seed; None where a cell failed or has no such number."""
    found: dict[str, list[float | None]] = {}
    for o in outcomes:
        x = measure(o.cell) if o.cell else math.nan
        found.setdefault(o.request.settings.problem, []).append(
            float(x) if math.isfinite(x) else None
        )
    return found


def means(values: ValuesByTask) -> list[float | None]:
    """One per seed: the mean over tasks."""
    return [
        None if None in row else float(np.mean([x for x in row if x is not None]))
        for row in zip(*values.values(), strict=True)
    ]


# ---- judging


def judge_arms(experiment: Experiment, arms: Mapping[str, ValuesByTask]) -> dict[str, Any]:
    """Arms, effect, interval and verdict from what was measured."""
    found: dict[str, Any] = {}
    for name, values in arms.items():
        per_seed = means(values)
        known = [x for x in per_seed if x is not None]
        found[name] = {"values": per_seed, "interval": mean_interval(known).json()}
        if len(values) > 1:
            found[name]["by_task"] = {t: list(v) for t, v in values.items()}
    first, second = experiment.expect.arms
    verdict, why, effect = "inconclusive", "", None
    if first not in arms or second not in arms:
        why = f"needs the arms {first} and {second}"
    elif any(None in row for a in (first, second) for row in arms[a].values()):
        why = "not every seed of both arms has finished"
    else:
        effect = effect_of(arms[first], arms[second])
        n = len(found[first]["values"])
        if n < LEAST_SEEDS:
            why = f"{n} seeds are too few"
        else:
            verdict = experiment.expect.verdict(effect)
            why = "the interval does not decide" if verdict == "inconclusive" else ""
    ends = effect.json() if effect else {"mean": None, "low": None, "high": None}
    return {
        "arms": found,
        "effect": ends["mean"],
        "ci95": [ends["low"], ends["high"]],
        "verdict": verdict,
        "reason": why,
    }


def effect_of(first: ValuesByTask, second: ValuesByTask) -> Interval:
    """second - first, paired by seed: the mean with its t interval, or over several tasks the
    interquartile mean.

    The latter with a stratified bootstrap, which draws seeds anew inside each task.
    """
    pairs = {t: (_whole(first[t]), _whole(second[t])) for t in first}
    if len(pairs) == 1:
        return paired_difference(*next(iter(pairs.values())))
    differences = {t: [b - a for a, b in zip(*both, strict=True)] for t, both in pairs.items()}
    return stratified_bootstrap(
        differences, lambda x_N: interquartile_mean(x_N.tolist()), key=("ledger", *differences)
    )


def _whole(values_N: Sequence[float | None]) -> list[float]:
    return [x for x in values_N if x is not None]


def curve(runs: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, list[float]]:
    """Training reward over sampled tokens: the mean over seeds at a few places that all of them
    reached.
    """
    courses = [
        (x, smooth(y))
        for x, y in (series(run, "sampled_tokens", "reward") for run in runs)
        if len(x)
    ]
    if not courses:
        return {}
    grid_N = np.linspace(max(x[0] for x, _ in courses), min(x[-1] for x, _ in courses), POINTS)
    reward_SN = np.stack([np.interp(grid_N, x, y) for x, y in courses])
    found = {"tokens": np.round(grid_N), "reward": reward_SN.mean(0).round(4)}
    if len(courses) > 1:
        found |= {"deviation": reward_SN.std(0, ddof=1).round(4)}
    return {k: v.tolist() for k, v in found.items()}


def arm_sha256(experiment: Experiment, arm: str, tokens: int = 0) -> str:
    """The configuration of an arm on all its tasks, whatever the seeds."""
    given = [
        configuration(
            experiment.arms[arm],
            settings(experiment, t),
            tokens or experiment.tokens,
            experiment.samples,
        )
        for t in experiment.tasks
    ]
    return sha256(given)


def arm_code(experiment: Experiment, arm: str) -> str:
    """The code that makes the numbers of an arm, on all its tasks."""
    return sha256(
        [code_sha256(experiment.arms[arm], settings(experiment, t)) for t in experiment.tasks]
    )


def arm_packages(experiment: Experiment, arm: str) -> list[str]:
    """The other packages that make the numbers of an arm, with their versions."""
    asked = [settings(experiment, t) for t in experiment.tasks]
    each = (packages(experiment.arms[arm], s, *bench_of(s)) for s in asked)
    return sorted({package for found in each for package in found})


def commit() -> str:
    """Of the checkout that the package lies in, "+" where it was changed since; ""
    outside of one.
    """
    ask = [
        "git",
        "-C",
        str(PACKAGE),
        "describe",
        "--always",
        "--abbrev=12",
        "--dirty=+",
        "--exclude=*",
    ]
    try:
        return subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def machine() -> str:
    import torch

    cores = f"{os.cpu_count()} cores"
    return (
        f"{platform.machine()}, {cores}, Python {platform.python_version()}, torch "
        f"{torch.__version__}"
    )


# ---- holding


@value_class
class Standing:
    """Where a method stands: planned, built or a verdict, and what there is to say about it."""

    status: str
    note: str = ""


@cache
def standing(entry: Entry) -> Standing:
    """The verdict of a method's published result, unless the experiment has changed since."""
    result = read_result(entry.id)
    if result is None or not entry.built:
        return Standing(status="built" if entry.built else "planned")
    why = stale_reason(result)
    return (
        Standing(status="built", note=f"stale result: {why}")
        if why
        else Standing(status=result["verdict"])
    )


def stale_reason(result: Mapping[str, Any]) -> str:
    """Why a result is no result of the present experiment; "" if it is."""
    try:
        experiment = experiment_of(result["id"])
    except UserError:
        return "the method has no experiment any more"
    if result["expected"] != str(experiment.expect):
        return f"it was expected that {result['expected']}"
    if result["metric"] != experiment.metric:
        return f"it measured {result['metric']}"
    changed = [
        arm
        for arm, found in result["arms"].items()
        if arm not in experiment.arms or found["config_sha256"] != arm_sha256(experiment, arm)
    ]
    missing = [a for a in experiment.expect.arms if a not in result["arms"]]
    return (
        f"the configuration of {' and '.join(changed + missing)} has changed"
        if changed + missing
        else ""
    )


def has_older_code(result: Mapping[str, Any], experiment: Experiment) -> bool:
    """Whether some arm was measured with other code than today's, or nobody knows with which."""
    arms = {a: found for a, found in result["arms"].items() if a in experiment.arms}
    return any(found.get("code_sha256") != arm_code(experiment, a) for a, found in arms.items())
