"""Private steps: neighbouring data, the audited noise, the budget, and what is refused."""

import asyncio
import math
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.errors import UserError
from palaestra.models.lora import LoRA
from palaestra.privacy.accounting import composed_epsilon, noise_for, spent_epsilon
from palaestra.privacy.optimiser import NoiseCorrectedAdamW
from palaestra.privacy.update import add_noise, clipped_sum
from palaestra.run.driver import prepare
from palaestra.scale.cluster import Cluster
from palaestra.scale.refusals import refuse
from palaestra.step import start, step
from palaestra.types import rng_of
from palaestra.update import pack
from scipy import stats

LINES = 8
RECIPE = pl.recipe("dp-alignment")


def recipe(**fields):
    """On the built-in pairs, at a size for tests."""
    small = pl.vary(
        RECIPE,
        draw=pl.privacy.Poisson(LINES),
        update=replace(RECIPE.learners["policy"].update, lines=LINES, steps=4),
        schedule=pl.Schedule(prompts=2, steps=4),
    )
    for path, value in fields.items():
        small = pl.override(small, path.replace("__", "."), value)
    return small


# ---- the optimiser


@pytest.mark.parametrize(("variance", "expected"), [(1.0, 0.985584), (0.0, 0.989000)])
def test_one_step_by_hand(variance, expected):
    p = torch.nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    optimiser = NoiseCorrectedAdamW([p], (0.9, 0.999), 1e-8, 0.1)
    optimiser.param_groups[0].update(lr=0.01, noise_variance=variance)
    p.grad = torch.tensor([1.5], dtype=torch.float64)
    optimiser.step()
    assert p.item() == pytest.approx(expected, abs=1e-6)


def test_without_noise_it_is_adamw():
    """With eps out of the way; the reference is torch's."""
    torch.manual_seed(0)
    ours, theirs = (torch.nn.Parameter(torch.arange(1.0, 5.0)) for _ in range(2))
    mine = NoiseCorrectedAdamW([ours], (0.9, 0.99), 1e-16, 0.1)
    mine.param_groups[0]["lr"] = 0.05
    other = torch.optim.AdamW([theirs], lr=0.05, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)
    for _ in range(5):
        grad = torch.randn(4)
        ours.grad, theirs.grad = grad.clone(), grad.clone()
        mine.step()
        other.step()
    assert torch.allclose(ours, theirs, atol=1e-5)


# ---- neighbouring data


@pytest.fixture
def run(context):
    """The context, the learner, and rows of all lines as the credit makes them."""
    small = recipe()
    ctx = context("preferences")
    prepare(small, ctx)
    learner = small.learners["policy"]
    tasks = [
        replace(t, meta={**t.meta, "inclusion": 0.25}) for i in range(5) for t in [ctx.bench.tasks.task("train", i)]
    ]
    groups = [asyncio.run(small.collect(ctx, (0, "x", i), pl.Group(task=t))) for i, t in enumerate(tasks)]
    signals = ctx.measure(groups, learner.needs)
    rows = lambda keep: pack(learner.credit([groups[i] for i in keep], [signals[i] for i in keep], {})[0], "policy")
    return ctx, learner, rows


def norm(sums):
    return math.sqrt(sum(float(s.double().square().sum()) for s in sums))


@pytest.mark.parametrize("clip", [0.1, 1.0])
def test_a_line_more_or_less_moves_the_sum_by_at_most_the_clip(clip, run):
    ctx, learner, rows = run
    whole, logged = clipped_sum(ctx, "policy", learner, rows(range(5)), clip)
    assert logged["clipped"] > 0 and logged["unit_norm"] > clip
    moves = []
    for without in range(5):
        less, _ = clipped_sum(ctx, "policy", learner, rows([i for i in range(5) if i != without]), clip)
        moves.append(norm([a - b for a, b in zip(whole, less, strict=True)]))
    assert max(moves) <= clip * (1 + 1e-4)
    assert max(moves) == pytest.approx(clip, rel=1e-3)  # reached: the pair is the unit, not each answer


@pytest.mark.parametrize("packs", [True, False])
def test_the_clip_holds_in_small_passes_packed_or_padded(packs, run, monkeypatch):
    """A pass that holds one pair at most, and one that holds all: the same sums, and no line beyond C."""
    ctx, learner, rows = run
    model = type(ctx.model("policy"))
    monkeypatch.setattr(model, "packs", property(lambda self: packs))
    sums = []
    for room in (1, 10**6):
        monkeypatch.setattr(pl.Plain, "room", lambda self, model, room=room: room)
        whole, _ = clipped_sum(ctx, "policy", learner, rows(range(5)), 0.1)
        less, _ = clipped_sum(ctx, "policy", learner, rows([0, 1, 3, 4]), 0.1)
        alone, _ = clipped_sum(ctx, "policy", learner, rows([2]), 0.1)
        move = [a - b for a, b in zip(whole, less, strict=True)]
        assert norm(move) == pytest.approx(0.1, rel=1e-3)  # the line's own gradient at the clip, and no more
        assert all(torch.allclose(m, a, atol=1e-5) for m, a in zip(move, alone, strict=True))
        sums.append(whole)
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(*sums, strict=True))


