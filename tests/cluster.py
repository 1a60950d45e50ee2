"""Measures rollouts under Ray: python -m tests.cluster {sim,kills,ages,price} OUT.json

sim: the simulator beside a real Ray loop whose workers wait, in twelve cells, and what a step ahead brings there.
kills: workers killed at random moments; runs must end in the bits of one process, each ticket taken once. What OUT.json
holds already counts, so it goes on where it was ended.
ages: how old what is trained is, over 100,000 samples with random delays and deaths; workers are threads here.
price: processor seconds of a run under Ray and in one process, in pairs.
"""

import asyncio
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from palaestra.curriculum.pool import Everything
from palaestra.models.load import load, weights_sha256
from palaestra.planning.simulate import Costs, simulate
from palaestra.recipes.base import grpo
from palaestra.rollout.queue import max_age
from palaestra.rollout.tickets import InProcess
from palaestra.run.benches import bench_by_name
from palaestra.run.context import RunContext
from palaestra.run.driver import carriage, prepare, train
from palaestra.run.plan import Plan
from palaestra.scale.cluster import Cluster
from palaestra.scale.placement import open_carrier
from palaestra.step import start, step
from palaestra.types import Episode, Reward, Row, Segment, rng_of
from palaestra.values import override


def make_context(seed=3, task="chain"):
    bench, players = bench_by_name(task)
    return RunContext(
        bench=bench, seed=seed, models={"policy": load("tiny")}, drive=train, players=players, plan=Plan(evaluate=0)
    )


def run(recipe, ctx, carrier, steps=3, on=lambda n, ctx: None):
    """What a run ends with: weights of every learner, what its state holds, its counts."""

    async def go():
        state, metrics = start(ctx.seed), {}
        for n in range(steps):
            on(n, ctx)
            state, metrics = await step(recipe, ctx, state)
        on(steps, ctx)
        for flight in (q for q in state["queue"] if not isinstance(q, list)):
            await flight.land()
        queue = [q if isinstance(q, list) else q.groups for q in state["queue"]]
        chats = {k: v for k, v in metrics.items() if k.startswith("chat/")}
        return {**state, "queue": queue}, chats

    ctx.open_carrier = carrier
    prepare(recipe, ctx)
    with carriage(recipe, ctx):
        state, chats = asyncio.run(go())
    return [weights_sha256(ctx.model(n)) for n in recipe.learners], state, ctx.sampled_tokens, chats


def pid_of(ctx, number):
    """The process of a worker, once it is there."""
    import ray

    actor = ctx.carrier.places[number].actor
    return ray.get(actor.about.options(concurrency_group="signs").remote())["pid"]


# ---- the simulator beside a real loop


def seconds_of(attempt, wave):
    """What a ticket waits: log-normal, median 0.4 s, sigma 0.5."""
    return 0.4 * float(np.exp(0.5 * rng_of((11, attempt, wave)).standard_normal()))


@dataclass(frozen=True)
class Wait:
    """A collect stage that takes its time, and samples nothing."""

    async def __call__(self, ctx, key, group):
        *_, at, _, ahead, place = key
        await asyncio.sleep(seconds_of(at + ahead, place))
        return group


def real_seconds(workers, waves, steps, lag, learn):
    """The makespan of a loop under Ray, from its first ticket to the end of its last step."""
    recipe = replace(override(grpo.build(), "schedule.lag", lag), collect=Wait(), learners={})
    recipe = override(recipe, "schedule.prompts", waves)
    ends = []

    def on(n, ctx):
        if n == 0:
            for place in range(workers):
                pid_of(ctx, place)  # all are there before the clock starts
        else:
            time.sleep(learn)
        ends.append(time.perf_counter())

    run(recipe, make_context(), partial(open_carrier, Cluster(workers=workers, waves=waves)), steps, on)
    return ends[-1] - ends[0]


def sim(out):
    Cluster(workers=8).connect()
    cells, steps = [], 10
    for workers, waves in ((1, 2), (2, 4), (4, 8), (8, 8)):
        # a learner as slow as the workers together: where neither waits for long, being ahead pays most
        learn = 0.45 * waves / workers
        for lag in (0, 1, 2):
            costs = Costs(ticket=seconds_of, learn=learn)
            told = simulate(costs, workers=workers, waves=waves, steps=steps, lag=lag, depth=1).makespan
            real = real_seconds(workers, waves, steps, lag, learn)
            cells.append({"workers": workers, "waves": waves, "lag": lag, "real": round(real, 3), "simulated": round(told, 3),
                          "error": round(told / real - 1, 4)})  # fmt: skip
            print(cells[-1], flush=True)
    by = {(c["workers"], c["lag"]): c["real"] for c in cells}
    ahead = {str(w): {f"lag {lag}": round(by[w, 0] / by[w, lag], 3) for lag in (1, 2)} for w in (1, 2, 4, 8)}
    write(out, "sim", {"steps": steps, "cells": cells, "times as fast as lag 0": ahead})


