"""Infinite Sampling: the same samples and gradient in every order, the exact steps, and the slots."""

import asyncio
import math
from dataclasses import replace

import palaestra as pl
import pytest
import torch
from palaestra.claims.data.infinite_sampling import EXPERIMENT, ORDERS, GroupSampling
from palaestra.engines.own import OwnEngine
from palaestra.models.load import load
from palaestra.recipes.data.infinite_sampling import Lengths, PlannedSample, SlotEngine, build
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


def said(first, n):
    ids = (first, *[0] * (n - 1))
    return Completion(ids=ids, logp=(0.0,) * n, text="", cut=0, finish="eos", version=0)


def test_lengths_are_predicted_from_the_first_token():
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


def collect(ctx, sampler, groups=2):
    """Groups that one sampler plays at a time, as a step does."""

    async def run():
        tasks = [ctx.bench.tasks.task("train", i) for i in range(groups)]
        return await asyncio.gather(*(sampler(ctx, ("k", i), Group(task=t)) for i, t in enumerate(tasks)))

    return [[e.rows[0].context() for e in g.episodes] for g in asyncio.run(run())]


@pytest.mark.parametrize(("slots", "probe"), [(1, 1), (3, 1), (3, 4), (64, 1)])
def test_the_sampler_gives_the_samples_of_the_full_group_through_its_slots(context, slots, probe):
    full = collect(context("chain"), pl.Sample(n=6))
    ctx = context("chain")
    assert collect(ctx, PlannedSample(n=6, slots=slots, probe=probe)) == full
    assert ctx.engine("policy").most_running == min(slots, 12)


def test_the_longest_answer_goes_first():
    """Two slots, answers of a token are begun; predictions are those of earlier answers."""
    asked = []

    class Engine:
        async def generate(self, prompt, sampling, key):
            await asyncio.sleep(0)
            return said(key[0], 1)

        async def go_on(self, prompt, begun, sampling, key):
            asked.append(key[0])
            await asyncio.sleep(0)
            return said(key[0], key[0])

    engine = SlotEngine(Engine(), 2, 1)
    engine.lengths = Lengths().add([said(n, n) for n in (3, 9, 5, 7)])

    async def run():
        await asyncio.gather(*(engine.generate((), Sampling(max_tokens=99), (n,)) for n in (3, 9, 5, 7)))

    asyncio.run(run())
    assert asked == [9, 7, 5, 3] and engine.free == 2 and not engine.waiting


def test_a_slot_is_free_again_after_a_failure_or_a_cancelled_request():
    class Engine:
        async def generate(self, prompt, sampling, key):
            if key == ("fails",):
                raise pl.Fault("engine", "gone")
            await asyncio.sleep(9)

    engine = SlotEngine(Engine(), 1, 1)

    async def run():
        with pytest.raises(pl.Fault):
            await engine.generate((), Sampling(max_tokens=9), ("fails",))
        asked = [asyncio.create_task(engine.generate((), Sampling(max_tokens=9), (i,))) for i in range(2)]
        for _ in range(3):
            await asyncio.sleep(0)
        for each in reversed(asked):
            each.cancel()
        await asyncio.gather(*asked, return_exceptions=True)

    asyncio.run(run())
    assert engine.free == 1 and engine.probing == 0


def test_any_recipe_that_samples_takes_it():
    found = build("rloo", n=12, slots=3).collect.links[0]
    assert (type(found), found.n, found.slots) == (PlannedSample, 12, 3)
    mine, theirs = build("rloo", n=12).learners["policy"], pl.recipe("rloo").learners["policy"]
    assert mine.credit.links == (pl.Fact("waited"), *theirs.credit.links)
    assert replace(mine, credit=theirs.credit) == theirs
    with pytest.raises(pl.UserError, match="sft does not begin with a plain"):
        build("sft")


def test_an_engine_without_slots_is_told_of_once(context):
    class OtherEngine:
        pass

    ctx, told, engine = context("chain"), [], OtherEngine()
    ctx.say, ctx.engine = told.append, lambda name="policy": engine
    sample = PlannedSample(n=4, slots=3)
    for _ in range(2):
        assert sample.players(ctx)["policy"].engine is engine
    assert len(told) == 1 and "slots=3 does nothing: OtherEngine" in told[0]
    del ctx.engine
    sample.players(ctx)
    assert len(told) == 1
