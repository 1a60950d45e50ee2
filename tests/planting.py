"""Faults that are planted in a copy of the checkout, and what sees them there.

    python -m tests.planting tests/ledger/planted.tsv            every fault of a table, and what saw it
    python -m tests.planting tests/planted.tsv "a recipe"        those whose name has this in it

A table has a fault a line. A fault is one place of one file, where `old` becomes `new` (\\n is a new line, \\t a tab). It is
planted in a copy, never in the tree, and what has to see it runs in a process of its own: canaries (columns `moves` and `holds`,
"method: arm" with ", " between), or the test in the column `sees`.
"""

import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", "cells", "runs", "node_modules")
# By case: null, a list of how its canary moved and whether that is undecided, or why nothing is compared. Noise is looked
# at (`judge`) only where a draw lies near another token, and of cases that are to hold, as it takes three runs more.
WATCH = """
import json, sys
from palaestra.ledger import canaries, watchers

def outcome(name):
    method, _, arm = name.partition(": ")
    case, recorded = canaries.cases_of(method)[arm], canaries.read(method)[arm]
    today = canaries.watch(case, recorded.size)
    if today.configuration != recorded.configuration:
        return "another configuration"
    moved = canaries.compare(recorded, today)
    if moved and (moved.undecided or name in holds):
        moved = canaries.judge(case, recorded, today)
    return moved and [moved.what, moved.undecided]

watchers.torch.set_num_threads(1)
moves, holds = json.loads(sys.argv[1])
print(json.dumps({name: outcome(name) for name in (*moves, *holds)}))
"""


@dataclass(frozen=True)
class Fault:
    """`sees` is the test that has to fail, or "" where canaries have to move."""

    fault: str
    file: str
    old: str
    new: str
    moves: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    sees: str = ""


def read(table):
    """The faults of a table."""
    with Path(table).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    cases = lambda text: tuple(filter(None, (text or "").split(", ")))
    written = lambda text: text.replace(r"\n", "\n").replace(r"\t", "\t")
    lists = ({n: cases(row.get(n)) for n in ("moves", "holds")} for row in rows)
    texts = ({n: written(row[n]) for n in ("old", "new")} for row in rows)
    return [Fault(**{**row, **more, **text}) for row, more, text in zip(rows, lists, texts, strict=True)]


class Copy:
    """A copy of the checkout, in which one fault at a time is planted."""

    def __init__(self, place):
        self.root = Path(place) / "checkout"
        shutil.copytree(ROOT, self.root, ignore=LEFT_OUT, symlinks=True)

    @contextmanager
    def planted(self, fault):
        """The file has another time of change in the meantime, so nothing compiled before is read."""
        path = self.root / fault.file
        before, times = path.read_bytes(), path.stat()
        text = before.decode()
        if text.count(fault.old) != 1:
            raise ValueError(f"{fault.fault}: {fault.file} has {text.count(fault.old)} times {fault.old!r}, not once")
        path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
        try:
            yield
        finally:
            path.write_bytes(before)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def python(self, *arguments, seconds=600):
        """What Python does in the copy, with the package of the copy."""
        environment = {**os.environ, "PYTHONPATH": str(self.root), "OMP_NUM_THREADS": "1"}
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def watch(self, moves=(), holds=()):
        """How the canaries of some cases move here: {case: None, [what, undecided] or text}. What processors of another
        kind do is no movement of those that are to hold.
        """
        child = self.python("-c", WATCH, json.dumps([list(moves), list(holds)]))
        if child.returncode:
            raise RuntimeError(child.stderr[-2000:])
        return json.loads(child.stdout.splitlines()[-1])

    def fails(self, *tests):
        """How one of the tests fails here, in the last line of the summary; "" = all pass."""
        child = self.python("-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", "--no-header", *tests)
        if child.returncode not in (0, 1):  # nothing was collected, or it could not even be imported
            raise RuntimeError(f"{tests}: {(child.stdout + child.stderr)[-2000:]}")
        failures = [x for x in child.stdout.splitlines() if x.startswith(("FAILED", "ERROR"))]
        return (failures or ["FAILED"])[-1] if child.returncode else ""


def seen_by(copy, fault):
    """What sees a planted fault: movements by case, or how the test fails."""
    with copy.planted(fault):
        return copy.fails(fault.sees) if fault.sees else copy.watch(fault.moves, fault.holds)


def main(table, part=""):
    with tempfile.TemporaryDirectory() as place:
        copy = Copy(place)
        for fault in read(table):
            if part in fault.fault:
                print(f"{fault.fault}: {json.dumps(seen_by(copy, fault), indent=1)}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
