"""A function of the user sees the metrics of every step, and may end the run."""

import json

import palaestra as pl
import pytest


@pytest.mark.parametrize(("last", "steps"), [(1, [1]), (9, [1, 2])])
def test_a_function_sees_each_step_and_may_end_the_run(tmp_path, last, steps):
    seen = []

    def on_step(step, metrics):
        seen.append((step, metrics["reward"], metrics["lr"] > 0))
        metrics.clear()  # its own copy
        return step >= last

    small = {"schedule.prompts": 2, "sample.n": 2}
    settings = {"steps": 2, "evaluate": 4, "max_tokens": 8, "set": small}
    run = pl.train("grpo", out=tmp_path / "run", quiet=True, on_step=on_step, **settings)
    assert [step for step, _, _ in seen] == steps and all(known for _, _, known in seen)
    lines = [json.loads(x) for x in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [x["reward"] for x in lines if "reward" in x] == [reward for _, reward, _ in seen]
    summary = json.loads((run.folder / "summary.json").read_text())
    assert summary["steps"] == steps[-1] and "accuracy_after" in summary
