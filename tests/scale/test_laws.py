"""Laws of a run whose rollouts are elsewhere, on threads that stand for processes (`tests/fake_ray.py`)."""

import ast
import asyncio
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import palaestra
import pytest
import torch
from palaestra.errors import Fault, Paused, UserError
from palaestra.judges.pointwise import Judge
from palaestra.judges.reading import Odds
from palaestra.models.load import load
from palaestra.recipes.base import grpo
from palaestra.rewards.learned import Learned
from palaestra.rollout.collect import Sample, Score, links
from palaestra.rollout.queue import max_age
from palaestra.rollout.tickets import InProcess, cut
from palaestra.run.driver import carriage, prepare
from palaestra.run.saving import Saves
from palaestra.scale.cluster import Cluster
from palaestra.services.chat.base import client_of, question_messages
from palaestra.services.chat.endpoint import Endpoint
from palaestra.services.chat.local import LocalModel
from palaestra.store import checkpoint
from palaestra.types import ChatRequest, Group, Reward, stage
from palaestra.values import override

pytest.importorskip("ray")

from palaestra.scale import carrier
from palaestra.scale.carrier import RayCarrier

from tests.chat_server import serving
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


def test_who_stood_still_itself_replaces_nobody(context, small, monkeypatch, capsys):
    """The learner's process is stopped for an hour while workers collect: their silence is its own."""
    recipe = small(grpo.build(), **{"schedule.prompts": 4})
    hours = Counter()
    late = SimpleNamespace(**{**vars(time), "monotonic": lambda: time.monotonic() + 3600.0 * hours["collecting"]})
    monkeypatch.setattr(carrier, "time", late)
    ctx = context(seed=3)
    ctx.talk = True
    with fake_ray(monkeypatch, lambda actor, phase: hours.update([phase])):
        there = run(recipe, ctx, opened(workers=2), 2)
    assert there == run(recipe, context(seed=3), lambda r, c: InProcess(2), 2) and hours["collecting"] >= 4
    assert "replaced" not in capsys.readouterr().err


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
    assert found["overtaken"] == found["lost"] == found["taken more than once"] == 0


@pytest.mark.parametrize(("lag", "window", "in_flight"), [(3, 0.4, False), (2, 0.5, True)])
def test_age_bound_and_drawn_is_trained_in_a_window(lag, window, in_flight, monkeypatch, unlimited):
    """Groups overtake each other, so they get older than the lag, and never older than is said; while workers die, what
    was drawn is taken once or waits, so the slowest tenth is a tenth of what is trained.
    """
    found = ages(lag, in_flight, samples=4_000, seed=lag, monkeypatch=monkeypatch, window=window)
    assert found["samples"] >= 4_000 and found["deaths"] > 5 and found["overtaken"] > 20
    assert found["youngest"] >= 0 and found["oldest"] <= found["bound"] and found["bound"] > lag
    assert in_flight or found["oldest"] > lag
    assert found["tokens without one version"] == found["lost"] == found["taken more than once"] == 0
    # of 500 groups those that wait at the end are a few, and slower than most
    assert abs(found["slowest tenth"] - 0.1) <= 0.02


def test_a_window_with_one_worker_is_the_run_in_order(context, small, monkeypatch, unlimited):
    """It ends tickets in the order in which it got them, so nobody overtakes: the bits of one process, also where it
    dies.
    """
    recipe = small(grpo.build(), **{"schedule.prompts": 4, "schedule.lag": 1, "schedule.max_age": 1})
    deaths = Counter()

    def die(actor, phase):
        deaths[phase] += 1
        if deaths[phase] == 3:
            actor.die()

    here = run(recipe, context(seed=3), lambda r, c: InProcess(4), 2)
    with fake_ray(monkeypatch, die):
        there = run(override(recipe, "schedule.window", 1.0), context(seed=3), opened(workers=1, waves=4), 2)
    states = [
        {**state, "queue": [g for groups in state["queue"] for g in groups], "places": {}}
        for _, state, *_ in (here, there)
    ]
    assert states[0] == states[1] and here[0] == there[0] and here[2:] == there[2:]
    assert deaths["collecting"] > 3 and len(states[0]["queue"]) == 4


