"""Rollouts on Ray: the numbers of one process, whatever happens to the workers."""

import asyncio
import os
import random
import signal
import threading
import time
from dataclasses import replace
from functools import partial

import pytest
import torch
from palaestra.catalogue import find
from palaestra.errors import Fault, UserError
from palaestra.models.load import load
from palaestra.recipes.base import grpo
from palaestra.rewards.learned import Learned
from palaestra.rollout.collect import Sample, Score, links
from palaestra.rollout.queue import max_age
from palaestra.rollout.tickets import InProcess
from palaestra.scale.cluster import Cluster
from palaestra.scale.nodes import marked, node_here, survey, troubles
from palaestra.scale.placement import open_carrier, place
from palaestra.types import Reward

from tests.cluster import pid_of, run

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module", autouse=True)
def cluster():
    Cluster(workers=4).connect()
    yield
    ray.shutdown()


CASES = {
    "a kill, one step ahead": (grpo.build(), "chain", {"schedule.lag": 1}, 4),
    "several turns": (grpo.build(), "hop", {}, 3),
    "value head": (find("ppo").build(), "chain", {"schedule.lag": 2}, 3),
    "two learners": (find("rl-tango").embedded(), "chain", {}, 2),
    "a judge": (find("capo").build(), "chain", {"collect.links.2.n": 1}, 2),
    "a learned reward": (
        replace(grpo.build(), collect=links(Sample(4), Score(reward=Learned()))), "chain", {"schedule.lag": 1}, 2,
    ),
    "a replay": (find("tba").build(), "chain", {}, 2),
}  # fmt: skip


@pytest.fixture
def scored(context):
    """A context that has a reward model as well."""

    def make(task):
        ctx = context(task, seed=3)
        torch.manual_seed(0)
        reward = load("tiny")
        reward.add_head("score")
        ctx.models["reward"] = reward
        return ctx

    return make


@pytest.mark.parametrize("case", CASES)
def test_a_run_on_ray_is_the_run_of_one_process(scored, small, case):
    """Weights, draw, pool, queue and counts, bit for bit; a worker is killed in its second step."""
    recipe, task, fields, waves = CASES[case]
    recipe = small(recipe, **{"schedule.prompts": 4, **fields})
    rng, killed = random.Random(7), []

    def kill(n, ctx):
        if n == 1:
            pid = pid_of(ctx, 0)
            threading.Timer(rng.uniform(0, 0.1), lambda: (os.kill(pid, signal.SIGKILL), killed.append(pid))).start()

    here = run(recipe, scored(task), lambda r, c: InProcess(waves))
    there = run(recipe, scored(task), partial(open_carrier, Cluster(workers=2, waves=waves)), on=kill)
    assert here == there and killed


def test_drafts_of_workers_change_nothing(context, small):
    """A run on two processes whose engines draft is the run without drafts; what their drafts did is counted."""
    recipe = small(grpo.build(), **{"schedule.prompts": 4, "schedule.lag": 1})
    plain, drafted = context("chain", seed=3), context("chain", seed=3)
    drafted.engine_name = "own(drafts='all')"
    here = run(recipe, plain, lambda r, c: InProcess(2))
    assert here == run(recipe, drafted, partial(open_carrier, Cluster(workers=2, waves=2)))
    assert plain.draft_counts.passes == 0
    assert drafted.draft_counts.tokens >= drafted.draft_counts.passes > 0


def test_a_worker_that_stands_still_is_replaced(context, small, capsys):
    """It is stopped, not killed: nothing ends, nothing is said, and the run goes on as if nothing were. The new one
    has its room on the nodes.
    """
    recipe = small(grpo.build(), **{"schedule.prompts": 4})
    ctx = context(seed=3)
    ctx.talk = True
    stop = lambda n, ctx: os.kill(pid_of(ctx, 0), signal.SIGSTOP) if n == 1 else None
    here = run(recipe, context(seed=3), lambda r, c: InProcess(2))
    there = run(recipe, ctx, partial(open_carrier, Cluster(workers=2, silence=4, nodes="pack")), on=stop)
    assert here == there
    assert "rollout worker 0 on " in (said := capsys.readouterr().err) and "said nothing for" in said


