"""Snapshots of the learner: when they are taken, that they are what the learner was, and that a resumed run is bit-identical."""

import asyncio

import palaestra as pl
import pyarrow.parquet as pq
import pytest
import torch
from palaestra.errors import UserError
from palaestra.rollout.tickets import InProcess
from palaestra.run.snapshots import follow_learners
from palaestra.step import start
from palaestra.store import checkpoint

pytest.importorskip("pyspiel")


def recipe(every=2, keep=2, past=1.0):
    made = pl.override(pl.recipe("spiral", past=past, every=every, keep=keep, games=3), "sample.max_tokens", 2)
    return pl.vary(made, optimiser=pl.AdamW(lr=1e-3))


def weights(model):
    return {n: p.detach().clone() for n, p in model.module.named_parameters()}


def equal(a, b):
    return all(torch.equal(a[n], b[n]) for n in a)


def test_the_newest_stay_and_are_what_the_learner_was(context):
    ctx, made, seen = context("kuhn"), recipe(every=2, keep=2), {}
    state = start(0) | {"run": {}}
    for step in range(7):
        state["step"] = step
        with torch.no_grad():
            next(ctx.model("policy").module.parameters()).add_(0.01 * step)
        seen[step] = weights(ctx.model("policy"))
        follow_learners(made, ctx, state)
        newest = step - step % 2
        assert list(ctx.snapshots("past").values()) == [s for s in (newest - 2, newest) if s >= 0]
        for place, of in ctx.snapshots("past").items():
            assert equal(weights(ctx.model(place)), seen[of])
    assert sorted(state["snapshots"]["past"]) == [4, 6] and len(ctx.models) == 3


def test_one_snapshot_has_the_references_name(context):
    ctx, made = context("kuhn"), recipe(every=1, keep=1)
    follow_learners(made, ctx, start(0) | {"run": {}})
    assert list(ctx.snapshots("past")) == ["past"] and "past" in ctx.models


def test_heads_stay_with_the_learner(context):
    """A snapshot acts; what a value head of the learner learns is no part of that."""
    ctx, state = context("kuhn"), start(0) | {"run": {}}
    ctx.model("policy").add_head("value")
    follow_learners(recipe(every=1, keep=1), ctx, state)
    assert not any("value" in n for n in state["snapshots"]["past"][0])
    assert equal(weights(ctx.model("past")), weights(ctx.model("policy")))


def test_who_rolls_out_elsewhere_is_refused(context):
    ctx, elsewhere = context("kuhn"), type("Elsewhere", (), {})
    ctx.carrier = elsewhere()
    with pytest.raises(UserError, match="are of runs in one process"):
        follow_learners(recipe(), ctx, start(0) | {"run": {}})
    ctx.carrier = InProcess()


def episodes(folder, steps):
    columns = ["group", "episode", "reward", "text"]
    found = [pq.read_table(f) for f in sorted((folder / "rollouts").glob("*.parquet"))]
    assert len(found) == steps
    return [t.select([c for c in columns if c in t.schema.names]).to_pylist() for t in found]


def test_a_resumed_run_is_bit_identical(context, tmp_path):
    """Stopped after any step, with snapshots that were taken before and after."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    one = asyncio.run(recipe().run(context("kuhn", out=whole, steps=6)))
    for steps in (3, 4, 6):
        two = asyncio.run(recipe().run(context("kuhn", out=cut, steps=steps, checkpoint_every=1)))
    assert one.metrics["weights_sha256"] == two.metrics["weights_sha256"]
    assert episodes(whole, 6) == episodes(cut, 6)
    found, _ = checkpoint.find_latest(cut)
    kept = found.state()["state"]["snapshots"]["past"]
    assert sorted(kept) == [4, 6] and all(isinstance(t, torch.Tensor) for w in kept.values() for t in w.values())


def test_what_snapshots_say_is_not_trained(context):
    """With a rate that moves only who is trained: the gradient has no row of a snapshot's."""
    ctx = context("kuhn", steps=2)
    asyncio.run(recipe(every=1, keep=2).run(ctx))
    said = [s for g in ctx.seen for e in g.episodes for r in e.rows for s in r.segments if s.logp]
    assert {s.author.partition("@")[0] for s in said} == {"policy", "past"}
    assert all(s.trained == (s.author == "policy") for s in said)


