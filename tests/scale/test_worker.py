"""What a rollout process does with weights, without Ray around it."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from palaestra.errors import Fault
from palaestra.models.load import load
from palaestra.recipes.base import grpo
from palaestra.rollout.collect import Sample, links
from palaestra.rollout.tickets import cut
from palaestra.run.driver import prepare
from palaestra.scale.weights import publish
from palaestra.scale.worker import Worker, WorkerParts
from palaestra.types import Group

from tests.published import arrays_of, published


class Stopping:
    """A collect stage that lets go after some tokens of a wave, has newer weights sent from another thread, as Ray
    does, and goes on.
    """

    def __init__(self, worker, version, weights, after):
        self.worker, self.version, self.weights, self.after = worker, version, weights, after

    async def __call__(self, ctx, key, group):
        engine = ctx.engine()
        take = engine._take

        def counted(*given):
            take(*given)
            if engine.sampled_tokens >= self.after and self.weights is not None:
                weights, self.weights = self.weights, None
                sender = threading.Thread(
                    target=self.worker.renew, args=(self.version, published(self.version, weights))
                )
                sender.start()
                sender.join()

        engine._take = counted
        return await links(Sample(2))(ctx, key, group)


@pytest.fixture
def worker(context):
    ctx = context(seed=3)
    recipe = grpo.build()
    prepare(recipe, ctx)
    return Worker(WorkerParts.of(recipe, ctx))


def weights_of(ctx, learners):
    return arrays_of(publish(ctx, learners, 0))


def moved(weights, by):
    return {n: {k: v + by if v.dtype == np.float32 else v for k, v in of.items()} for n, of in weights.items()}


def ticket_of(worker, **given):
    tasks, _ = grpo.build().draw(worker.ctx, (3, "t"), 4, {})
    return replace(cut((3, "t"), [Group(task=t) for t in tasks], 1, 5)[0], **given)


def segments(brought):
    return [s for g in brought.groups for e in g.episodes for r in e.rows for s in r.segments if s.trained]


def test_newer_weights_come_between_two_tokens(worker):
    """Tokens before are of the ticket's weights and those after of the newer ones, in version and in log-prob."""
    old = weights_of(worker.ctx, ["policy"])
    new, ticket = moved(old, 0.02), ticket_of(worker, renew=True)
    worker.recipe = replace(worker.recipe, collect=links(Sample(2)))
    plain = worker.collect(ticket, 5, published(5, old))
    worker.recipe = replace(worker.recipe, collect=Stopping(worker, 6, new, after=worker.ctx.sampled_tokens + 20))
    brought = worker.collect(ticket, 5, published(5, old))
    assert worker.version == 6 and torch.equal(
        next(iter(worker.ctx.model("policy").named_trainable().values())),
        torch.from_numpy(next(iter(new["policy"].values()))),
    )
    found = segments(brought)
    assert any(s.version == 5 and [v for _, v in s.moved] == [6] for s in found)
    for before, s in zip(segments(plain), found, strict=True):
        n = s.moved[0][0] if s.moved else len(s.ids)
        assert s.ids[:n] == before.ids[:n] and s.logp[:n] == before.logp[:n]
        assert n == len(s.ids) or s.logp[n] != (before.logp[n] if n < len(before.ids) else None)


def test_older_weights_that_come_late_change_nothing(worker):
    weights = weights_of(worker.ctx, ["policy"])
    worker.collect(ticket_of(worker, renew=True), 6, published(6, weights))
    worker.renew(5, published(5, moved(weights, 0.5)))
    brought = worker.collect(ticket_of(worker, renew=True), 6, published(6, moved(weights, 0.5)))
    assert worker.version == 6 and {s.versions for s in segments(brought)} == {
        ((len(s.ids), 6),) for s in segments(brought)
    }


def test_weights_that_do_not_fit_end_the_ticket(worker):
    weights = weights_of(worker.ctx, ["policy"])
    worker.collect(ticket_of(worker, renew=True), 5, published(5, weights))
    worker.renew(6, published(6, {"policy": {"other": np.zeros(3)}}))
    with pytest.raises(Fault, match="published weights and the model differ in"):
        worker.collect(ticket_of(worker, renew=True), 6, None)


def test_a_ticket_of_a_step_never_meets_other_weights(worker):
    """Unless it is one that takes newer ones."""
    worker.collect(ticket_of(worker), 5, published(5, weights_of(worker.ctx, ["policy"])))
    with pytest.raises(Fault, match="a ticket of step 6 came to weights of step 5"):
        worker.collect(ticket_of(worker), 6, None)


@pytest.mark.parametrize("wrong", ["name", "shape"])
def test_publish_whole(context, wrong):
    """Of a publication that does not fit in its second learner nothing is loaded; who missed one takes the next."""
    ctx, recipe = context(seed=3), grpo.build()
    ctx.models["second"] = load("tiny")
    prepare(recipe, ctx)
    worker = Worker(WorkerParts.of(recipe, ctx))
    first = weights_of(worker.ctx, ["policy", "second"])
    worker.collect(ticket_of(worker), 5, published(5, first))
    broken = moved(first, 0.5)
    name, value = next(iter(broken["second"].items()))
    broken["second"] |= {"other": value} if wrong == "name" else {name: value[:1]}
    with pytest.raises(Fault, match="published weights and the model differ in"):
        worker.collect(ticket_of(worker, step=6), 6, published(6, broken))
    assert worker.version == 5 and same(weights_of(worker.ctx, first), first)
    whole = moved(first, 0.25)
    worker.collect(ticket_of(worker, step=7), 7, published(7, whole))
    assert worker.version == 7 and same(weights_of(worker.ctx, first), whole)


def same(one, other):
    return all(np.array_equal(v, other[n][k]) for n, of in one.items() for k, v in of.items())


def test_drafts_of_a_worker_change_nothing_and_are_counted(context):
    found = []
    for engine in ("own", "own(drafts='all')"):
        ctx, recipe = context(seed=3), grpo.build()
        ctx.engine_name = engine
        prepare(recipe, ctx)
        worker = Worker(WorkerParts.of(recipe, ctx))
        weights = weights_of(worker.ctx, ["policy"])
        for step in (5, 6):  # the second time the tasks were visited before
            found.append(worker.collect(ticket_of(worker), step, published(step, weights)))
    plain, drafted = found[:2], found[2:]
    for a, b in zip(plain, drafted, strict=True):
        assert [(s.ids, s.logp) for s in segments(a)] == [(s.ids, s.logp) for s in segments(b)]
        assert a.counts.drafts.passes == 0 and b.counts.drafts.passes > 0
    assert drafted[1].counts.drafts.accepted > 0
