"""Which training problems a seed draws: `--seed` leaves those of a task without an end as they are, `--data-seed` draws
others; held-out problems are the same for every seed.
"""

import json

import palaestra as pl
import pyarrow.parquet as pq
import pytest
from palaestra.context import MOST_DRAWN
from palaestra.errors import UserError
from palaestra.ledger.digests import configuration
from palaestra.run.evaluation import chosen_tasks
from palaestra.run.setup import bench_of, with_data_seed
from palaestra.settings.fields import Settings
from palaestra.settings.overrides import build

SMALL = {"steps": 1, "evaluate": 2, "max_tokens": 8, "quiet": True}


def first_step(folder, **settings):
    run = pl.train("grpo", out=folder, **SMALL, **settings, set={"schedule.prompts": 3, "sample.n": 2})
    rows = pq.read_table(run.folder / "rollouts/step-000001.parquet").to_pylist()
    held_out = [(r["task_id"], r["prompt"]) for r in held_out_rows(run.folder)]
    return {r["task_id"] for r in rows}, held_out, [r["text"] for r in rows]


def held_out_rows(folder):
    files = sorted((folder / "evaluations/held-out").glob("*.parquet"))
    return [row for f in files for row in pq.read_table(f).to_pylist()]


def test_a_task_without_an_end_asks_the_same_for_every_seed_and_other_problems_by_data_seed(tmp_path):
    zero = first_step(tmp_path / "0", task="count")
    one = first_step(tmp_path / "1", task="count", seed=1)
    both = first_step(tmp_path / "both", task="count", seed=1, data_seed=1)
    assert zero[0] == one[0] == {"count/train/0", "count/train/1", "count/train/2"}
    assert zero[2] != one[2]  # other answers
    assert both[0] == {f"count/train/{MOST_DRAWN + i}" for i in range(3)}
    assert zero[1] == one[1] == both[1] and zero[1]


def test_rows_are_shuffled_by_the_data_seed(tmp_path):
    data = tmp_path / "d.jsonl"
    data.write_text("".join(json.dumps({"prompt": f"{i}+1", "answer": str(i + 1)}) + "\n" for i in range(60)))
    plain, _, _ = first_step(tmp_path / "0", data=str(data))
    other, held_out, _ = first_step(tmp_path / "1", data=str(data), seed=1)
    data_alone, same, _ = first_step(tmp_path / "2", data=str(data), data_seed=1)
    both, _, _ = first_step(tmp_path / "3", data=str(data), seed=1, data_seed=0)
    assert plain == both != other == data_alone and held_out == same


def bench(task="count", **settings):
    return with_data_seed(bench_of(Settings(task=task))[0], settings.get("data_seed"))


def test_zero_is_the_default_of_a_task_without_an_end():
    assert bench(data_seed=0).first_drawn == bench().first_drawn == 0
    assert bench(data_seed=3).first_drawn == 3 * MOST_DRAWN
    assert list(chosen_tasks(bench(data_seed=3), 4)) == list(chosen_tasks(bench(), 4))
    assert bench().data_seed is None and bench(data_seed=3).data_seed == 3


def test_a_run_keeps_its_data_seed(tmp_path):
    settings = {"task": "count", "data_seed": 2, "set": {"schedule.prompts": 2, "sample.n": 2}}
    pl.train("grpo", out=tmp_path / "run", **SMALL, **settings)
    with pytest.raises(UserError, match="its data_seed is 2 and stays so"):
        pl.train(resume=tmp_path / "run", data_seed=3)


def test_a_comparison_trains_on_the_problems_of_its_data_seed(tmp_path):
    """And its cells lie beside those without one."""
    settings = {"task": "count", "tokens": 16, "seeds": 1, "max_tokens": 4, "evaluate": 2, "quiet": True, "jobs": 1}
    settings |= {"set": {"schedule.prompts": 2, "sample.n": 2}}
    pl.compare("grpo", "rloo", out=tmp_path, **settings)
    plain = set((tmp_path / "cells").iterdir())
    pl.compare("grpo", "rloo", out=tmp_path, data_seed=2, **settings)
    cells = {True: plain, False: set((tmp_path / "cells").iterdir()) - plain}
    assert len(plain) == len(cells[False]) == 2
    for first, each in cells.items():
        start = 0 if first else 2 * MOST_DRAWN
        for cell in each:
            rows = pq.read_table(cell / "rollouts/step-000001.parquet").to_pylist()
            assert {r["task_id"] for r in rows} == {f"count/train/{start + i}" for i in range(2)}


def test_cells_lie_where_they_lay():
    """A setting that is not given is in no cell's address."""
    assert not [k for k in configuration(build("grpo", {}), Settings(task="count"), 10, 0) if "seed" in k]
