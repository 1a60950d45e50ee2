"""A run whose learner is on several ranks and whose rollouts are elsewhere, as a user starts it."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest
from palaestra.api.training import train as train_program
from palaestra.errors import Fault, UserError
from palaestra.models.load import load
from palaestra.recipes.base import grpo
from palaestra.run import setup
from palaestra.run.plan import Plan
from palaestra.scale.cluster import Cluster
from palaestra.scale.placement import place as place_parts
from palaestra.settings.fields import Settings
from palaestra.values import override
from safetensors.torch import load_file

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.timeout(600)
GIVEN = {"steps": 3, "evaluate": 4, "max_tokens": 8, "checkpoint_every": 2, "seed": 1, "quiet": True}
FIELDS = {"schedule.prompts": 2, "collect.links.0.n": 4, "schedule.lag": 1, "optimiser.lr": 1e-3}


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    ray.shutdown()


def train(out, **more):
    return train_program("grpo", out=out, set=FIELDS, **{**GIVEN, **more})


def weights(run):
    return load_file(Path(run.summary["artifacts"]["policy"]) / "model.safetensors")


def distance(one, other):
    """Of two models' weights, as a share of how far training went."""
    first = load("tiny").module.state_dict()
    went = max((v - first[k]).abs().max().item() for k, v in one.items() if k in first)
    return max((v - other[k]).abs().max().item() for k, v in one.items()) / went


def test_processes_beside_the_learner_change_nothing(place):
    """Rollouts in one of them, the learner on two ranks: half of the run, which one process ends, and the whole."""
    (place / "two.toml").write_text("workers = 1\nlearners = 2\n")
    here = weights(train("here"))
    there = train("there", cluster="two.toml")
    assert distance(here, weights(there)) < 1e-3
    records = [json.loads(x) for x in (place / "there" / "metrics.jsonl").read_text().splitlines()]
    steps = [r for r in records if "loss" in r]
    assert [r["step"] for r in steps] == [1, 2, 3] and all(0 <= r["rollout_busy"] <= 1 for r in steps)
    events = json.loads((place / "there" / "trace.json").read_text())["traceEvents"]
    works = [e for e in events if e["ph"] == "X"]
    assert {e["cat"] for e in works} == {"rollout", "learner"} and {e["args"].get("version") for e in works} >= {
        0,
        1,
        2,
    }
    assert all(e["ts"] >= 0 and e["dur"] > 0 for e in works)
    train("half", cluster="two.toml", steps=2)
    assert distance(here, weights(train(None, resume="half", cluster=""))) < 1e-3


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_is_lost_ends_the_run(place, how):
    """Whether it ends or stands still: within the time that ranks wait for each other, and with a word about it."""
    settings = Settings(evaluate=0, max_tokens=8)
    recipe = override(override(grpo.build(), "schedule.prompts", 2), "collect.links.0.n", 4)
    cluster = Cluster(workers=0, learners=2, meeting=20)
    ctx = place_parts(cluster, recipe, setup.context(settings, talk=False, recipe=recipe))
    ctx.plan = Plan(steps=9, evaluate=0)
    at, killed = ctx.at, []

    def kill(recipe, step, version=None):
        if step == 2 and not killed:
            killed.append(step)
            os.kill(ray.get(ctx.send.actors[0].about.remote())[1], how)
        return at(recipe, step, version)

    ctx.at = kill
    try:
        with pytest.raises(
            Fault, match=r"learner: a rank is lost while (learning|gathering) .*: rank 1 on .*, process \d+ does not"
        ):
            asyncio.run(recipe.run(ctx))
    finally:
        ctx.close()


def test_ranks_learn_recipes_alone():
    with pytest.raises(UserError, match="run the parts of a pipeline one by one"):
        place_parts(Cluster(learners=2), object(), setup.context(Settings(), talk=False))
