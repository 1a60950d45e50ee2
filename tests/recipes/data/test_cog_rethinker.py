"""Cog-Rethinker: who goes on to which stage, what is imitated, what is remembered, and a few steps of every arm."""

import asyncio
import math
from dataclasses import replace

import numpy as np
import pytest
from palaestra.curriculum.memory import notes_of
from palaestra.ledger.experiment import experiment_of
from palaestra.recipes.data import cog_rethinker as cog
from palaestra.run.driver import prepare
from palaestra.settings.overrides import make_smallest
from palaestra.step import start, step
from palaestra.types import Group, Message, Reward
from palaestra.update import pack
from palaestra.values import override

from tests.objective.helpers import token_batch, token_gradient

NEVER = 9


class SolvedAt:
    """The first answer of a task is right in the stage that it needs, and in no earlier one."""

    def __init__(self, needs):
        self.needs = needs

    async def __call__(self, ctx, group):
        need, stage = self.needs[group.task.id], stage_of(group.task)
        return [
            Reward(total=float(i == 0 and need == stage), solved=i == 0 and need == stage)
            for i in range(len(group.episodes))
        ]


def stage_of(task):
    """By the prompt alone."""
    said = "".join(m.content for m in task.prompt)
    return 3 if "try again" in said else 2 if cog.DECOMPOSE in said else 1


def collected(ctx, recipe, needs, **meta):
    tasks = [ctx.bench.tasks.task("train", i) for i in range(len(needs))]
    tasks = [replace(t, meta={**t.meta, **meta}) for t in tasks]
    judge = SolvedAt({t.id: n for t, n in zip(tasks, needs, strict=True)})
    ctx = ctx.with_bench(replace(ctx.bench, reward=judge))
    return [asyncio.run(recipe.collect(ctx, ("k", i), Group(task=t))) for i, t in enumerate(tasks)]


def shown(group, stage):
    """The prompts of a stage's answers."""
    return {
        "".join(s.text for s in e.rows[0].segments if s.logp is None)
        for e in group.episodes
        if e.facts.get("stage", 1) == stage and "reattached" not in e.facts
    }


@pytest.fixture
def ten(context):
    """10 prompts: 6 are solved directly, 2 after decomposition, 1 of the remaining 2 after reflection."""
    ctx, recipe = context("chain"), cog.build()
    return ctx, recipe, collected(ctx, recipe, [1] * 6 + [2, 2, 3, NEVER])


def test_utilisation_of_ten_prompts(ten):
    """9 of 10 prompts are used, 6 with the direct prompt alone, and three are imitated."""
    _, _, groups = ten
    assert [any(e.solved for e in g.episodes) for g in groups] == [True] * 9 + [False]
    assert [sum("stage" in e.facts for e in g.episodes) for g in groups] == [0] * 6 + [8, 8, 16, 16]
    assert [sum("reattached" in e.facts for e in g.episodes) for g in groups] == [0] * 6 + [1, 1, 1, 0]
    assert [sum(not e.muted for e in g.episodes) for g in groups] == [8] * 6 + [9, 9, 9, 8]


def test_each_stage_has_its_prompt(ten):
    _, _, groups = ten
    (direct,), (split,), (again,) = (shown(groups[8], n) for n in (1, 2, 3))
    assert cog.DECOMPOSE in split and cog.DECOMPOSE not in direct + again
    assert cog.REFLECT in again and "try again" in again
    wrong = {e.rows[0].segments[-1].text for e in groups[8].episodes if "stage" not in e.facts or e.facts["stage"] == 2}
    assert any(w.strip() in again for w in wrong)


def test_what_is_imitated_stands_behind_the_bare_question(ten):
    ctx, _, groups = ten
    for g in groups[6:9]:
        (told,) = [e for e in g.episodes if "reattached" in e.facts]
        right = next(e for e in g.episodes if e.facts.get("stage") and e.solved)
        bare = [i for p in ctx.engine().dialect.extend(g.task.prompt, first=True, closed=False) for i in p.ids]
        said = told.rows[0].segments[-1]
        assert told.rows[0].view().ids_T.tolist()[: len(bare)] == bare
        assert said.text == "".join(s.text for s in right.rows[0].segments if s.logp is not None)
        assert said.trained and not told.reward.judged