@stage
class Uneven:
    """A reward that for every third problem takes a while."""

    reads_answers = False

    async def __call__(self, ctx, group):
        if int(group.task.id.rpartition("/")[2]) % 3 == 0:
            await asyncio.sleep(0.3)
        return [Reward(total=float(i)) for i in range(len(group.episodes))]


@stage
class Journal:
    """An observe stage that writes down what each step took: its groups, and their oldest versions."""

    lines: list

    def __call__(self, seen, examples, state):
        self.lines.append([(g.episodes[0].rows[0].key[:-2], g.task.id, g.episodes[0].oldest()) for g in seen])
        return state


class Killed(BaseException):
    pass


def test_a_windowed_run_goes_on_from_its_checkpoint(context, small, monkeypatch, unlimited, tmp_path):
    """Killed in the middle, gone on with under more workers, one of which dies as well: by the steps that count, each
    group is taken once, in the places that the checkpoint kept; none is lost, and none gets older than is said.
    """
    lines, steps = [], 7
    fields = {"schedule.prompts": 4, "schedule.lag": 1, "schedule.window": 1.0}
    recipe = small(replace(grpo.build(), collect=links(Sample(2), Score(reward=Uneven()))), **fields)
    recipe = replace(recipe, observe=Journal(lines))
    due, deaths = Saves.due, Counter()

    def killed(self, step):
        if step == 4:
            raise Killed
        return due(self, step)

    def die(actor, phase):
        deaths[phase] += 1
        if deaths[phase] == 4:
            actor.die()

    def go(workers):
        ctx = context(seed=3, out=tmp_path / "run", steps=steps, checkpoint_every=1, keep=9)
        ctx.open_carrier = opened(workers=workers, waves=4)
        with fake_ray(monkeypatch, die):
            return asyncio.run(recipe.run(ctx))

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Saves, "due", killed)
        go(2)
    sealed = checkpoint.find_latest(tmp_path / "run")[0].state()["state"]
    first, done = lines[:], sealed["step"]
    assert len(first) == 4 and 1 <= done < 4
    lines.clear()
    go(3)
    assert len(lines) == steps - done and deaths["collecting"] >= 4
    history = [*first[:done], *lines]
    keys = [key for step in history for key, *_ in step]
    left = checkpoint.find_latest(tmp_path / "run")[0].state()["state"]
    waiting = [g.episodes[0].rows[0].key[:-2] for groups in left["queue"] for g in groups]
    assert len(keys) == steps * 4 and len({*keys, *waiting}) == len(keys) + len(waiting) == (steps + 1) * 4
    tasks = [int(task.rpartition("/")[2]) for step in history for _, task, _ in step]
    assert tasks != sorted(tasks), "nobody has overtaken"
    most = max_age(recipe.schedule)
    assert most == 3 and all(0 <= n - v <= most for n, step in enumerate(history) for *_, v in step)


# ---- streaming


@stage
class Held:
    """A reward that for the first problem waits until it is let go."""

    reads_answers = False
    gate = threading.Event()

    async def __call__(self, ctx, group):
        while group.task.id == "slow" and not self.gate.is_set():
            await asyncio.sleep(0.01)
        return [Reward(total=1.0) for _ in group.episodes]


