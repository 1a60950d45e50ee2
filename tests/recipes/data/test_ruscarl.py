"""RuscaRL: who sees how many criteria and when, what they are worth, what is trained on, and a few steps of every arm."""

import asyncio
import math
from dataclasses import replace

import palaestra as pl
import pytest
from palaestra import schedule
from palaestra.errors import Fault, UserError
from palaestra.ledger.experiment import experiment_of
from palaestra.recipes.data import ruscarl
from palaestra.run.driver import prepare
from palaestra.run.setup import brings_reward
from palaestra.settings.overrides import make_smallest
from palaestra.step import start, step
from palaestra.types import Group, Reward, Task
from palaestra.values import flatten, override

from tests.recipes.objectives.helpers import advantages, near, scored

FOUR = ("1: 4", "2: 7", "3: 1", "4: 9")


def test_shares_of_a_group_of_eight():
    found = ruscarl.Graduated().shares()
    assert found == near([1, 6 / 7, 5 / 7, 4 / 7, 3 / 7, 2 / 7, 1 / 7, 0])
    assert [round(4 * x) for x in found] == [4, 3, 3, 2, 2, 1, 1, 0]
    assert (
        ruscarl.Graduated(n=1).shares() == [1] and ruscarl.Graduated(n=3, graded=False, most=0.5).shares() == [0.5] * 3
    )


def test_criteria_fade_at_a_fifth_of_the_steps():
    """T = 350, t = 71: x = .200573, and .482099 of the share is left; all of it at the start, none at the end."""
    recipe = ruscarl.build()
    most = [schedule.resolve(recipe.collect, t - 1).links[0].most for t in (1, 71, 350)]
    assert most == near([1.0, 0.482099, 0.0], 1e-6)
    assert schedule.resolve(ruscarl.build(share=0.5).collect, 70).links[0].most == pytest.approx(0.482099 / 2, abs=1e-6)
    assert ruscarl.build(fades=False).collect.links[0].most == 1


def test_points_met_over_positive_points():
    """+5 met, +3 unmet, -6 met: (5 - 6) / 8; nothing positive is 0."""
    worth = lambda met, points: ruscarl.reward_of(met, points).total
    assert worth([True, False, True], [5, 3, -6]) == -0.125
    assert [worth([True, True], [-1, -2]), worth([True, True], [1, 1]), worth([False], [2])] == [0, 1, 0]


class Judging(pl.Judge):
    """Whether a criterion's letter is in the answer; "?" is a failure."""

    async def __call__(self, ctx, group):
        return [
            Fault("judge", "down") if "?" in e.text else Reward(total=0.9 if self.rubric in e.text else 0.4)
            for e in group.episodes
        ]


def test_a_judge_is_asked_about_each_criterion(context):
    ctx = context("rubrics")
    group = asyncio.run(pl.Sample(n=3)(ctx, ("k",), Group(task=ctx.bench.tasks.task("train", 0))))
    said = [replace(e.rows[0].segments[-1], text=t) for e, t in zip(group.episodes, ("a c", "b", "?"), strict=True)]
    rows = [
        replace(e.rows[0], segments=(*e.rows[0].segments[:-1], s)) for e, s in zip(group.episodes, said, strict=True)
    ]
    episodes = tuple(replace(e, rows=(r,)) for e, r in zip(group.episodes, rows, strict=True))
    judged = lambda **meta: asyncio.run(
        ruscarl.Points(Judging())(ctx, Group(task=Task(id="t", meta=meta), episodes=episodes))
    )
    found = judged(criteria=["a", "b", "c"], points=[5, 3, -6])
    assert [r.total for r in found[:2]] == [-0.125, 0.375] and isinstance(found[2], Fault)
    assert [r.total for r in judged(criteria=["a", "b"])[:2]] == [0.5, 0.5]
    with pytest.raises(UserError, match="'t' has 2 criteria and 1 points"):
        judged(criteria=["a", "b"], points=[1])
    with pytest.raises(UserError, match="0 criteria"):
        judged()
    recipe = ruscarl.build(judge=Judging())
    assert recipe.collect.links[-1].reward == ruscarl.Points(Judging())


def test_rubrics_need_no_answers():
    """The judge's points are the reward, so data without answers is taken."""
    assert brings_reward(ruscarl.build(judge=pl.Judge())) and not brings_reward(ruscarl.build())


