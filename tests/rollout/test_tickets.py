"""Tickets: how an attempt is cut, what comes back, under which keys."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palaestra.attempts import Flight, Ticket
from palaestra.errors import Fault, Paused
from palaestra.recipes.base import grpo
from palaestra.rollout.queue import land
from palaestra.rollout.tickets import InProcess, cut, with_keys
from palaestra.run.driver import prepare
from palaestra.step import gather_groups, start, step
from palaestra.store.codec import decode, encode
from palaestra.types import Episode, Group, Row, Task


def groups(n):
    return [Group(task=Task(id=str(i))) for i in range(n)]


@given(st.integers(0, 40), st.integers(1, 50))
def test_an_attempt_is_cut_into_tickets_of_equal_size(n, waves):
    """In order, none empty unless all is, sizes that differ by one at most, places that go on."""
    found, all_groups = cut((3, "a"), groups(n), waves, 7), groups(n)
    assert [g for t in found for g in t.starts] == all_groups
    assert len(found) == max(1, min(n, waves)) and {(t.key, t.step) for t in found} == {((3, "a"), 7)}
    sizes = [len(t.starts) for t in found]
    assert max(sizes) - min(sizes) <= 1 and [t.first for t in found] == [sum(sizes[:i]) for i in range(len(sizes))]
    assert len({t.name for t in found}) == len(found)


def test_rows_have_keys_of_their_own_and_keep_those_they_have():
    old, new = Row(seat="a", key=(9, "old")), Row(seat="b")
    group = Group(task=Task(id="t"), episodes=(Episode(rows=(old, new)), Episode(rows=(new,))))
    keyed = with_keys(group, (3, "k", 5))
    assert [r.key for e in keyed.episodes for r in e.rows] == [(9, "old"), (3, "k", 5, 0, 1), (3, "k", 5, 1, 0)]


@pytest.mark.parametrize("waves", [1, 2, 3])
def test_waves_change_nothing_of_single_turns(context, small, waves):
    """Groups, with their keys and log-probs, and the state of the draw."""
    recipe, found = small(grpo.build(), **{"schedule.prompts": 4}), []
    for carrier in (InProcess(), InProcess(waves)):
        ctx, state = context(), start(0)
        prepare(recipe, ctx)
        ctx.carrier = carrier
        ready, _ = asyncio.run(gather_groups(ctx.at(recipe, 0), ctx, state))
        found.append((ready, state["draw"]))
    assert found[0] == found[1]
    keys = [r.key for g in found[0][0] for e in g.episodes for r in e.rows]
    assert len(set(keys)) == len(keys) == 16


class Elsewhere(Flight):
    """An attempt whose groups come, or fail, when it is awaited."""

    def __init__(self, tickets, groups):
        self.waiting, self.here, self.landings = tickets, groups, 0

    @property
    def tickets(self):
        return self.waiting

    @property
    def over(self):
        return self.landings > 0

    @property
    def groups(self):
        if isinstance(self.here, Exception):
            raise self.here
        return self.here

    @property
    def sampled_tokens(self):
        return 100

    async def land(self):
        self.landings += 1
        return self.groups


class Far(InProcess):
    """Collects in this process, and gives flights; `fails` are the attempts whose episodes all fail."""

    def __init__(self, waves=1, fails=()):
        super().__init__(waves)
        object.__setattr__(self, "fails", list(fails))
        object.__setattr__(self, "asked", [])

    async def submit(self, recipe, ctx, tickets):
        self.asked.append(tickets)
        if len(self.asked) - 1 in self.fails:
            dead = [Group(task=g.task, episodes=(Episode(status="error:dead"),)) for t in tickets for g in t.starts]
            return Elsewhere(tickets, dead)
        return Elsewhere(tickets, await super().submit(recipe, ctx, tickets))


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_where_rollouts_happen_cannot_be_seen(context, small, lag):
    """Weights and what a state holds after three steps, all of them but what is under way."""
    recipe, ends = small(grpo.build(), **{"schedule.lag": lag, "optimiser.lr": 0.001}), []
    for carrier in (InProcess(), Far()):
        ctx, state = context(), start(0)
        prepare(recipe, ctx)
        ctx.carrier = carrier
        for _ in range(3):
            state, _ = asyncio.run(step(recipe, ctx, state))
        weights = {n: p.detach().clone() for n, p in ctx.model("policy").named_trainable().items()}
        queue = [q if isinstance(q, list) else q.groups for q in state["queue"]]
        ends.append((weights, {**state, "queue": queue}))
    (a, b), (c, d) = ends
    assert b == d and all(a[n].equal(c[n]) for n in a) and len(b["queue"]) == lag


def test_an_attempt_that_failed_is_handed_out_anew(context, small):
    """Its tickets lie in the queue of a paused run: the same tasks and keys, by the weights of then."""
    recipe, ctx, state = small(grpo.build()), context(), start(0)
    prepare(recipe, ctx)
    ctx.carrier = Far(fails=[0])
    with pytest.raises(Paused, match="2 episodes failed, 2 by dead"):
        asyncio.run(step(recipe, ctx, state))
    tickets = ctx.carrier.asked[0]
    kept = encode({"queue": [tickets]})
    state = start(0) | decode(*kept) | {"step": 5}
    assert state["queue"] == [tickets] and isinstance(tickets[0], Ticket)
    found = asyncio.run(land(ctx.at(recipe, 5), ctx, state))
    assert ctx.carrier.asked[1] == tuple(replace(t, step=5) for t in tickets)
    assert [g.task for g in found] == [g.task for t in tickets for g in t.starts]
    versions = {s.version for g in found for e in g.episodes for r in e.rows for s in r.segments if s.trained}
    assert versions == {5} and state["queue"] == []


def test_what_a_flight_raises_ends_the_step(context, small):
    recipe, ctx = small(grpo.build()), context()
    prepare(recipe, ctx)

    class Broken(InProcess):
        async def submit(self, recipe, ctx, tickets):
            return Elsewhere(tickets, Fault("worker", "lost"))

    ctx.carrier = Broken()
    with pytest.raises(Fault, match="worker: lost"):
        asyncio.run(step(recipe, ctx, start(0)))
