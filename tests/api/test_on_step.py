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


SMALL = {"schedule.prompts": 4, "sample.n": 4}
SETTINGS = {"evaluate": 4, "max_tokens": 8, "checkpoint_every": 1, "quiet": True}


def lines(folder):
    return [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]


def steer(step, metrics):
    """A rate from what was measured, a coefficient, how many prompts; a number of its own."""
    fields = {"optimiser.lr": 1e-3 * (1 + metrics["reward"]) / step, "objective.high": 0.2 + step / 10}
    return {"log": {"own/half": metrics["reward"] / 2}, "set": fields | ({"schedule.prompts": 5} if step == 2 else {})}


def test_numbers_are_logged_and_fields_hold_from_the_next_step_on(tmp_path):
    run = pl.train("grpo", out=tmp_path / "run", steps=3, on_step=steer, set=SMALL, **SETTINGS)
    steps = [x for x in lines(run.folder) if "reward" in x]
    assert all(x["own/half"] == x["reward"] / 2 for x in steps)
    rates = [1e-4, *(pytest.approx(1e-3 * (1 + x["reward"]) / n) for n, x in enumerate(steps[:2], start=1))]
    assert [x["lr"] for x in steps] == rates
    sets = [(x["step"], x["set"]) for x in lines(run.folder) if "set" in x]
    assert [n for n, _ in sets] == [1, 2, 3] and sets[1][1]["schedule.prompts"] == 5
    import pyarrow.parquet as parquet

    rows = [parquet.read_metadata(run.folder / f"rollouts/step-{n:06}.parquet").num_rows for n in (1, 2, 3)]
    assert rows == [16, 16, 20]  # answers: what was set after step 2 holds in step 3
    assert run.summary["set"]["schedule.prompts"] == 5 and "learners.policy.optimiser.lr" in run.summary["set"]
    assert "Repeat it from the start" not in (run.folder / "report.html").read_text()


def test_a_run_that_goes_on_has_what_was_set(tmp_path, capsys):
    """Three steps at once, and in parts, with and without the function: the same weights, bit for bit."""
    whole = pl.train("grpo", out=tmp_path / "whole", steps=3, on_step=steer, set=SMALL, **SETTINGS)
    part = pl.train(
        "grpo",
        out=tmp_path / "part",
        steps=3,
        on_step=lambda step, m: steer(step, m) | {"stop": step == 2},
        set=SMALL,
        **SETTINGS,
    )
    assert part.summary["steps"] == 2
    rest = pl.train(resume=part.folder, steps=3, on_step=steer, **SETTINGS)
    assert rest.summary["weights_sha256"] == whole.summary["weights_sha256"]
    with_none = pl.train("grpo", out=tmp_path / "none", steps=3, set=SMALL, **SETTINGS)
    assert with_none.summary["weights_sha256"] != whole.summary["weights_sha256"] and "set" not in with_none.summary


def test_without_the_function_what_it_set_stays_and_is_said(tmp_path, capsys):
    stop = lambda step, m: {"set": {"optimiser.lr": "linear(1e-3,0,10)"}, "stop": step == 1}
    pl.train("grpo", out=tmp_path / "run", steps=2, on_step=stop, set=SMALL, **SETTINGS)
    run = pl.train(resume=tmp_path / "run", steps=2, **{**SETTINGS, "quiet": False})
    said = "set by on_step, and kept: learners.policy.optimiser.lr=linear(1e-3,0,10); this time there is no on_step"
    assert said in capsys.readouterr().err
    assert [x["lr"] for x in lines(run.folder) if "lr" in x] == [1e-4, pytest.approx(9e-4)]


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        ({"logs": {}}, "on_step returned 'logs'; did you mean log?"),
        ({"log": {"reward": 1}}, "on_step logs 'reward', which the run logs itself"),
        ({"log": {"mine": "much"}}, "on_step logs mine='much'; it takes a number"),
        ({"set": {"schedule.steps": 9}}, "read once, before the first step; return {'stop': True} to end the run"),
        ({"set": {"optimiser.eps": 0.1}}, "learners.policy.optimiser.eps, which is read once"),
        ({"set": {"objective.reduce": "tokens"}}, "it sets numbers and schedules alone"),
        ({"set": {"objective.hihg": 0.3}}, "did you mean"),
        ({"set": {"optimiser.lr": -1}}, "lr"),
    ],
)
def test_what_cannot_be_is_one_line_and_the_step_is_logged(returned, says):
    from palaestra.run.steering import answer_of

    with pytest.raises(pl.UserError) as error:
        answer_of(returned, pl.recipe("grpo"), {"reward": 0.5})
    assert says in str(error.value)


def test_other_processes_hold_the_recipe_as_it_was(context, small):
    ctx = context(steps=1)
    ctx.elsewhere, ctx.on_step = True, lambda step, metrics: {"set": {"optimiser.lr": 1e-5}}
    import asyncio

    from palaestra.run.driver import train

    with pytest.raises(pl.UserError, match="with --cluster other processes have the recipe"):
        asyncio.run(train(small(pl.recipe("grpo")), ctx))
