"""The weight between two objectives: the catalogue's values, the slope by finite differences, a stop, ranks, and refusals."""

import asyncio
import copy
from dataclasses import dataclass, replace
from typing import Any

import palaestra as pl
import pytest
import torch
from palaestra.errors import UserError
from palaestra.method import Learner
from palaestra.mixing import AdaptiveMixture, Interpolation, MetaWeight, MixtureReadings, look_ahead
from palaestra.objective.algebra import Algebra
from palaestra.objective.policy import Clipped, Imitation
from palaestra.recipes.data import amft
from palaestra.run.driver import prepare
from palaestra.scale.local_ranks import run_ranks
from palaestra.scale.sharded import ShardedModel
from palaestra.step import gather_groups, start, step
from palaestra.store.codec import decode, encode
from palaestra.update import AdamW, Plain, backward, pack

from tests.objective.helpers import column_batch
from tests.shards import model_of
from tests.test_update import Line


class Plane(Line):
    """A model whose two outputs are its two weights."""

    def forward(self, name, needs):
        def run(batch):
            ones = torch.ones_like(batch.mask)
            return {"logp": self.theta[0].to(ones) * ones, "entropy": self.theta[1].to(ones) * ones}

        return run


@dataclass(frozen=True)
class Of(Algebra):
    """(scale x)^power of one output, as a mean over tokens."""

    name: str
    power: int = 1
    scale: float = 1.0
    needs = ("logp", "entropy")

    def __call__(self, out, batch):
        return (((self.scale * out[self.name]) ** self.power) * batch.mask).sum() / batch.n_tokens, {}


IMITATION, REINFORCEMENT = Of("logp"), Of("entropy")  # g_S = (1, 0), g_R = (0, 1)


def utility_slope(ctx, mixture, batches, valid, rate, eps=1e-4):
    """-d L_val(theta'(mu)) / d mu by central differences: theta' is stepped to and measured, nothing else."""
    found, budget = [], 10**6
    weights = ctx.model("policy").trainable()
    kept = [p.detach().clone() for p in weights]
    for mu in (mixture.weight + eps, mixture.weight - eps):
        ctx.backward("policy", replace(mixture, weight=mu), batches[0], budget)
        with torch.no_grad():
            for p in weights:
                if p.grad is not None:
                    p -= rate * p.grad
                p.grad = None
        found.append(float(ctx.backward("policy", valid, batches[1], budget)["loss"]))
        with torch.no_grad():
            for p, before in zip(weights, kept, strict=True):
                p.copy_(before)
                p.grad = None
    return -(found[0] - found[1]) / (2 * eps)


# ---- the catalogue's values


def test_the_look_ahead_of_the_catalogue():
    """grad L_val = (1, 0), g_S = (1, 0), g_R = (0, 1), lr = .1: d L_val / d mu = -.1, so M = +.1 and mu must rise."""
    ctx, batch, mixture = Plane(), column_batch(2, 1), Interpolation(REINFORCEMENT, IMITATION, 0.5)
    batches = (batch, batch)
    assert look_ahead(ctx, "policy", mixture, batches, IMITATION, 0.1, 9) == pytest.approx(0.1, abs=1e-12)
    assert utility_slope(ctx, mixture, batches, IMITATION, 0.1) == pytest.approx(0.1, abs=1e-9)
    # the cosine of (1, 0) and (1, -1)
    assert look_ahead(ctx, "policy", mixture, batches, IMITATION, 0.1, 9, True) == pytest.approx(0.5**0.5)
    # held-out data that gain by what is first: the weight must fall
    assert look_ahead(ctx, "policy", mixture, batches, REINFORCEMENT, 0.1, 9) == pytest.approx(-0.1, abs=1e-12)


@pytest.mark.parametrize("weight", [0.1, 0.3, 0.9])
@pytest.mark.parametrize("rate", [0.01, 0.2])
def test_the_slope_is_taken_after_the_step(weight, rate):
    """Curved losses: the gradient of the held-out one is that at theta', not at theta."""
    ctx, batch = Plane(), column_batch(2, 1)
    mixture, valid = Interpolation(Of("entropy", 2), Of("logp", 2, 0.7), weight), Of("logp", 4, 0.5) + Of("entropy", 2)
    before = ctx.theta.detach().clone()
    found = look_ahead(ctx, "policy", mixture, (batch, batch), valid, rate, 9)
    assert torch.equal(ctx.theta, before) and ctx.theta.grad is None
    assert found == pytest.approx(utility_slope(ctx, mixture, (batch, batch), valid, rate), rel=1e-5)
    assert abs(found) > 1e-3