class Deadly:
    """A reward that ends the process it is asked in."""

    reads_answers = False

    async def __call__(self, ctx, group):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_ticket_that_ends_its_workers_ends_the_run(context, small):
    """Not an endless loop: the error names the ticket."""
    recipe = replace(small(grpo.build()), collect=links(Sample(2), Score(reward=Deadly())))
    with pytest.raises(Fault, match=r"worker: 2 workers were lost under ticket 3/step/0/0/0/\d; ended"):
        run(recipe, context(seed=3), partial(open_carrier, Cluster(workers=2)))


class Wrong:
    """A reward with a mistake of its user in it."""

    reads_answers = False

    async def __call__(self, ctx, group):
        raise UserError("line 3: no such column")


class Uneven:
    """A reward that for every third problem takes a while."""

    reads_answers = False

    async def __call__(self, ctx, group):
        if int(group.task.id.rpartition("/")[2]) % 3 == 0:
            await asyncio.sleep(1.0)
        return [Reward(total=float(i)) for i in range(len(group.episodes))]


def test_groups_overtake_each_other_in_a_window(context, small):
    """While a worker is killed: each group that was drawn is taken once or waits, the slow ones later than others, and
    none is older than the window allows.
    """
    fields = {"schedule.prompts": 4, "schedule.lag": 1, "schedule.window": 1.0}
    recipe = small(replace(grpo.build(), collect=links(Sample(2), Score(reward=Uneven()))), **fields)
    taken, ages, steps, killed = [], [], 6, []

    def on(n, ctx):
        for g in ctx.seen if n else ():
            taken.append(int(g.task.id.rpartition("/")[2]))
            ages.append(n - 1 - g.episodes[0].oldest())
        if n == 2:
            killed.append(pid_of(ctx, 0))
            os.kill(killed[0], signal.SIGKILL)

    _, state, *_ = run(recipe, context(seed=3), partial(open_carrier, Cluster(workers=2, waves=4)), steps, on)
    waiting = [int(g.task.id.rpartition("/")[2]) for groups in state["queue"] for g in groups]
    assert killed and sorted([*taken, *waiting]) == list(range((steps + 1) * 4))
    assert taken != sorted(taken), "nobody has overtaken"
    assert min(ages) >= 0 and 1 < max(ages) <= max_age(recipe.schedule) == 3


class Slow:
    """A reward that takes a while, and says in which process it was asked."""

    reads_answers = False

    async def __call__(self, ctx, group):
        await asyncio.sleep(0.3)
        return [Reward(total=float(i), parts={"pid": float(os.getpid())}) for i in range(len(group.episodes))]


def test_a_users_mistake_in_a_worker_is_told_as_it_is(context, small):
    recipe = replace(small(grpo.build()), collect=links(Sample(2), Score(reward=Wrong())))
    with pytest.raises(UserError, match="line 3: no such column"):
        run(recipe, context(seed=3), partial(open_carrier, Cluster(workers=1)))


def test_rollouts_of_the_next_step_run_while_one_learns(context, small):
    """With a step ahead the driver finds the groups there; both processes have judged."""
    recipe = small(grpo.build(), **{"schedule.prompts": 4, "schedule.lag": 1})
    recipe = replace(recipe, collect=links(Sample(2), Score(reward=Slow())))
    ctx, waits, pids = context(seed=3), [], set()

    def on(n, ctx):
        waits.append(ctx.seconds["rollout"])
        pids.update(e.reward.parts["pid"] for g in ctx.seen for e in g.episodes)
        time.sleep(1.5)  # as a learner does, outside of the loop

    run(recipe, ctx, partial(open_carrier, Cluster(workers=2)), steps=4, on=on)
    assert waits[-1] - waits[-2] < 0.2 and len(pids) == 2 and os.getpid() not in pids


