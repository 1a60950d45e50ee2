"""GHPO: the ladder of hints, who is asked again, and the catalogue's values."""

import asyncio
import math
from dataclasses import replace

import palaestra as pl
import pytest
from palaestra import schedule
from palaestra.explanation.method import explain
from palaestra.recipes.data import ghpo
from palaestra.run.driver import prepare
from palaestra.settings.overrides import make_smallest
from palaestra.step import start, step
from palaestra.types import Group, Reward
from palaestra.values import flatten

from tests.recipes.objectives.helpers import near


def test_advantages_of_a_guided_group():
    """Accuracy [1, 0 x 7] and the format always: rewards 1.5 and 0.5, A = 2.474174 and -0.353453 (ddof 1, eps 1e-4)."""
    rewards = [1.5] + [0.5] * 7
    found = explain(ghpo.build(), [[{"reward": r, "length": 1} for r in rewards]])["advantages"][0]
    assert found == near([2.474174] + [-0.353453] * 7, 1e-6)


def trained(group):
    """The episodes that are trained on: those that took the place of failures."""
    return [e for e in group.episodes if not e.muted]


class Right:
    """A reward by the texts of the prompts: right where the prompt shows so many characters of the working, or more."""

    def __init__(self, least):
        self.least, self.asked = least, []

    async def __call__(self, ctx, group):
        shown = [int(100 * e.facts.get("guided", 0)) for e in group.episodes]
        self.asked.append(shown)
        return [
            Reward(total=float(i == 0 and n >= self.least), solved=i == 0 and n >= self.least)
            for i, n in enumerate(shown)
        ]


@pytest.mark.parametrize("place", ["prompt", "start"])
@pytest.mark.parametrize(
    ("least", "rungs"), [(0, [0]), (25, [0, 25]), (50, [0, 25, 50]), (75, [0, 25, 50, 75]), (99, [0, 25, 50, 75])]
)
def test_the_ladder_climbs_while_the_whole_group_is_wrong(context, least, rungs, place):
    ctx, judge = context("chain"), Right(least)
    ctx = ctx.with_bench(replace(ctx.bench, reward=judge))
    recipe = ghpo.build(place=place)
    group = asyncio.run(recipe.collect(ctx, ("k", 1), Group(task=ctx.bench.tasks.task("train", 0))))
    assert [set(x) for x in judge.asked] == [{r} for r in rungs]
    assert [len(x) for x in judge.asked] == [8] * len(rungs)  # all answers are sampled again
    assert len(trained(group)) == 8 and {e.facts.get("guided", 0) for e in trained(group)} == {rungs[-1] / 100}
    assert len(group.episodes) == 8 * len(rungs)  # what was sampled in vain stays in the numbers
    assert group.task == ctx.bench.tasks.task("train", 0)


def test_only_the_accuracy_decides(context):
    """Wrong answers in their form are worth .5, and are asked again; right ones have both."""
    ctx = context("chain")

    async def wrong(ctx, group):
        return [Reward(total=0.0, solved=False) for _ in group.episodes]

    ctx = ctx.with_bench(replace(ctx.bench, reward=wrong))
    group = asyncio.run(ghpo.build().collect(ctx, ("k", 1), Group(task=ctx.bench.tasks.task("train", 0))))
    assert {e.facts["guided"] for e in trained(group)} == {0.75}
    assert {e.total for e in group.episodes} <= {0.0, 0.5} and any(e.total for e in group.episodes)
    assert all(e.reward.parts["accuracy"] == 0 and e.total == 0.5 * e.reward.parts["format"] for e in group.episodes)


def test_format_is_an_answer_in_its_place():
    add = lambda total, text: pl.rewards.AccuracyAndFormat().add(Reward(total=total, parts={"exact": total}), text)
    assert [add(1.0, "= 3").total, add(0.0, "= 3").total, add(0.0, "3").total, add(0.0, "it is \\boxed{3}").total] == [
        1.5,
        0.5,
        0.0,
        0.5,
    ]
    assert add(1.0, "= 3").parts == {"exact": 1.0, "accuracy": 1.0, "format": 1.0}


