"""Groups that overtake each other inside a window: none is lost or taken twice, and none gets older than is said."""

import asyncio
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from palaestra.attempts import Flight
from palaestra.curriculum.pool import Everything
from palaestra.errors import Paused, UserError
from palaestra.models.load import weights_sha256
from palaestra.recipes.base import grpo
from palaestra.rollout.queue import Schedule, max_age, window_groups
from palaestra.rollout.tickets import InProcess
from palaestra.run.driver import prepare
from palaestra.run.saving import landed
from palaestra.step import copy_state, gather_groups, start, step
from palaestra.store.codec import decode, encode
from palaestra.types import Episode, Group, Reward, Row, Segment, Task

from tests.fake import FakeContext


@pytest.mark.parametrize(
    ("lag", "prompts", "window", "size", "age"),
    [
        (1, 8, 0.0, 0, 1),
        (1, 8, 0.5, 8, 2),
        (0, 8, 1.0, 8, 1),
        (4, 8, 0.3, 12, 6),
        (2, 4, 0.1, 1, 2),  # the oldest alone
        (3, 4, 1.0, 16, 7),
        (1, 10, 0.3, 6, 2),  # 0.3 * 2 * 10 is 5.999... in floating point
    ],
)
def test_how_old_a_window_lets_a_group_become(lag, prompts, window, size, age):
    """W = floor(window (lag + 1) prompts), age <= lag + ceil((W - 1) / prompts)."""
    schedule = Schedule(lag=lag, prompts=prompts, window=window)
    assert (window_groups(schedule), max_age(schedule)) == (size, age)
    assert max_age(replace(schedule, max_age=1)) == 1


def test_a_window_is_a_share():
    with pytest.raises(UserError, match=r"schedule\.window is a share from 0 to 1, not -0\.1"):
        Schedule(window=-0.1)


class Late(Flight):
    """One ticket, or several, with the groups that will be over at some time of a clock."""

    def __init__(self, clock, parts):
        self.clock, self.parts = clock, parts

    tickets = property(lambda self: tuple(t for t, _ in self.parts))
    over = property(lambda self: all(at <= self.clock.now for _, at in self.parts))
    sampled_tokens = 1

    @property
    def groups(self):
        return [aged(g.task, t) for t, _ in self.parts for g in t.starts]

    async def land(self):
        assert self.over, "who is not over is waited for by first_over"
        return self.groups

    def split(self):
        return tuple(type(self)(self.clock, (part,)) for part in self.parts)

    async def first_over(self, others):
        self.clock.now = min(max(at for _, at in f.parts) for f in (self, *others))


def aged(task, ticket):
    said = Segment(ids=(1,), policy="policy", trained=True, version=ticket.step)
    row = Row(segments=(said,), key=(*ticket.key, task.id))
    return Group(task=task, episodes=(Episode(rows=(row,), reward=Reward(total=0.0), status="finished"),))


class Clock(InProcess):
    """A carrier of so many waves whose tickets take times of a heavy tail."""

    def __init__(self, waves, seed):
        super().__init__(waves)
        for name, value in {"now": 0.0, "rng": random.Random(seed)}.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)

    async def submit(self, recipe, ctx, tickets):
        return Late(self, tuple((t, self.now + self.rng.lognormvariate(0, 1.5)) for t in tickets))


def numbered(ctx, key, n, state):
    at = state.get("at", 0)
    return [Task(id=str(at + i)) for i in range(n)], {"at": at + n}


def windowed(lag, prompts, window):
    schedule = Schedule(lag=lag, prompts=prompts, window=window)
    return replace(grpo.build(), draw=numbered, pool=Everything(), schedule=schedule)


