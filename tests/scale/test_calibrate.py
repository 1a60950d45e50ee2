"""Costs from a file and from a run folder, and what is predicted from them."""

import json
import math

import pytest
from palaestra.errors import UserError
from palaestra.planning.calibrate import costs_of_run, read_costs

pytest.importorskip("simpy")

from palaestra.planning.predict import one_process_seconds, predict

PHASES = {"rollout": 60.0, "reward": 20.0, "forward": 8.0, "backward": 8.0, "optimiser": 2.0, "other": 2.0}


def run_folder(folder, walls, phases=PHASES):
    """Steps of these seconds and 100 tokens each; phases in given proportions."""
    at, lines = 0.0, [{"step": 0, "evaluation": {"of": "accuracy", "mean": 0.0}}]
    for i, wall in enumerate(walls, 1):
        at += wall
        lines.append({"step": i, "seconds": at, "sampled_tokens": 100 * i})
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    (folder / "summary.json").write_text(json.dumps({"phase_seconds": phases}))
    return folder


def test_steps_are_divided_as_the_run_was(tmp_path):
    found = costs_of_run(run_folder(tmp_path, [50.0, 2.0, 2.0, 2.0, 2.0]), waves=4)  # the first step builds
    assert found.costs.ticket.median == pytest.approx(2 * 0.8 / 4)
    assert found.costs.learn.median == pytest.approx(2 * 0.2)
    assert found.costs.ticket.sigma == pytest.approx(0, abs=1e-9)
    assert (found.tokens, found.measured, found.waves) == (100.0, pytest.approx(2.0), 4)
    assert one_process_seconds(found) == pytest.approx(2.0)  # the parts of a step add up to it
    assert found.source.endswith("steps 2 to 5")


def test_the_spread_is_that_of_logarithms(tmp_path):
    walls = [9.0, *(math.exp(x) for x in (-1.0, 0.0, 1.0))]
    found = costs_of_run(run_folder(tmp_path, walls), waves=1)
    assert found.costs.learn.sigma == pytest.approx(1.0)
    assert found.costs.learn.median == pytest.approx(0.2)


def test_workers_and_lag_do_what_they_can_do(tmp_path):
    found = costs_of_run(run_folder(tmp_path, [2.0] * 6), waves=4)  # tickets of 0.4 s, learning 0.4 s
    rows = {(r.workers, r.lag): r for r in predict(found, workers=(1, 2, 4), lags=(0, 1), steps=100)}
    assert rows[1, 0].seconds == pytest.approx(2.0)
    assert rows[2, 0].seconds == pytest.approx(1.2)  # two rounds of tickets, then the learner
    assert rows[4, 0].seconds == pytest.approx(0.8)
    assert rows[4, 1].seconds == pytest.approx(0.4, rel=0.02)  # the learner is the limit
    assert rows[1, 1].seconds == pytest.approx(1.6, rel=0.02)  # the worker is
    assert 0 <= rows[4, 1].idle_rollout < 0.02 and 0 <= rows[4, 1].idle_learner < 0.02
    assert (rows[4, 0].idle_rollout, rows[4, 0].idle_learner) == (pytest.approx(0.5), pytest.approx(0.5))
    assert rows[1, 1].idle_rollout < 0.02 and rows[1, 1].idle_learner == pytest.approx(0.75, abs=0.01)
    assert rows[2, 0].tokens_per_second == pytest.approx(100 / 1.2)
    ordered = predict(found, workers=(1, 2, 4), lags=(0, 1))
    assert [r.seconds for r in ordered] == sorted(r.seconds for r in ordered)


def test_a_file_of_costs(tmp_path):
    path = tmp_path / "costs.json"
    path.write_text('{"ticket": {"median": 1.2, "sigma": 0.8, "cap": 9}, "learn": 0.9, "load": 0.005, "waves": 6}')
    found = read_costs(path)
    assert (found.costs.ticket.median, found.costs.ticket.sigma, found.costs.ticket.cap) == (1.2, 0.8, 9)
    assert (found.costs.learn.median, found.costs.learn.sigma) == (0.9, 0)
    assert (found.costs.load, found.costs.publish, found.waves, found.tokens) == (0.005, 0, 6, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[1]", "takes an object"),
        ('{"ticket": 1}', "learn is missing"),
        ('{"ticket": 1, "learn": 1, "pubish": 1}', "unknown key 'pubish'; did you mean publish"),
        ('{"ticket": -1, "learn": 1}', "ticket takes a number of at least 0, not -1"),
        ('{"ticket": {"sigma": 1}, "learn": 1}', "ticket: median is missing"),
        ('{"ticket": {"median": 1, "sd": 1}, "learn": 1}', "ticket: unknown key 'sd'"),
        ('{"ticket": {"median": "x"}, "learn": 1}', "ticket.median takes a number"),
        ('{"ticket": 1, "learn": true}', "learn takes a number"),
        ('{"ticket": 1, "learn": 1, "waves": 1.5}', "waves takes a whole number"),
    ],
)
def test_what_is_wrong_in_a_file_is_said(tmp_path, text, said):
    path = tmp_path / "costs.json"
    path.write_text(text)
    with pytest.raises(UserError, match=said):
        read_costs(path)


def test_a_run_that_says_too_little_is_refused(tmp_path):
    with pytest.raises(UserError, match="at least 4 steps"):
        costs_of_run(run_folder(tmp_path, [1.0, 1.0, 1.0]), waves=2)
    (tmp_path / "summary.json").unlink()
    with pytest.raises(UserError, match="no seconds of phases"):
        costs_of_run(tmp_path, waves=2)


def test_a_run_that_was_stopped_has_its_phases_in_its_steps(tmp_path):
    ended = costs_of_run(run_folder(tmp_path, [2.0] * 6), waves=4)
    phases = json.loads((tmp_path / "summary.json").read_text())["phase_seconds"]
    (tmp_path / "summary.json").unlink()
    lines = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    told = [line | {f"seconds/{k}": v / 6 for k, v in phases.items()} for line in lines]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, told)))
    assert costs_of_run(tmp_path, waves=4).costs.ticket.median == pytest.approx(ended.costs.ticket.median)


def test_a_run_that_samples_nothing_is_refused(tmp_path):
    folder = run_folder(tmp_path, [2.0] * 6)
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    (folder / "metrics.jsonl").write_text("\n".join(json.dumps(line | {"sampled_tokens": 0}) for line in lines))
    with pytest.raises(UserError, match="samples nothing"):
        costs_of_run(folder, waves=4)