def test_the_rule_of_the_catalogue():
    """H* = .8 and H = .5 give +1.5e-4; M = .1 gives +1e-5; the result stays within its bounds."""
    rule, said = MetaWeight(), lambda gain, h, target: MixtureReadings(gain=gain, entropy=h, target=target)
    assert rule(0.5, said(0.0, 0.5, 0.8)) - 0.5 == pytest.approx(1.5e-4, abs=1e-12)
    assert rule(0.5, said(0.1, 0.5, 0.5)) - 0.5 == pytest.approx(1e-5, abs=1e-12)
    assert replace(rule, gain_rate=-1e-4)(0.5, said(0.1, 0.5, 0.5)) - 0.5 == pytest.approx(-1e-5, abs=1e-12)
    assert rule(0.95, said(0.0, 0.0, 9.0)) == 0.95 and rule(0.05, said(0.0, 9.0, 0.0)) == 0.05


def test_a_gradient_that_is_not_finite_moves_no_weight():
    ctx, batch = Plane(), column_batch(1)
    bad = Of("logp", -1, 0.0)
    assert look_ahead(ctx, "policy", Interpolation(REINFORCEMENT, bad), (batch, batch), IMITATION, 0.1, 9) == 0.0
    assert ctx.theta.tolist() == [3.0, -1.0]


# ---- the tiny model


def batches_of(ctx, recipe, dtype=torch.float32, seed=0):
    """A step's whole batch, with held-out rows in it."""
    prepare(recipe, ctx)
    ready, _ = asyncio.run(gather_groups(ctx.at(recipe, 0), ctx, start(seed)))
    learner = recipe.learners["policy"]
    examples, _ = learner.credit(ready, ctx.measure(ready, learner.needs), {})
    return pack(examples, "policy", dtype)


def small_recipe(**options):
    found = pl.vary(amft.build(**{"held": 0.4, **options}), schedule=pl.Schedule(prompts=6, steps=4))
    return pl.override(found, "n", 4)


def at_double(ctx):
    ctx.model("policy").module.double()
    return ctx


def test_the_slope_on_the_tiny_model(context):
    """In float64 and at a rate at which the curvature is felt, with passes of a few rows as with one."""
    ctx, recipe = context("chain"), small_recipe()
    batch, learner = batches_of(ctx, recipe, torch.float64), recipe.learners["policy"]
    held, trained = learner.update._parted(batch)
    at_double(ctx)
    mixture, valid = replace(learner.objective, weight=0.4), Imitation()
    found = {
        (rate, budget): look_ahead(ctx, "policy", mixture, (trained, held), valid, rate, budget)
        for rate in (1e-2, 1e-1)
        for budget in (10**6, 200)
    }
    for rate in (1e-2, 1e-1):
        slope = utility_slope(ctx, mixture, (trained, held), valid, rate, 1e-3 / rate)
        assert found[rate, 10**6] == pytest.approx(slope, rel=1e-4) and abs(slope) > 1e-3
        assert found[rate, 200] == pytest.approx(found[rate, 10**6], rel=1e-9)
    # it is the gradient after the step, not at theta
    assert found[1e-1, 10**6] / 10 != pytest.approx(found[1e-2, 10**6], rel=0.03)


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_at_its_ends_it_is_the_plain_update_of_one_objective(context, weight):
    """Bit for bit: the same batch, all of it, and micro-batches of the same rows; a look-ahead on the way changes nothing."""
    recipe = small_recipe(rule=None, weight=weight, warmup=0)
    learner = recipe.learners["policy"]
    alone = replace(learner, objective=(learner.objective.first, learner.objective.second)[int(weight)])
    steered = replace(learner.update, rule=MetaWeight(0.0, 0.0, 0.0, 1.0), every=1, update=Plain(budget=200))
    ends = []
    for update, of in ((Plain(budget=200), alone), (replace(steered, rule=None, every=0), learner), (steered, learner)):
        ctx, state = context("chain"), {}
        batch = batches_of(ctx, recipe)
        _, trained = steered._parted(batch)
        for _ in range(3):
            metrics, state = update(ctx, "policy", of, trained if update is not steered else batch, state)
        assert metrics["skipped"] == 0
        ends.append((metrics, [p.detach().clone() for p in ctx.model("policy").trainable()]))
    for metrics, weights in ends[1:]:
        assert metrics["mix/weight"] == weight and metrics["loss"] == ends[0][0]["loss"]
        assert all(torch.equal(a, b) for a, b in zip(weights, ends[0][1], strict=True))
    assert ends[2][0]["mix/gain"] != 0


