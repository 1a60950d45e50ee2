"""Runs experiments: tunes every arm, measures it on the blocks of seeds, and puts the result
together.
"""

from __future__ import annotations

import math
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from palaestra import catalogue
from palaestra.errors import UserError
from palaestra.ledger.cells import CellOutcome, CellRequest, machine_of, run_all
from palaestra.ledger.declared import digest
from palaestra.ledger.digests import configuration, own_code_sha256, packages, sha256, versions
from palaestra.ledger.experiment import (
    FRESH,
    START,
    TRIAL,
    Experiment,
    Setting,
    experiment_of,
)
from palaestra.ledger.files import PACKAGE, parted
from palaestra.ledger.judging import Measured, ValuesByTask, judge, per_seed
from palaestra.ledger.measures import BesideStart, Final, Measure
from palaestra.run.setup import bench_of
from palaestra.settings.fields import Settings
from palaestra.stats import Interval, mean_interval, share_of_runs
from palaestra.terminal.progress import Headway
from palaestra.types import value_class
from palaestra.view.drawing import series, smooth

POINTS = 24  # of a learning curve
SAMPLED = "sampled_tokens"
CPU = "cpu"
RULES = 2  # those of docs/ledger.md; results without a number are older


@value_class
class Scope:
    """An experiment to be run: how much of it, and where."""

    method: str
    experiment: Experiment
    arms: Sequence[str]
    blocks: Sequence[Sequence[int]]
    tokens: int
    out: Path
    jobs: int = 0
    device: str = CPU

    @property
    def tuning(self) -> Scope:
        """The same for the choice of settings, which may have a smaller budget."""
        asked = self.experiment.tuning_tokens or self.tokens
        return replace(self, tokens=min(asked, self.tokens))

    def request(self, arm: str, setting: Setting, task: str, seed: int) -> CellRequest:
        many = f", {task}" if len(self.experiment.tasks) > 1 else ""
        settings_text = "".join(f", {k}={v}" for k, v in setting.items())
        return CellRequest(
            label=f"{arm}, seed {seed}{many}{settings_text}",
            settings=settings(self.experiment, task, seed, setting, self.device),
            tokens=self.tokens,
            samples=self.experiment.samples,
            arm=f"{self.method}:{arm}",
            own_tasks=True,
            budget=self.experiment.budget,
        )


def settings(
    experiment: Experiment,
    task: str,
    seed: int = 0,
    setting: Setting | None = None,
    device: str = CPU,
) -> Settings:
    return Settings(
        recipe="",
        task=task,
        model=experiment.model,
        seed=seed,
        evaluate=experiment.evaluate,
        exams=experiment.exams,
        device=device,
        set=setting or {},
    )


def reproduce(
    method: str,
    *,
    out: Path,
    headway: Headway,
    seeds: int = 0,
    arms: Sequence[str] = (),
    tokens: int = 0,
    jobs: int = 0,
    device: str = CPU,
) -> dict[str, Any]:
    """Runs the experiment of a method; with fewer seeds, other tokens or some of its arms it is a
    trial, on seeds that decide nothing.

    Args:
        seeds: of each block of the trial; what 0 and () leave open the experiment says.
        device: "cpu" or "cuda"; a result says on which it was measured.
    """
    experiment = experiment_of(method)
    if experiment.not_testable:
        return untested(method, experiment)
    every = list(experiment.every_arm)
    if unknown := [a for a in arms if a not in every]:
        raise UserError(
            f"{method} has no arm {unknown[0]!r}; its experiment has {', '.join(every)}"
        )
    declared = experiment.blocks
    trial = [list(t)[: seeds or len(b)] for t, b in zip(TRIAL, declared, strict=False)]
    work = Scope(
        method=method,
        experiment=experiment,
        arms=arms or every,
        blocks=trial if seeds or tokens or arms else [list(b) for b in declared],
        tokens=tokens or experiment.tokens,
        out=out,
        jobs=jobs,
        device=device,
    )
    tuning = tune(work, headway)
    return assemble(work, tuning, measure(work, tuning.chosen, headway))


def untested(method: str, experiment: Experiment) -> dict[str, Any]:
    """The result of a claim that cannot be tested here."""
    return {
        **facts(method, experiment),
        "arms": {},
        "tuning": {},
        "blocks": [],
        "controls": {},
        "effect": None,
        "ci95": [None, None],
        "verdict": "not-testable",
        "reason": f"it needs {experiment.not_testable}",
    }


