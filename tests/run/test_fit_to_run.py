"""Sizes that follow the run's: as many groups as a step draws, and the longest answer of the run."""

import asyncio
from dataclasses import replace

import palaestra as pl
import pytest
from palaestra import catalogue, values
from palaestra.method import Recipe
from palaestra.objective.tokens import DualClipped
from palaestra.schedule import FitsRun, fit_to_run
from palaestra.types import Episode, Group, Reward, Task

POOLS = {
    "rlpr": {},
    "cog-rethinker": {},
    "confucius3": {},
    "high-entropy-tokens": {},
    "sws": {"mixed": True},
}
LENGTHS = ["dr-grpo", "llamarl", "spiral", "critique-grpo", "ampo", "rl-plus", "confucius3"]


def in_run(context, recipe, prompts=128, max_tokens=4096):
    ctx = context()
    ctx.bench = replace(ctx.bench, max_tokens=max_tokens)
    return ctx.at(pl.vary(recipe, schedule=replace(recipe.schedule, prompts=prompts)), 0)


@pytest.mark.parametrize("method", POOLS)
def test_a_pool_keeps_as_many_groups_as_a_step_draws(context, method):
    recipe = pl.recipe(method, **POOLS[method])
    assert in_run(context, recipe).pool.size == 128
    own = pl.override(recipe, "pool.size", 5)
    assert in_run(context, own).pool.size == 5


@pytest.mark.parametrize("method", LENGTHS)
def test_a_loss_is_divided_by_the_runs_longest_answer(context, method):
    def lengths(recipe):
        return {x for k, x in values.flatten(recipe).items() if k.endswith(".length") and "objective" in k}

    assert lengths(in_run(context, pl.recipe(method))) == {4096}
    assert lengths(in_run(context, pl.recipe(method, length=77))) == {77}


@pytest.mark.parametrize("given, length, cache", [({}, 4096, 1024), ({"length": 100}, 100, 25)])
def test_the_overlong_punishment_begins_near_the_longest_answer(context, given, length, cache):
    recipe = in_run(context, pl.recipe("dapo", cache=0.25, **given))
    overlong = recipe.learners["policy"].credit.links[0]
    assert (overlong.length, overlong.cache) == (length, cache)


@pytest.mark.parametrize("given, answer, tokens", [(None, 4096, 4096), (None, 24, 256), (100, 4096, 100)])
def test_a_critique_may_be_as_long_as_an_answer(context, given, answer, tokens):
    recipe = in_run(context, pl.recipe("capo", critique_tokens=given), max_tokens=answer)
    assert recipe.collect.links[2].critic.max_tokens == tokens


def test_no_recipe_has_a_length_of_its_own():
    """The toy's 64 tokens are in no recipe as it is built."""
    for entry in catalogue.all_entries():
        made = catalogue.find(entry.id).build() if entry.built else None
        for path, part in values.walk(made) if isinstance(made, Recipe) else ():
            constant = isinstance(part, FitsRun) and getattr(part, "reduce", "") == "constant"
            assert not constant or part.length != 64, f"{entry.id}: {path}"


@pytest.mark.parametrize("loss", [pl.Clipped, pl.Reinforce, pl.Shaped, DualClipped])
def test_only_what_is_open_follows(loss):
    make = lambda **given: loss(**({"form": "power"} if loss is pl.Shaped else {}), **given)
    assert fit_to_run(make(reduce="constant"), 8, 99).length == 99
    for other in (make(reduce="tokens"), make(reduce="constant", length=3)):
        assert fit_to_run(other, 8, 99) is other


def test_the_spread_filter_keeps_a_whole_batch(context):
    """128 groups in, 128 out from the step on at which the filter begins."""
    recipe = in_run(context, pl.recipe("rlpr"))
    pool = replace(recipe.pool, start=2, collect_from=1)
    task = Task(id="0", prompt=(), answer="1")
    groups = [
        Group(task=task, episodes=tuple(Episode(rows=(), reward=Reward(total=x)) for x in (0.0, 1.0)))
        for _ in range(128)
    ]

    async def steps():
        state = {}
        for _ in range(2):
            kept, _, state = await pool(None, groups, state)
        return kept

    assert len(asyncio.run(steps())) == 128


def test_a_replay_holds_what_two_steps_give(context):
    credit = in_run(context, pl.recipe("eframe", n=5), prompts=64).learners["policy"].credit
    assert credit.capacity == 2 * 5 * 64
