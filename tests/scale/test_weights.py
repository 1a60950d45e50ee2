"""Law `publish_whole`: what arrives of published weights is what was sent, or it is refused before a token is sampled."""

import weakref
import zlib
from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import pytest
import torch
from palaestra.errors import Fault
from palaestra.models.load import load
from palaestra.recipes.base import grpo
from palaestra.rewards.learned import Learned
from palaestra.rollout.collect import Sample, Score, links
from palaestra.rollout.tickets import InProcess, cut
from palaestra.run.driver import prepare
from palaestra.scale import weights
from palaestra.scale.cluster import Cluster
from palaestra.scale.weights import WrongWeights, bits_sum, publish
from palaestra.types import Group

pytest.importorskip("ray")

from palaestra.scale import carrier
from palaestra.scale.carrier import RayCarrier
from palaestra.scale.judges import JudgeCall, JudgeProcess
from palaestra.scale.worker import Worker, WorkerParts
from ray.exceptions import ObjectLostError

from tests.cluster import run
from tests.fake_ray import KNOWN, fake_ray, packed, put
from tests.published import arrays_of, in_buckets_of_one


def test_a_sum_of_bits():
    """CRC-32 of the bytes, low ones first."""
    assert bits_sum(torch.tensor([0x34333231, 0x38373635], dtype=torch.int32)) == zlib.crc32(b"12345678") == 0x9AE0DAAF
    assert bits_sum(torch.tensor([])) == bits_sum(torch.zeros(0, 3)) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_every_bit_of_every_number_counts(dtype):
    bits = torch.zeros(0, dtype=dtype).element_size() * 8
    integer = {16: torch.int16, 32: torch.int32, 64: torch.int64}[bits]
    x = torch.linspace(-3, 3, 7, dtype=torch.float64).to(dtype)
    for i in range(7):
        for b in range(bits):
            other = x.clone()
            other.view(integer)[i] ^= 1 << b if b < bits - 1 else -(1 << b)
            assert bits_sum(other) != bits_sum(x)
    assert bits_sum(x.flip(0)) != bits_sum(x) == bits_sum(x.reshape(7, 1))


@pytest.fixture
def parts(context):
    ctx, recipe = context(seed=3), grpo.build()
    ctx.models["second"] = load("tiny")
    prepare(recipe, ctx)
    return packed(WorkerParts.of(recipe, ctx)), ctx


def ticket_of(worker, step):
    tasks, _ = grpo.build().draw(worker.ctx, (3, "t"), 2, {})
    return cut((3, "t"), [Group(task=t) for t in tasks], 1, step)[0]