def test_a_line_within_the_clip_keeps_its_gradient(run):
    """As the plain loss of that one pair has it."""
    ctx, learner, rows = run
    one = rows([2])
    total, _ = clipped_sum(ctx, "policy", learner, one, 1e6)
    ctx.backward("policy", learner.objective, one, 10**6)
    moved = [p for g in ctx.optimiser("policy", learner).param_groups for p in g["params"]]
    assert all(torch.allclose(t, p.grad, atol=1e-6) for t, p in zip(total, moved, strict=True))
    assert norm(total) > 0


def test_what_is_not_finite_counts_as_nothing(run):
    ctx, learner, rows = run

    class Broken:
        needs, couples = ("logp",), "unit"

        def __call__(self, out, batch):
            return (out["logp"] * float("nan")).sum(), {}

    sums, logged = clipped_sum(ctx, "policy", replace(learner, objective=Broken()), rows([0, 1]), 1.0)
    assert norm(sums) == 0 and logged["not_finite"] == 1


def test_only_the_last_layer_learns(run):
    ctx, _, _ = run
    model = ctx.model("policy")
    last = {id(p) for p in model.layers[-1].parameters()}
    assert {id(p) for p in model.trainable()} == last
    with pytest.raises(UserError, match="layers=99"):
        model.freeze_below(99)


# ---- the noise, audited


def test_the_noise_is_normal_and_of_its_scale():
    sums = [torch.zeros(200, 100)]
    add_noise(sums, 0.7, rng_of((0, "noise")))
    assert stats.kstest(sums[0].flatten().numpy() / 0.7, "norm").pvalue > 0.01
    again, other = [torch.zeros(200, 100)], [torch.zeros(200, 100)]
    add_noise(again, 0.7, rng_of((0, "noise")))
    add_noise(other, 0.7, rng_of((1, "noise")))
    assert torch.equal(sums[0], again[0])
    assert abs(np.corrcoef(sums[0].flatten(), other[0].flatten())[0, 1]) < 0.03


def test_who_attacks_learns_no_more_than_epsilon():
    """One step that holds a line for sure or not at all, at the clip: the best attack is a threshold on
    its direction. The lower bound of epsilon that its errors prove (Clopper and Pearson) stays below
    what is accounted; with a third of the noise it is above.
    """
    delta, trials, clip, noise = 1e-5, 200_000, 0.5, 1.0

    def bound(scale):
        draws = []
        for inside in (0.0, clip):
            sums = [torch.full((trials,), inside)]
            add_noise(sums, scale * clip, rng_of((7, "audit", str(scale), str(inside))))
            draws.append(sums[0].numpy() / clip)
        bounds = []
        for threshold in (0.5, 1.0, 1.5, 2.0, 2.5):
            hits, alarms = (int((x > threshold).sum()) for x in reversed(draws))
            least = stats.beta.ppf(0.0005, hits, trials - hits + 1)
            most = stats.beta.ppf(0.9995, alarms + 1, trials - alarms)
            bounds.append(math.log(max(least - delta, 1e-12) / most))
        return max(bounds)

    accounted = spent_epsilon(1.0, noise, 1, delta)
    assert 1.5 < bound(noise) < accounted < bound(noise / 3)


class Descent(pl.AdamW):
    """theta <- theta - g, so that a step shows the gradient."""

    def build(self, parameters):
        return torch.optim.SGD(parameters, lr=0.0)


def test_noise_reaches_every_weight_that_learns(context):
    """Steps that drew no line move all of them by the noise alone: normal, of the scale sigma C / L, and
    by another one each step.
    """
    public = recipe(update__clip=0.5, update__public_seed=3)  # a secret one would fail a p-value by chance
    small = pl.vary(public, optimiser=Descent(lr=1.0, clip_norm=0.0))
    ctx = context("preferences")
    prepare(small, ctx)
    learner, state, moves = ctx.at(small, 0).learners["policy"], {}, []
    flat = lambda: torch.cat([p.detach().flatten().double() for p in ctx.model("policy").trainable()])
    for _ in range(2):
        before = flat()
        metrics, state = learner.update.step_without_rows(ctx, "policy", learner, state)
        moves.append((before - flat()).numpy())
    scale = state["noise"] * 0.5 / 2
    assert metrics["noise"] == pytest.approx(scale) and state["clock"] == 2
    assert moves[0].std() == pytest.approx(scale, rel=0.01) and abs(moves[0].mean()) < 0.01 * scale
    assert stats.kstest(moves[0][::50] / scale, "norm").pvalue > 0.01
    assert abs(np.corrcoef(*moves)[0, 1]) < 0.01


