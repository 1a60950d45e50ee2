"""Laws of a run whose rollouts are elsewhere, on threads that stand for processes (`tests/fake_ray.py`)."""

import ast
from collections import Counter
from pathlib import Path

import palaestra
import pytest
from palaestra.recipes.base import grpo
from palaestra.rollout.tickets import InProcess
from palaestra.scale.cluster import Cluster

pytest.importorskip("ray")

from palaestra.scale import carrier
from palaestra.scale.carrier import RayCarrier

from tests.cluster import ages, run
from tests.fake_ray import fake_ray


def opened(**fields):
    return lambda recipe, ctx: RayCarrier(Cluster(**fields), recipe, ctx)


@pytest.fixture
def unlimited(monkeypatch):
    """Limits for faults of a user's code, which deaths without a reason are not."""
    monkeypatch.setattr(carrier, "DEATHS", 10**6)
    monkeypatch.setattr(carrier, "FATAL_KILLS", 10**6)


def test_exactly_once(context, small, monkeypatch, unlimited):
    """A worker dies in every phase, again and again: the bits of one process, and no row is taken twice."""
    recipe = small(grpo.build(), **{"schedule.prompts": 4, "schedule.lag": 1})
    arrivals, taken = Counter(), Counter()

    def die(actor, phase):
        arrivals[phase] += 1
        if arrivals[phase] in (2, 4):
            actor.die()

    def on(n, ctx):
        taken.update(row.key for g in ctx.seen for e in g.episodes for row in e.rows if n)

    here = run(recipe, context(seed=3), lambda r, c: InProcess(4), 4)
    with fake_ray(monkeypatch, die):
        there = run(recipe, context(seed=3), opened(workers=2, waves=4), 4, on)
    assert here == there
    assert all(arrivals[phase] >= 4 for phase in ("starting", "loading", "collecting", "answering", "ready"))
    assert len(taken) == 4 * 4 * 4 and set(taken.values()) == {1}


@pytest.mark.parametrize("phase", ["starting", "loading", "collecting", "answering", "ready"])
def test_no_hang(phase, context, small, monkeypatch, capsys):
    """A worker that stands still, wherever it is: it is named with what it did, and its work done by another."""
    monkeypatch.setattr(carrier, "STARTING", 1.0)
    recipe = small(grpo.build(), **{"schedule.prompts": 4})
    stopped = []

    def stop(actor, at):
        if at == phase and not stopped:
            stopped.append(actor)
            actor.stopped.set()

    ctx = context(seed=3)
    ctx.talk = True
    here = run(recipe, context(seed=3), lambda r, c: InProcess(2), 2)
    with fake_ray(monkeypatch, stop):
        there = run(recipe, ctx, opened(workers=2, silence=1), 2)
    assert here == there and len(stopped) == 1
    said = capsys.readouterr().err
    assert "rollout worker " in said and "said nothing for" in said and "it is replaced" in said


@pytest.mark.parametrize(("lag", "in_flight"), [(0, False), (1, False), (3, False), (1, True), (3, True)])
def test_age_bound_and_drawn_is_trained(lag, in_flight, monkeypatch, unlimited):
    """No trained token is older than the lag, or of weights that are not there yet, and each has one version; the
    slowest tenth of the groups that were drawn is a tenth of those that are trained.
    """
    found = ages(lag, in_flight, samples=4_000, seed=lag, monkeypatch=monkeypatch)
    assert found["samples"] >= 4_000 and found["deaths"] > 5
    assert found["youngest"] >= 0 and found["oldest"] <= lag and (in_flight or found["oldest"] == lag)
    assert found["tokens without one version"] == 0
    assert in_flight == (found["samples of several versions"] > 0)
    assert abs(found["slowest tenth"] - 0.1) <= 0.01


def test_no_method():
    """What carries a run knows no recipe, credit or objective."""
    banned = {"recipes", "credit", "objective", "claims", "ledger"}
    for file in (Path(palaestra.__file__).parent / "scale").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [n.name for n in node.names] if isinstance(node, ast.Import) else []
            rooms = {n.split(".")[1] for n in names if n and n.startswith("palaestra.")}
            assert not rooms & banned, f"{file.name}: {rooms & banned}"
