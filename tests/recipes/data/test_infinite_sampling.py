"""Infinite Sampling: the same samples and gradient in every order, the exact steps, and the slots."""

import asyncio
import math

import palaestra as pl
import pytest
import torch
from palaestra.claims.data.infinite_sampling import EXPERIMENT
from palaestra.engines.own import OwnEngine
from palaestra.models.load import load
from palaestra.recipes.data.infinite_sampling import ORDERS, GroupSampling, Lengths
from palaestra.step import start
from palaestra.types import Completion, Episode, Group, Reward, Row, Sampling, Segment
from palaestra.update import backward, pack

from tests.fake import task

SMALL = {"n": 6, "slots": 2, "batches": 2, "prompts": 2}


@pytest.fixture(scope="module")
def model():
    return load("tiny")


def sample(ctx, order, known=None):
    program = GroupSampling(order, **SMALL)
    engine = OwnEngine(ctx.model("policy"), slots=12 if order == "full" else 2)
    return asyncio.run(program.sample(ctx, engine, 0, known or Lengths())), engine


def test_every_order_gives_the_same_samples_in_the_same_places(context):
    ctx = context("chain")
    full, _ = sample(ctx, "full")
    known = Lengths().add(full)
    for order in ORDERS:
        found, engine = sample(ctx, order, known=known)
        assert [c.ids for c in found] == [c.ids for c in full], order
        assert [c.text for c in found] == [c.text for c in full] and [c.finish for c in found] == [
            c.finish for c in full
        ]
        for a, b in zip(found, full, strict=True):
            assert a.logp == pytest.approx(b.logp, abs=1e-5)
        assert engine.most_running == (12 if order == "full" else 2)
    assert len({c.ids for c in full}) > 4


def test_steps_are_those_of_the_exact_schedules(context):
    """The first token of an answer comes with its prompt."""
    ctx = context("chain")
    found, engine = sample(ctx, "rounds")
    lengths = [len(c.ids) - 1 for c in found]
    assert engine.decode_steps == sum(pl.planning.rounds_steps(lengths[i : i + 6], 2) for i in (0, 6))
    _, engine = sample(ctx, "fifo")
    assert engine.decode_steps == pl.planning.refill_steps(lengths, 2)
    _, engine = sample(ctx, "told")
    assert engine.decode_steps == pl.planning.refill_steps(
        lengths, 2, pl.planning.longest_first([len(c.ids) for c in found])
    )
    _, engine = sample(ctx, "full")
    assert engine.decode_steps == max(lengths)


def gradient(ctx, completions, budget):
    """Of a GRPO step on one group of these answers, in forward passes of so many tokens."""
    prompt = tuple(int(i) for i in range(5, 15))
    said = [Segment(ids=c.ids, trained=True, policy="policy", logp=c.logp, version=0) for c in completions]
    rows = [Row(segments=(Segment(ids=prompt), s)) for s in said]
    paid = [Episode(rows=(r,), reward=Reward(total=float(i % 3 == 0)), status="finished") for i, r in enumerate(rows)]
    learner = pl.recipe("grpo").learners["policy"]
    found, _ = learner.credit([Group(task=task("t", (0,), ()), episodes=tuple(paid))], [[[{}]] * len(paid)], {})
    ctx.model("policy").module.zero_grad()
    backward(ctx.forward("policy", learner.objective.needs), learner.objective, pack(found, "policy"), budget)
    named = ctx.model("policy").module.named_parameters()
    return torch.cat([p.grad.flatten() for _, p in named if p.grad is not None])


def test_the_gradient_of_micro_groups_is_that_of_the_full_group(context):
    ctx = context("chain")
    full, rounds = sample(ctx, "full")[0], sample(ctx, "rounds")[0]
    whole = gradient(ctx, full, 10**6)
    assert whole.abs().max() > 1e-4
    assert (gradient(ctx, rounds, 64) - whole).abs().max() < 1e-5