def test_no_two_noises_are_the_same(context):
    """By step, part of a pipeline, learner and loss, even under one public seed; a secret one has none of
    them in common with another run's, whatever the seed.
    """
    small = pl.vary(recipe(update__public_seed=3), optimiser=Descent(lr=1.0, clip_norm=0.0))
    ctx = context("preferences")
    prepare(small, ctx)
    learner = ctx.at(small, 0).learners["policy"]
    flat = lambda: torch.cat([p.detach().flatten().double() for p in ctx.model("policy").trainable()])

    def noise(update=learner.update, objective=learner.objective, place=(), clock=0):
        ctx.place, before = place, flat()
        other = replace(learner, update=update, objective=objective)
        terms = {"clock": clock, "noise": 1.0, "delta": 0.1, "spends": []} if clock else {}
        update.step_without_rows(ctx, "policy", other, terms)
        return (before - flat()).numpy()

    again = noise()
    assert np.allclose(again, noise(), atol=1e-4)  # the same key: the same noise
    secret = replace(learner.update, public_seed=0)
    for other in (
        noise(place=("second",)), noise(clock=1), noise(objective=pl.Imitation()),
        noise(objective=replace(learner.objective, beta=0.7)), noise(replace(learner.update, public_seed=4)),
        noise(secret), noise(secret),
    ):  # fmt: skip
        assert abs(np.corrcoef(again, other)[0, 1]) < 0.02
    assert abs(np.corrcoef(noise(secret), noise(secret))[0, 1]) < 0.02


def test_coins_are_secret_too(context):
    """Which lines a step drew amplifies privacy only as long as nobody can tell: not from the seed."""
    ctx = context("preferences")
    drawn = lambda draw, state: [t.id for t in draw(ctx, (0, "step", 0), 50, state)[0]]
    secret, public = pl.privacy.Poisson(100), pl.privacy.Poisson(100, public_seed=2)
    assert drawn(secret, {}) != drawn(secret, {}) and drawn(public, {}) == drawn(public, {})
    _, state = secret(ctx, (0, "step", 0), 50, {})
    assert drawn(secret, state) == drawn(secret, state)  # as a resumed run draws
    assert secret.draw_numbers(state) == {"public_draw": 0.0} and len(state["secret"]) == 64
    assert public.draw_numbers(public(ctx, (0,), 50, {})[1]) == {"public_draw": 1.0}


# ---- the budget


def test_a_resumed_run_at_another_rate_pays_for_both(context):
    """Two steps at the rate 2/8 and then at 4/8 end sooner, and what was spent is the sum."""
    ctx = context("preferences")
    small = recipe()
    prepare(small, ctx)
    learner = ctx.at(small, 0).learners["policy"]
    state, twice = {}, replace(learner, update=replace(learner.update, expected=4))
    for _ in range(2):
        metrics, state = learner.update.step_without_rows(ctx, "policy", learner, state)
    before, noise = metrics["epsilon"], state["noise"]
    metrics, state = twice.update.step_without_rows(ctx, "policy", twice, state)
    if metrics["noise"]:
        assert metrics["epsilon"] == composed_epsilon([(0.25, noise, 2), (0.5, noise, 1)], 1 / 16)
    while metrics["noise"]:
        metrics, state = twice.update.step_without_rows(ctx, "policy", twice, state)
    assert before <= metrics["epsilon"] <= 8 and state["clock"] < 4
    assert sum(steps for _, _, steps in state["spends"]) == state["clock"]


def test_steps_that_cannot_be_counted_are_refused(context):
    ctx = context("preferences")
    update = replace(recipe().learners["policy"].update, expected=2)
    with pytest.raises(UserError, match="begin a new run"):
        update.terms(ctx, {"noise": 1.0, "delta": 0.1, "clock": 3})
    with pytest.raises(UserError, match="3 steps without noise"):
        update.terms(ctx, {"noise": 0.0, "delta": 0.1, "clock": 3, "spends": []})


