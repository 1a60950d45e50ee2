"""`palaestra plan`: simulates the speed of a run with more rollout workers and lag; with --model,
computes a step on GPUs (`sized`).
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from palaestra import catalogue
from palaestra.cli import sized
from palaestra.errors import UserError
from palaestra.method import Recipe
from palaestra.planning.calibrate import WAVES, Calibration, costs_of_run, read_costs
from palaestra.planning.costs import Split, best_split, colocated_seconds
from palaestra.planning.predict import Prediction, forecast_of, one_process_seconds, predict
from palaestra.planning.simulate import LogNormal
from palaestra.planning.trace import trace_of
from palaestra.store.checkpoint import write_atomic
from palaestra.store.folder import read_run
from palaestra.view.timeline import timeline_svg

SHOWN_STEPS = 4  # of a picture
HEAD = ("workers", "lag", "s/step", "tokens/s", "rollout idle", "learner idle", "age", "oldest")
UNMODELLED = (
    "the tickets of an attempt are alike, and a step learns from one attempt; a pool that asks for "
    "more is not modelled",
    "a worker's speed does not depend on who shares its ticket, nor on the other workers",
    "no worker fails; workers and learner do not compete for the network, memory or cores",
)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.model or arguments.published:
        return sized.run(arguments)
    sized.refuse_flags(arguments)
    calibrated, name, prompts = calibration(arguments)
    if prompts is not None and calibrated.waves > prompts:
        fewer = (
            f"--waves {prompts}" if arguments.run else f'"waves": {prompts} in {arguments.costs}'
        )
        raise UserError(
            f"{calibrated.waves} waves of {prompts} prompts: an attempt has a ticket at most a prompt; "
            f"give {fewer}, or less"
        )
    asked: dict[str, Any] = {
        k: getattr(arguments, k)
        for k in ("order", "streaming", "concurrent", "depth", "steps", "seed")
    }
    rows = predict(calibrated, workers=arguments.workers, lags=arguments.lag, **asked)
    check = one_process_seconds(calibrated, arguments.steps, arguments.seed)
    held = f"a worker holds {arguments.depth} ticket{'s' * (arguments.depth > 1)}"
    assumptions = [*calibrated.assumptions, *describe(calibrated), held, *UNMODELLED]
    written = write(arguments, calibrated, asked, rows[0])
    split = split_of(calibrated, rows[0].workers + 1)
    if not arguments.json:
        show(rows, calibrated, name, check)
        if split is not None:
            together = colocated_seconds(*work_of(calibrated), split.sampling + split.learning)
            print(
                f"\nby sums alone, {split.sampling + split.learning} equal devices: "
                f"{split.sampling} sample and {split.learning} learn, {split.seconds:.3g} s a step; "
                f"all do both in turn, {together:.3g} s"
            )
        print("\nassumptions")
        print(*(f"  - {line}" for line in assumptions), sep="\n")
        print(*(f"written to {path}" for path in written), sep="\n", end="\n" if written else "")
    return {
        "recipe": name,
        "source": calibrated.source,
        "waves": calibrated.waves,
        "depth": arguments.depth,
        "rows": [asdict(r) for r in rows],
        "one_process": {"predicted": check, "measured": calibrated.measured},
        "split": None if split is None else asdict(split),
        "assumptions": assumptions,
    }


def work_of(calibrated: Calibration) -> tuple[float, float]:
    """Device-seconds of sampling and of learning a step, by the medians."""
    median = lambda x: x.median if isinstance(x, LogNormal) else float(x)
    return calibrated.waves * median(calibrated.costs.ticket), median(calibrated.costs.learn)


def split_of(calibrated: Calibration, devices: int) -> Split | None:
    """How LlamaRL's cost model splits equal devices; None where costs are no numbers."""
    numbers = all(
        isinstance(x, LogNormal | float | int)
        for x in (calibrated.costs.ticket, calibrated.costs.learn)
    )
    return best_split(*work_of(calibrated), devices) if numbers and devices > 1 else None