def test_held_out_rows_train_nothing(context):
    """A batch of them alone moves neither weights nor clock; the same tasks are held out in every step."""
    ctx, recipe = context("chain"), small_recipe(warmup=0)
    batch, learner = batches_of(ctx, recipe), recipe.learners["policy"]
    held, trained = learner.update._parted(batch)
    assert held.n_rows + trained.n_rows == batch.n_rows and held.totals["is:held"][1] == held.n_rows
    before = [p.detach().clone() for p in ctx.model("policy").trainable()]
    assert learner.update(ctx, "policy", learner, held, {"mu": 0.3}) == ({}, {"mu": 0.3})
    assert all(torch.equal(a, b) for a, b in zip(before, ctx.model("policy").trainable(), strict=True))
    keeps = recipe.collect.keeps
    kept = [keeps(ctx.bench.tasks.task("train", i)) for i in range(400)]
    assert kept == [keeps(ctx.bench.tasks.task("train", i)) for i in range(400)]
    assert 0.3 < sum(kept) / 400 < 0.5


# ---- in a run


def run_steps(context, recipe, n, state=None, ctx=None):
    ctx = ctx or context("chain")
    if state is None:
        prepare(recipe, ctx)
        state = start(0)
    seen = []
    for _ in range(n):
        state, metrics = asyncio.run(step(recipe, ctx, state))
        seen.append(metrics)
    return ctx, state, seen


def test_warm_up_then_a_weight_that_moves(context):
    """Imitation alone for two updates, on whose demonstrations H* is measured; M in every second update after that."""
    recipe = small_recipe(warmup=2, every=2, gain_rate=0.05, entropy_rate=0.1)
    _, state, seen = run_steps(context, recipe, 6)
    assert [m["mix/weight"] for m in seen[:2]] == [1.0, 1.0]
    assert all(m["loss"] == pytest.approx(m["demonstration/nll"]) for m in seen[:2])
    target, mu = sum(state["update"]["policy"]["entropies"]) / 2, 0.5
    for m in seen[2:]:
        assert m["mix/entropy_target"] == target and m["skipped"] == 0
        mu += 0.05 * m.get("mix/gain", 0.0) + 0.1 * (target - m["mix/entropy"])
        assert m["mix/weight"] == pytest.approx(mu, abs=1e-12)
    assert [("mix/gain" in m) for m in seen[2:]] == [False, True, False, True]
    assert state["update"]["policy"]["update"] == {"clock": 6}


def test_other_rules(context):
    """A fixed weight, a schedule of it, the entropy alone; a rule of one's own."""
    fixed = run_steps(context, small_recipe(rule=None, weight=0.8, warmup=1), 3)[2]
    assert [m["mix/weight"] for m in fixed] == [1.0, 0.8, 0.8]
    falls = pl.override(small_recipe(rule=None, warmup=0), "objective.weight", pl.Linear(0.8, 0.2, 2))
    assert [m["mix/weight"] for m in run_steps(context, falls, 3)[2]] == pytest.approx([0.8, 0.5, 0.2])
    entropy = run_steps(context, small_recipe(rule="entropy", entropy_rate=0.1, warmup=1), 3)[2]
    assert not any("mix/gain" in m for m in entropy) and entropy[2]["mix/weight"] != 0.5
    own = pl.vary(small_recipe(), update=AdaptiveMixture(rule=lambda mu, readings: mu / 2, warmup=0))
    assert [m["mix/weight"] for m in run_steps(context, own, 2)[2]] == [0.25, 0.125]