def gather(recipe, ctx, state):
    """A step, without the learning."""
    state = copy_state(state)
    ready, seen = asyncio.run(gather_groups(ctx.at(recipe, state["step"]), ctx, state))
    state["step"] += 1
    return ready, seen, state


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 3), st.sampled_from([(8, 8), (8, 4), (8, 2), (6, 3)]), st.floats(0.05, 1.0), st.integers(0, 99))
def test_nothing_is_lost_and_nothing_gets_too_old(lag, cut, window, seed):
    (prompts, waves), steps = cut, 30
    recipe, ctx, state = windowed(lag, prompts, window), FakeContext(), start(0)
    ctx.carrier = Clock(waves, seed)
    most, taken = max_age(recipe.schedule), []
    for n in range(steps):
        ready, seen, state = gather(recipe, ctx, state)
        assert len(seen) == prompts and ready == seen, "none is dropped for its age"
        assert all(0 <= n - g.episodes[0].oldest() <= most for g in seen)
        taken += [int(g.task.id) for g in seen]
        assert sum(len(t.starts) for f in state["queue"] for t in f.tickets) == lag * prompts
    waiting = {int(g.task.id) for f in state["queue"] for g in f.groups}
    assert len(set(taken)) == len(taken) and set(taken) | waiting == set(range((steps + lag) * prompts))
    size = max(window_groups(recipe.schedule), prompts // waves)
    for i in range(len(taken)):  # none lies further ahead of the oldest that is left than the window is wide
        left = set(range(max(taken[: i + 1]) + 1)) - set(taken[:i])
        assert taken[i] - min(left) < size


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_a_window_lets_groups_overtake_and_no_longer_waits_for_the_slowest(lag, context):
    """With the widest window groups get older than the lag, and the clock shows less; in order they never do."""
    ends, ages = {}, {}
    for window in (0.0, 1.0):
        recipe, ctx, state = windowed(lag, 8, window), context(), start(0)
        ctx.carrier = carrier = Clock(8, 5) if window else InOrder(8, 5)
        found = []
        for n in range(40):
            _, seen, state = gather(recipe, ctx, state)
            found += [n - g.episodes[0].oldest() for g in seen]
        ends[window], ages[window] = carrier.now, max(found)
    assert ages[0.0] == lag and (lag < ages[1.0] <= 2 * lag + 1 if lag else ages[1.0] == 0)
    assert ends[1.0] < 0.9 * ends[0.0] if lag else ends[1.0] == ends[0.0]


@pytest.mark.parametrize("stop", [3, 4])
def test_a_run_goes_on_from_a_queue_with_gaps(stop):
    """As a checkpoint holds it, what is under way as its groups or, where the run paused, as its tickets: nothing is
    lost or taken twice, and no age is above the bound.
    """
    recipe, taken = windowed(2, 4, 0.6), []
    ctx, state = FakeContext(), start(0) | {"run": {}}
    ctx.carrier = Clock(4, 1)
    for n in range(12):
        _, seen, state = gather(recipe, ctx, state)
        assert all(0 <= n - g.episodes[0].oldest() <= max_age(recipe.schedule) for g in seen)
        taken += [int(g.task.id) for g in seen]
        if n == stop:
            gaps = state["places"]["of"]
            assert gaps != list(range(gaps[0], gaps[0] + len(gaps))), "nobody has overtaken; take another"
            kept = landed(state)
            assert {type(q) for q in kept["queue"]} <= {list, tuple}
            state = dict(decode(*encode(kept)))
            assert state["places"] == kept["places"]
            ctx.carrier = Clock(4, 2)
    left = [g for f in state["queue"] for g in (f if isinstance(f, list) else f.groups)]
    taken += [int(g.task.id) for g in left]
    assert sorted(taken) == list(range(14 * 4))


def test_a_queue_in_order_goes_on_in_a_window():
    """Attempts that wait as a whole are taken as a whole."""
    ctx, state = FakeContext(), start(0)
    ctx.carrier = InOrder(4, 1)
    _, seen, state = gather(windowed(2, 4, 0.0), ctx, state)
    state["queue"] = [f.groups for f in state["queue"]]  # as a checkpoint brings them
    found = [g.task.id for g in seen]
    ctx.carrier = Clock(4, 3)
    for _ in range(3):
        _, seen, state = gather(windowed(2, 4, 0.5), ctx, state)
        found += [g.task.id for g in seen]
    assert found[:12] == [str(i) for i in range(12)] and len(set(found)) == 16


@pytest.mark.parametrize("window", [0.2, 1.0])
def test_in_one_process_nobody_overtakes(context, small, window):
    """All of an attempt is over at once: the bits of a run in order."""
    ends = []
    for share in (0.0, window):
        fields = {"schedule.lag": 1, "schedule.window": share, "schedule.max_age": 1, "optimiser.lr": 1e-3}
        recipe, ctx, state = small(grpo.build(), **fields), context(seed=3), start(3)
        prepare(recipe, ctx)
        for _ in range(3):
            state, _ = asyncio.run(step(recipe, ctx, state))
        ends.append((weights_sha256(ctx.model("policy")), {k: v for k, v in state.items() if k != "places"}))
    assert ends[0] == ends[1]


def test_a_step_whose_every_episode_failed_pauses(context):
    recipe, ctx, state = windowed(0, 4, 1.0), FakeContext(), start(0)
    ctx.carrier = Dead(4, 1)
    with pytest.raises(Paused, match="every one of 4 episodes failed, 4 by dead"):
        gather(recipe, ctx, state)


class Dead(Clock):
    async def submit(self, recipe, ctx, tickets):
        class Fails(Late):
            groups = property(
                lambda self: [
                    replace(g, episodes=(Episode(status="error:dead"),)) for t, _ in self.parts for g in t.starts
                ]
            )

        parts = (await super().submit(recipe, ctx, tickets)).parts
        return Fails(self, parts)


class InOrder(Clock):
    async def submit(self, recipe, ctx, tickets):
        class Whole(Late):
            async def land(self):
                self.clock.now = max(self.clock.now, *(at for _, at in self.parts))
                return self.groups

        return Whole(self, (await super().submit(recipe, ctx, tickets)).parts)
