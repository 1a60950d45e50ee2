"""AMPO: the catalogue's values, who gives way to whom, and which solutions are comprehended."""

import asyncio
import math
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.claims.data.ampo import EXPERIMENT, TEACHERS, TaughtBySeveral, solution
from palaestra.recipes.data import ampo
from palaestra.rewards.intrinsic import answer_score, debias
from palaestra.values import flatten, vary

from tests.objective.helpers import column_batch, token_batch, token_gradient
from tests.recipes.data.guided import Pays, credited, steps_of


def swapped(context, totals, texts=(), **options):
    ctx, built = context("chain"), ampo.build(**options)
    task = ctx.bench.tasks.task("train", 0)
    task = replace(task, meta={**task.meta, **({"demonstrations": list(texts)} if texts else {})})
    ctx = ctx.with_bench(replace(ctx.bench, reward=Pays("demonstration", bare=list(totals), guided=[])))
    return asyncio.run(built.collect(ctx, ("k", 1), pl.Group(task=task)))


def solutions(context, *habits):
    source = context("chain").bench.tasks
    task = source.task("train", 0)
    right = pl.tasks.format_answer(source.steps(task), task.answer)
    return {"right": right, "at once": f"= {task.answer}", "other": f"9*9=1\n1*1=1\n= {task.answer}"}


def shown(group):
    return [e for e in group.episodes if e.facts.get("demonstration")]


def test_two_teachers_in_the_place_of_eight_failures(context):
    """A = .75 for them and -.25 for the six failures that stay; one teacher gives way to fewer."""
    found = solutions(context)
    group = swapped(context, [0] * 8, found.values(), form=0.0)
    assert len(group.episodes) == 8 and [e.total for e in shown(group)] == [1, 1]
    A = credited(ampo.build(), [group])
    assert sorted(A) == pytest.approx([-0.25] * 6 + [0.75] * 2)
    assert {a for a, e in zip(A, group.episodes, strict=True) if e.facts.get("demonstration")} == {0.75}
    assert len(shown(swapped(context, [0] * 8, [found["right"]], form=0.0))) == 1


def test_guidance_is_only_where_no_answer_is_right(context):
    assert not shown(swapped(context, [0] * 7 + [1], form=0.0))
    always = swapped(context, [0] * 7 + [1], solutions(context).values(), form=0.0, always_on=True)
    assert not shown(swapped(context, [0] * 8, solutions(context).values(), form=0.0, k=0))
    assert len(shown(always)) == 2 and any(e.total and not e.facts.get("demonstration") for e in always.episodes)


def test_a_failure_in_its_form_is_still_a_failure(context):
    """.9 for the answer and .1 for its form: .1 is not right, 1.0 is."""
    group = swapped(context, [0] * 8, solutions(context).values())
    assert len(shown(group)) == 2
    assert all(
        e.total == pytest.approx(0.1 * e.reward.parts["format"]) for e in group.episodes if e not in shown(group)
    )
    right = swapped(context, [1] + [0] * 7)
    assert not shown(right) and right.episodes[0].total == pytest.approx(
        0.9 + 0.1 * right.episodes[0].reward.parts["format"]
    )


def test_what_is_comprehended_best_is_taken(context):
    found = solutions(context)
    for order in (found, reversed(found)):
        group = swapped(context, [0] * 8, [found[k] for k in order], form=0.0, k=1)
        assert shown(group)[0].rows[0].segments[-1].text == found["right"]
    assert debias(answer_score(np.log([0.9, 0.8])), 0.2) == pytest.approx(0.65)  # the catalogue's teacher A
    assert debias(answer_score(np.log([0.5, 0.3])), 0.2) == pytest.approx(0.20)
    assert ampo.build(choice="random").collect.links[2].score is None


def loss_of(p, A, marked, behaviour=0.0, **options):
    batch = token_batch([A], behaviour, **{"is:demonstration": [np.array([0.0, float(marked)])]})
    built = ampo.build(entropy=0.0, length=1, **options)
    loss, grads, _ = token_gradient(built.learners["policy"].objective, batch, logp=[math.log(p)])
    return loss, *grads["logp"]


