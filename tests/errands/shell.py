"""What the errands are run and read with: a command line, and the files that it leaves."""

import io
import json
import shlex
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from palaestra.cli.main import main


@dataclass(frozen=True)
class Screen:
    """What a command said, and its exit status."""

    status: int
    out: str
    err: str

    def line(self, begins):
        """The rest of the one line of standard output that begins so."""
        (found,) = [x for x in self.out.splitlines() if x.strip().startswith(begins)]
        return found.strip().removeprefix(begins).strip()


def palaestra(words):
    """`palaestra WORDS` in this process, whose imports are paid for."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main(shlex.split(words))
    return Screen(status, out.getvalue(), err.getvalue())


def train(words):
    """`palaestra train WORDS`, which is to work."""
    said = palaestra(f"train {words}")
    assert said.status == 0, said.err
    return said


def write_rows(name, rows):
    """A file of one JSON object a line."""
    Path(name).write_text("\n".join(map(json.dumps, rows)))


def summary(run):
    return json.loads(Path(run, "summary.json").read_text())


def steps(run):
    """The lines of metrics.jsonl that are steps."""
    lines = map(json.loads, Path(run, "metrics.jsonl").read_text().splitlines())
    return [x for x in lines if "evaluation" not in x]


def episodes(run):
    """The rows of all rollouts."""
    return pq.read_table(Path(run, "rollouts")).to_pylist()
