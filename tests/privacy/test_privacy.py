"""Private steps: the accountant against closed forms, neighbouring data, the audited noise, and what is refused."""

import asyncio
import math
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.errors import UserError
from palaestra.models.lora import LoRA
from palaestra.privacy.accounting import composed_noise, noise_for, spent_epsilon
from palaestra.privacy.optimiser import NoiseCorrectedAdamW
from palaestra.privacy.update import add_noise, clipped_sum
from palaestra.run.driver import prepare
from palaestra.scale.cluster import Cluster
from palaestra.scale.refusals import refuse
from palaestra.step import start, step
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


# ---- the accountant


def rdp_at(order, rate, noise):
    """The subsampled Gaussian at an integer order, arXiv:1908.10530 section 3.3, as a sum of logs."""
    terms = [
        math.log(math.comb(order, k)) + (order - k) * math.log(1 - rate) + k * math.log(rate)
        + (k * k - k) / (2 * noise**2)
        for k in range(order + 1)
    ]  # fmt: skip
    top = max(terms)
    return (top + math.log(sum(math.exp(t - top) for t in terms))) / (order - 1)


def to_epsilon(rdp, order, delta):
    return rdp - (math.log(delta) + math.log(order)) / (order - 1) + math.log((order - 1) / order)


@pytest.mark.parametrize(("rate", "noise", "steps", "delta"), [(0.1, 1.0, 100, 1e-5), (0.01, 0.8, 1000, 1e-6)])
def test_the_accountant_at_integer_orders(rate, noise, steps, delta):
    """Fractional orders may only lower the least of the integer ones, and hardly."""
    whole = min(to_epsilon(steps * rdp_at(a, rate, noise), a, delta) for a in range(2, 65))
    assert whole * 0.97 < spent_epsilon(rate, noise, steps, delta) <= whole * (1 + 1e-9)


def test_without_subsampling_it_is_the_gaussian_mechanism():
    """Never below the exact epsilon of the Gaussian mechanism (arXiv:1805.06530, theorem 8), and near it."""
    epsilon, noise = (
        spent_epsilon(1.0, 4.0, 16, 1e-5),
        4.0 / math.sqrt(16),
    )  # 16 steps are one of a quarter of the noise
    cdf = stats.norm.cdf
    delta = cdf(0.5 / noise - epsilon * noise) - math.exp(epsilon) * cdf(-0.5 / noise - epsilon * noise)
    assert 0 < delta < 1e-5
    less = 0.9 * epsilon
    assert cdf(0.5 / noise - less * noise) - math.exp(less) * cdf(-0.5 / noise - less * noise) > 1e-5


def test_the_noise_is_the_least_that_keeps_the_budget():
    noise = noise_for(3.0, 1e-5, 0.05, 200)
    assert spent_epsilon(0.05, noise, 200, 1e-5) <= 3.0 < spent_epsilon(0.05, noise * 0.997, 200, 1e-5)
    assert spent_epsilon(0.05, noise, 0, 1e-5) == 0 and spent_epsilon(0.05, 0.0, 1, 1e-5) == math.inf
    with pytest.raises(UserError, match="out of reach in 1000000 steps"):
        noise_for(1e-6, 1e-9, 1.0, 1_000_000)


def test_composition_of_the_paper():
    assert composed_noise(2, 1e-5, 1) == pytest.approx(4.844805, abs=1e-6)
    assert composed_noise(3, 3e-5, 3) == pytest.approx(9.689611, abs=1e-6)


def test_without_opacus_the_remedy_is_said(monkeypatch):
    import sys

    from palaestra.privacy import accounting

    accounting._rdp_of_step.cache_clear()
    monkeypatch.setitem(sys.modules, "opacus.accountants.analysis", None)
    with pytest.raises(UserError, match=r"pip install 'palaestra\[privacy\]'"):
        spent_epsilon(0.123, 1.0, 1, 1e-5)


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
    add_noise(sums, 0.7, (0, "privacy", "policy", 0))
    assert stats.kstest(sums[0].flatten().numpy() / 0.7, "norm").pvalue > 0.01
    again, other = [torch.zeros(200, 100)], [torch.zeros(200, 100)]
    add_noise(again, 0.7, (0, "privacy", "policy", 0))
    add_noise(other, 0.7, (0, "privacy", "policy", 1))
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
            add_noise(sums, scale * clip, (7, "audit", str(scale), str(inside)))
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
    small = pl.vary(recipe(update__clip=0.5), optimiser=Descent(lr=1.0, clip_norm=0.0))
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


# ---- the budget


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
    examples, _ = pl.privacy.EachLine(pl.credit.Prefer())([group, group], [[[{}]] * 3] * 2, {})
    assert [e.unit for e in examples] == ["line 0", "line 0", "line 1", "line 1"]


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