def flipped(published, learner="second", bit=3):
    """One bit of one number of the middle tensor is another."""
    arrays = arrays_of(published)
    values = arrays[learner]
    name = sorted(values)[len(values) // 2]
    values[name] = values[name].copy()
    values[name].view(np.int32).reshape(-1)[1] ^= 1 << bit
    return name, replace(published, weights=in_buckets_of_one(arrays))


def held(worker):
    return publish(worker.ctx, ["policy", "second"], 0).sums


@pytest.mark.parametrize("bit", [0, 31 - 8, 30])
def test_a_flipped_bit_is_refused_by_name_and_nothing_is_loaded(parts, bit):
    worker = Worker(parts[0])
    first = publish(parts[1], ["policy", "second"], 5)
    worker.collect(ticket_of(worker, 5), 5, first)
    with torch.no_grad():
        for p in parts[1].model("second").trainable():
            p.add_(0.1)
    name, torn = flipped(publish(parts[1], ["policy", "second"], 6), bit=bit)
    with pytest.raises(
        WrongWeights, match=rf"^weights: second, published at step 6: {name} of \d+ tensors have other bits"
    ):
        worker.collect(ticket_of(worker, 6), 6, torn)
    assert worker.version == 5 and held(worker) == first.sums and worker.ctx.sampled_tokens > 0


def test_a_publication_of_another_step_or_half_of_one_is_refused(parts):
    worker = Worker(parts[0])
    whole = publish(parts[1], ["policy", "second"], 5)
    with pytest.raises(WrongWeights, match="weights of step 5 came as those of step 6"):
        worker.collect(ticket_of(worker, 6), 6, whole)
    with pytest.raises(WrongWeights, match="the publication of step 5 lacks learner second"):
        worker.collect(ticket_of(worker, 5), 5, replace(whole, weights={"policy": whole.weights["policy"]}))
    arrays = arrays_of(whole)
    arrays["second"] = {n: v if v.ndim < 2 else np.concatenate([v[:1], 0 * v[1:]]) for n, v in arrays["second"].items()}
    with pytest.raises(WrongWeights, match=r"second, published at step 5: .* and \d+ more of \d+ tensors"):
        worker.collect(ticket_of(worker, 5), 5, replace(whole, weights=in_buckets_of_one(arrays)))
    assert worker.version is None and worker.ctx.sampled_tokens == 0


def forgetful(monkeypatch, times):
    """Loading leaves out the last tensor, so many times."""
    set_weights, left = weights.set_weights, [times]

    def leaves_out(model, buckets):
        *others, last = buckets
        values = last()
        if left[0] > 0:
            left[0] -= 1
            name = list(values)[-1]
            old = model.named_trainable()[name].detach().clone().numpy()
            values = {**values, name: old}
        set_weights(model, [*others, lambda: values])

    monkeypatch.setattr(weights, "set_weights", leaves_out)
    return left


def test_a_load_that_left_something_out_is_made_again_or_named(parts, monkeypatch):
    worker = Worker(parts[0])
    with torch.no_grad():
        for p in parts[1].model("policy").trainable():
            p.add_(0.1)
    new = publish(parts[1], ["policy", "second"], 5)
    last = list(new.weights["policy"][-1]())[-1]
    forgetful(monkeypatch, 2)
    with pytest.raises(
        WrongWeights, match=rf"^weights: policy, loaded for step 5: {last} of \d+ tensors have other bits"
    ):
        worker.collect(ticket_of(worker, 5), 5, new)
    assert worker.version is None and worker.ctx.sampled_tokens == 0
    left = forgetful(monkeypatch, 1)
    worker.collect(ticket_of(worker, 5), 5, new)
    assert worker.version == 5 and left == [0] and held(worker) == new.sums


def test_a_process_that_starts_with_other_weights_does_not_start(parts):
    """Also of what is frozen, which no publication brings."""
    frozen = parts[1].model("second").module.requires_grad_(False)
    given = WorkerParts.of(grpo.build(), parts[1])
    name, p = next(iter(frozen.named_parameters()))
    p.data.view(torch.int32)[0] ^= 1
    with pytest.raises(WrongWeights, match=rf"second, at the start: {name} of"):
        Worker(given)


def test_a_judge_refuses_what_a_worker_refuses(context, monkeypatch):
    ctx, recipe = context(seed=3), replace(grpo.build(), collect=links(Sample(2), Score(reward=Learned())))
    ctx.models["reward"] = load("tiny")
    ctx.models["reward"].add_head("score")
    prepare(recipe, ctx)
    judge, good = JudgeProcess(WorkerParts.of(recipe, ctx)), publish(ctx, ["policy"], 4)
    call = JudgeCall(reward=put(Learned()), groups=(), bench=None, step=4, version=4)
    with fake_ray(monkeypatch), pytest.raises(WrongWeights, match="policy, published at step 4"):
        judge.judge(call, flipped(good, "policy")[1])
    assert judge.version is None


# ---- buckets


class Counted:
    """A bucket whose arrays are copies, as they come over a network; it counts bytes of those that are alive, of all
    such buckets, and after `lasts` times does not come any more."""

    alive, peak = [], 0

    def __init__(self, arrays, lasts=99):
        self.arrays, self.lasts = arrays, lasts

    def __call__(self):
        self.lasts -= 1
        if self.lasts < 0:
            raise WrongWeights("some of the published weights did not come")
        arrays = {n: v.copy() for n, v in self.arrays.items()}
        Counted.alive = [x for x in Counted.alive if x() is not None] + [weakref.ref(v) for v in arrays.values()]
        Counted.peak = max(Counted.peak, sum(v.nbytes for x in Counted.alive if (v := x()) is not None))
        return arrays


def test_no_more_than_a_bucket_is_held_beside_a_model(parts):
    """By who publishes, who checks and who loads; a tensor that is larger than a bucket is one."""
    worker, kept = Worker(parts[0]), []
    _ = move(parts[1].model("policy"), 0.1), move(parts[1].model("second"), 0.2)
    sizes = [p.nbytes for p in parts[1].model("policy").trainable()]

    def keep(arrays):
        kept.append([weakref.ref(v) for v in arrays.values()])
        assert not [x for older in kept[:-2] for x in older if x() is not None]
        assert sum(v.nbytes for v in arrays.values()) <= 100_000 or len(arrays) == 1
        return Counted({n: v.copy() for n, v in arrays.items()})

    new = publish(parts[1], ["policy", "second"], 5, keep, 100_000)
    assert max(sizes) > 100_000 and 10 < len(new.weights["policy"]) < len(sizes)
    Counted.peak = 0
    worker.collect(ticket_of(worker, 5), 5, new)
    assert (
        held(worker) == new.sums == held_by(parts[1]) and max(sizes) <= Counted.peak <= 2 * max(sizes) < sum(sizes) / 4
    )


def held_by(ctx):
    return {n: weights.sums_of(ctx.model(n).named_trainable()) for n in ("policy", "second")}


@torch.no_grad()
def move(model, by):
    for p in model.trainable():
        p.add_(by)


@pytest.mark.parametrize("lasts", [0, 1])
def test_a_bucket_that_does_not_come_leaves_the_old_version_or_none(parts, lasts):
    """Until all have come nothing is loaded; one that is lost afterwards leaves a model by which nothing is sampled."""
    worker = Worker(parts[0])
    first = publish(parts[1], ["policy", "second"], 5)
    worker.collect(ticket_of(worker, 5), 5, first)
    move(parts[1].model("second"), 0.1)
    keep = lambda arrays: Counted(arrays, lasts if "model.norm.weight" in arrays else 99)
    new, before = publish(parts[1], ["policy", "second"], 6, keep, 1), worker.ctx.sampled_tokens
    with pytest.raises(WrongWeights, match="some of the published weights did not come"):
        worker.collect(ticket_of(worker, 6), 6, new)
    assert worker.version == (5 if lasts == 0 else None) and worker.ctx.sampled_tokens == before
    if lasts == 0:
        assert held(worker) == first.sums
    else:
        with pytest.raises(Fault, match="a ticket of step 6 came to weights of step None"):
            worker.collect(ticket_of(worker, 6), 6, None)


# ---- whole runs, on threads that stand for processes


def opened(**fields):
    return lambda recipe, ctx: RayCarrier(Cluster(**fields), recipe, ctx)


def test_a_worker_with_wrong_weights_is_replaced(context, small, monkeypatch, capsys):
    """Which of its tickets have been answered before does not matter: the bits of one process."""
    recipe = small(grpo.build(), **{"schedule.prompts": 4, "schedule.lag": 1, "optimiser.lr": 1e-3})
    ctx = context(seed=3)
    ctx.talk = True
    here = run(recipe, context(seed=3), lambda r, c: InProcess(2), 4)
    with fake_ray(monkeypatch):
        # a first load is of the weights that are there already, so what is left out of it is not missed
        on = lambda n, ctx: n == 2 and forgetful(monkeypatch, 2)
        there = run(recipe, ctx, opened(workers=1, waves=2), 4, on)
    assert here == there
    said = capsys.readouterr().err
    assert "had wrong weights: policy, loaded for step" in said and "it is replaced" in said


def test_a_bucket_that_the_store_lost_ends_the_run_with_its_error(context, small, monkeypatch):
    """Each of its objects is a bucket, and none of them holds all."""
    recipe, stored = small(grpo.build(), **{"schedule.prompts": 4}), []

    def keep(arrays):
        stored.append(carrier.StoredBucket.of(arrays))
        return stored[-1]

    def lose(ctx, learners, step, _):
        publication = publish(ctx, learners, step, keep, 200_000)
        lost = KNOWN[id(stored[len(stored) // 2].reference)]
        lost.found = Future()
        lost.bring(error=ObjectLostError("0" * 56, None, ""))
        return publication

    monkeypatch.setattr(carrier, "publish", lose)
    told = r"2 workers were lost under ticket .*; had wrong weights: some of the published weights did not come \(ObjectLost"
    with fake_ray(monkeypatch), pytest.raises(Fault, match=told):
        run(recipe, context(seed=3), opened(workers=2), 2)
    assert len(stored) > 5


def test_weights_that_are_torn_for_everybody_end_the_run(context, small, monkeypatch):
    recipe = small(grpo.build(), **{"schedule.prompts": 4})
    torn = lambda ctx, learners, step, keep: flipped(publish(ctx, learners, step), "policy")[1]
    monkeypatch.setattr(carrier, "publish", torn)
    told = r"2 workers were lost under ticket .*; had wrong weights: policy, published at step 0: .* have other bits"
    with fake_ray(monkeypatch), pytest.raises(Fault, match=told):
        run(recipe, context(seed=3), opened(workers=2), 2)