def test_memory_is_that_of_the_slots(context):
    ctx = context("chain")
    _, few = sample(ctx, "fifo")
    _, many = sample(ctx, "full")
    assert many.cache_bytes == 6 * few.cache_bytes > 0
    fresh = OwnEngine(ctx.model("policy"))
    assert fresh.cache_bytes == fresh.decode_steps == fresh.most_running == 0


def test_lengths_are_predicted_from_the_first_token():
    said = lambda first, n: Completion(ids=(first, *[0] * (n - 1)), logp=(0.0,) * n, text="", cut=0, finish="eos",
                                       version=0)  # fmt: skip
    assert Lengths().predict(7) == 0.0
    known = Lengths().add([said(7, 4), said(7, 6), said(8, 20)])
    assert known.predict(7) == 5.0 and known.predict(8) == 20.0 and known.predict(9) == 10.0


def test_predictions_order_the_rest_and_mixed_up_ones_another_way(context, monkeypatch):
    """A predictor that knows the lengths gives the plan; nothing about content."""
    ctx = context("chain")
    full, _ = sample(ctx, "full")
    steps = {}
    for order in ("predicted", "shuffled", "fifo"):
        by_first = Lengths().add(full)
        steps[order] = sample(ctx, order, known=by_first)[1].decode_steps
    assert steps["predicted"] <= steps["fifo"] and len(set(steps.values())) > 1


@pytest.mark.parametrize("begun", [1, 3, 40])
def test_a_sample_that_is_gone_on_with_is_the_same(model, begun):
    engine, prompt, key = OwnEngine(model, slots=4), tuple(range(60, 90)), ("go on", begun)
    sampling = Sampling(max_tokens=40)

    async def both():
        whole = await engine.generate(prompt, sampling, key)
        first = await engine.generate(prompt, Sampling(max_tokens=begun), key)
        before = engine.sampled_tokens
        rest = await engine.go_on(prompt, first, sampling, key)
        return whole, first, rest, engine.sampled_tokens - before

    whole, first, rest, more = asyncio.run(both())
    assert (rest.ids, rest.text, rest.finish, rest.cut) == (whole.ids, whole.text, whole.finish, whole.cut)
    assert rest.logp == pytest.approx(whole.logp, abs=1e-5)
    assert more == len(whole.ids) - len(first.ids)
    assert begun < 40 or rest is first


def test_weights_that_moved_between_are_told(model):
    engine, prompt = OwnEngine(model, slots=4), tuple(range(60, 90))

    async def run():
        engine.version = 3
        first = await engine.generate(prompt, Sampling(max_tokens=2), ("moved",))
        engine.version = 4
        return first, await engine.go_on(prompt, first, Sampling(max_tokens=6), ("moved",))

    first, rest = asyncio.run(run())
    assert first.finish == "length" and rest.version == 3 and rest.moved == ((2, 4),)
    with pytest.raises(pl.UserError, match="stop strings"):
        asyncio.run(engine.go_on(prompt, first, Sampling(max_tokens=6, stop=("x",)), ("moved",)))


def test_the_program_counts(context):
    ctx = context("chain")
    found = {o: asyncio.run(GroupSampling(o, **SMALL).run(ctx)).metrics for o in ("full", "rounds", "predicted")}
    assert len({m["samples"] for m in found.values()}) == 1 and len({m["sampled_tokens"] for m in found.values()}) == 1
    assert found["rounds"]["steps_saved"] == 0.0 and found["rounds"]["steps"] == found["rounds"]["rounds"]
    assert found["predicted"]["steps_saved"] > 0 and found["predicted"]["peak_slots"] == 2
    assert all(math.isfinite(m["cache_mb"]) for m in found.values()) and start(0)["step"] == 0


def test_the_claim():
    arms = EXPERIMENT.every_arm
    assert not EXPERIMENT.lacks() and set(arms) == {"start", "rounds", "fifo", "predicted", "told", "shuffled"}
    assert all(arm.slots == 8 and arm.n == 32 for arm in arms.values())