# ---- kills


def kills(out, most=200, a_run=10):
    """Runs of grpo one step ahead, in each of which `a_run` workers are killed at random moments."""
    from palaestra.scale import carrier

    carrier.DEATHS = carrier.FATAL_KILLS = 10**6  # limits for faults of the user's, which these are not
    Cluster(workers=3).connect()
    recipe = override(override(grpo.build(), "schedule.lag", 1), "schedule.prompts", 6)
    steps, waves = 12, 6
    held = json.loads(Path(out).read_text()).get("kills", {}) if Path(out).exists() else {}
    runs = held.get("runs", [])
    while sum(r["kills"] for r in runs) < most:
        seed = 1000 + len(runs)
        here = run(recipe, make_context(seed), lambda r, c: InProcess(waves), steps)
        ctx, taken, phases, over = make_context(seed), Counter(), Counter(), threading.Event()

        def killer(ctx=ctx, phases=phases, over=over, rng=random.Random(seed)):
            import ray

            while not over.is_set() and (n := sum(phases.values())) < a_run:
                time.sleep(rng.uniform(0, 1))
                want, until = ("collecting", "loading", "ready")[n % 3], time.monotonic() + 10
                while not over.is_set():  # one in that phase; after a while whoever is there
                    actor = ctx.carrier.places[rng.randrange(3)].actor
                    with suppress(ray.exceptions.RayError, ProcessLookupError):
                        look = actor.about.options(concurrency_group="signs").remote()
                        about = ray.get(look, timeout=0.5)  # one that starts says nothing yet
                        phase = about["phase"].split()[0]
                        if phase == want or time.monotonic() > until:
                            os.kill(about["pid"], signal.SIGKILL)
                            phases[phase] += 1
                            break

        def on(n, ctx, taken=taken, killer=killer, over=over):
            if n == 0:
                threading.Thread(target=killer, daemon=True).start()
            if n == steps:
                over.set()
            taken.update(row.key for g in ctx.seen for e in g.episodes for row in e.rows if n)

        there = run(recipe, ctx, partial(open_carrier, Cluster(workers=3, waves=waves)), steps, on)
        runs.append({"seed": seed, "kills": sum(phases.values()), "phases": dict(phases), "equal": here == there,
                     "rows": len(taken), "taken more than once": sum(n > 1 for n in taken.values())})  # fmt: skip
        print(runs[-1], flush=True)
        phases = sum((Counter(r["phases"]) for r in runs), Counter())
        write(out, "kills", {
            "kills": sum(phases.values()), "phases": dict(phases),
            "runs that end as in one process": sum(r["equal"] for r in runs),
            "rows taken more than once": sum(r["taken more than once"] for r in runs), "runs": runs,
        })  # fmt: skip


# ---- ages

TOKENS = 3  # of an answer
GROUPS, ANSWERS = 8, 8  # of a step


def group_seconds(key):
    """What a group takes: log-normal with a heavy tail, median 0.5 ms."""
    return 0.0005 * float(np.exp(1.2 * rng_of((*key, "seconds")).standard_normal()))


@dataclass(frozen=True)
class Aging:
    """A collect stage that draws nothing: its tokens say which weights were there, and take their time."""

    async def __call__(self, ctx, key, group):
        pause = group_seconds(key) / TOKENS

        async def answer():
            versions = []
            for _ in range(TOKENS):
                await asyncio.sleep(pause)
                versions.append(ctx.versions["policy"])
            moved = tuple((i, v) for i, (u, v) in enumerate(pairwise(versions), 1) if u != v)
            said = Segment(ids=(1,) * TOKENS, policy="policy", trained=True, logp=(0.0,) * TOKENS,
                           version=versions[0], moved=moved)  # fmt: skip
            return Episode(rows=(Row(segments=(said,)),), reward=Reward(total=0.0), status="finished")

        return replace(group, episodes=tuple(await asyncio.gather(*(answer() for _ in range(ANSWERS)))))