def test_the_budget_ends_and_the_weights_stay(context):
    small = recipe(update__steps=2)
    ctx, state = context("preferences", seed=1), start(1)
    prepare(small, ctx)
    spent, weights = [], []
    for _ in range(4):
        state, metrics = asyncio.run(step(small, ctx, state))
        spent.append(metrics["epsilon"])
        weights.append(torch.cat([p.detach().flatten() for p in ctx.model("policy").trainable()]))
        assert (metrics["noise"] == 0) == (len(spent) > 2)
    assert 0 < spent[0] < spent[1] <= 8 and spent[1] > 7.9
    assert spent[2] == spent[3] == spent[1]
    assert not torch.equal(weights[0], weights[1]) and torch.equal(weights[1], weights[3])


def test_steps_of_the_run_stand_for_those_of_the_recipe(context):
    noise = []
    for plan in ({}, {"steps": 40}):
        ctx = context("preferences", **plan)
        noise.append(ctx.at(recipe(), 0).learners["policy"].update.terms(ctx, {}).noise)
    assert noise[1] == pytest.approx(noise_for(8.0, 1 / 16, 0.25, 40)) and noise[1] > noise[0]


# ---- how lines are drawn


def test_lines_are_drawn_each_by_its_own_coin(context):
    ctx = context("preferences")
    drawn = [pl.privacy.Poisson(20)(ctx, (0, "step", s), 5, {})[0] for s in range(400)]
    counts = np.array([len(x) for x in drawn])
    assert counts.mean() == pytest.approx(5, abs=0.35) and counts.var() == pytest.approx(3.75, abs=0.9)
    assert min(counts) < 3 and all(t.meta["inclusion"] == 0.25 for x in drawn for t in x)
    assert len({t.id for x in drawn for t in x}) == 20


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"draw": pl.Shuffled()}, r"draw=pl\.privacy\.Poisson"),
        ({"credit": pl.credit.Prefer()}, r"credit=pl\.privacy\.EachLine"),
        ({"draw": pl.privacy.Poisson(4)}, "give draw.lines and update.lines the same number"),
        ({"draw": pl.privacy.Poisson()}, "has no end, and privacy is counted for the lines of a file"),
        ({"schedule": pl.Schedule(prompts=9)}, "more than the 8 lines"),
    ],
)
def test_what_cannot_be_accounted_is_refused(fields, told, context):
    small = pl.vary(recipe(), **fields)
    ctx = context("preferences")
    prepare(small, ctx)
    with pytest.raises(UserError, match=told):
        state = start(0)
        for _ in range(4):
            state, _ = asyncio.run(step(small, ctx, state))


def test_a_line_is_one_unit(context):
    """Three pairs of one line would be three, and a credit that compares lines has but one to look at."""
    row = pl.Row(segments=(pl.Segment(ids=(1, 2), policy="policy", trained=True),))
    pay = (0.0, 0.5, 1.0)
    episodes = tuple(pl.Episode(rows=(row,), reward=pl.Reward(total=r), status="finished") for r in pay)
    group = pl.Group(task=context("preferences").bench.tasks.task("train", 0), episodes=episodes)
    credit = pl.privacy.EachLine(pl.Compare(pairs="all"))
    with pytest.raises(UserError, match="makes several units"):
        credit([group], [[[{}]] * 3], {})
    prefer, signals = pl.privacy.EachLine(pl.credit.Prefer()), [[[{}]] * 3] * 2
    other = replace(group, task=replace(group.task, id="another"))
    examples, _ = prefer([group, other], signals, {})
    assert [e.unit for e in examples] == ["line 0", "line 0", "line 1", "line 1"]
    with pytest.raises(UserError, match="a line came twice in a step"):
        prefer([group, group], signals, {})


@pytest.mark.parametrize("wrong", [{"epsilon": 0.0}, {"clip": 0.0}, {"delta": -1.0}, {"steps": 0}])
def test_bounds(wrong):
    with pytest.raises(UserError):
        pl.privacy.PrivateSteps(**wrong)


def test_several_ranks_are_refused(context):
    with pytest.raises(UserError, match="clips the gradient of each line of the data alone, which several ranks"):
        refuse(Cluster(workers=0, learners=2), recipe(), context("preferences"))
    plain = pl.vary(recipe(), update=pl.Plain())
    with pytest.raises(UserError, match="learns in its last layers alone"):
        refuse(Cluster(workers=0, learners=2), plain, context("preferences"))


def test_adapters_learn_where_there_are_some(context):
    ctx = context("preferences")
    model = ctx.model("policy")
    model.module = LoRA(rank=2)(model.module)
    model.__dict__.pop("causal", None)
    small = recipe()
    prepare(small, ctx)
    assert all("lora_" in n for n in ctx.model("policy").named_trainable())
    _, metrics = asyncio.run(step(small, ctx, start(0)))
    assert metrics["noise"] > 0
