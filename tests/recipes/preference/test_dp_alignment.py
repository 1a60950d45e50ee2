"""Private alignment on a user's file: what a run logs, says and resumes; its losses; the arm without noise."""

import json
import math

import palaestra as pl
import pytest
from palaestra.api.training import train
from palaestra.recipes.preference import dp_alignment
from palaestra.view.plots import _small_panels

PAIRS = [
    {"prompt": f"What is {i} + 3?", "chosen": str(i + 3), "rejected": str(i + 5), "demonstration": f"{i} + 3 = {i + 3}"}
    for i in range(12)
]


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, PAIRS)))

    def go(out, steps, **more):
        base = {} if "resume" in more else {"data": "pairs.jsonl", "evaluate": 0, "seed": 5, "out": tmp_path / out}
        fields = {"set": {"schedule.prompts": 2, **more.pop("set", {})}} if "resume" not in more else {}
        name = () if "resume" in more else ("dp-alignment",)
        return train(*name, steps=steps, quiet=True, **base, **fields, **more)

    return go


def test_epsilon_stands_in_every_step_and_a_resumed_run_spends_no_more(run, tmp_path):
    """What goes on keeps its noise: the budget was spent by the steps that were asked for first."""
    first = run("one", 2)
    spent = first.steps["epsilon"].to_pylist()
    assert 0 < spent[0] < spent[1] <= 8 and spent[1] > 7.8
    assert set(first.steps["delta"].to_pylist()) == {1 / 22}  # one of the 12 lines is held out
    sha = first.summary["weights_sha256"]
    longer = run("one", 4, resume=first.folder)
    assert longer.steps["epsilon"].to_pylist()[2:] == [spent[1]] * 2
    assert longer.steps["noise"].to_pylist()[2:] == [0, 0] and longer.summary["weights_sha256"] == sha
    assert ("epsilon", "privacy spent, epsilon") in _small_panels(first.steps.to_pylist())


def test_a_run_that_was_cut_draws_the_same_noise(run):
    """Three steps at once, and one step and two: the same weights, bit for bit."""
    fixed = {"update.steps": 3, "epsilon": 4}
    whole = run("whole", 3, set=fixed)
    part = run("part", 3, set=fixed, on_step=lambda step, metrics: step == 1)
    assert part.summary["steps"] == 1
    resumed = run("part", 3, resume=part.folder)
    assert resumed.summary["weights_sha256"] == whole.summary["weights_sha256"]


@pytest.mark.parametrize("loss", ["sft", "reward"])
def test_other_losses_are_private_too(loss, run):
    steps = run(loss, 1, set={"loss": loss}).steps
    assert steps["noise"].to_pylist()[0] > 0 and steps["epsilon"].to_pylist()[0] > 0


def test_without_noise_gradients_are_still_clipped(run):
    steps = run("inf", 2, set={"epsilon": math.inf, "clip": 0.25}).steps
    assert steps["noise"].to_pylist() == [0, 0] and "epsilon" not in steps.column_names
    assert all(x == 1 for x in steps["clipped"].to_pylist() if x is not None)
    # a mean of at most a few vectors of the norm 0.25, over the 2 that a step has on average
    most = [0.25 * groups / 2 for groups in steps["groups"].to_pylist()]
    assert all(norm <= m * (1 + 1e-5) for norm, m in zip(steps["grad_norm"].to_pylist(), most, strict=True))


def test_it_is_the_plain_method_but_for_privacy():
    mine, plain = dp_alignment.build(), pl.recipe("dpo", pairs="data")
    assert mine.learners["policy"].objective == plain.learners["policy"].objective
    assert mine.learners["policy"].credit.credit == plain.learners["policy"].credit
    assert isinstance(dp_alignment.build(correct=False).learners["policy"].optimiser, pl.AdamW)
    assert not isinstance(dp_alignment.build(correct=False).learners["policy"].optimiser, pl.privacy.DPAdamW)
    assert "reward" in dp_alignment.build(loss="reward").learners


def test_the_built_in_pairs_have_an_end():
    recipe = dp_alignment.embedded(lines=64, epsilon=2.0)
    update = recipe.learners["policy"].update
    assert (recipe.draw.lines, update.lines, update.epsilon) == (64, 64, 2.0)
