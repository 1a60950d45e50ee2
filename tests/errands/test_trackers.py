"""Our team watches its runs in TensorBoard."""

from pathlib import Path

import pytest

from tests.errands.shell import palaestra, steps, summary, train, write_rows
from tests.trackers.reading import tensorboard_numbers


def test_a_run_in_tensorboard(folder):
    """The numbers while the run goes on; and of a run that is over, sent later. They are those of metrics.jsonl."""
    pytest.importorskip("tensorboardX")
    write_rows(
        "sums.jsonl", [{"prompt": f"{a}+{b} mod 10", "answer": (a + b) % 10} for a in range(5) for b in range(5)]
    )
    train("--data sums.jsonl --track tensorboard --steps 2 --evaluate 4 schedule.prompts=2 sample.n=2 --out runs/seen")
    live = tensorboard_numbers(Path("runs/seen/tensorboard"))
    assert sorted(live) == [0, 1, 2]
    for line in steps("runs/seen"):
        numbers = {k: v for k, v in line.items() if k != "step" and v is not None}
        assert {k: live[line["step"]][k] for k in numbers} == pytest.approx(numbers, rel=1e-6, abs=1e-30)
    after = summary("runs/seen")["accuracy_after"]
    assert live[2]["evaluation/mean"] == pytest.approx(after["mean"]) and live[2]["evaluation/n"] == after["n"]
    assert palaestra("track runs/seen --to tensorboard:logs").status == 0
    assert tensorboard_numbers(Path("logs/seen")) == live


def test_a_tracker_that_there_is_not(folder):
    said = palaestra("train --track tensorbord --out runs/unseen")
    assert said.status == 2 and "tensorboard" in said.err.splitlines()[-1] and not Path("runs/unseen").exists()
