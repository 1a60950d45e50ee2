"""Runs of experiments and comparisons: each in a process of its own, under an address made of all
it depends on.

A cell is (recipe, problem, model, budget of sampled tokens, evaluation, seed). Its folder is named
by its digest, so arms that experiments have in common are run once, and what was finished before a
kill is not run again.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import multiprocessing
import os
import platform
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import asdict, field, replace
from functools import partial
from importlib.metadata import version
from itertools import chain, zip_longest
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from palaestra.context import MOST_DRAWN, Runnable
from palaestra.cores import cores
from palaestra.errors import Fault, UserError
from palaestra.ledger.digests import (
    configuration,
    model_sha256,
    own_code_sha256,
    sha256,
    versions,
)
from palaestra.ledger.experiment import experiment_of
from palaestra.ledger.measures import Cell
from palaestra.processor import arithmetic, processor
from palaestra.run import setup
from palaestra.run.context import RunContext
from palaestra.run.evaluators import exams_of
from palaestra.run.plan import PartRun, Plan
from palaestra.run.programs import check_budget
from palaestra.services.children import empty_main
from palaestra.settings import overrides
from palaestra.settings.fields import Settings
from palaestra.store.checkpoint import write_atomic
from palaestra.store.folder import is_step, records
from palaestra.terminal.progress import Headway
from palaestra.types import value_class

CHECKPOINT = 20  # steps between those of a cell
MOST_MEASURED = 1 << 12  # held-out ones, where a program says how many it takes
REQUEST, DONE, LOG = "request.json", "cell.json", "log.txt"
LOCK, CLOCK, METRICS = "lock", "clock.json", "metrics.jsonl"
SHARED = "parts"  # beside the cells: parts that several of them have
LOOK = 2.0  # seconds between two looks at how far the cells are
MOST_TOLD = 3  # cells that a line of the progress names
ADDRESS = 20  # characters of the digest


@value_class
class CellRequest:
    """A cell that is wanted. `arm` is "method:name" of an experiment's arm; "" = `recipe`, a value
    of a program, and where there is none the recipe that the settings name.
    """

    label: str  # for people: "grpo, seed 0"
    settings: Settings
    tokens: int
    samples: int = 0
    arm: str = ""
    # each seed has tasks of its own to learn from and to be measured on, where there are enough
    own_tasks: bool = False
    recipe: Runnable | None = None
    budget: Mapping[str, float] = field(default_factory=dict)  # of a program, by meter

    def runnable(self) -> Runnable:
        if self.recipe is not None:
            return overrides.adjust_recipe(self.recipe, self.settings)
        if not self.arm:
            return overrides.recipe_of(self.settings)
        method, _, name = self.arm.rpartition(":")
        return experiment_of(method).arm_with(name, self.settings.set)

    def configuration(self) -> dict[str, Any]:
        asked = (self.settings, self.tokens, self.samples, self.budget)
        digest = configuration(self.runnable(), *asked)
        return digest | ({"own_tasks": True} if self.own_tasks else {})

    def digest(self) -> str:
        """The cell's address."""
        runnable = self.runnable()
        return sha256([self.configuration(), self.settings.seed, *code_of(runnable, self.settings)])


@value_class
class CellOutcome:
    """What became of a request: a finished cell, or why there is none."""

    request: CellRequest
    folder: Path
    cell: Cell | None = None
    error: str = ""


def run_all(
    requests: Sequence[CellRequest], folder: Path, headway: Headway, jobs: int = 0
) -> list[CellOutcome]:
    """Runs what is not there yet, `jobs` at a time (0 = one a core or GPU); the outcomes in the
    order of the requests.
    """
    places = [folder / "cells" / r.digest()[:ADDRESS] for r in requests]
    waiting = {p: r for p, r in zip(places, requests, strict=True) if not (p / DONE).is_file()}
    errors: dict[Path, str] = {}
    wanted = {r.settings.where for r in waiting.values()}
    if "cuda" in wanted and not torch.cuda.is_available():
        raise UserError(
            f"{len(waiting)} of {len(requests)} runs are still to be made on a CUDA device, and "
            "there is none here"
        )
    together = cores() if all(r.settings.where == "cpu" for r in requests) else 1
    jobs = min(jobs or together, max(len(waiting), 1))
    total = len(set(places))
    headway.expect(total, total - len(waiting), _pace(places, jobs), _under_way(waiting))
    # which ends before the pool waits for its threads
    with ThreadPoolExecutor(jobs) as pool, _children() as start:
        running = {pool.submit(_run, p, waiting[p], start): p for p in _in_turn(waiting, jobs)}
        try:
            while running:
                over, _ = wait(running, LOOK, FIRST_COMPLETED)
                places_over = {running.pop(f): f.result() for f in over}
                share = _under_way({p: waiting[p] for p in running.values()})
                begun = {p: waiting[p] for f, p in running.items() if f.running()}
                for place, error in places_over.items():
                    if error:
                        errors[place] = error
                        headway.note(f"{waiting[place].label}: {error}")
                labels = ", ".join(waiting[p].label for p in places_over)
                headway.advance(len(over), labels or _describe(begun), share)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [
        CellOutcome(
            request=r, folder=p, cell=None if p in errors else read_cell(p), error=errors.get(p, "")
        )
        for p, r in zip(places, requests, strict=True)
    ]


