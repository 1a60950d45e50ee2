"""Guide-GRPO: the catalogue's values, who is asked again, what trains, and the gap that is corrected."""

import asyncio
import math
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.claims.data.guide import EXPERIMENT
from palaestra.models.score import score_pairs
from palaestra.recipes.data import guide
from palaestra.types import Group
from palaestra.values import flatten, vary

from tests.objective.helpers import token_batch, token_gradient
from tests.recipes.data.guided import Pays, bare_ids, collected, credited, prompt_seen, steps_of, trained

RATIOS = [0.1, 0.2, 0.4, 0.8, 1.0]


def objective(**options):
    return guide.build(**options).learners["policy"].objective


def gradient(ratios, A, marked, policy=-0.5, **options):
    """Loss and gradients of one token a row, whose ratio to the prompt that was seen is given; each was seen with another
    log-prob there."""
    seen = [-0.5 - 0.3 * i for i in range(len(ratios))]
    columns = {"is:guided": [np.array([0.0, float(m)]) for m in marked]}
    columns["policy_logp"] = [np.array([0.0, policy])] * len(ratios)
    batch = token_batch(A, **columns)
    batch.columns["behaviour_logp"][:, 1] = torch.tensor(seen)
    loss, grads, _ = token_gradient(
        objective(**options), batch, logp=[math.log(r) + x for r, x in zip(ratios, seen, strict=True)]
    )
    return loss, grads["logp"]


def test_weights_of_guided_tokens_of_the_catalogue():
    """gamma = .92, the 0.9-quantile of [.1, .2, .4, .8, 1]; it moves with no gradient, and nothing is clipped."""
    shaped = [0.098039, 0.178571, 0.303030, 0.465116, 0.520833]
    weights = [0.088428, 0.146684, 0.211203, 0.248783, 0.249566]
    loss, grads = gradient(RATIOS, [1.0] * 5, [1] * 5)
    assert loss == pytest.approx(-np.mean(shaped), abs=1e-6)
    assert [-5 * g for g in grads] == pytest.approx(weights, abs=1e-6)
    _, far = gradient([50.0], [-1.0], [1])
    assert far[0] > 0


def test_gamma_is_of_the_guided_tokens_alone_and_own_ones_are_clipped():
    loss, grads = gradient([1.5, 0.5], [1.0, 1.0], [0, 1])
    assert loss == pytest.approx(-(1.2 + 0.5) / 2) and grads[0] == 0  # r / (r + r) = .5 of the one guided token
    loss, grads = gradient([1.1], [1.0], [0])
    assert (loss, *grads) == pytest.approx((-1.1, -1.1))


@pytest.mark.parametrize(
    ("options", "loss"),
    [({"correction": "constant", "gamma": 0.1}, -0.8), ({"correction": "power", "gamma": 0.5}, -math.sqrt(0.4)),
     ({"correction": "none"}, -0.4 * math.exp(0.3)), ({"context": "guided"}, -0.4)],
)  # fmt: skip
def test_other_corrections(options, loss):
    """Of a guided token with the ratio .4 to the prompt that was seen; .3 nats less likely behind the bare one."""
    assert gradient([0.4], [1.0], [1], policy=-0.8, **options)[0] == pytest.approx(loss)


@pytest.mark.parametrize("guidance", ["hint", "answer", "verdict"])
def test_all_wrong_prompts_are_asked_again_and_train_the_bare_prompt(context, guidance):
    ctx, recipe = context("chain"), guide.build(guidance, n=4)
    judge = Pays("guided", bare=[0] * 4, guided=[1, 0, 0, 1])
    ctx = ctx.with_bench(replace(ctx.bench, reward=judge))
    group = collected(ctx, recipe)
    first, again = group.episodes[:4], trained(group)
    assert all(e.muted for e in first) and len(again) == 4 and all(e.facts["guided"] for e in again)
    said = {"hint": "hint:", "answer": f"wrong, it is {group.task.answer}", "verdict": "wrong, try again"}[guidance]
    for e in again:
        assert said in prompt_seen(ctx, e)
        own = e.rows[0].segments[-1].ids
        assert tuple(e.rows[0].view().ids_T) == (*bare_ids(ctx, group.task), *own)
    assert credited(recipe, [group]) == pytest.approx([0.866024, -0.866024, -0.866024, 0.866024], abs=1e-5)


def test_one_right_answer_is_enough(context):
    ctx, recipe = context("chain"), guide.build("answer", n=4)
    ctx = ctx.with_bench(replace(ctx.bench, reward=Pays("guided", bare=[0, 1, 0, 0], guided=[])))
    group = collected(ctx, recipe)
    assert len(group.episodes) == len(trained(group)) == 4
    always = Pays("guided", bare=[0, 1, 0, 0], guided=[1, 1, 0, 0])
    ctx = ctx.with_bench(replace(ctx.bench, reward=always))
    group = collected(ctx, guide.build("answer", n=4, every=True))
    assert [e.facts.get("guided", 0) for e in trained(group)] == [1] * 4


