"""Private alignment on a user's file: what a run logs, says and resumes; its losses; the arm without noise."""

import json
import math
from types import SimpleNamespace

import palaestra as pl
import pytest
from palaestra.api.training import train
from palaestra.recipes.preference import dp_alignment
from palaestra.run.benches import from_data
from palaestra.store.checkpoint import find_latest
from palaestra.store.folder import read_run
from palaestra.view.model_card import model_card
from palaestra.view.plots import _small_panels
from palaestra.view.privacy import guarantee

PAIRS = [
    {"prompt": f"What is {i} + 3?", "chosen": str(i + 3), "rejected": str(i + 5), "demonstration": f"{i} + 3 = {i + 3}"}
    for i in range(12)
]


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, PAIRS)))
    (tmp_path / "pairs2.jsonl").write_text("\n".join(map(json.dumps, PAIRS[:2])))

    def go(out, steps, **more):
        base = {} if "resume" in more else {"data": "pairs.jsonl", "evaluate": 0, "seed": 5, "out": tmp_path / out}
        fields = {"set": {"schedule.prompts": 2, **more.pop("set", {})}} if "resume" not in more else {}
        name = () if "resume" in more else ("dp-alignment",)
        return train(*name, steps=steps, quiet=True, **{**base, **fields, **more})

    return go


def test_epsilon_stands_in_every_step_and_a_resumed_run_spends_no_more(run, tmp_path):
    """What goes on keeps its noise: the budget was spent by the steps that were asked for first."""
    first = run("one", 2)
    spent = first.steps["epsilon"].to_pylist()
    assert 0 < spent[0] < spent[1] <= 8 and spent[1] > 7.8
    assert set(first.steps["delta"].to_pylist()) == {1 / 14}  # 5 of the 12 lines are held out by their hashes
    sha = first.summary["weights_sha256"]
    longer = run("one", 4, resume=first.folder)
    assert longer.steps["epsilon"].to_pylist()[2:] == [spent[1]] * 2
    assert longer.steps["noise"].to_pylist()[2:] == [0, 0] and longer.summary["weights_sha256"] == sha
    assert ("epsilon", "privacy spent, epsilon") in _small_panels(first.steps.to_pylist())


def test_a_run_that_was_cut_draws_the_same_noise(run):
    """Three steps at once, and one step and two: the same weights, bit for bit."""
    fixed = {"update.steps": 3, "epsilon": 4, "public_seed": 9}
    whole = run("whole", 3, set=fixed)
    part = run("part", 3, set=fixed, on_step=lambda step, metrics: step == 1)
    assert part.summary["steps"] == 1
    resumed = run("part", 3, resume=part.folder)
    assert resumed.summary["weights_sha256"] == whole.summary["weights_sha256"]
    assert "public_seed was set" in guarantee(read_run(resumed.folder))


def test_noise_is_secret_whatever_the_seed_and_the_report_names_the_promise(run):
    """Two runs of one published seed end with other weights; report and card name the promise."""
    one, two = run("one", 2, evaluate=2, test_data="pairs2.jsonl"), run("two", 2)
    assert one.summary["weights_sha256"] != two.summary["weights_sha256"]
    folder = read_run(one.folder)
    spent = folder.steps[-1]["epsilon"]
    assert f"({spent:.3g}, " in guarantee(folder)
    page = (one.folder / "report.html").read_text()
    assert "differentially private" in page and "outside of the guarantee" in page
    card = model_card(folder, 2, "me/private")
    assert "differentially private" in card and "outside of the guarantee" in card
    assert "is not printed here" in card and "95% interval" not in card and len(folder.evaluations) == 2
    state = find_latest(one.folder)[0].state()["state"]
    assert state["draw"]["secret"] != state["update"]["policy"]["secret"]


def test_a_cut_run_goes_on_with_its_secret(run):
    """What is resumed draws the noise of its own key: both halves from one secret."""
    part = run("part", 3, set={"update.steps": 3}, on_step=lambda step, metrics: step == 1)
    before = find_latest(part.folder)[0].state()["state"]
    after = find_latest(run("part", 3, resume=part.folder).folder)[0].state()["state"]
    assert after["update"]["policy"]["secret"] == before["update"]["policy"]["secret"]
    assert after["draw"]["secret"] == before["draw"]["secret"] and after["update"]["policy"]["clock"] == 3


@pytest.mark.parametrize("more", [{"keep_best": "ranking"}, {"keep_best": "loss", "patience": 1, "evaluate_every": 1}])
def test_no_model_is_chosen_by_private_lines(more, run):
    with pytest.raises(pl.UserError, match="without noise, which epsilon does not count; leave keep_best"):
        run("chosen", 1, **{"evaluate": 2, **more})


def test_a_line_more_moves_no_other_line(tmp_path):
    """Between training and held out, for data sets that differ in one line; equal prompts stay together."""
    lines = [{"prompt": f"Ask {i}", "chosen": "a", "rejected": "b"} for i in range(150)]

    def split(rows, name):
        (tmp_path / name).write_text("\n".join(map(json.dumps, rows)))
        bench = from_data(str(tmp_path / name), "", "", judged=True, recipe=dp_alignment.build())
        return {bench.tasks.task("test", i).prompt[0].content for i in range(bench.tasks.test_size)}

    held = split(lines, "all.jsonl")
    assert 5 < len(held) < 30
    for without in (0, 17, *(i for i in range(150) if lines[i]["prompt"] in held)):
        less = split(lines[:without] + lines[without + 1 :], f"{without}.jsonl")
        assert less == held - {lines[without]["prompt"]}
    assert split([lines[0]] * 3, "same.jsonl") == held & {"Ask 0"}
    shared = SimpleNamespace(bench=from_data(str(tmp_path / "all.jsonl"), "", "", judged=True))
    with pytest.raises(pl.UserError, match="one line more would move others; give --test-data"):
        pl.privacy.Poisson()(shared, (0,), 5, {})


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
    assert recipe.draw.public_seed == update.public_seed == 1  # built-in pairs alone: of nobody
    own = dp_alignment.build()
    assert own.draw.public_seed == own.learners["policy"].update.public_seed == 0
    assert (recipe.draw.lines, update.lines, update.epsilon) == (64, 64, 2.0)