def _in_turn(waiting: Mapping[Path, CellRequest], jobs: int) -> list[Path]:
    """The order of the cells, of `jobs` seeds in turns: those of a seed share their warm start, and
    who needs it while another makes it stands still.
    """
    by_seed: dict[int, list[Path]] = {}
    for place, request in waiting.items():
        by_seed.setdefault(request.settings.seed, []).append(place)
    cells = list(by_seed.values())
    turns = (zip_longest(*cells[i : i + jobs]) for i in range(0, len(cells), jobs))
    return [place for turn in chain.from_iterable(turns) for place in turn if place]


def _pace(places: Sequence[Path], jobs: int) -> float | None:
    """Seconds a cell, `jobs` at a time, of those that are there; None = there are none whose time
    is known.
    """
    done = [json.loads((p / DONE).read_text()) for p in set(places) if (p / DONE).is_file()]
    known = [s for d in done if (s := d.get("wall_seconds")) is not None]
    return sum(known) / len(known) / jobs if known else None


def _under_way(cells: Mapping[Path, CellRequest]) -> float:
    """How much there is of unfinished cells by the tokens that they have sampled; 1 = as much as
    one whole cell.
    """
    done = (_sampled(p / METRICS) / r.tokens for p, r in cells.items() if r.tokens)
    return sum(min(1.0, share) for share in done)


def _describe(cells: Mapping[Path, CellRequest]) -> str:
    """Unfinished cells for people, and the steps that each has made; those of a pipeline's parts
    count where the cell holds them.
    """
    files = {p: [p / METRICS, *p.glob(f"*/{METRICS}")] for p in cells}
    steps = {p: sum(is_step(r) for f in value for r in records(f)) for p, value in files.items()}
    places = [
        f"{r.label}: {f'step {steps[p]}' if steps[p] else 'no step yet'}" for p, r in cells.items()
    ]
    more = [f"{len(places) - MOST_TOLD} more"] if len(places) > MOST_TOLD else []
    return "; ".join([*places[:MOST_TOLD], *more])


def _sampled(file: Path) -> int:
    """The tokens of a run so far."""
    return max((r.get("sampled_tokens", 0) for r in records(file)), default=0)


Start = Callable[[Path, CellRequest], BaseProcess]


@contextlib.contextmanager
def _children() -> Generator[Start]:
    """Starts cells, forked from a server that has imported everything; those that still run when
    the block is left, also by SIGTERM, are asked to stop.
    """
    started: list[BaseProcess] = []
    over = threading.Event()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "transformers.models.llama.modeling_llama"])

    def start(place: Path, request: CellRequest) -> BaseProcess:
        given = (place.absolute(), Path.cwd(), request.recipe)
        child = context.Process(target=_in_child, args=given)
        with empty_main():
            child.start()
        started.append(child)
        if over.is_set():
            child.terminate()
        return child

    def stop(number: int, frame: Any) -> None:
        sys.exit(128 + number)

    with contextlib.ExitStack() as stack:
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            # not the main thread: whoever owns it handles signals
            with contextlib.suppress(ValueError):
                stack.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, stop))
        try:
            yield start
        except BaseException:
            over.set()
            for child in started:
                child.terminate()
            raise


def _run(place: Path, request: CellRequest, start: Start) -> str:
    """Runs a cell in its own process: why it failed, "" if it did not. What has its numbers is
    done, however its process ended.
    """
    place.mkdir(parents=True, exist_ok=True)
    write_atomic(place / REQUEST, json.dumps(asdict(replace(request, recipe=None)), indent=1))
    (place / LOG).write_bytes(b"")
    child = start(place, request)
    child.join()
    if child.exitcode == 0 or (place / DONE).is_file():
        return ""
    lines = (place / LOG).read_text(errors="replace").strip().splitlines()
    reason = lines[-1] if lines else f"exit status {child.exitcode}"
    return f"failed: {reason} (see {place / LOG})"


# ---- one cell, in its own process