def test_answers_arrive_as_they_finish(context, small, monkeypatch):
    """One that takes for ever holds back its own ticket: all others come to the learner's process meanwhile, each as
    soon as it is over, whatever was handed out before it.
    """
    recipe, ctx = small(replace(grpo.build(), collect=links(Sample(1), Score(reward=Held())))), context(seed=3)
    ctx.open_carrier = opened(workers=2, waves=4)
    Held.gate.clear()

    async def go():
        (task,), _ = recipe.draw(ctx, (3,), 1, {})
        starts = [Group(task=replace(task, id=name)) for name in ("slow", "b", "c", "d")]
        flight = await ctx.carrier.submit(recipe, ctx, cut((3, "step", 0), starts, 4, 0))
        slow, *others = flight.split()
        until = time.monotonic() + 120
        while not all(part.over for part in others):
            assert time.monotonic() < until, "they wait for the slow one"
            await asyncio.sleep(0.01)
        assert not slow.over and not flight.over
        assert [g.task.id for part in others for g in part.groups] == ["b", "c", "d"]
        assert all(e.reward.total == 1.0 for part in others for g in part.groups for e in g.episodes)
        await slow.first_over(others)  # somebody is over already, so nobody waits
        Held.gate.set()
        return await flight.land()

    prepare(recipe, ctx)
    with fake_ray(monkeypatch), carriage(recipe, ctx):
        assert [g.task.id for g in asyncio.run(go())] == ["slow", "b", "c", "d"]


# ---- judges


@stage
class ReadsPolicy:
    """A reward that says which weights the policy has where it is asked, and in which process."""

    async def __call__(self, ctx, group):
        weight = next(iter(ctx.model("policy").named_trainable().values()))
        told = float(weight.detach().double().sum())
        # not all alike, or nothing would be learned and the weights would stay
        return [Reward(total=told * i, parts={"step": float(ctx.step)}) for i in range(len(group.episodes))]


@pytest.fixture
def scored(context):
    def make():
        ctx = context(seed=3)
        torch.manual_seed(0)
        ctx.models["reward"] = load("tiny")
        ctx.models["reward"].add_head("score")
        return ctx

    return make


REWARDS = {
    "the bench's": links(Sample(4), Score()),
    "a learned one": links(Sample(4), Score(reward=Learned())),
    "one that reads the policy": links(Sample(4), Score(reward=ReadsPolicy())),
    "a judge by the policy": links(Sample(2), Score(reward=Judge(client=LocalModel(), read=Odds()))),
}


@pytest.mark.parametrize("reward", REWARDS)
def test_judges_change_nothing(reward, scored, small, monkeypatch):
    """Law `carrier_equal` with rewards in processes of their own, one of which dies in every phase."""
    recipe = override(replace(grpo.build(), collect=REWARDS[reward]), "schedule.prompts", 4)
    recipe = override(recipe, "schedule.lag", 1)
    deaths = Counter()

    def die(actor, phase):
        if actor.kind.__name__ == "JudgeProcess":
            deaths[phase] += 1
            if deaths[phase] == 2:
                actor.die()

    here = run(recipe, scored(), lambda r, c: InProcess(2))
    with fake_ray(monkeypatch, die):
        there = run(recipe, scored(), opened(workers=2, judges=2))
    # what endpoints and models were asked is counted when a step learns from it: see test_same_numbers
    assert here[:3] == there[:3] and min(deaths[p] for p in ("starting", "judging", "answering", "ready")) >= 2


def test_a_judge_that_stands_still_is_replaced(context, small, monkeypatch, capsys):
    monkeypatch.setattr(carrier, "STARTING", 3.0)
    recipe, ctx, stopped = small(grpo.build(), **{"schedule.prompts": 4}), context(seed=3), []
    ctx.talk = True

    def stop(actor, phase):
        if phase == "judging" and not stopped:
            stopped.append(actor)
            actor.stopped.set()

    here = run(recipe, context(seed=3), lambda r, c: InProcess(2), 2)
    with fake_ray(monkeypatch, stop):
        there = run(recipe, ctx, opened(workers=2, judges=1, silence=1), 2)
    assert here == there and stopped
    assert "judge 0 on " in (said := capsys.readouterr().err) and "it is replaced" in said