def calibration(arguments: argparse.Namespace) -> tuple[Calibration, str, int | None]:
    """The costs, the recipe they belong to, and the prompts of a step if known."""
    if (arguments.costs is None) == (arguments.run is None):
        raise UserError(
            "plan takes seconds from one place: --costs FILE.json, --run DIR or --model NAME"
        )
    if arguments.run is not None:
        if arguments.recipe:
            raise UserError(f"{arguments.recipe}: --run says the recipe; leave it out")
        folder = Path(arguments.run)
        made = read_run(folder)
        calibrated = costs_of_run(folder, arguments.waves or WAVES)
        return calibrated, made.name("recipe"), made.config.get("set", {}).get("schedule.prompts")
    if arguments.waves is not None:
        raise UserError("--waves goes with --run; in a file of costs it is the key waves")
    if not arguments.recipe:
        raise UserError("plan needs a recipe: palaestra plan grpo --costs costs.json")
    recipe = catalogue.recipe(arguments.recipe)
    if not isinstance(recipe, Recipe):
        raise UserError(f"{arguments.recipe}: plan takes a recipe, not a {type(recipe).__name__}")
    return read_costs(Path(arguments.costs)), arguments.recipe, recipe.schedule.prompts


def describe(calibrated: Calibration) -> list[str]:
    """Lines that describe the costs used in the simulation."""
    costs = calibrated.costs
    lines = [
        f"{name}: log-normal, median {x.median:.3g} s, sigma {x.sigma:.2g}"
        + (f", at most {x.cap:.3g} s" if x.cap < float("inf") else "")
        for name, x in (("ticket", costs.ticket), ("learn", costs.learn))
        if isinstance(x, LogNormal)
    ]
    return [*lines, f"publish {costs.publish:g} s, load {costs.load:g} s, send {costs.send:g} s"]


def show(rows: list[Prediction], calibrated: Calibration, name: str, check: float) -> None:
    print(f"{name}: {calibrated.waves} tickets a step, seconds from {calibrated.source}")
    if calibrated.measured is not None:
        print(f"one process: {calibrated.measured:.3g} s a step measured, {check:.3g} s simulated")
    else:
        print(f"one process: {check:.3g} s a step simulated")
    print("".join(f"{word:>14}" for word in HEAD))
    for r in rows:
        speed = "-" if r.tokens_per_second is None else f"{r.tokens_per_second:,.0f}"
        cells = (
            f"{r.workers}", f"{r.lag}", f"{r.seconds:.3g}", speed, f"{r.idle_rollout:.0%}",
            f"{r.idle_learner:.0%}", f"{r.age_mean:.2f}", f"{r.age_max}",
        )  # fmt: skip
        print("".join(f"{cell:>14}" for cell in cells))


def write(
    arguments: argparse.Namespace, calibrated: Calibration, asked: dict[str, Any], best: Prediction
) -> list[Path]:
    """The files that were asked for: a trace of the best row, a picture of its workers at every
    lag, and streaming at lag 0.
    """
    written: list[Path] = []
    at = lambda lag, **other: forecast_of(
        calibrated, workers=best.workers, lag=lag, **(asked | other)
    )
    if arguments.trace:
        written.append(Path(arguments.trace))
        write_atomic(written[-1], json.dumps(trace_of(at(best.lag).spans)))
    if arguments.picture:
        written.append(Path(arguments.picture))
        short = {"steps": min(SHOWN_STEPS, arguments.steps)}
        drawn = {f"lag {lag}": at(lag, **short) for lag in sorted(arguments.lag)}
        if "lag 0" in drawn and not arguments.streaming:
            streamed = {"lag 0, streaming": at(0, streaming=True, **short)}
            drawn = {"lag 0": drawn.pop("lag 0"), **streamed, **drawn}
        title = f"{best.workers} workers, {short['steps']} steps"
        panels = {f"{name}: {title}": line.spans for name, line in drawn.items()}
        write_atomic(written[-1], timeline_svg(panels))
    return written