@pytest.mark.parametrize(("p", "shaped"), [(0.3, 0.75), (0.02, 0.166667)])
def test_tokens_of_a_teacher(p, shaped):
    """The catalogue's; their author's log-probs are unknown and not read."""
    loss, grad = loss_of(p, 1.0, 1, behaviour=float("nan"))
    assert (loss, grad) == pytest.approx((-shaped, -0.1 * p / (p + 0.1) ** 2), abs=1e-6)


@pytest.mark.parametrize(("ratio", "A", "loss"), [(1.5, 1.0, -1.2), (4.0, -1.0, 4.0), (40.0, -1.0, 10.0)])
def test_own_tokens_have_ppo_s_clip_and_the_dual_one(ratio, A, loss):
    assert loss_of(ratio * 0.01, A, 0, behaviour=math.log(0.01))[0] == pytest.approx(loss)


def test_a_long_solution_weighs_more_by_tokens_alone():
    """1 and 3 tokens with f = .75: 4 x .75 over the length 8 and two rows; by sequences their mean."""
    marks = {"advantage": [[1.0], [1.0] * 3], "is:demonstration": [[1.0], [1.0] * 3]}
    for level, loss in (("tokens", -4 * 0.75 / (8 * 2)), ("sequences", -0.75)):
        batch = column_batch(1, 3, **marks)
        built = ampo.build(level=level, entropy=0.0, length=8).learners["policy"].objective
        assert float(built({"logp": batch.mask * math.log(0.3)}, batch)[0]) == pytest.approx(loss, abs=1e-6)


def test_settings_of_the_released_code():
    found = flatten(ampo.build())
    ends = {"links.0.n": 8, "links.2.k": 2, ".c": 10.0, "objective.constant": 0.1, "2.weight": 0.001,
            "reward.accuracy": 0.9, "reward.weight": 0.1, "update.minibatches": 2}  # fmt: skip
    for end, value in ends.items():
        values = {v for k, v in found.items() if k.endswith(end)}
        assert value in values, (end, values)
    assert not any(k.endswith(".ddof") for k in found)  # no division by a deviation


# ---- the claim


def test_teachers_write_right_sums_in_four_ways(context):
    source = context("add(d=7,max_tokens=96)").bench.tasks
    task = source.task("train", 3)
    texts = {name: solution(task, column) for name, column in TEACHERS.items()}
    own = pl.tasks.format_answer(source.steps(task), task.answer)
    assert (
        texts["columns"] == own
        and len({*texts.values()}) == 4
        and all(source.check(t, task) == 1 for t in texts.values())
    )
    assert all(len(t) < 96 for t in texts.values())


def test_the_task_is_given_back_as_it_was(context):
    ctx = context("add(d=6,max_tokens=96)")
    task = ctx.bench.tasks.task("train", 0)
    seen = []

    async def link(ctx, key, group):
        seen.append(group.task.meta["demonstrations"])
        return group

    assert asyncio.run(TaughtBySeveral(link)(ctx, ("k",), pl.Group(task=task))).task == task and len(seen[0]) == 4


@pytest.mark.parametrize("arm", EXPERIMENT.arms)
def test_steps_of_every_arm(arm, context):
    recipe = EXPERIMENT.arms[arm]
    seen = steps_of(recipe, context("add(d=7,max_tokens=96)"))
    assert all(m["skipped"] == 0 and math.isfinite(m["loss"]) for m in seen)
    assert max(m.get("demonstration/probability", 0.0) for m in seen) > 0 or arm == "grpo"


def test_arms_differ_in_what_they_are_named_for():
    same = {"collect": pl.links(pl.Sample(n=8)), "objective": pl.Clipped()}
    first, *others = (vary(a, **same) for a in EXPERIMENT.arms.values())
    assert all(other == first for other in others) and not EXPERIMENT.lacks()
