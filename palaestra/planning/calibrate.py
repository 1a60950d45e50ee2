"""Costs for the simulator, from a file of measured seconds or from a run that is over."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from palaestra.errors import UserError
from palaestra.planning.simulate import Costs, LogNormal
from palaestra.store.folder import read_summary, records
from palaestra.store.reading import number
from palaestra.suggest import suggestion
from palaestra.types import value_class

NUMBERS = ("publish", "load", "send", "switch")
DISTRIBUTIONS = ("ticket", "learn")
LEAST_STEPS = 3  # of a run, after the first
SAMPLING = ("rollout", "reward")  # phases of a run that a rollout worker takes over
PHASE = "seconds/"  # before a phase's name in metrics.jsonl
WAVES = 8  # of an attempt, where nothing says how many


@value_class
class Calibration:
    """What a simulation starts from."""

    costs: Costs
    waves: int  # tickets of an attempt that `costs.ticket` is about
    tokens: float | None  # sampled in a step
    measured: float | None  # seconds of a step of the run in one process
    source: str
    assumptions: tuple[str, ...]


def read_costs(path: Path) -> Calibration:
    """Reads a JSON object of seconds.

    `ticket` and `learn` are a number or {"median": s, "sigma": of its logarithm, "cap": s};
    `publish`, `load`, `send` and `switch` are numbers, 0 where not given; see `Costs`. `waves` says
    how many tickets an attempt is cut into (default 8), `tokens` how many tokens a step samples.

    Raises:
        UserError: for a file that cannot be read, an unknown or missing key, or a value that is
            no number of at least 0.
    """
    try:
        given: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"{path}: not JSON: {error}") from None
    known = (*DISTRIBUTIONS, *NUMBERS, "waves", "tokens")
    if not isinstance(given, dict):
        raise UserError(f'{path}: takes an object such as {{"ticket": 1.2, "learn": 0.9}}')
    for key in given:
        if key not in known:
            raise UserError(f"{path}: unknown key {key!r}{suggestion(key, known)}")
    for key in DISTRIBUTIONS:
        if key not in given:
            raise UserError(f"{path}: {key} is missing; it takes seconds")
    waves = positive(path, "waves", given.get("waves", WAVES))
    if waves < 1 or waves != int(waves):
        raise UserError(f"{path}: waves takes a whole number of at least 1, not {waves:g}")
    return Calibration(
        costs=Costs(
            ticket=distribution(path, "ticket", given["ticket"]),
            learn=distribution(path, "learn", given["learn"]),
            **{key: positive(path, key, given.get(key, 0.0)) for key in NUMBERS},
        ),
        waves=int(waves),
        tokens=positive(path, "tokens", given["tokens"]) if "tokens" in given else None,
        measured=None,
        source=str(path),
        assumptions=(),
    )


def distribution(path: Path, key: str, given: Any) -> LogNormal:
    if not isinstance(given, Mapping):
        return LogNormal(median=positive(path, key, given))
    fields = ("median", "sigma", "cap")
    for name in given:
        if name not in fields:
            raise UserError(f"{path}: {key}: unknown key {name!r}{suggestion(name, fields)}")
    if "median" not in given:
        raise UserError(f"{path}: {key}: median is missing; it takes seconds")
    return LogNormal(**{name: positive(path, f"{key}.{name}", x) for name, x in given.items()})


def positive(path: Path, key: str, given: Any) -> float:
    x = None if isinstance(given, bool) else number(given)
    if x is None or x < 0:
        raise UserError(f"{path}: {key} takes a number of at least 0, not {given!r}")
    return x


def costs_of_run(folder: Path, waves: int) -> Calibration:
    """Costs from metrics.jsonl and summary.json of a run in one process.

    metrics.jsonl has the seconds of each step, summary.json those of each phase over all steps; of
    a run that was stopped the steps themselves have them. Every step is divided in the run's
    proportions: rollout and reward are a worker's, the rest is the learner's. A ticket is 1 /
    `waves` of a step's sampling. Medians and spreads are those over steps, without the first, which
    builds what later ones reuse.

    Raises:
        UserError: for a folder without these files, of fewer than four steps, or of a run that
            samples nothing.
    """
    steps = [r for r in records(folder / "metrics.jsonl") if "seconds" in r]
    phases = phase_seconds(folder, steps)
    walls_S = np.diff([float(r["seconds"]) for r in steps])
    if len(walls_S) < LEAST_STEPS:
        raise UserError(f"{folder}: a calibration needs at least {LEAST_STEPS + 1} steps")
    total = sum(phases.values())
    share = sum(phases[p] for p in SAMPLING) / total
    tokens = np.diff([float(r.get("sampled_tokens", 0)) for r in steps])
    if share == 0 or not tokens.any():
        raise UserError(
            f"{folder}: this run samples nothing, so more workers would have nothing to do"
        )
    return Calibration(
        costs=Costs(
            ticket=fit_log_normal(walls_S * share / waves),
            learn=fit_log_normal(walls_S * (1 - share)),
        ),
        waves=waves,
        tokens=float(tokens.mean()) or None,
        measured=float(walls_S.mean()),
        source=f"{folder}, steps {steps[1]['step']} to {steps[-1]['step']}",
        assumptions=(
            f"a ticket takes 1/{waves} of a step's sampling, which is optimistic, as fewer sequences "
            "share a forward pass; tickets spread as steps do",
            f"sampling is {share:.1%} of every step, its share of the whole run",
            "a worker is as fast as the run's process, so each needs cores or a device of its own",
            "publishing, loading and sending are free: the run has measured none of them",
        ),
    )


def phase_seconds(folder: Path, steps: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Of the whole run, where it has ended; else those of the steps that it made."""
    summary = read_summary(folder)
    seconds_by_phase = summary.get("phase_seconds")
    if not isinstance(seconds_by_phase, Mapping):
        seconds_by_phase = Counter[str]()
        for step in steps:
            seconds_by_phase.update(
                {k[len(PHASE) :]: v for k, v in step.items() if k.startswith(PHASE)}
            )
    if not all(p in seconds_by_phase for p in SAMPLING):
        raise UserError(
            f"{folder}: no seconds of phases, neither in summary.json nor in metrics.jsonl"
        )
    return {str(k): float(v) for k, v in seconds_by_phase.items()}


def fit_log_normal(seconds_S: np.ndarray) -> LogNormal:
    """The log-normal distribution with the mean and deviation of these logarithms."""
    log_S = np.log(np.maximum(seconds_S, 1e-9))
    return LogNormal(median=math.exp(log_S.mean()), sigma=float(log_S.std(ddof=1)))