def test_a_hint_is_in_the_prompt_or_in_the_reply(context):
    ctx = context("chain")
    task = ctx.bench.tasks.task("train", 0)
    working = "\n".join([*ctx.bench.tasks.steps(task), f"= {task.answer}"])
    shown = working[: round(0.5 * len(working))]

    def row(**options):
        recipe = ghpo.build(shares=(0.5,), every=True, **options)
        return asyncio.run(recipe.collect(ctx, ("k", 1), Group(task=task))).episodes[-1].rows[0]

    hinted, bare, begun = row(), row(context="bare"), row(place="start")
    prompt = lambda r: ctx.decode([i for s in r.segments if not s.replies for i in s.ids])
    assert f"hint:\n{shown.strip()}" in prompt(hinted) and prompt(hinted) == prompt(bare)
    assert "hint:" not in ctx.decode(bare.view().ids_T.tolist()) and "hint:" in ctx.decode(hinted.view().ids_T.tolist())
    forced = [s for s in begun.segments if s.author == "forced"]
    assert [s.text for s in forced] == [shown] and "hint:" not in ctx.decode(begun.context())
    other = row(place="start", shuffled=True)
    assert [s.text for s in other.segments if s.author == "forced"] != [shown]


@pytest.mark.parametrize("place", ["prompt", "start"])
def test_where_every_prompt_is_guided_no_bare_answer_is_sampled(context, place):
    """The share may be a schedule, and is told as it is; where nothing is left to show, answers are bare."""
    judge, ctx = Right(0), context("chain")
    ctx = ctx.with_bench(replace(ctx.bench, reward=judge))
    recipe, group = (
        ghpo.build((pl.Linear(0.5, 0.0, 4),), every=True, place=place),
        Group(task=ctx.bench.tasks.task("train", 0)),
    )
    for at, share in ((0, 0.5), (2, 0.25), (4, 0.0), (9, 0.0)):
        judge.asked.clear()
        made = asyncio.run(schedule.resolve(recipe, at).collect(ctx, ("k", at), group))
        assert judge.asked[-1] == [int(100 * share)] * 8 and len(made.episodes) == len(trained(made)) == 8
        assert {e.facts.get("guided", 0.0) for e in made.episodes} == {share}


def test_hints_begin_later(context):
    recipe, ctx = ghpo.build(warm=3, form=0.0), context("chain")

    async def wrong(ctx, group):
        return [Reward(total=0.0) for _ in group.episodes]

    ctx = ctx.with_bench(replace(ctx.bench, reward=wrong))
    group = Group(task=ctx.bench.tasks.task("train", 0))
    for at, shares in ((2, {0.0}), (3, {0.75})):
        made = asyncio.run(schedule.resolve(recipe, at).collect(ctx, ("k", at), group))
        assert {e.facts.get("guided", 0.0) for e in trained(made)} == shares and len(trained(made)) == 8


def test_a_world_that_pays_has_no_format(context):
    """Its pay is the accuracy."""
    ctx = context("grid")
    recipe, group = ghpo.build(), Group(task=ctx.bench.tasks.task("train", 0))
    made = asyncio.run(recipe.collect(ctx, ("k", 1), group))
    assert len(trained(made)) == 8 and all("format" not in e.reward.parts for e in made.episodes)


def test_settings_of_the_released_code():
    found = flatten(ghpo.build())
    shares = [v for k, v in found.items() if k.endswith(".share")]
    ends = {
        "links.0.n": 8,
        ".eps": 1e-4,
        ".ddof": 1,
        ".low": 0.2,
        ".high": 0.2,
        "parts.0.reduce": "tokens",
        "guidance.unit": "characters",
    }
    for end, value in ends.items():
        assert {v for k, v in found.items() if k.endswith(end) and "optimiser" not in k} == {value}, end
    assert shares == [0.25, 0.5, 0.75]


@pytest.mark.parametrize("options", [{"context": "bare"}, {"place": "start"}])
def test_two_steps_log_the_share_of_hints(context, options):
    recipe, ctx, state = make_smallest(ghpo.build(**options)), context("add(d=6)"), start(0)
    prepare(recipe, ctx)
    seen = []
    for _ in range(2):
        state, metrics = asyncio.run(step(recipe, ctx, state))
        seen.append(metrics)
    assert all(m["skipped"] == 0 and math.isfinite(m["loss"]) for m in seen if "loss" in m)
    assert max(m.get("is:guided", 0.0) for m in seen) > 0
