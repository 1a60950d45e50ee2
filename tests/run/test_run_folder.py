"""A run's folder belongs to one run; what is started, stopped, resumed or mistaken leaves it whole."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from palaestra.api import training
from palaestra.cli import sandbox, train
from palaestra.cli.main import main
from palaestra.ends import at_ends
from palaestra.errors import Stopped, UserError
from palaestra.models.load import save
from palaestra.recipes.base import grpo
from palaestra.rewards.learned import Learned
from palaestra.rollout.collect import Sample, Score, links
from palaestra.run import setup
from palaestra.run.benches import bench_by_name
from palaestra.run.driver import StopSignal
from palaestra.services.sandbox import Ran
from palaestra.settings.fields import Settings
from palaestra.store import columns
from palaestra.types import Result, Reward
from palaestra.values import vary

TINY = ["grpo", "--smoke", "--evaluate", "2"]
PALAESTRA = [sys.executable, "-m", "palaestra.cli.main"]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_runs_that_start_together_have_folders_of_their_own():
    first, second = (training.new_folder(None, Settings())[0] for _ in range(2))
    assert first.is_dir() and second.is_dir() and first != second


def test_a_folder_has_one_run_at_a_time(place, capsys):
    (place / "run").mkdir()
    (place / "run" / "config.toml").write_text('recipe = "grpo"\n')
    with training.lock_folder(place / "run"):
        for flag in ("--resume", "--out"):
            assert main(["train", *TINY, flag, "run"]) == 2
            assert "a run is under way in run" in capsys.readouterr().err
    with training.lock_folder(place / "run"):
        pass


def test_a_run_that_never_began_leaves_no_folder(place, capsys):
    (place / "mine").mkdir()
    for place_asked in ([], ["--out", "runs/x"], ["--out", "mine"]):
        assert main(["train", *TINY, "--model", "tinny", *place_asked]) == 2
    assert not list((place / "runs").iterdir()) and (place / "mine").is_dir()


def test_a_part_of_a_pipeline_trains_as_its_run_does():
    class Probe:
        async def run(self, ctx):
            self.model = ctx.model("policy")
            return Result()

    ctx, probe = setup.context(Settings(lora=2, recompute=True, evaluate=0), talk=False), Probe()
    asyncio.run(ctx.once("rl", probe, model="tiny"))
    assert probe.model.adapted and probe.model.recompute
    assert len(probe.model.trainable()) == len(ctx.model("policy").trainable())


def evaluations(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [r["step"] for r in lines if "evaluation" in r]


def test_an_evaluation_is_written_once(place, context, small):
    recipe = small(grpo.build())
    for _ in range(2):  # the second run finds that the first one is at its end
        asyncio.run(recipe.run(context(out=place, steps=2, evaluate=2, evaluate_every=1)))
        assert evaluations(place) == [0, 1, 2]


async def by_length(ctx, group):
    return [Reward(total=float(e.n_sampled)) for e in group.episodes]


def test_a_run_that_was_left_and_gone_on_with_is_one_run(place, context, small):
    """The rate of a warm-up, the shuffles of minibatches, moments and counters go on; what was sampled adds up."""
    changes = {"update.minibatches": 2, "optimiser.warmup": 8, "optimiser.lr": 0.001, "collect.links.0.max_tokens": 12}
    recipe, plan, found = small(grpo.build(), **changes), {"checkpoint_every": 2, "keep": 9}, {}
    bench = replace(bench_by_name("chain")[0], reward=by_length)
    for name, ends in (("whole", (3,)), ("left", (2, 3))):
        for steps in ends:
            ctx = context(bench=bench, out=place / name, steps=steps, **plan)
            found[name] = asyncio.run(recipe.run(ctx)).metrics
        assert {p.name for p in (place / name / "checkpoints").glob("step-*")} == {"step-2", "step-3"}
        told = [pq.read_table(columns.path(place / name, n))["n_tokens"].to_pylist() for n in (1, 2, 3)]
        assert found[name]["sampled_tokens"] == sum(map(sum, told)) > 0
    assert found["whole"]["weights_sha256"] == found["left"]["weights_sha256"] and found["left"]["steps"] == 3


def test_an_accuracy_before_is_of_the_problem_that_the_run_ends_with(place, context, small, capsys):
    run = lambda steps, task: asyncio.run(
        small(grpo.build()).run(context(task=task, out=place, steps=steps, evaluate=2))
    )
    assert run(1, "chain").metrics["accuracy_before"]["n"] == 2
    assert run(2, "chain").metrics["accuracy_before"]["n"] == 2
    other = run(3, "count").metrics
    assert "accuracy_before" not in other and other["accuracy_after"]["n"] == 2


def test_records_without_answers_are_learned_from_and_not_measured(place, capsys):
    (place / "d.jsonl").write_text(
        "".join(json.dumps({"prompt": f"{i}?", "chosen": "1", "rejected": "2"}) + "\n" for i in range(9))
    )
    asked = ["train", "dpo", "--data", "d.jsonl", "--steps", "1", "--out", "run", "schedule.prompts=2"]
    assert main([*asked, "pairs=data"]) == 0
    assert "have no answer, so no answers to held-out problems are judged" in capsys.readouterr().err
    summary = json.loads((place / "run" / "summary.json").read_text())
    assert [k for k in summary if k.endswith("_after")] == ["ranking_after", "margin_after"]
    assert main([*asked[:-2], "other", "--smoke"]) == 2
    assert "pairs=data learns from its column 'chosen' instead" in capsys.readouterr().err


def test_what_is_no_share_is_a_reward():
    """A reward of the user's own is one even where it lies between 0 and 1."""
    told = lambda of, before, after: train.farewell(
        {
            **at_ends(*({"of": of, "mean": x, "low": None, "high": None, "n": 4} for x in (before, after))),
            "artifacts": {}, "command": "", "resume_command": "",
        },
        Settings(), Path("run"),
    ).splitlines()[1:3]  # fmt: skip
    share, mean = "held-out accuracy", "mean held-out reward"
    assert told("accuracy", 0.25, 1.0) == [f"{share} before   25.0%  n = 4", f"{share} after   100.0%  n = 4"]
    assert told("reward", 0.25, 1.0) == [f"{mean} before   0.250  n = 4", f"{mean} after    1.000  n = 4"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_signal_that_stops_a_run_is_known(place, context, small, number, monkeypatch):
    enter = StopSignal.__enter__

    def at_once(self):
        enter(self)
        os.kill(os.getpid(), number)
        return self

    monkeypatch.setattr(StopSignal, "__enter__", at_once)
    with pytest.raises(Stopped) as stopped:
        asyncio.run(small(grpo.build()).run(context(out=place, steps=2)))
    assert stopped.value.signal == number


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_comparison_ends_its_cells_and_says_by_which_signal(place, number):
    argv = ["compare", "grpo", "rloo", "--seeds", "1", "--jobs", "1", "--tokens", "100000000", "--evaluate", "2"]
    process = subprocess.Popen([*PALAESTRA, *argv], stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 120
    while not list(place.rglob("metrics.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(number)
    try:
        assert process.wait(60) == 128 + number
        last = process.stderr.read().splitlines()[-1]
        assert last == f"palaestra: stopped; what is finished is kept; go on with: palaestra {' '.join(argv)}"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.stderr.close()


def test_a_reader_that_has_gone_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*PALAESTRA, "list", "--json"], stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert done.returncode == 141 and not done.stderr


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_refused_program_is_an_error_in_both_forms(place, more, monkeypatch, capsys):
    (place / "x.py").write_text("")
    refused = Ran(status="refused", stdout="", stderr="no bwrap", seconds=0.0)
    monkeypatch.setattr(sandbox.sandbox, "run_program", lambda *_, **__: refused)
    assert main(["sandbox", "run", "x.py", *more]) == 2
    assert "no bwrap" in capsys.readouterr().err


def test_a_reference_may_be_a_folder_with_its_head(place, context, small):
    """A reward model of another run judges: its head is frozen with it."""
    trained = context()
    with torch.no_grad():
        for p in trained.model("policy").add_head("score").parameters():
            p.fill_(0.5)
    save(trained.model("policy"), place / "rm")
    ctx = context(out=place / "run", steps=1)
    recipe = vary(small(grpo.build()), collect=links(Sample(n=2), Score(reward=Learned("judge"))))
    asyncio.run(vary(recipe, references={"judge": str(place / "rm")}).run(ctx))
    found = [*ctx.model("judge").heads["score"].parameters()]
    assert found and all((p == 0.5).all() and not p.requires_grad for p in found)
    with pytest.raises(UserError, match="no model directory"):
        ctx.reference("other", str(place / "no-such"))