def ages(lag, in_flight, samples, seed, monkeypatch, window=0.0):
    """Of a run under the real carrier on threads: ages of what is trained, and whether the slow are among it; what of
    the drawn is taken more than once, and what neither taken nor waits at the end.
    """
    from palaestra.scale.carrier import RayCarrier

    from tests.fake_ray import fake_ray

    steps = -(-samples // (GROUPS * ANSWERS))
    recipe = replace(grpo.build(), collect=Aging(), learners={}, pool=Everything())
    fields = {"lag": lag, "in_flight": in_flight, "prompts": GROUPS, "window": window}
    for name, given in fields.items():
        recipe = override(recipe, f"schedule.{name}", given)
    found, drawn, trained, over = [], {}, [], threading.Event()

    def drawing(ctx, key, n, state, draw=recipe.draw):
        drawn.update({(*key, i): group_seconds((*key, i)) for i in range(n)})
        return draw(ctx, key, n, state)

    def on(n, ctx):
        if n == 0:
            return
        for e in (e for g in ctx.seen for e in g.episodes):
            (segment,) = e.rows[0].segments
            found.append((n - 1, segment.versions))
        trained.extend(g.episodes[0].rows[0].key[:-2] for g in ctx.seen)
        if n % 8 == 0 and (there := fake.alive()):  # as many on a fast machine as on a slow one
            there[n // 8 % len(there)].die()
        if n == steps:
            over.set()
        time.sleep(0.002)  # as a learner does

    with fake_ray(monkeypatch) as fake:

        def kill(rng=random.Random(seed)):
            while not over.wait(rng.expovariate(10)):
                if there := fake.alive():
                    rng.choice(there).die()

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        cluster = Cluster(workers=3, waves=4)
        ctx = make_context(seed)
        _, state, *_ = run(replace(recipe, draw=drawing), ctx, partial(RayCarrier, cluster), steps, on)
        killer.join()
    waiting = [g.episodes[0].rows[0].key[:-2] for groups in state["queue"] for g in groups]
    order = {key: i for i, key in enumerate(drawn)}
    taken = [order[key] for key in trained]
    by_step = [(n - v, count) for n, versions in found for count, v in versions]
    slow = float(np.quantile(list(drawn.values()), 0.9))
    return {
        "lag": lag, "in_flight": in_flight, "samples": len(found), "deaths": len(fake.actors) - 3,
        "oldest": max(age for age, _ in by_step), "youngest": min(age for age, _ in by_step),
        "tokens without one version": len(found) * TOKENS - sum(count for _, count in by_step),
        "samples of several versions": sum(len(v) > 1 for _, v in found),
        "slowest tenth": float(np.mean([drawn[key] > slow for key in trained])),
        "window": window, "bound": max_age(recipe.schedule),
        "taken more than once": len(taken) - len(set(taken)),
        "lost": len(drawn.keys() - {*trained, *waiting}),
        "overtaken": sum(i < max(taken[:n], default=0) for n, i in enumerate(taken)),
    }  # fmt: skip


def all_ages(out, most=100_000):
    import pytest
    from palaestra.scale import carrier

    carrier.DEATHS = carrier.FATAL_KILLS = 10**6
    in_order = [(lag, flies, 0.0) for lag in (0, 1, 2, 4) for flies in (False, True) if lag or not flies]
    cells, arms = [], [*in_order, (1, False, 1.0), (2, False, 0.3), (4, False, 0.3), (2, True, 0.5)]
    for seed, (lag, in_flight, window) in enumerate(arms):
        patch = pytest.MonkeyPatch()
        cells.append(ages(lag, in_flight, -(-most // len(arms)), 100 + seed, patch, window))
        print(cells[-1], flush=True)
    write(out, "ages", {"samples": sum(c["samples"] for c in cells), "cells": cells})


# ---- the price


def spent():
    """Processor seconds of this process and of all that it started, Ray's own ones included."""
    parents, seconds = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = int(fields[1])
            seconds[int(folder.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    mine, more = {os.getpid()}, {os.getpid()}
    while more := {p for p, parent in parents.items() if parent in more} - mine:
        mine |= more
    return sum(seconds[p] for p in mine)


def price(out, pairs=5):
    """Of three steps of grpo with 16,000 sampled tokens each, after a first one."""
    Cluster(workers=1).connect()
    recipe = override(override(grpo.build(), "schedule.prompts", 160), "collect.links.0.n", 8)
    cluster, found = Cluster(workers=1), []
    for pair in range(pairs):
        costs, sampled = {}, 0
        arms = {"one process": lambda r, c: InProcess(), "ray": partial(open_carrier, cluster)}
        for name in sorted(arms, reverse=bool(pair % 2)):
            at = []

            def on(n, ctx, at=at):
                at.append((spent(), ctx.sampled_tokens))

            run(recipe, make_context(pair), arms[name], 4, on)
            costs[name], sampled = at[-1][0] - at[1][0], at[-1][1] - at[1][1]
        found.append({"sampled tokens a step": round(sampled / 3), **{k: round(v, 2) for k, v in costs.items()},
                      "more": round(costs["ray"] / costs["one process"] - 1, 4)})  # fmt: skip
        print(found[-1], flush=True)
    more = [f["more"] for f in found]
    write(out, "price", {"pairs": found, "median": float(np.median(more)), "least": min(more), "most": max(more)})


def write(out, name, record):
    at = Path(out)
    held = json.loads(at.read_text()) if at.exists() else {}
    about = {"command": f"python -m tests.cluster {name} {out}", "torch": torch.__version__, "cores": os.cpu_count()}
    at.write_text(json.dumps({**held, name: about | record}, indent=1) + "\n")


if __name__ == "__main__":
    from tests import cluster  # under the name by which its processes know it

    commands = {"sim": cluster.sim, "kills": cluster.kills, "ages": cluster.all_ages, "price": cluster.price}
    commands[sys.argv[1]](sys.argv[2])