def fresh(
    method: str, result: Mapping[str, Any], *, out: Path, headway: Headway, jobs: int = 0
) -> dict[str, Any]:
    """A third block of seeds for a published result: the arms that its verdict compares, with the
    settings that were chosen.

    Returns:
        {"seeds", "values", "effect", "ci95", "verdict", "reason", "repeats": whether the verdict of
        the new block alone is the published one, "commit"}
    """
    experiment = experiment_of(method)
    check_published(method, result, experiment)
    seeds = list(FRESH)[: max(map(len, experiment.blocks))]
    work = Scope(
        method=method,
        experiment=experiment,
        arms=experiment.deciding_arms,
        blocks=[seeds],
        tokens=experiment.tokens,
        out=out,
        jobs=jobs,
        device=result.get("device", CPU),
    )
    chosen = {a: result["arms"][a]["setting"] for a in work.arms}
    outcomes = measure(work, chosen, headway)
    measured = measured_of(work, outcomes)
    judgement = judge(
        experiment.expect,
        measured,
        vetoes=experiment.vetoes,
        illustration=experiment.illustration,
    )
    return {
        "seeds": seeds,
        "values": {a: per_seed(v) for a, v in measured.arms.items()},
        **{name: judgement[name] for name in ("effect", "ci95", "verdict", "reason")},
        "repeats": judgement["verdict"] == result["verdict"],
        "commit": commit(),
    }


def check_published(method: str, result: Mapping[str, Any], experiment: Experiment) -> None:
    """Raises UserError where a published result cannot be run once more as it is."""
    if experiment.not_testable:
        raise UserError(f"{method} is not run: it needs {experiment.not_testable}")
    if is_older(result) or result["declaration"] != digest(experiment):
        raise UserError(
            f"{method}: the published result is not of today's experiment; measure it first: "
            f"palaestra reproduce {method}"
        )


def is_older(result: Mapping[str, Any]) -> bool:
    """Whether it was measured by rules before today's."""
    return result.get("rules") != RULES


def name_of(method: str) -> str:
    """What the result of an experiment is called."""
    if catalogue.is_own_file(method):
        return catalogue.entry_of(method).id
    name, tier = parted(method)
    entry_id = catalogue.entry_of(name).id
    return f"{entry_id}@{tier}" if tier else entry_id


# ---- running


@value_class
class Tuning:
    """What was chosen for each arm, what was tried for those that have a choice, and the runs."""

    chosen: Mapping[str, Setting]
    tried: Mapping[str, Sequence[Mapping[str, Any]]]
    outcomes: Sequence[CellOutcome]


def tune(work: Scope, headway: Headway) -> Tuning:
    """Every arm with every setting that is tried, on seeds that nothing else uses; the one with the
    highest mean is chosen, of equals the first. Where what is chosen by reads the start, that runs
    too.
    """
    e = work.experiment
    asked = [
        (arm, i, work.tuning.request(arm, setting, task, seed))
        for arm, each in e.sweep(work.arms).items()
        for i, setting in enumerate(each)
        for seed in e.tuning_seeds
        for task in e.tasks
    ]
    outcomes = run_all([r for _, _, r in asked], work.out, headway, work.jobs) if asked else []
    starts = {_place(o): o for (a, _, _), o in zip(asked, outcomes, strict=True) if a == START}
    chosen: dict[str, Setting] = {}
    seen: dict[str, list[dict[str, Any]]] = {}
    for arm in work.arms:
        rows = []
        for i, setting in enumerate(e.settings_of(arm)):
            mine = [o for (a, n, _), o in zip(asked, outcomes, strict=True) if (a, n) == (arm, i)]
            measured = [_number(e.chooses, o, starts.get(_place(o))) for o in mine]
            rows.append({"setting": dict(setting), "values": measured})
        means = [_mean(row["values"]) for row in rows]
        best = max(range(len(rows)), key=lambda i: means[i])
        chosen[arm] = rows[best]["setting"]
        seen |= {arm: rows} if len(rows) > 1 else {}
    return Tuning(chosen=chosen, tried=seen, outcomes=outcomes)


def _place(o: CellOutcome) -> tuple[str, int]:
    """What a run shares with its start."""
    return o.request.settings.problem, o.request.settings.seed


def _mean(values_N: Sequence[float | None]) -> float:
    """Of a setting that failed anywhere, nothing good can be said."""
    known = [x for x in values_N if x is not None]
    return float(np.mean(known)) if known and len(known) == len(values_N) else -math.inf


def measure(
    work: Scope, chosen: Mapping[str, Setting], headway: Headway
) -> dict[str, list[CellOutcome]]:
    """Every arm with its setting, by arm; all arms of a seed before the next seed."""
    asked = [
        (arm, work.request(arm, chosen[arm], task, seed))
        for block in work.blocks
        for seed in block
        for task in work.experiment.tasks
        for arm in work.arms
    ]
    outcomes = run_all([r for _, r in asked], work.out, headway, work.jobs)
    return {
        arm: [o for (a, _), o in zip(asked, outcomes, strict=True) if a == arm] for arm in work.arms
    }


# ---- the result


