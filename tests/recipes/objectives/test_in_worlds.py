"""Methods for worlds of several turns, two steps in one."""

import asyncio

import pytest
from palaestra.recipes.objectives import embodied_planner_r1 as planner
from palaestra.recipes.objectives import gigpo, igpo, loop, spa_rl, stratified_grpo, tempo
from palaestra.run.driver import prepare
from palaestra.settings.overrides import make_smallest
from palaestra.step import start, step
from palaestra.values import override


@pytest.mark.parametrize(
    ("recipe", "task"),
    [(gigpo.build(std=True), "grid"), (igpo.build(), "hop"), (spa_rl.build(), "grid"),
     (override(planner.build(kl=0.0, observe=False), "link.n", "2"), "grid"),
     (stratified_grpo.build(), "hop"), (loop.build("turn"), "hop"), (tempo.build(), "hop")],
    ids=["gigpo", "igpo", "spa-rl", "planner", "stratified", "loop", "tempo"],
)  # fmt: skip
def test_two_steps_in_a_world(recipe, task, context):
    ctx, state = context(task), start(0)
    recipe = make_smallest(recipe)
    prepare(recipe, ctx)
    for _ in range(2):
        state, metrics = asyncio.run(step(recipe, ctx, state))
    assert metrics["episodes"] >= 4
    for group in ctx.seen:
        for e in group.episodes:
            turns = {s.turn for r in e.rows for s in r.segments if s.trained}
            assert len(e.facts["states"]) == len(e.facts["executed"]) == len(turns)
