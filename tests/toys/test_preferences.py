"""Preferences with a known reward: what is shared, who is called better, and a user's own pairs beside them."""

import asyncio
import json

import numpy as np
import pytest
from palaestra.credit.rows import Prefer
from palaestra.errors import UserError
from palaestra.rollout.recorded import Recorded
from palaestra.run.benches import bench_by_name, from_data
from palaestra.toys.preferences import Preferences, shared
from palaestra.types import Group

from tests.oracle import check_oracle

SOURCES = ("add", "bool", "sort")
drawn = lambda tasks, n=1500, split="train": [tasks.task(split, i) for i in range(n)]


@pytest.mark.parametrize("source", SOURCES)
def test_both_answers_are_alike_and_worth_what_is_said(source):
    tasks = Preferences(source=source)
    for task in drawn(tasks, 200):
        first, second = task.meta["chosen"], task.meta["rejected"]
        assert first != second and task.meta["gap"] == tasks.gold(first, task) - tasks.gold(second, task)
        assert task.meta["shared"] == shared(first, second) and tasks.task("train", 0) == tasks.task("train", 0)
    assert np.mean([t.meta["shared"] for t in drawn(tasks, 200)]) > 0.8
    test = {t.prompt[0].content for t in drawn(tasks, 200, "test")}
    assert not test & {t.prompt[0].content for t in drawn(tasks, 200)}


def test_gold_by_hand():
    tasks = Preferences()
    task = next(t for t in drawn(tasks) if t.prompt[0].content)
    steps = list(task.meta["steps"])
    right = "\n".join([*steps, f"= {task.answer}"])
    assert tasks.check(right, task) == {"total": 1.0, "solved": 1.0}
    assert tasks.check(f"= {task.answer}", task) == {"total": 1.0, "solved": 1.0}
    assert tasks.gold("\n".join([*steps, "= x"]), task) == 0.5
    assert tasks.gold("\n".join([steps[0], "x", steps[2], "= x"]), task) == pytest.approx(1 / 6)
    assert tasks.gold("\n".join([steps[0], "x", steps[2], f"= {task.answer}"]), task) == pytest.approx(4 / 6)
    assert tasks.check("", task) == {"total": 0.0, "solved": 0.0}


def test_labels_err_as_bradley_and_terry_say():
    """Of each true gap, the share of wrong labels is 1 / (1 + e^(8 gap)) within four standard errors."""
    gap_N = np.array([t.meta["gap"] for t in drawn(Preferences(), 3000)])
    for gap in np.unique(np.round(np.abs(gap_N), 6)):
        wrong_N = gap_N[np.isclose(np.abs(gap_N), gap)] < 0
        expected = 1 / (1 + np.exp(8 * gap)) if gap else 0.0
        assert abs(wrong_N.mean() - expected) <= 4 * np.sqrt(expected * (1 - expected) / len(wrong_N)) + 1e-9, gap
    assert abs((np.array([t.meta["gap"] for t in drawn(Preferences(sharpness=0, wrong=0))]) < 0).mean() - 0.5) < 0.05
    assert all(t.meta["gap"] > 0 for t in drawn(Preferences(sharpness=1e3, wrong=0), 300))


def test_its_bench_is_sound():
    bench, _ = bench_by_name("preferences(source=sort,d=2,sharpness=2.0)")
    assert check_oracle(bench.tasks, bench.reward) == [] and bench.tasks.sharpness == 2.0
    with pytest.raises(UserError, match="preferences of 'chain'"):
        bench_by_name("preferences(source=chain)")


def test_pairs_of_a_user_go_the_same_way(tmp_path, context):
    """The columns of a file: chosen and rejected, and a gap where it has one. The label stands, whatever the gap says."""
    rows = [
        {"prompt": f"p{i}", "chosen": "= 1", "rejected": "= 2", **({"gap": -0.5} if i % 2 else {})} for i in range(20)
    ]
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    ctx, seen = context(bench=from_data(str(path), "", "", judged=True)), set()
    for i in range(ctx.bench.tasks.size):
        group = asyncio.run(Recorded()(ctx, ("k", i), Group(task=ctx.bench.tasks.task("train", i))))
        examples, _ = Prefer()([group], [[[{}], [{}]]], {})
        assert [e.columns["sign"] for e in examples] == [1.0, -1.0]
        assert examples[0].row.segments[-1].text == "= 1"
        seen.add(examples[0].columns["gap"])
    assert seen == {1.0, -0.5}
