"""`palaestra bench view`: how long the viewer takes with many rollouts, and its memory."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

from benchmarks.made_up import write_run
from palaestra.run.parts import Parts

ROLLOUTS = 100_000
OF_A_STEP = 128
METRIC_LINES = 5000
WORDS = "so the answer is 7"


def measure(parts: Parts, rollouts: int = ROLLOUTS) -> dict[str, Any]:
    """See `measure_looks`."""
    return parts.keep("looks", lambda: measure_looks(rollouts))


def measure_looks(rollouts: int) -> dict[str, Any]:
    """Seconds to the server's first word and of each kind of answer, in two processes one after the
    other: the first reads the run folder, the second finds what the first kept. Megabytes: the most
    that the process held.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = write_run(Path(place, "run"), -(-rollouts // OF_A_STEP))
        lengthen(folder / "metrics.jsonl")
        looks = {n: look(folder, Path(place, "cache")) for n in ("first", "later")}
    size = {"rollouts": -(-rollouts // OF_A_STEP) * OF_A_STEP, "metric_lines": METRIC_LINES}
    return {**size, "looks": looks}


def lengthen(log: Path) -> None:
    """More lines of metrics than there are rollout files, as a long run with --rollouts has."""
    lines = log.read_text().splitlines()
    more = ({**json.loads(lines[i % len(lines)]), "step": i + 1} for i in range(METRIC_LINES))
    log.write_text("".join(json.dumps(line) + "\n" for line in more))


def look(folder: Path, cache: Path) -> dict[str, float]:
    begin = time.perf_counter()
    with serving(folder, cache) as (url, process):
        times = {
            "server ready": time.perf_counter() - begin,
            "of processor": cpu_seconds(process.pid),
        }
        table = f"{url}api/run/0/table/training"
        for name, address in {
            "index": f"{table}/index",
            "metrics": f"{url}api/run/0/metrics",
            "search": f"{table}/search?q={quote(WORDS)}",
            "search again": f"{table}/search?q={quote('/so the answer is [37]/')}",
            "a group with its tokens": f"{table}/group/7/3",
            "problems": f"{table}/problems",
            "signs": f"{url}api/run/0/signs",
        }.items():
            begin = time.perf_counter()
            with urlopen(Request(address)) as reply:
                reply.read()
            times[name] = time.perf_counter() - begin
        return {**times, "memory_mb": peak_mb(process.pid)}


@contextmanager
def serving(folder: Path, cache: Path) -> Generator[tuple[str, subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "palaestra", "view", str(folder), "--port", "0", "--no-open"]
    env = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        url = re.search(r"http://\S+", line)
        if url is None:
            raise OSError(f"the viewer did not begin: {line}")
        yield url[0], process
    finally:
        process.terminate()
        process.wait()


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far; 0 where the system does not tell."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.is_file():
        return 0.0
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mb(pid: int) -> float:
    """The most resident memory so far; 0 where the system does not tell."""
    status = Path(f"/proc/{pid}/status")
    match = re.search(r"VmHWM:\s+(\d+)", status.read_text()) if status.is_file() else None
    return int(match[1]) / 1024 if match else 0.0


def show(result: dict[str, Any]) -> str:
    head = f"{result['rollouts']:,} rollouts, {result['metric_lines']:,} lines of metrics"
    lines = [f"{head}            first look  later"]
    first, later = result["looks"]["first"], result["looks"]["later"]
    for name in first:
        tell = (lambda x: f"{x:7.0f} MB") if name == "memory_mb" else (lambda x: f"{x:8.3f} s")
        lines.append(f"  {name:<26} {tell(first[name])} {tell(later[name])}")
    return "\n".join(lines)