def test_stages_are_compared_by_themselves(ten):
    """One of eight is right: A = (1 - 1/8) / std and (0 - 1/8) / std with ddof 1, whatever stage it is."""
    ctx, recipe, groups = ten
    learner, std = recipe.learners["policy"], math.sqrt(1 / 8)
    for g in (groups[0], groups[6], groups[8]):
        found, _ = learner.credit([g], ctx.measure([g], learner.needs), {})
        batch = pack(found, "policy")
        own = (batch["is:reattached"] == 0) & (batch.mask > 0)
        given = [float(a[m].mean()) for a, m in zip(batch["advantage"], own, strict=True) if m.any()]
        assert given == pytest.approx([7 / 8 / std] + [-1 / 8 / std] * 7, abs=1e-4)


@pytest.mark.parametrize(("stages", "solved"), [((), [1]), ((2,), [1, 2]), ((3,), [1, 3]), ((2, 3), [1, 2, 3])])
def test_stages_can_be_left_out(context, stages, solved):
    groups = collected(context("chain"), cog.build(stages=stages), [1, 2, 3])
    assert [any(e.solved for e in g.episodes) for g in groups] == [n in solved for n in (1, 2, 3)]


def test_the_loss_is_that_of_dapo_and_of_imitation():
    """rho = 1.5 at A = 1 is cut at 1.28; 0.1 of -log pi = 2; each mean is over its own tokens."""
    objective = cog.build().learners["policy"].objective
    batch = token_batch([1.0, 1.0, 0.0], -1.0, **{"is:reattached": [np.zeros(2), np.zeros(2), np.ones(2)]})
    loss, grads, _ = token_gradient(objective, batch, logp=[math.log(1.5) - 1, -1.0, -2.0])
    assert loss == pytest.approx(-(1.28 + 1.0) / 2 + 0.1 * 2)
    assert grads["logp"] == pytest.approx([0.0, -0.5, -0.1])
    assert "reattached" not in str(cog.build(imitate=0.0).collect)


def test_what_is_remembered_is_shown_to_similar_questions(ten):
    """Of each rescued question its answer, by stage; never a question's own one; the most similar one by its words."""
    _, recipe, groups = ten
    state = recipe.observe(groups, {}, {})
    notes = notes_of(state)
    assert [n.facts["stage"] for n in notes] == [2, 2, 3]
    put = cog.Recollect(1)
    like = replace(groups[0].task, prompt=(Message(role="user", content=f"{notes[1].facts['question']} 99"),))
    found = put(like, notes).meta["recollected"]
    assert found[2] == ((notes[1].facts["question"], notes[1].text),) and len(found[3]) <= 1
    own = put(groups[8].task, notes).meta["recollected"]
    assert own[3] == ()
    assert put(groups[0].task, ()).meta["recollected"] == {2: (), 3: ()}


def test_memory_and_seeds_are_shown(context):
    ctx = context("chain")
    seeds = ((("1+1?", "= 2"),), (("2+2?", "= 4"),))
    (group,) = collected(ctx, cog.build(seeds=seeds), [NEVER])
    ((split,), (again,)) = (shown(group, n) for n in (2, 3))
    assert "example:\n1+1?\n= 2\nnow:\n" in split and "example:\n2+2?\n= 4\nnow:\n" in again
    memory = {2: (("3+3?", "= 6"),), 3: ()}
    (group,) = collected(ctx, cog.build(seeds=seeds), [NEVER], recollected=memory)
    ((split,), (again,)) = (shown(group, n) for n in (2, 3))
    assert "3+3?" in split and "1+1?" not in split and "2+2?" in again


def test_no_more_than_most_are_imitated(context):
    ctx, recipe = context("chain"), cog.build(most=2)

    async def all_right(ctx, group):
        right = float(stage_of(group.task) == 2)
        return [Reward(total=right, solved=bool(right)) for _ in group.episodes]

    ctx = ctx.with_bench(replace(ctx.bench, reward=all_right))
    group = asyncio.run(recipe.collect(ctx, ("k", 1), Group(task=ctx.bench.tasks.task("train", 0))))
    assert sum("reattached" in e.facts for e in group.episodes) == 2


def test_groups_with_equal_rewards_are_drawn_anew(ten):
    _, recipe, groups = ten
    ready, _, _ = asyncio.run(replace(recipe.pool, size=9)(None, groups, {}))
    assert ready == groups[:9]


@pytest.mark.parametrize("arm", list(experiment_of("cog-rethinker").arms))
def test_two_steps_of_every_arm(arm, context):
    recipe = make_smallest(experiment_of("cog-rethinker").arms[arm])
    ctx, state = context("add(d=4)"), start(0)
    prepare(recipe, ctx)
    for _ in range(2):
        state, metrics = asyncio.run(step(override(recipe, "pool.size", 2), ctx, state))
        assert metrics["skipped"] == 0 and math.isfinite(metrics["loss"]) and math.isfinite(metrics["grad_norm"])
