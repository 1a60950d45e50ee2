"""`palaestra bench gpu`: the whole GPU programme in slices, each in a process of its own with a time
limit. What was measured is not measured again; what failed is tried again by the next call.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from benchmarks.slices import PACKAGES, SLICES, Slice, find_slices
from benchmarks.turns import environment
from palaestra.errors import Fault, UserError
from palaestra.services.lines import Died, Expired, LineProcess, describe_end
from palaestra.store.checkpoint import make_folder, write_atomic
from palaestra.terminal.display import clock_time
from palaestra.types import value_class

SliceRecord = dict[str, Any]
WORKER = ("-m", "benchmarks.gpu")  # what measures a slice
LOOK = 1.0  # seconds between two looks at the clock
DONE, FAILED, LATE, MISSING, OPEN = "done", "failed", "out of time", "missing", "not run"
REHEARSAL = "runs/gpu-rehearsal"


@value_class
class Order:
    """What is asked of the programme."""

    device: str
    folder: Path
    limit: int  # seconds of a slice
    only: tuple[str, ...] = ()  # names, kinds or sizes; () = all
    again: tuple[str, ...] = ()  # of those, also where they are done
    models: Path | None = None  # None = a temporary folder


def default_folder(device: str) -> Path:
    """Where results go if nobody says: those of a rehearsal never lie among measured ones."""
    return Path("benchmarks" if device == "cuda" else REHEARSAL)


def record_file(folder: Path, which: Slice) -> Path:
    return folder / f"gpu-{which.name}.json"


def read_record(folder: Path, which: Slice) -> SliceRecord:
    """What became of a slice; its "state" is "not run" where nobody tried. Raises UserError for a
    file that cannot be read.
    """
    file = record_file(folder, which)
    try:
        record = json.loads(file.read_text())
        return record | {k: record[k] for k in ("state", "device")}
    except FileNotFoundError:
        return {"state": OPEN}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file} is no result of a slice ({error}); delete it") from None


def show_list(folder: Path) -> list[SliceRecord]:
    """Every slice with its state, printed."""
    rows: list[SliceRecord] = []
    for s in SLICES:
        record = read_record(folder, s)
        about = {"slice": s.name, "state": record["state"], "why": record.get("why", "")}
        rows.append(about)
        took = clock_time(record["seconds"]) if "seconds" in record else ""
        print(f"{s.name:<15}{record['state']:<12}{took:>6}  {about['why'] or s.says}")
    return rows


def run_programme(order: Order) -> dict[str, str]:
    """Runs the slices that are asked for and not done; the state of each. Raises UserError, and
    Fault where a slice failed.
    """
    chosen = find_slices((*order.only, *order.again))
    again = find_slices(order.again) if order.again else []
    make_folder(order.folder)
    records = {s.name: read_record(order.folder, s) for s in chosen}
    for which in chosen:
        refuse_mixture(order, which, records[which.name])
    todo = [s for s in chosen if records[s.name]["state"] != DONE or s in again]
    console = Console(stderr=True)
    say = lambda text: console.print(text, highlight=False, markup=False, soft_wrap=True)
    if done := len(chosen) - len(todo):
        say(f"{done} of {len(chosen)} slices are done; --again NAME measures one of them anew")
    spent: list[float] = []
    with ExitStack() as held:
        held.enter_context(sigterm_as_exit())
        aside = tempfile.TemporaryDirectory(prefix="palaestra-gpu-")
        models = make_folder(order.models or Path(held.enter_context(aside)))
        for n, which in enumerate(todo):
            left = time_left(spent, sum(not missing(s) for s in todo[n:]), order.limit)
            title = f"[{n + 1}/{len(todo)}] {which.name}: {which.says}"
            record = run_slice(which, order, models, console, f"{title}; {left}")
            keep_record(order.folder, which, record, records[which.name])
            records[which.name] = record
            spent += [record["seconds"]] if "seconds" in record else []
            say(f"{title}: {outcome(record)}")
    bad = [n for n, r in records.items() if r["state"] in (FAILED, LATE)]
    if bad:
        raise Fault(
            "bench",
            f"{len(bad)} of {len(chosen)} slices could not be measured ({', '.join(bad)}); the same "
            f"command tries them again, {order.folder}/gpu-NAME.json says more",
        )
    return {name: record["state"] for name, record in records.items()}


def refuse_mixture(order: Order, which: Slice, record: SliceRecord) -> None:
    """A rehearsal must not replace what a GPU gave, nor pass for it."""
    if record["state"] != OPEN and record["device"] != order.device:
        raise UserError(
            f"{record_file(order.folder, which)} is of the device {record['device']!r}, not "
            f"{order.device!r}; choose another folder with --out"
        )


def time_left(spent: Sequence[float], slices: int, limit: int) -> str:
    """Of the whole programme with so many slices to go: at most, or at the pace so far."""
    if not spent:
        return f"at most {clock_time(slices * limit)} left in all"
    return f"about {clock_time(sum(spent) / len(spent) * slices)} left in all"


def outcome(record: SliceRecord) -> str:
    """A slice's end as words."""
    took = f" after {clock_time(record['seconds'])}" if "seconds" in record else ""
    why = f": {record['why']}" if record.get("why") else ""
    at = f", at: {record['at']}" if "at" in record else ""
    return f"{record['state']}{took}{at}{why}"