def test_the_embedded_problem_first_teaches_to_keep_criteria(context):
    """They are shown in the first part, for topics that say nothing; in the second they fade."""
    made = ruscarl.embedded(steps=10)
    first, second = made.parts["sft"], made.parts["rl"]
    assert (first.task, second.task, second.model) == ("rubrics(fixed=False)", "rubrics", pl.Output("sft"))
    ctx = context(first.task)
    asked = Group(task=ctx.bench.tasks.task("train", 0))
    group = asyncio.run(first.runnable.collect(ctx, ("k",), asked))
    assert ["judged by" in heard(ctx, e) for e in group.episodes] == [True, False]
    most = [schedule.resolve(second.runnable.collect, t).links[0].most for t in (0, 9)]
    assert most == near([1, 0], 1e-3) and second.runnable.schedule.steps == 10


def collected(ctx, at=0, **options):
    recipe = ruscarl.build(kl=0.0, **options)
    prepare(recipe, ctx)
    task = ctx.bench.tasks.task("train", 0)
    task = replace(task, meta={**task.meta, "criteria": FOUR, "points": (1, 1, 1, 1)})
    return recipe, asyncio.run(ctx.at(recipe, at).collect(ctx, ("k", at), Group(task=task)))


def heard(ctx, e):
    return ctx.decode([i for s in e.rows[0].segments if not s.replies for i in s.ids])


@pytest.mark.parametrize("place", ["system", "prompt"])
def test_each_answer_sees_fewer_criteria(context, place):
    ctx = context("rubrics")
    _, group = collected(ctx, place=place)
    shown = [[c for c in FOUR if c in heard(ctx, e)] for e in group.episodes]
    assert [len(x) for x in shown] == [4, 3, 3, 2, 2, 1, 1, 0]
    assert len({tuple(x) for x in shown if len(x) == 2}) + len({tuple(x) for x in shown if len(x) == 3}) > 2
    assert all(("system" in heard(ctx, e)) == (place == "system") for e in group.episodes[:7])
    assert [e.facts.get("guided", 0) for e in group.episodes] == near([x / 7 for x in range(7, -1, -1)])
    assert all(e.reward is not None for e in group.episodes)


def test_late_in_training_nobody_sees_any(context):
    ctx = context("rubrics")
    _, group = collected(ctx, at=200)
    assert len(group.episodes) == 8 and len({heard(ctx, e) for e in group.episodes}) == 1


@pytest.mark.parametrize("context_", ["bare", "corrected", "scaffolded"])
def test_what_is_trained_on(context, context_):
    """The bare prompt, unless it is said otherwise; the ratio begins at 1 there, or is that to what was seen."""
    ctx = context("rubrics")
    recipe, group = collected(ctx, context=context_, graded=False, fades=False)
    views = [ctx.decode(e.rows[0].view().ids_T.tolist()) for e in group.episodes]
    assert all(("judged by" in v) == (context_ == "scaffolded") for v in views)
    learner = recipe.learners["policy"]
    assert (("policy", "logp") in learner.needs) == (context_ != "corrected")
    measured, metrics = ctx.measure([group], learner.needs), {}
    examples, _ = learner.credit([group], measured, {})
    metrics = {k: float(v) for k, v in ctx.backward("policy", learner.objective, pl_pack(examples), 4096).items()}
    assert (abs(metrics["ratio"] - 1) < 1e-4) == (context_ != "corrected")


def pl_pack(examples):
    from palaestra.update import pack

    return pack(examples, "policy")


def test_advantages_are_those_of_grpo():
    assert advantages(ruscarl.build(), *scored(1, 0, 0, 0)) == near([1.5, -0.5, -0.5, -0.5], 1e-4)


def test_settings_of_the_released_code():
    found = flatten(ruscarl.build())
    ends = {"update.minibatches": 2, ".temperature": 0.7, ".top_p": 0.8, ".top_k": 20, "schedule.steps": 350}
    for end, value in ends.items():
        assert {v for k, v in found.items() if k.endswith(end)} == {value}, end
    assert 0.001 in {v for k, v in found.items() if k.endswith("weight")} and "k3" in found.values()


@pytest.mark.parametrize("arm", list(experiment_of("ruscarl").arms))
def test_two_steps_of_every_arm(arm, context):
    recipe = make_smallest(experiment_of("ruscarl").arms[arm].parts["rl"].runnable)
    ctx, state = context("rubrics"), start(0)
    prepare(recipe, ctx)
    for _ in range(2):
        state, metrics = asyncio.run(step(override(recipe, "schedule.prompts", 4), ctx, state))
        assert metrics["skipped"] == 0 and math.isfinite(metrics["loss"]) and math.isfinite(metrics["grad_norm"])
