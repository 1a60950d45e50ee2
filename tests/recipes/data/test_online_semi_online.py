"""Who samples, how old what is learned from is, which answers make a pair, and what offline fixes."""

import asyncio
import math
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.claims.data.online_semi_online import EXPERIMENT
from palaestra.models.load import weights_sha256
from palaestra.recipes.data import online_semi_online as semi
from palaestra.run.driver import prepare
from palaestra.run.snapshots import follow_learners
from palaestra.settings.overrides import make_smallest
from palaestra.step import start, step
from palaestra.types import Group, Reward
from palaestra.update import pack
from palaestra.values import flatten, override


def test_dpo_at_a_margin_of_one():
    """beta .1 and log-ratios that differ by 1: .644397."""
    from tests.objective.helpers import token_batch, token_gradient

    batch = token_batch([0.0, 0.0], -2.0, ref_logp=[np.array([0.0, -2.0])] * 2, sign=[1.0, -1.0])
    batch = replace(batch, unit_B=batch.unit_B * 0, n_units=1)
    loss, _, _ = token_gradient(semi.build().learners["policy"].objective, batch, logp=[-1.5, -2.5])
    assert loss == pytest.approx(0.644397, abs=1e-6)


@pytest.mark.parametrize("form", ["minibatches", "snapshots"])
def test_the_age_of_samples_over_a_cycle_of_five(context, form):
    """0 to 4 updates, 2.0 on average, whichever way: the weights that sample are those of the last multiple of 5 updates."""
    recipe = override(semi.build(5, method="grpo", kl=0.0, form=form, n=2, prompts=2), "optimiser.lr", 1e-3)
    ctx, state = context("chain"), start(0)
    prepare(recipe, ctx)
    ages, updates, sampled_at = [], 0, {}
    generator = "policy" if form == "minibatches" else semi.GENERATOR
    for _ in range(2 if form == "minibatches" else 7):
        follow_learners(recipe, ctx, state)
        sampled_at.setdefault(weights_sha256(ctx.model(generator)), updates)
        begun = sampled_at[weights_sha256(ctx.model(generator))]
        state, _ = asyncio.run(step(recipe, ctx, state))
        n = 5 if form == "minibatches" else 1
        ages += [updates + i - begun for i in range(n)]
        updates += n
    assert ages[:5] == [0, 1, 2, 3, 4] and np.mean(ages[:5]) == 2.0 and ages[5:7] == [0, 1]


def test_minibatches_draw_the_prompts_of_all_updates():
    found = flatten(semi.build(5, prompts=16))
    assert found["schedule.prompts"] == 80 and found["learners.policy.update.minibatches"] == 5
    online = flatten(semi.build(1))
    assert online["schedule.prompts"] == 16 and online["learners.policy.update.minibatches"] == 1
    assert set(semi.build(5, form="snapshots").references) == {"ref", semi.GENERATOR}
    assert semi.build(5, form="snapshots").references[semi.GENERATOR] == pl.rollout.Snapshots(every=5, keep=1)


def texts(recipe, ctx, key, index=0):
    group = asyncio.run(recipe.collect(ctx, key, Group(task=ctx.bench.tasks.task("train", index))))
    return [e.text for e in group.episodes], group


def test_offline_has_the_same_answers_again_and_online_has_not(context):
    recipe, ctx = semi.build(0), context("chain")
    prepare(recipe, ctx)
    first, group = texts(recipe, ctx, ("k", 1))
    ctx.moving("policy")
    for p in ctx.model("policy").module.parameters():
        p.data.mul_(1.1)  # the policy has gone elsewhere
    again, _ = texts(recipe, ctx, ("k", 2))
    assert first == again and len(set(first)) > 1
    assert first != texts(recipe, ctx, ("k", 1), index=1)[0]
    said = [s for e in group.episodes for r in e.rows for s in r.segments if s.trained]
    assert {s.policy for s in said} == {"policy"} and {s.version for s in said} == {None}  # trained on, without age
    online = semi.build(1)
    assert texts(online, ctx, ("k", 1))[0] != texts(online, ctx, ("k", 2))[0]


@pytest.mark.parametrize(
    ("totals", "pairs"), [([0, 1, 0, 1], 1), ([1, 1, 1, 1], 0), ([0, 0, 0, 0], 0), ([0.3, 0.9, 0.1, 0.5], 1)]
)
def test_pairs_are_right_against_wrong_or_best_against_worst(context, totals, pairs):
    recipe, ctx = semi.build(1, n=4), context("chain")
    prepare(recipe, ctx)
    _, group = texts(recipe, ctx, ("k", 1))
    scored = tuple(replace(e, reward=Reward(total=float(r))) for e, r in zip(group.episodes, totals, strict=True))
    learner = recipe.learners["policy"]
    groups = [replace(group, episodes=scored)]
    found, _ = learner.credit(groups, ctx.measure(groups, learner.needs), {})
    assert len(found) == 2 * pairs
    if pairs:
        better, worse = (groups[0].episodes[i].rows[0] for i in (int(np.argmax(totals)), int(np.argmin(totals))))
        of = {x.columns["sign"]: x.row for x in found}
        total = {r.key: t for r, t in zip((e.rows[0] for e in scored), totals, strict=True)}
        assert total[of[1.0].key] == total[better.key] and total[of[-1.0].key] == total[worse.key]
        assert pack(found, "policy").n_units == 1


@pytest.mark.parametrize(
    "options",
    [{"sync": 0}, {"sync": 1}, {"sync": 2}, {"sync": 2, "form": "snapshots"}, {"method": "grpo", "sync": 2},
     {"method": "grpo", "sync": 2, "form": "snapshots", "old": "policy"}],
)  # fmt: skip
def test_two_steps_of_every_form(context, options):
    recipe, ctx, state = semi.build(**{"prompts": 4, "n": 4, **options}), context("chain"), start(0)
    prepare(recipe, ctx)
    for _ in range(2):
        follow_learners(recipe, ctx, state)
        state, metrics = asyncio.run(step(recipe, ctx, state))
        assert math.isfinite(metrics.get("loss", 0.0)) and metrics.get("skipped", 0) == 0


def test_the_claim():
    assert not EXPERIMENT.lacks() and make_smallest(semi.build())
    assert all(len(EXPERIMENT.settings_of(a)) == 3 for a in EXPERIMENT.arms)
    with pytest.raises(pl.UserError, match="sync"):
        semi.build(-1)


def test_prompts_without_an_answer_are_scored_by_the_judge(context):
    """Verifiable and other prompts in one batch, each with its own reward."""

    async def by_length(ctx, group):
        return [Reward(total=7.0) for _ in group.episodes]

    ctx, recipe = context("chain"), semi.build(1, n=2, judge=by_length)
    task = ctx.bench.tasks.task("train", 0)
    totals = {}
    for name, each in (("verified", task), ("judged", replace(task, answer=None))):
        group = asyncio.run(recipe.collect(ctx, ("k",), Group(task=each)))
        totals[name] = {e.total for e in group.episodes}
    assert totals["judged"] == {7.0} and totals["verified"] <= {0.0, 1.0}
    assert semi.build(1).collect.links[1].reward is None
