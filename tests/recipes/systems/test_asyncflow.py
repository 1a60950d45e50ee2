"""AsyncFlow: the threshold of age, what its claim measures, and a run whose worker is killed."""

import asyncio
import math
import os
import signal
import subprocess
import sys
import threading
from functools import partial

import palaestra as pl
import pytest
from palaestra.claims.systems import asyncflow as claim
from palaestra.errors import UserError
from palaestra.recipes.systems import asyncflow
from palaestra.rollout.tickets import InProcess
from palaestra.run.driver import carriage, prepare
from palaestra.scale.placement import open_carrier
from palaestra.step import start, step
from palaestra.types import Task


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_nothing_is_older_than_the_threshold(context, small, lag):
    """Batch k is `lag` versions old once there are so many, and every attempt is learned from once, in order."""
    ages, keys = trained(
        small(asyncflow.build(lag, streaming=False)), context(seed=3), lambda r, c: InProcess(), steps=5
    )
    assert [max(a) for a in ages] == [min(k, lag) for k in range(5)]
    assert len(keys) == len(set(keys)) == 5 * 2 * 4  # steps, prompts, answers


def trained(recipe, ctx, carrier, steps, on=lambda n, ctx: None):
    """Of every step the ages of the tokens learned from, and the keys of all rows, in order."""
    ages, keys = [], []

    async def go():
        state = start(3)
        for n in range(steps):
            on(n, ctx)
            state, _ = await step(recipe, ctx, state)
            rows = [r for g in ctx.seen for e in g.episodes for r in e.rows]
            ages.append({n - v for g in ctx.seen for e in g.episodes if (v := e.oldest()) is not None})
            keys.extend(r.key for r in rows)

    ctx.open_carrier = carrier
    prepare(recipe, ctx)
    with carriage(recipe, ctx):
        asyncio.run(go())
    return ages, keys


def test_speed_is_of_the_steps_after_the_first():
    """Two steps of 8 answers in 4 seconds; the first ones, in which workers start, are left out."""
    seconds = [20.0, 21.0, 22.0, 23.0, 25.0, 27.0]
    steps = [{"episodes": 8, "seconds": s} for s in seconds]
    assert claim.LogSpeed(skip=4)(pl.ledger.Cell(summary={}, steps=steps)) == pytest.approx(math.log(16 / 4))
    assert math.isnan(claim.LogSpeed(skip=4)(pl.ledger.Cell(summary={}, steps=steps[:4])))
    assert math.isnan(claim.LogSpeed(skip=4)(pl.ledger.Cell(summary={}, steps=[])))


def test_waiting_is_decided_by_the_key(context):
    group, waited = pl.Group(task=Task(id="t")), []

    async def sleep(seconds):
        waited.append(seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claim.asyncio, "sleep", sleep)
        for key in ((0, "a"), (0, "a"), (0, "b")):
            assert asyncio.run(claim.Wait(median=0.5, sigma=0.0)(context(), key, group)) is group
            asyncio.run(claim.Wait()(context(), key, group))
    assert waited[::2] == [0.5] * 3 and waited[1] == waited[3] != waited[5]


def test_arms_differ_in_settings_alone():
    arms = claim.EXPERIMENT.arms
    on_ray = {n: a for n, a in arms.items() if isinstance(a, pl.scale.OnCluster)}
    assert list(on_ray) == ["lag 0", "lag 1", "lag 4"] and len({a.cluster for a in on_ray.values()}) == 1
    assert on_ray["lag 1"].runnable == arms["lag 1 in one process"]
    schedule = arms["lag 1 in one process"].schedule
    assert all(pl.vary(a.runnable, schedule=schedule) == arms["lag 1 in one process"] for a in on_ray.values())
    assert [a.runnable.schedule.lag for a in on_ray.values()] == [0, 1, 4]


def test_a_declared_arm_on_a_cluster_imports_no_ray():
    code = "import sys; from palaestra.claims.systems import asyncflow; print('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_learner_on_several_ranks_is_no_arm():
    with pytest.raises(UserError, match="--cluster FILE"):
        pl.scale.OnCluster(runnable=asyncflow.build(streaming=False), cluster=pl.Cluster(learners=2))


@pytest.mark.timeout(600)
def test_a_killed_worker_loses_nothing_and_makes_nothing_older(context, small):
    """I1: no age above eta. Every attempt is learned from once, and the rows are those of one process."""
    ray = pytest.importorskip("ray")
    recipe, steps, cluster, killed = small(asyncflow.build(1, streaming=False)), 5, pl.Cluster(workers=2), []

    def kill(n, ctx):
        if n == 2:
            actor = ctx.carrier.places[0].actor
            pid = ray.get(actor.about.options(concurrency_group="signs").remote())["pid"]
            threading.Timer(0.1, lambda: (os.kill(pid, signal.SIGKILL), killed.append(pid))).start()

    here = trained(recipe, context(seed=3), lambda r, c: InProcess(2), steps)
    with cluster.connected():
        there = trained(recipe, context(seed=3), partial(open_carrier, cluster), steps, on=kill)
        ends = [
            asyncio.run(program.run(context(seed=3, steps=2))).metrics["weights_sha256"]
            for program in (pl.scale.OnCluster(runnable=recipe, cluster=cluster), recipe)
        ]
        assert ray.is_initialized()  # it was there before the program
    assert here == there and killed and max(max(a) for a in there[0]) == 1
    assert ends[0] == ends[1] and not ray.is_initialized()