def test_adapters_are_not_shared(context):
    """Adapters that change nothing yet are one module with their base; a snapshot must not be that module."""
    pytest.importorskip("peft")
    ctx = context("kuhn")
    ctx.models["policy"] = ctx.load("tiny", pl.models.LoRA(rank=2))
    state = start(0) | {"run": {}}
    follow_learners(recipe(every=1, keep=1), ctx, state)
    before = weights(ctx.model("past"))
    with torch.no_grad():
        for p in ctx.model("policy").trainable():
            p.add_(1.0)
    assert equal(weights(ctx.model("past")), before)
    assert 0 < len(state["snapshots"]["past"][0]) < len(before)


def averaged(rate=0.25):
    made = pl.recipe("distil", teacher="self", privileged="answer", ema=rate, samples=2)
    made = pl.vary(made, optimiser=pl.AdamW(lr=1e-2), schedule=pl.Schedule(prompts=2))
    return pl.override(made, "sample.max_tokens", 4)


def test_an_average_by_hand(context):
    """A learner that is 0, 1, 2, 3, at rate 1/4: 0, .25, .75 .25 + .25 2 = .6875, .75 .6875 + .25 3 = 1.265625."""
    ctx, made, state = context("chain"), averaged(0.25), start(0) | {"run": {}}
    for step, expected in enumerate((0.0, 0.25, 0.6875, 1.265625)):
        with torch.no_grad():
            for p in ctx.model("policy").module.parameters():
                p.fill_(step)
        state["step"] = step
        for _ in range(2):  # asked again, it does not move again
            follow_learners(made, ctx, state)
            found = weights(ctx.model("teacher"))
            assert all(torch.equal(w, torch.full_like(w, expected)) for w in found.values())
    assert ctx.snapshots("teacher") == {"teacher": 3}


def test_a_small_rate_moves_an_average_of_bfloat16(context):
    """1 + 1/512 is 1 in bfloat16; 8 such steps towards 2 are not, as the average is kept in float32."""
    ctx, made, state = context("chain"), averaged(1 / 512), start(0) | {"run": {}}
    ctx.model("policy").module.bfloat16()
    for step in range(9):
        with torch.no_grad():
            for p in ctx.model("policy").module.parameters():
                p.fill_(1.0 if step == 0 else 2.0)
        state["step"] = step
        follow_learners(made, ctx, state)
    expected = 2 - (511 / 512) ** 8
    (kept, *_) = state["averages"]["teacher"]["weights"].values()
    assert kept.flatten()[0] == pytest.approx(expected, abs=1e-6)
    assert (
        float(next(ctx.model("teacher").module.parameters()).flatten()[0])
        == float(torch.tensor(expected).bfloat16())
        > 1
    )


def test_a_run_with_an_average_resumes_bit_identically(context, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    one = asyncio.run(averaged().run(context("chain", out=whole, steps=3)))
    for steps in (2, 3):
        two = asyncio.run(averaged().run(context("chain", out=cut, steps=steps, checkpoint_every=1)))
    assert one.metrics["weights_sha256"] == two.metrics["weights_sha256"]
    states = [checkpoint.find_latest(f)[0].state()["state"]["averages"]["teacher"]["weights"] for f in (whole, cut)]
    assert equal(*states)


@pytest.mark.parametrize("rate", [-0.1, 1.5])
def test_an_average_whose_rate_is_none(rate):
    with pytest.raises(UserError, match=r"MovingAverage\.rate"):
        pl.rollout.MovingAverage(rate)