def keep_record(folder: Path, which: Slice, record: SliceRecord, before: SliceRecord) -> None:
    """Writes what became of a slice. A result is only replaced by another."""
    if before["state"] != DONE or record["state"] == DONE:
        write_atomic(record_file(folder, which), json.dumps(record, indent=1) + "\n")


def missing(which: Slice) -> str:
    """What a slice needs and is not installed here."""
    lacking = [PACKAGES[p] for p in which.needs if importlib.util.find_spec(p) is None]
    return f"not installed here, {'; '.join(lacking)}" if lacking else ""


def run_slice(
    which: Slice, order: Order, models: Path, console: Console, title: str
) -> SliceRecord:
    """What became of a slice, measured in a process of its own."""
    on = "" if order.device == "cuda" else f" --device {order.device}"
    about: SliceRecord = {
        "bench": "gpu",
        "slice": which.name,
        "device": order.device,
        "command": f"palaestra bench gpu{on} --only {which.name}",
    }
    if lacking := missing(which):
        return about | {"state": MISSING, "why": lacking}
    request = {
        "slice": which.name,
        "device": order.device,
        "limit": order.limit,
        "models": str(models.absolute()),
    }
    command = [sys.executable, *WORKER, json.dumps(request)]
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, moving_line(console, title) as show:
        child = LineProcess(command, one_gpu(), Path(folder) / "log", apart=True)
        try:
            for message in messages(child, begin + order.limit, show):
                about |= message
            about |= {"state": FAILED} if "why" in about else {"state": DONE}
        except Expired:
            about |= {"state": LATE, "why": f"it ran for {order.limit} s"}
        except Died:
            about |= {"state": FAILED, "why": f"it {describe_end(child.process.wait())}"}
        finally:
            end_group(child)
        at = about.pop("at", "its start")
        if about["state"] != DONE:
            about |= {"at": at, "log": child.last_words().split(" | ")}
    return about | {"seconds": round(time.monotonic() - begin, 1)}


def end_group(child: LineProcess) -> None:
    """Ends a slice's process and its workers: one that died leaves them with the GPU's memory."""
    with suppress(ProcessLookupError):
        os.killpg(child.process.pid, signal.SIGKILL)
    child.stop()


def one_gpu() -> dict[str, str]:
    """The environment with the first of the GPUs that may be used: TRL would take them all."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
    return environment() | {"CUDA_VISIBLE_DEVICES": visible.partition(",")[0]}


def messages(child: LineProcess, end: float, show: Callable[[str], None]) -> Generator[SliceRecord]:
    """What a slice's process tells, up to its result or why there is none. Raises Expired at `end`,
    and Died.
    """
    message: SliceRecord = {"at": "its start"}
    at = message["at"]
    while not {"result", "why"} & message.keys():
        left = end - time.monotonic()
        if left <= 0:
            raise Expired
        show(f"{at}; {clock_time(left)} left for it")
        try:
            message = child.receive(min(LOOK, left))
        except Expired:
            continue
        at = message.get("at", at)
        yield message


@contextmanager
def moving_line(console: Console, title: str) -> Generator[Callable[[str], None]]:
    """What shows the present state behind a title: in place on a terminal, else the title once."""
    if not console.is_terminal:
        console.print(title, highlight=False, markup=False, soft_wrap=True)
        yield lambda text: None
        return
    with console.status(escape(title)) as status:
        yield lambda text: status.update(escape(f"{title}\n  {text}"))


@contextmanager
def sigterm_as_exit() -> Generator[None]:
    """Inside, SIGTERM ends the program as an exception does, so that what it started ends too."""

    def stop(number: int, frame: object) -> None:
        sys.exit(128 + number)

    with ExitStack() as stack:
        with suppress(ValueError):  # not the main thread: whoever owns it handles signals
            stack.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, stop))
        yield