def test_a_mixed_group_of_guided_successes_and_unguided_failures(context):
    ctx, recipe = context("chain"), guide.build("hint", mixin=True, n=4)
    ctx = ctx.with_bench(replace(ctx.bench, reward=Pays("guided", bare=[0] * 4, guided=[1, 0, 0, 1])))
    group = collected(ctx, recipe)
    assert sorted((e.facts.get("guided", 0), e.total) for e in trained(group)) == [(0, 0), (0, 0), (1, 1), (1, 1)]
    assert len(group.episodes) == 8  # what was sampled in vain stays in the numbers


@pytest.mark.parametrize(
    ("bare", "guided", "kept"), [((0, 0), (1, 1), 0), ((0, 0), (0, 0), 0), ((0, 0), (1, 0), 1), ((1, 0), (), 1), ((1, 1), (), 0)]
)  # fmt: skip
def test_groups_of_one_kind_are_dropped(context, bare, guided, kept):
    """Also where only the muted first answers differ from the guided ones."""
    ctx, recipe = context("chain"), guide.build("hint", n=2, size=1)
    ctx = ctx.with_bench(replace(ctx.bench, reward=Pays("guided", bare=bare, guided=guided)))
    ready, _, state = asyncio.run(recipe.pool(ctx, [collected(ctx, recipe)], {}))
    assert len(ready or []) == kept and len(state["waiting"]) == 0


@pytest.mark.parametrize("guidance", ["hint", "answer"])
def test_ppo_whitens_what_is_trained_and_drops_no_group(context, guidance):
    """The first answers of a guided prompt train nothing, so they are no part of the batch's mean and deviation."""
    ctx, recipe = context("chain"), guide.build(guidance, n=2, algorithm="ppo")
    ctx = ctx.with_bench(replace(ctx.bench, reward=Pays("guided", bare=[0, 0], guided=[1, 0])))
    group, learner = collected(ctx, recipe), recipe.learners["policy"]
    assert ("policy", "value") in learner.needs and learner.heads == ("value",)
    assert recipe.pool == pl.recipe("grpo").pool
    length = [[len(row.view().ids_T) for row in e.rows] for e in group.episodes]
    signals = [[[{"policy_value": np.full(n, 0.1 * i)} for n in rows] for i, rows in enumerate(length)]]
    rows, _ = learner.credit([group], signals, {})
    whitened = np.concatenate([r.columns["advantage"][r.row.view().trained_T] for r in rows])
    assert len(rows) == 2 and whitened.mean() == pytest.approx(0, abs=1e-6)
    assert whitened.std(ddof=1) == pytest.approx(1, abs=1e-4)


def test_settings_of_the_released_code():
    found, recipe = flatten(guide.build()), guide.build()
    for end, value in {"links.0.n": 8, ".eps": 1e-6, ".ddof": 1, ".low": 0.2, ".high": 0.2, ".quantile": 0.9}.items():
        assert {v for k, v in found.items() if k.endswith(end) and "optimiser" not in k} == {value}, end
    assert {v for k, v in found.items() if k.endswith("objective.reduce")} == {"tokens"}
    assert recipe.schedule.max_age == 1 and recipe.learners["policy"].objective.couples == "batch"


def test_a_told_answer_makes_a_gap_and_a_hint_none(context):
    """What decides the claim: copies of a told answer are more than a nat less likely behind the bare prompt."""
    ctx = context("add(d=4)")
    found = {"answer": [], "verdict": []}
    for i in range(6):
        task = ctx.bench.tasks.task("train", i)
        bare = asyncio.run(pl.links(pl.Sample(n=2), pl.Score())(ctx, ("k", i), Group(task=task)))
        for kind, gaps in found.items():
            link = pl.links(pl.Under(pl.Feedback(kind), pl.Sample(n=6)), pl.Hide(), pl.Score())
            for e in asyncio.run(link(ctx, ("k", i, kind), bare)).episodes[2:]:
                if not e.solved:
                    continue
                said = e.rows[0].segments[-1]
                logp = score_pairs(ctx.model("policy"), [(bare_ids(ctx, task), said.ids)])[0]
                gaps.append((len(e.text.strip().splitlines()) == 1, float(logp.sum() - np.sum(said.logp))))
    copied = [gap for at_once, gap in found["answer"] if at_once]
    worked = [gap for pairs in found.values() for at_once, gap in pairs if not at_once]
    assert len(copied) >= 3 and np.median(copied) < -1 and np.median(worked) > -1


@pytest.mark.parametrize("arm", EXPERIMENT.arms)
def test_steps_of_every_arm(arm, context):
    seen = steps_of(EXPERIMENT.arms[arm], context("add(d=4)"))
    assert all(m["skipped"] == 0 and math.isfinite(m["loss"]) for m in seen)


def test_arms_differ_in_what_they_are_named_for():
    same = {"collect": pl.links(pl.Sample(n=4)), "objective": pl.Clipped(), "needs": ()}
    first, *others = (vary(a, **same) for a in EXPERIMENT.arms.values())
    assert all(other == first for other in others) and not EXPERIMENT.lacks()


def test_who_is_asked_again():
    assert guide.none_accurate(np.zeros(8)) and not guide.none_accurate(np.array([0.0, 0.1]))
