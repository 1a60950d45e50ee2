"""ICPO: the catalogue's values, whose answer is the expert's, what is rejected, and the bonus."""

import math
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra import schedule
from palaestra.claims.data.icpo import EXPERIMENT
from palaestra.recipes.data import icpo
from palaestra.values import flatten

from tests.objective.helpers import token_batch, token_gradient
from tests.recipes.data.guided import Pays, bare_ids, collected, credited, prompt_seen, steps_of, trained


def paid(context, bare, guided, **options):
    ctx = context("chain")
    ctx = ctx.with_bench(replace(ctx.bench, reward=Pays("guided", bare=bare, guided=guided)))
    return ctx, collected(ctx, icpo.build(**options))


def at(step, **options):
    return schedule.resolve(icpo.build(**options), step)


def test_the_expert_saw_an_example_and_the_bare_question_learns(context):
    ctx, group = paid(context, [1, *[0] * 6], [1])
    assert [e.facts.get("guided", 0) for e in group.episodes] == [0] * 7 + [1]
    seen = [prompt_seen(ctx, e) for e in group.episodes]
    question = group.task.prompt[0].content
    assert seen[-1].count("example:") == 1 and f"now:\n{question}" in seen[-1] and "example" not in seen[0]
    assert seen[-1].count(question) == 1  # not the same problem
    own = group.episodes[-1].rows[0].segments[-1].ids
    assert tuple(group.episodes[-1].rows[0].view().ids_T) == (*bare_ids(ctx, group.task), *own)


def test_advantages_of_the_catalogue(context):
    """Step 100 of 400: a right answer of the expert is worth 1.75; ddof 1."""
    _, group = paid(context, [1, *[0] * 6], [1])
    near = lambda x: pytest.approx(x, abs=1e-5)
    assert credited(at(100), [group]) == near([0.983414, *[-0.515121] * 6, 2.107315])
    assert credited(at(0, bonus=0.0, fades=0), [group]) == near([1.620182, *[-0.540061] * 6, 1.620182])
    assert credited(at(400), [group]) == credited(at(900), [group]) == near([1.620182, *[-0.540061] * 6, 1.620182])
    assert at(0).learners["policy"].credit.links[1].bonus == 1.0
    assert at(900, fades=0).learners["policy"].credit.links[1].bonus == 1.0  # it stays


def test_a_wrong_expert_is_left_out(context):
    _, group = paid(context, [1, *[0] * 6], [0])
    assert len(group.episodes) == 8 and len(trained(group)) == 7 and group.episodes[-1].muted
    seven = credited(at(0), [group])
    assert seven == pytest.approx([2.267787, *[-0.377964] * 6], abs=1e-5)
    _, group = paid(context, [1, *[0] * 6], [0], reject=False)
    assert credited(at(0, reject=False), [group])[-1] == pytest.approx(-0.353553, abs=1e-5)


def test_without_examples_there_is_no_expert(context):
    _, group = paid(context, [1, *[0] * 6], [], examples=0)
    assert len(trained(group)) == len(group.episodes) == 7 and not any("guided" in e.facts for e in group.episodes)


def test_no_bonus_for_own_answers_or_wrong_ones(context):
    _, group = paid(context, [1] * 7, [0], reject=False)
    assert credited(at(0, reject=False), [group])[:7] == pytest.approx([0.353553] * 7, abs=1e-5)


def loss_of(p, A, marked, behaviour=0.0, **options):
    columns = {"is:guided": [np.array([0.0, float(marked)])], "ref_logp": [np.array([0.0, math.log(p)])]}
    batch = token_batch([A], behaviour, **columns)
    loss, grads, _ = token_gradient(icpo.build(**options).learners["policy"].objective, batch, logp=[math.log(p)])
    return loss, *grads["logp"]


def test_the_expert_s_tokens():
    """p = .3 has .75, whatever the example made of it; without the shape .3."""
    assert loss_of(0.3, 1.0, 1, behaviour=-0.01)[0] == pytest.approx(-0.75)
    assert loss_of(0.3, 1.0, 1)[1] == pytest.approx(-0.3 * 0.1 / 0.4**2)
    assert loss_of(0.3, 1.0, 1, shaped=False) == pytest.approx((-0.3, -0.3))


@pytest.mark.parametrize(
    ("ratio", "A", "loss"), [(1.5, 1.0, -1.2), (0.5, 1.0, -0.5), (2.0, -1.0, 2.0), (9.0, -1.0, 3.0)]
)
def test_own_tokens_have_ppo_s_clip_and_the_dual_one(ratio, A, loss):
    assert loss_of(ratio * 0.1, A, 0, behaviour=math.log(0.1))[0] == pytest.approx(loss)


def test_settings_of_the_released_code():
    found, recipe = flatten(icpo.build()), icpo.build()
    ends = {
        "links.0.n": 7, "link.n": 1, "rewrite.n": 1, ".c": 3.0, "objective.constant": 0.1, ".kind": "k3",
        ".weight": 0.001, "bonus.start": 1.0, "bonus.end": 0.0, "bonus.steps": 400, "update.minibatches": 2,
    }  # fmt: skip
    for end, value in ends.items():
        values = {v for k, v in found.items() if k.endswith(end)}
        assert value in values, (end, values)
    assert recipe.references == {"ref": "policy"} and not icpo.build(kl=0.0).references


@pytest.mark.parametrize("arm", EXPERIMENT.arms)
def test_steps_of_every_arm(arm, context):
    seen = steps_of(EXPERIMENT.arms[arm], context("chain"))
    assert all(m["skipped"] == 0 and math.isfinite(m["loss"]) for m in seen)


def test_placebos_show_no_example_or_a_wrong_one(context):
    ctx = context("chain")
    group = pl.Group(task=ctx.bench.tasks.task("train", 0))
    rewrites = {a: EXPERIMENT.arms[a].collect.links[1].rewrite for a in ("icpo-rs", "think instead", "mismatched")}
    shown = {a: r(ctx, group, np.random.default_rng(0)) for a, r in rewrites.items()}
    assert shown["think instead"].prompt[0].content == "think step by step"
    for arm, right in (("icpo-rs", True), ("mismatched", False)):
        _, question, *lines = shown[arm].prompt[0].content.split("\nnow:")[0].splitlines()
        assert (lines[0].split("=")[0] == question[:3]) == right
    assert not EXPERIMENT.lacks()