class Deliberate(Sample):
    """Samples so slowly that the learner always waits for the worker."""

    async def play(self, ctx, key, group, cast):
        async def pauses():
            while True:
                time.sleep(0.005)  # the whole loop stands, once a token
                await asyncio.sleep(0)

        slow = asyncio.ensure_future(pauses())
        try:
            return await super().play(ctx, key, group, cast)
        finally:
            slow.cancel()


def test_weights_move_under_what_is_sampled(context, small):
    """Each token carries the version that drew it: never older than the lag, never falling, and some sequences
    have several, as the worker is never without a ticket. Whether one is under way when weights come is chance, so
    a run in which none was is followed by another.
    """
    fields = {"schedule.prompts": 4, "schedule.lag": 2, "schedule.in_flight": True}
    recipe = small(grpo.build(), **fields)
    recipe = replace(recipe, collect=links(Deliberate(4), Score()))
    moved = 0
    for seed in (3, 4, 5, 6):
        rows = []

        def on(n, ctx, rows=rows):
            seen = (s for g in ctx.seen for e in g.episodes for r in e.rows for s in r.segments if s.trained)
            rows.extend((n - 1, s) for s in seen)

        run(recipe, context(seed=seed), partial(open_carrier, Cluster(workers=1, waves=4)), steps=8, on=on)
        for n, segment in rows:
            versions = [v for _, v in segment.versions]
            assert sum(length for length, _ in segment.versions) == len(segment.ids)
            assert versions == sorted(versions) and versions[0] >= n - 2 and versions[-1] <= n
        if moved := sum(len(segment.versions) > 1 for _, segment in rows):
            break
    assert moved > 0


def test_a_judge_that_ends_is_made_anew(scored, small, capsys):
    """By Ray, with the calls that it did not answer: the bits of one process."""
    recipe = small(CASES["a learned reward"][0], **{"schedule.prompts": 4})
    killed = []

    def kill(n, ctx):
        actor = ctx.carrier.judges[0].actor
        look = lambda: ray.get(actor.about.options(concurrency_group="signs").remote())["pid"]
        if n == 1:
            killed.append(look())
            os.kill(killed[0], signal.SIGKILL)
        if n == 3:
            assert look() != killed[0]

    here = run(recipe, scored("chain"), lambda r, c: InProcess(2))
    there = run(recipe, scored("chain"), partial(open_carrier, Cluster(workers=2, judges=1)), on=kill)
    assert here == there and killed


def test_a_doctor_looks_at_every_node(tmp_path):
    cluster = Cluster(workers=1)
    with marked(tmp_path) as mark:
        here = node_here({"ray": ("ray",)}, mark)
        (node,) = survey(cluster, {"ray": ("ray",), "none": ("no_such_module",)}, mark=mark)
    assert node.error == "" and node.extras == ("ray",) and node.cpus_free == 4.0
    assert node.versions == node_here({}).versions
    assert node.mark == here.mark != "" and node.ahead[0] < 0 < node.ahead[1], "it is this machine's clock"
    assert troubles(here, [node], cluster) == []


def test_no_room_on_a_node_is_said(context, monkeypatch):
    """Before a process is started: by what the nodes have, and by what is left of it."""
    monkeypatch.setattr("palaestra.scale.cluster.ROOM", 2.0)
    with pytest.raises(UserError, match=r"no room for 1 of workers on 1 nodes \(4 CPUs, 0 GPUs\)"):
        place(Cluster(workers=5, nodes="one"), grpo.build(), context(seed=3))
    cluster = Cluster(workers=3, nodes="one")
    taken = cluster.room()
    with pytest.raises(UserError, match='no room with nodes = "one" for 3 rollout processes of 1 CPUs and 0 GPUs'):
        cluster.room()
    cluster.give_back(taken)
