"""ADCL and EGSR: who takes whose place, what is read behind which prompt, and in which order tasks come."""

import asyncio
import math
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.claims.data.adcl_egsr import EXPERIMENT
from palaestra.recipes.data import adcl_egsr
from palaestra.run.driver import prepare
from palaestra.settings.overrides import make_smallest
from palaestra.step import start, step
from palaestra.types import Group, Reward
from palaestra.update import pack
from palaestra.values import flatten, override


class Judge:
    """Nothing is right without guidance; of guided answers those whose numbers are given."""

    def __init__(self, right=()):
        self.right, self.asked = right, []

    async def __call__(self, ctx, group):
        guided = bool(self.asked)  # the first attempts are judged first
        self.asked.append(len(group.episodes))
        seen = [guided and i in self.right for i in range(len(group.episodes))]
        return [Reward(total=float(s), solved=s) for s in seen]


def collected(ctx, judge, monkeypatch=None, **options):
    recipe = adcl_egsr.build(curriculum="random", say="", **options)
    prepare(recipe, ctx)
    ctx = ctx.with_bench(replace(ctx.bench, reward=judge))
    task = ctx.bench.tasks.task("train", 0)
    return ctx, recipe, asyncio.run(recipe.collect(ctx, ("k", 1), Group(task=task)))


def trained(group):
    return [e for e in group.episodes if not e.muted]


@pytest.fixture
def working(monkeypatch):
    """Every answer counts as worked."""
    monkeypatch.setattr(adcl_egsr, "shows_work", lambda text: True)


def test_one_reformulation_among_eight(context, working):
    """Eight zeros, one guided success in the place of one: A = .875 and -.125 without the deviation."""
    ctx, recipe, group = collected(context("chain"), Judge({0}), scale=False)
    assert [e.solved for e in trained(group)].count(True) == 1 and len(trained(group)) == 8
    assert len(group.episodes) == 9  # the failure that made room stays in the numbers
    learner = recipe.learners["policy"]
    found, _ = learner.credit([group], ctx.measure([group], learner.needs), {})
    A = sorted(float(x.columns["advantage"][x.row.view().trained_T].mean()) for x in found)
    assert pytest.approx([-0.125] * 7 + [0.875]) == A
    assert pack(found, "policy").totals["is:guided"][1] == 1


@pytest.mark.parametrize(("right", "taken"), [(set(), 0), ({1}, 1), ({0, 2, 3}, 3)])
def test_right_ones_take_the_place_of_failures_and_the_rest_is_muted(context, working, right, taken):
    _, _, group = collected(context("chain"), Judge(right), guided=4)
    kept = trained(group)
    assert len(kept) == 8 and len(group.episodes) == 12
    assert [bool(e.facts.get("guided")) for e in kept].count(True) == taken == sum(bool(e.solved) for e in kept)
    assert {e.facts["stratum"] for e in kept} == {0}
    assert {e.facts["stratum"] for e in group.episodes if e.muted} == {1}


def test_a_group_with_a_right_answer_is_not_guided(context):
    class Right(Judge):
        async def __call__(self, ctx, group):
            self.asked.append(len(group.episodes))
            return [Reward(total=float(i == 0), solved=i == 0) for i in range(len(group.episodes))]

    judge = Right()
    _, _, group = collected(context("chain"), judge)
    assert judge.asked == [8] and len(group.episodes) == 8


@pytest.mark.parametrize(
    ("text", "worked"), [("= 2", False), ("1 + 1 = 2\n= 2", True), ("", False), ("= 2\n1 + 1 = 2", False)]
)
def test_an_answer_that_merely_quotes_is_refused(text, worked):
    assert adcl_egsr.shows_work(text) == worked


def test_a_quote_is_not_taken(context, monkeypatch):
    monkeypatch.setattr(adcl_egsr, "shows_work", lambda text: False)
    _, _, group = collected(context("chain"), Judge({0}))
    assert not any(e.facts.get("guided") for e in trained(group))


@pytest.mark.parametrize("expert", ["solution", "answer"])
def test_the_loss_reads_the_bare_question(context, working, expert):
    """The prompt that was seen holds the material, the training view is that of the bare prompt; the ratio starts at 1."""
    ctx, recipe, group = collected(context("add(d=4)"), Judge({0}), expert=expert)
    guided = next(e for e in trained(group) if e.facts.get("guided"))
    row, task = guided.rows[0], group.task
    seen, view = ctx.decode(row.context()), ctx.decode(row.view().ids_T.tolist())
    shown = "hint:" if expert == "solution" else f"wrong, it is {task.answer}"
    assert shown in seen and shown not in view and view.startswith(ctx.decode(group.episodes[1].rows[0].context())[:10])
    bare = next(e for e in trained(group) if not e.facts.get("guided")).rows[0]
    prompt = [i for s in bare.segments if not s.replies and not s.trained for i in s.ids]
    assert row.view().ids_T.tolist()[: len(prompt)] == prompt
    learner = recipe.learners["policy"]
    assert learner.objective.parts[0].old == "policy" and learner.needs == (("policy", "logp"),)
    measured = ctx.measure([group], learner.needs)[0][group.episodes.index(guided)][0]["policy_logp"]
    on = row.view().trained_T
    behaviour = row.view().logp_T[on]
    assert not np.allclose(measured[on], behaviour, atol=1e-4)  # the guided log-probs are others
    seen_ratio = adcl_egsr.build(ratio="seen").learners["policy"]
    assert seen_ratio.objective.parts[0].old == "behaviour" and seen_ratio.needs == ()


def test_what_to_do_with_the_solution_stands_before_it(context):
    ctx = context("chain")
    group = Group(task=ctx.bench.tasks.task("train", 0))
    said = adcl_egsr.WithInstruction("say it again", pl.Working(1.0, "characters"))(ctx, group, pl.rng_of(("s",)))
    assert said.startswith("say it again\n") and said.rstrip().endswith(f"= {group.task.answer}")
    nothing = adcl_egsr.WithInstruction("say it again", lambda *_: "")(ctx, group, pl.rng_of(("s",)))
    assert nothing == ""


def test_the_halves_stand_alone():
    both, found = adcl_egsr.build(), flatten(adcl_egsr.build())
    assert (both.draw.tasks, both.draw.batches, both.draw.probe.n) == (None, 5, 4)  # the whole file
    assert adcl_egsr.build("static").draw.batches == 1 and adcl_egsr.build("random").draw == pl.Shuffled()
    assert len(adcl_egsr.build(expert="").collect.links) == 2 and len(both.collect.links) == 3
    assert found["learners.policy.update.minibatches"] == 1


@pytest.mark.parametrize("options", [{}, {"expert": "answer", "ratio": "seen"}, {"curriculum": "static", "expert": ""}])
def test_two_steps(context, options):
    recipe = make_smallest(override(adcl_egsr.build(tasks=8, batches=2, probe=1, **options), "minibatches", "2"))
    ctx, state = context("add(d=6)"), start(0)
    prepare(recipe, ctx)
    for _ in range(2):
        state, metrics = asyncio.run(step(recipe, ctx, state))
        assert metrics.get("skipped", 0) == 0 and math.isfinite(metrics.get("loss", 0.0))
    assert len(state["draw"]["order"]) == 8


def test_the_claim():
    assert not EXPERIMENT.lacks()
    assert all(len(EXPERIMENT.settings_of(a)) == 3 for a in EXPERIMENT.arms)
