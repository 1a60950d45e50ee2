"""The learners beside their peers: settings are the same on both sides, cells are kept, and the page says what was measured."""

import json
from pathlib import Path

import numpy as np
import palaestra as pl
import pytest
import torch
from benchmarks import control, control_page, learners
from palaestra.markdown import fill_marks
from palaestra.run.parts import Parts
from palaestra.terminal.progress import Headway
from palaestra.types import Batch

ROOT = Path(__file__).parents[2]


def cells(names, value=lambda who, seed: 1.0):
    return {
        learners.cell_name(n, s, w): {"return": value(w, s), "steps_a_second": 100.0 + s, "steps": 10.0}
        for n in names
        for s in range(3)
        for w in learners.SIDES
    }


def loss_of(learner, error):
    """The objective on one step without advantage, of entropy 1, whose value is off by `error`."""
    zero, one = torch.zeros(1, 1), torch.ones(1, 1)
    columns = {"behaviour_logp": zero, "advantage": zero, "trained": one, "policy_value": zero, "return": zero}
    batch = Batch(columns=columns, unit_B=torch.arange(1), n_tokens=1, n_rows=1, n_units=1)
    return float(learner.objective({"logp": zero, "value": error * one, "entropy": one}, batch)[0])


def test_three_tasks_a_learner_with_equal_settings():
    kinds = [type(t.learner).__name__ for t in learners.TASKS.values()]
    assert {k: kinds.count(k) for k in kinds} == {"PPO": 3, "DoubleQ": 3, "SAC": 3}
    for task in learners.TASKS.values():
        own, peer = task.learner, task.settings
        assert own.lr == peer["learning_rate"] and own.gamma == peer.get("gamma", 0.99) and own.games == task.copies
        if isinstance(own, pl.control.PPO):
            assert (own.lam, own.epochs, own.bootstrap) == (peer["gae_lambda"], peer["n_epochs"], True)
            assert (own.part_steps, own.max_norm) == (peer["batch_size"], peer["max_grad_norm"])
            assert loss_of(own, 0.0) == pytest.approx(-peer["ent_coef"])
            assert loss_of(own, 3.0) - loss_of(own, 0.0) == pytest.approx(peer["vf_coef"] * 3.0**2)
        if isinstance(own, pl.control.DoubleQ):
            assert own.per_step == peer["gradient_steps"] / peer["train_freq"] == 0.5
            assert (own.batch, own.keep) == (peer["batch_size"], peer["buffer_size"])
            assert own.follow == pytest.approx(peer["tau"] / own.per_step)
            assert (own.explore_steps, own.explore_end) == (peer["exploration_fraction"], peer["exploration_final_eps"])
        if isinstance(own, pl.control.SAC):
            assert own.warm == peer["learning_starts"]


def test_a_cell_is_done_once_and_seeds_come_one_after_another(tmp_path, monkeypatch):
    done = []

    def timed(task, learn, seed):
        done.append((task.env, seed))
        if len(done) == 20:
            raise KeyboardInterrupt
        return {"return": float(len(done)), "steps_a_second": 1.0, "steps": 1.0}

    monkeypatch.setattr(learners, "timed", timed)
    with Headway("test") as headway:
        with pytest.raises(KeyboardInterrupt):
            learners.measure(2, Parts(headway, tmp_path, {}))
        assert len(list(tmp_path.glob("*/*.json"))) == 19 and {s for _, s in done[:18]} == {0}
        result = learners.measure(2, Parts(headway, tmp_path, {}))
    assert len(done) == 2 * 2 * 9 + 1  # the one that was stopped twice
    assert json.loads(json.dumps(result))["tasks"]["PPO, CartPole"]["returns"]["ours"] == [1.0, 19.0]
    assert "PPO, CartPole" in learners.show(result) and "steps a processor second" in learners.show(result)


def test_what_was_measured_decides_the_verdict(tmp_path):
    """Differences of 1, 2 and 3 have the interval -0.5 to 4.5; of 10, 11 and 12 8.5 to 13.5."""
    made = cells(["PPO, CartPole"], lambda w, s: s + 1.0 if w == "ours" else 0.0)
    made |= cells(["PPO, Acrobot"], lambda w, s: s + 10.0 if w == "ours" else 0.0)
    made |= cells(["PPO, Pendulum"], lambda w, s: -s - 10.0 if w == "ours" else 0.0)
    made[learners.cell_name("SAC, Reacher", 0, "ours")] = {"return": 0.0, "steps_a_second": 1.0, "steps": 1.0}
    for name, value in made.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"value": value, "seconds": 1.0, "parts": 1}))
    result = json.loads(json.dumps(control_page.collect(tmp_path)))
    assert result["cells_done"] == 19 and set(result["tasks"]) == {"PPO, CartPole", "PPO, Acrobot", "PPO, Pendulum"}
    found = result["tasks"]["PPO, CartPole"]["difference"]
    assert (found["mean"], found["low"], found["high"]) == pytest.approx((2, -0.484, 4.484), abs=1e-3)
    verdicts = {n: control_page.verdict(x["difference"]) for n, x in result["tasks"].items()}
    assert verdicts == {"PPO, CartPole": "alike", "PPO, Acrobot": "better", "PPO, Pendulum": "worse"}
    assert control_page.verdict(learners.mean_interval([3.0]).json()).startswith("one seed")
    text = control_page.learners_table(result)
    assert text.startswith("19 of 90 cells are done.") and "| SAC, Reacher | 8,000 | 0 |" in text


def test_environment_steps_are_counted(monkeypatch):
    monkeypatch.setattr(control, "STEPS", 200)
    for name in ("Rooms", "Rooms, width 32", "spread", "spread, no learner"):
        assert 200 <= control.SORTS[name](0) <= 64 * 40


@pytest.mark.skipif(not (ROOT / "benchmarks" / "learners.json").exists(), reason="nothing is published")
def test_the_page_says_what_was_measured():
    page = (ROOT / "docs" / "control.md").read_text()
    assert fill_marks(page, control_page.made_parts()) == page, "python -m benchmarks.control_page"


def test_a_learner_and_its_peer_learn(monkeypatch):
    """A few hundred steps of each kind, through the same test games."""
    pytest.importorskip("gymnasium")
    pytest.importorskip("stable_baselines3")
    monkeypatch.setattr(learners, "TESTS", 2)
    for name, steps in (("PPO, CartPole", 300), ("double Q, CartPole", 64), ("SAC, Pendulum", 1_050)):
        task = learners.replace(learners.TASKS[name], steps=steps)
        for who in learners.SIDES:
            found = learners.timed(task, learners.LEARN[who], 0)
            assert np.isfinite(found["return"]) and found["steps"] >= steps and found["steps_a_second"] > 0