def test_a_reward_that_ends_its_judges_is_no_endless_loop(context, small, monkeypatch):
    """Its episodes are errors, so the run pauses as with a dead endpoint."""
    recipe = small(grpo.build(), **{"schedule.prompts": 2})
    die = lambda actor, phase: actor.die() if phase == "judging" else None
    with fake_ray(monkeypatch, die), pytest.raises(Paused, match="8 by judge; the first: judge: judge 0 is lost"):
        run(recipe, context(seed=3), opened(workers=1, judges=1), 1)


class Wrong:
    """A reward with a mistake of its user in it."""

    async def __call__(self, ctx, group):
        raise UserError("line 3: no such column")


def test_a_users_mistake_in_a_judge_is_told_as_it_is(context, small, monkeypatch):
    recipe = small(replace(grpo.build(), collect=links(Sample(2), Score(reward=Wrong()))))
    with fake_ray(monkeypatch), pytest.raises(UserError, match=r"^line 3: no such column$"):
        run(recipe, context(seed=3), opened(workers=1, judges=1), 1)


@stage
class Asks:
    """A reward that asks an endpoint once for each episode."""

    client: Endpoint

    async def __call__(self, ctx, group):
        return await asyncio.gather(*(self.one(ctx, f"{group.task.id} {i}") for i in range(len(group.episodes))))

    async def one(self, ctx, text):
        try:
            reply = await client_of(ctx, self.client).chat(ChatRequest(messages=question_messages(text)))
        except Fault as fault:
            return fault
        return Reward(total=float(reply.text))


def asking(url, **budget):
    return replace(grpo.build(), collect=links(Sample(4), Score(reward=Asks(Endpoint(url=url, cache="", **budget)))))


@pytest.mark.parametrize("judges", [0, 1])
def test_same_numbers(judges, context, small, monkeypatch):
    """What an endpoint was asked, in sums over processes: the counts of one process, as the server saw them."""
    counts = []
    for carry in (lambda r, c: InProcess(2), opened(workers=2, judges=judges)):
        with serving(lambda body: "4") as (server, url), fake_ray(monkeypatch):
            recipe = small(asking(url), **{"schedule.prompts": 4})
            *_, sampled, chats = run(recipe, context(seed=3), carry, 2)
            assert chats["chat/default/calls"] == len(server.seen) == 2 * 4 * 4
            counts.append((sampled, chats, len(server.seen)))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("judges", [0, 2])
def test_a_budget_is_divided_among_those_who_ask(judges, context, small, monkeypatch):
    """Not a call more than the run's budget, also where a worker's place is taken by another; who spent his part has
    faults, and a budget that is too small to be divided is refused.
    """
    answers, dead = Counter(), []

    def die(actor, phase):
        if actor.kind.__name__ == "Worker" and phase == "answering":
            answers[actor] += 1
            if answers[actor] == 2 and not dead:  # it has answered once, so its place has spent something
                dead.append(actor)
                actor.die()

    with serving(lambda body: "4") as (server, url), fake_ray(monkeypatch, die):
        recipe = small(asking(url, max_calls=21), **{"schedule.prompts": 4})
        with pytest.raises(Paused, match="by chat-budget"):
            run(recipe, context(seed=3), opened(workers=2, judges=judges), 9)
    # what a process has spent since its last answer is not known: here the last calls of its part
    assert 16 <= len(server.seen) <= 21 + (0 if judges else 3) and dead
    with fake_ray(monkeypatch), pytest.raises(UserError, match="max_calls=1 cannot be divided among 2"):
        run(small(asking(url, max_calls=1)), context(seed=3), opened(workers=2, judges=judges), 1)


def test_no_method():
    """What carries a run knows no recipe, credit or objective."""
    banned = {"recipes", "credit", "objective", "claims", "ledger"}
    for file in (Path(palaestra.__file__).parent / "scale").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [n.name for n in node.names] if isinstance(node, ast.Import) else []
            rooms = {n.split(".")[1] for n in names if n and n.startswith("palaestra.")}
            assert not rooms & banned, f"{file.name}: {rooms & banned}"