def assemble(
    work: Scope, tuning: Tuning, outcomes: Mapping[str, list[CellOutcome]]
) -> dict[str, Any]:
    """The result, from finished cells."""
    e = work.experiment
    measured = measured_of(work, outcomes)
    judgement = judge(e.expect, measured, e.reasons, e.vetoes, illustration=e.illustration)
    statements = judgement.pop("said")
    if not e.is_whole(work.arms, work.blocks, work.tokens):
        judgement |= {"verdict": "inconclusive", "reason": "a trial: less was run than is declared"}
    controls: dict[str, Any] = {
        n: {"kind": "number", "values": by_arm(work, m, outcomes)}
        for n, m in e.every_control.items()
    }
    for name, spoken in statements.items():
        numbers = {"values": measured.vetoes[name]} if name in measured.vetoes else {}
        controls[name] = spoken | numbers
    runs = [*tuning.outcomes, *(o for value in outcomes.values() for o in value)]
    finished = [o.cell.summary for o in runs if o.cell]
    return {
        **facts(work.method, e),
        "arms": {
            a: arm_record(work, a, measured.arms[a], tuning.chosen[a], outcomes[a])
            for a in work.arms
        },
        "tuning": {
            "seeds": list(e.tuning_seeds),
            **({"tokens": work.tuning.tokens} if e.tuning_tokens else {}),
            "arms": dict(tuning.tried),
        },
        "blocks": [list(b) for b in work.blocks],
        **judgement,
        "controls": controls,
        "budget_tokens": work.tokens,
        **({"budget": dict(work.experiment.budget)} if work.experiment.budget else {}),
        "seeds": sum(map(len, work.blocks)),
        "runs": len(runs),
        "sampled_tokens": sum(summary.get("sampled_tokens", 0) for summary in finished),
        "seconds": seconds_of(finished, "wall_seconds"),
        "processor_seconds": seconds_of(finished, "processor_seconds"),
        "commit": commit(),
        **place_of(work),
        "machine": machines_of(finished),
    }


def place_of(work: Scope) -> dict[str, str]:
    """Where the cells ran, and in which numbers; of processors nothing is said."""
    if work.device == CPU:
        return {}
    asked = settings(work.experiment, work.experiment.tasks[0], device=work.device)
    return {"device": work.device, "dtype": asked.precision}


def machines_of(finished: Sequence[Mapping[str, Any]]) -> str:
    """Those that the cells ran on; cells of before they said it are taken for this one's."""
    here = machine_of(CPU)
    return "; ".join(sorted({summary.get("machine", here) for summary in finished})) or here


def seconds_of(finished: Sequence[Mapping[str, Any]], clock: str) -> float | None:
    """Of all runs by one clock; None = of a run nobody knows."""
    times = [summary.get(clock) for summary in finished]
    return None if None in times else round(sum(s for s in times if s is not None), 1)


def measured_of(work: Scope, outcomes: Mapping[str, Sequence[CellOutcome]]) -> Measured:
    """What a verdict is made of."""
    e = work.experiment
    return Measured(
        arms={a: values_by_task(work, a, e.measure, outcomes) for a in work.arms},
        blocks=work.blocks,
        vetoes={n: by_arm(work, v.measure, outcomes) for n, v in e.vetoes.items()},
    )


def by_arm(
    work: Scope, asked: Measure, outcomes: Mapping[str, Sequence[CellOutcome]]
) -> dict[str, list[float | None]]:
    """A measure of each arm, one per seed."""
    return {a: per_seed(values_by_task(work, a, asked, outcomes)) for a in work.arms}


def facts(method: str, e: Experiment) -> dict[str, Any]:
    """What a result says of its experiment."""
    return {
        "id": name_of(method),
        "rules": RULES,
        "declaration": digest(e),
        "claim": e.claim,
        "quantity": e.quantity,
        "metric": e.metric,
        "expected": str(e.expect),
        "falsified_if": e.falsified_if,
        "lacks": e.lacks(),
        "task": list(e.tasks),
        "model": e.model,
        "note": e.note,
    }


def arm_record(
    work: Scope, arm: str, values: ValuesByTask, setting: Setting, outcomes: Sequence[CellOutcome]
) -> dict[str, Any]:
    """What a result says of an arm: its numbers, what it was made from, and what it used."""
    per = per_seed(values)
    known = [x for x in per if x is not None]
    made_by = arm_packages(work.experiment, arm)
    return {
        "values": per,
        "interval": interval_of(work.experiment.measure, known, outcomes).json(),
        **({"by_task": {t: list(v) for t, v in values.items()}} if len(values) > 1 else {}),
        "setting": dict(setting),
        "config_sha256": arm_sha256(work.experiment, arm, setting, work.tokens, work.device),
        **arm_code(work.experiment, arm),
        **({"packages": made_by} if made_by else {}),
        "sampled_tokens": [
            o.cell.summary.get("sampled_tokens", 0) if o.cell else None for o in outcomes
        ],
        "failed": {o.request.label: o.error for o in outcomes if o.error},
        "curve": curve([o.cell.steps for o in outcomes if o.cell], meter(work.experiment)),
    }