def test_a_stop_changes_no_bit(context):
    """The weight, H* and the count to the next look-ahead are in the state of the run, which a checkpoint holds."""
    recipe = small_recipe(warmup=1, every=2, gain_rate=0.05, entropy_rate=0.1)
    whole, end, told = run_steps(context, recipe, 6)
    half, state, _ = run_steps(context, recipe, 3)
    other = context("chain")
    prepare(recipe, other)
    other.model("policy").module.load_state_dict(copy.deepcopy(half.model("policy").module.state_dict()))
    optimiser = copy.deepcopy(half.optimisers["policy"].state_dict())
    other.optimiser("policy", recipe.learners["policy"]).load_state_dict(optimiser)
    kept = decode(*encode(state))
    _, found, rest = run_steps(context, recipe, 3, kept, other)
    assert rest == told[3:] and found["update"] == end["update"]
    pairs = zip(whole.model("policy").trainable(), other.model("policy").trainable(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


COLUMNS = (("is:demonstration", 0.0, 1.0), ("is:held", 0.0, 0.0), ("policy_entropy", 0.5, 0.25))


def test_every_learner_has_a_weight_of_its_own():
    batch = column_batch(2, 1, **{k: [[a] * 2, [b]] for k, a, b in COLUMNS})
    learner = Learner(credit=None, objective=Interpolation(REINFORCEMENT, IMITATION), optimiser=AdamW(lr=0.1))
    halve, keep = AdaptiveMixture(rule=lambda mu, _: mu / 2, warmup=0), AdaptiveMixture(rule=lambda mu, _: mu, warmup=0)
    states = {"a": {}, "b": {}}
    contexts = {"a": Plane(), "b": Plane()}
    for _ in range(2):
        for name, update in (("a", halve), ("b", keep)):
            _, states[name] = update(contexts[name], name, learner, batch, states[name])
    assert {n: s["mu"] for n, s in states.items()} == {"a": 0.125, "b": 0.5}
    assert not torch.equal(contexts["a"].theta, contexts["b"].theta)


def test_what_is_missing_is_said(context):
    ctx, recipe = context("chain"), small_recipe()
    batch, learner = batches_of(ctx, recipe), recipe.learners["policy"]
    with pytest.raises(UserError, match="not of Clipped"):
        learner.update(ctx, "policy", replace(learner, objective=Clipped()), batch, {})
    for lacking in ("is:held", "is:demonstration", "policy_entropy"):
        columns = {k: v for k, v in batch.columns.items() if k != lacking}
        with pytest.raises(UserError, match=f"no column '{lacking}'"):
            learner.update(ctx, "policy", learner, replace(batch, columns=columns), {})
    with pytest.raises(UserError, match="at most 1"):
        Interpolation(Clipped(), Imitation(), 1.5)


# ---- ranks


class OnRanks(Line):
    """A context whose model is sharded."""

    def __init__(self, sharded):
        self.sharded = sharded

    def model(self, name):
        return self.sharded.model

    def backward(self, name, objective, batch, budget):
        return self.sharded.backward(objective, batch, budget)


def slope_on_ranks(mesh, mixture, batches):
    sharded = ShardedModel(model_of(()), mesh)
    return [look_ahead(OnRanks(sharded), "policy", mixture, batches, Imitation(), 1e-2, 150, c) for c in (False, True)]


@dataclass(frozen=True)
class OneProcess:
    model_: Any

    def model(self, name):
        return self.model_

    def backward(self, name, objective, batch, budget):
        from palaestra.models.forward import forward

        return backward(lambda b: forward(self.model_, b, objective.needs), objective, batch, budget, self.model_.packs)

    phase, moving = Line.phase, Line.moving


def test_two_ranks_find_the_slope_of_one_process(context):
    ctx, recipe = context("chain"), small_recipe()
    batch = batches_of(ctx, recipe, torch.float64)
    held, trained = recipe.learners["policy"].update._parted(batch)
    mixture = replace(recipe.learners["policy"].objective, weight=0.4)
    one = OneProcess(model_of(()))
    whole = [look_ahead(one, "policy", mixture, (trained, held), Imitation(), 1e-2, 150, c) for c in (False, True)]
    for found in run_ranks(2, slope_on_ranks, mixture, (trained, held)):
        assert found == pytest.approx(whole, rel=1e-9) and abs(found[0]) > 1e-6