def _in_child(place: Path, cwd: Path, recipe: Runnable | None) -> None:
    """A cell's process: one thread, everything it says in its log, the exit status of a program."""
    os.environ |= {
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    os.chdir(cwd)
    # Ctrl-C at a terminal reaches this process too: its parent asks it to stop, and being asked
    # twice it would not save
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    log = os.open(place / LOG, os.O_WRONLY | os.O_APPEND)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(log, stream.fileno())
    torch.set_num_threads(1)
    try:
        run_requested(place, recipe)
    except (UserError, Fault) as error:
        print(error, file=sys.stderr)
        sys.exit(1)


def run_requested(place: Path, recipe: Runnable | None = None) -> None:
    """Runs the cell whose request lies in `place`, unless another process has done so in the
    meantime. `recipe`: the value that it asks for.
    """
    asked = json.loads((place / REQUEST).read_text())
    request = CellRequest(**asked | {"settings": Settings(**asked["settings"]), "recipe": recipe})
    with (place / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / DONE).is_file():
            if request.digest()[:ADDRESS] != place.name:
                raise Fault(
                    "cell",
                    "its configuration has changed since this cell was asked for; run it again",
                )
            run_here(request, place)


def run_here(request: CellRequest, place: Path) -> None:
    """Runs a cell in this process and writes its numbers. Its checkpoints are only kept while it is
    unfinished.
    """
    with clock_cell(place) as seconds:
        ctx = setup.context(request.settings, out=place, talk=False)
        ctx.share = partial(shared_folder, request, ctx)
        ctx.plan = Plan(
            tokens=request.tokens,
            evaluate=request.settings.evaluate,
            samples=request.samples,
            exams=exams_of(request.settings, request.samples),
            budget=request.budget,
            checkpoint_every=CHECKPOINT,
        )
        if request.own_tasks:
            seed = request.settings.seed
            ctx.bench = replace(
                ctx.bench,
                first_held_out=seed * (request.settings.evaluate or MOST_MEASURED),
                first_drawn=seed * MOST_DRAWN,
            )
        try:
            result = asyncio.run(request.runnable().run(ctx))
        finally:
            ctx.close()
        spent = {"spent": fault} if (fault := check_budget(ctx)) else {}
        made = {**spent, **seconds(), "machine": machine_of(request.settings.where)}
        write_atomic(place / DONE, json.dumps({**result.metrics, **made}, indent=1))
    for folder in place.rglob("checkpoints"):
        shutil.rmtree(folder)


def code_of(runnable: Runnable, settings: Settings) -> list[Any]:
    """What stands for code in the address of a cell: versions of parts, and a user's own files."""
    return [versions(runnable, settings), own_code_sha256(runnable, settings)]


def shared_folder(request: CellRequest, ctx: RunContext, part: PartRun) -> Path:
    """Where a part that cells share lies: by all that it depends on."""
    settings = setup.own_settings(request.settings, part.problem)
    runnable, seed = part.runnable, ctx.seed if part.seed is None else part.seed
    models = {"": part.model or "", **part.models}
    address = sha256(
        [
            configuration(runnable, settings, request.tokens, request.samples, request.budget),
            seed,
            [0, 0] if part.seed is not None else [ctx.bench.first_held_out, ctx.bench.first_drawn],
            *code_of(runnable, settings),
            {n: model_sha256(p) if p else "" for n, p in models.items()},
        ]
    )
    return ctx.folder.parent.parent / SHARED / address[:ADDRESS]


@contextlib.contextmanager
def clock_cell(place: Path) -> Generator[Callable[[], dict[str, float | None]]]:
    """Gives the seconds of a cell's run so far, those of earlier parts of it included: of the wall
    clock, and of the processor, those of programs that it ran and that have ended included.

    `CLOCK` holds those of the parts that are over, and null while one runs: a part that was killed
    outright leaves the null, for nobody knows how long it ran, and the seconds of the cell are
    None.
    """
    begin, file = clocks(), place / CLOCK
    started = any(p.name not in (REQUEST, LOG, LOCK) for p in place.iterdir())
    unknown = None if started else dict.fromkeys(begin, 0.0)
    before = json.loads(file.read_text()) if file.is_file() else unknown

    def now() -> dict[str, float | None]:
        if before is None:
            return dict.fromkeys(begin)
        return {n: round(before[n] + value - begin[n], 1) for n, value in clocks().items()}

    write_atomic(file, "null")
    try:
        yield now
    finally:
        write_atomic(file, json.dumps(None if before is None else now()))


def machine_of(device: str) -> str:
    """What a cell runs on, in words."""
    versions = [f"{name} {version(name)}" for name in ("torch", "transformers")]
    cpu = " ".join([processor(), *arithmetic()[:2]])  # AVX2 and AVX-512 round differently
    facts = [
        platform.machine(),
        cpu,
        f"{os.cpu_count()} cores",
        f"Python {platform.python_version()}",
    ]
    here = ", ".join([*facts, *versions])
    return f"{torch.cuda.get_device_name()}, {here}" if device == "cuda" else here


def clocks() -> dict[str, float]:
    """What the clocks of a cell show now."""
    return {"wall_seconds": time.perf_counter(), "processor_seconds": sum(os.times()[:4])}


def read_cell(place: Path) -> Cell:
    """A finished cell. The steps of a pipeline are those of its parts, one after the other."""
    summary = json.loads((place / DONE).read_text())
    steps: list[dict[str, Any]] = []
    for folder in [place / p for p in summary.get("parts", {})] or [place]:
        file, before = folder / METRICS, steps[-1].get("sampled_tokens", 0) if steps else 0
        lines = file.read_text().splitlines() if file.is_file() else []
        step_lines = [r for r in map(json.loads, lines) if is_step(r)]
        steps += [r | {"sampled_tokens": before + r.get("sampled_tokens", 0)} for r in step_lines]
    return Cell(summary=summary, steps=steps, folder=place)