def interval_of(
    asked: Measure, values: Sequence[float], outcomes: Sequence[CellOutcome]
) -> Interval:
    """Of the mean over seeds: of shares of problems one that stays between 0 and 1."""
    cells = [o.cell for o in outcomes if o.cell]
    counts = {asked.problems(c) for c in cells} if isinstance(asked, Final) else {None}
    if len(counts) != 1 or (n := counts.pop()) is None:
        return mean_interval(values)
    return share_of_runs(values, n)


def values_by_task(
    work: Scope, arm: str, asked: Measure, outcomes: Mapping[str, Sequence[CellOutcome]]
) -> dict[str, list[float | None]]:
    """What was measured of an arm, by task, one per seed; None where a cell failed or has no such
    number.
    """
    by_task: dict[str, list[float | None]] = {}
    starts = outcomes.get(START, ())
    for i, o in enumerate(outcomes[arm]):
        start = starts[i] if i < len(starts) else None
        try:
            number = _number(asked, o, start)
        except UserError:
            if arm != START:  # which has not what only training leaves behind
                raise
            number = None
        by_task.setdefault(o.request.settings.problem, []).append(number)
    return by_task


def _number(asked: Measure, o: CellOutcome, start: CellOutcome | None = None) -> float | None:
    if o.cell is None:
        return None
    if isinstance(asked, BesideStart):
        if start is None or start.cell is None:
            return None
        x = asked.beside(o.cell, start.cell)
    else:
        x = asked(o.cell)
    return float(x) if math.isfinite(x) else None


def meter(experiment: Experiment) -> str:
    """What the arms have equally much of: sampled tokens, or what a program's budget counts."""
    return SAMPLED if experiment.tokens else next(iter(experiment.budget), SAMPLED)


def curve(runs: Sequence[Sequence[Mapping[str, Any]]], over: str = SAMPLED) -> dict[str, Any]:
    """Training reward over a meter, sampled tokens where nothing else is told: the mean over seeds
    at a few places that all of them reached.
    """
    courses = [(x, smooth(y)) for x, y in (series(run, over, "reward") for run in runs) if len(x)]
    if not courses:
        return {}
    grid_N = np.linspace(max(x[0] for x, _ in courses), min(x[-1] for x, _ in courses), POINTS)
    reward_SN = np.stack([np.interp(grid_N, x, y) for x, y in courses])
    columns = {"tokens": np.round(grid_N), "reward": reward_SN.mean(0).round(4)}
    if len(courses) > 1:
        columns |= {"deviation": reward_SN.std(0, ddof=1).round(4)}
    axis = {} if over == SAMPLED else {"over": over}
    return axis | {k: v.tolist() for k, v in columns.items()}


def arm_sha256(
    experiment: Experiment,
    arm: str,
    setting: Setting | None = None,
    tokens: int = 0,
    device: str = CPU,
) -> str:
    """The configuration of an arm on all its tasks, whatever the seeds."""
    given = [
        configuration(
            experiment.arm_with(arm, setting or {}),
            settings(experiment, t, device=device),
            tokens or experiment.tokens,
            experiment.samples,
            experiment.budget,
        )
        for t in experiment.tasks
    ]
    return sha256(given)


def arm_code(experiment: Experiment, arm: str) -> dict[str, Any]:
    """What stands for the code of an arm on all its tasks: the versions of its parts that are not 1,
    and a digest of the user's own files where it has any.
    """
    given, asked = experiment.every_arm[arm], [settings(experiment, t) for t in experiment.tasks]
    own = [digest for s in asked if (digest := own_code_sha256(given, s))]
    known = {"versions": {k: v for s in asked for k, v in versions(given, s).items()}}
    return known | ({"own_code_sha256": sha256(own)} if own else {})


def arm_packages(experiment: Experiment, arm: str) -> list[str]:
    """The other packages that make the numbers of an arm, with their versions."""
    asked = [settings(experiment, t) for t in experiment.tasks]
    each = (packages(experiment.every_arm[arm], s, *bench_of(s)) for s in asked)
    return sorted({package for versions in each for package in versions})


def commit() -> str:
    """Of the checkout that the package lies in, "+" where the package was changed since; ""
    outside of one.
    """

    def ask(*words: str) -> str:
        process = subprocess.run(
            ["git", "-C", str(PACKAGE), *words], capture_output=True, check=True
        )
        return process.stdout.decode().strip()

    try:
        changed = ask("status", "--porcelain", "--", ".")
        return ask("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return ""
