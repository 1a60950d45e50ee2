"""Guidance is parts, not rows: demonstrations in a group, shaped surrogates and hidden hints go with every objective of the
base family, and with others that are built another way."""

import asyncio
import math

import palaestra as pl
import pytest
from palaestra.models.load import weights_sha256
from palaestra.recipes.data.ampo import always
from palaestra.run.driver import prepare
from palaestra.settings.overrides import make_smallest
from palaestra.step import start, step
from palaestra.types import Group
from palaestra.values import override, vary

# what credits by a chain of links, so that `Fact` may mark tokens; both others read no behaviour log-prob
CHAINS = ["reinforce", "rloo", "grpo", "ppo"]
# token weights of the batch, a residual, a reference, turns, a prefix tree, another reduction
OTHERS = ["high-entropy-tokens", "kimi-k1.5", "apo", "gigpo", "tempo", "dr-grpo"]
PAIRS = ["sft", "dpo"]
MARK = "demonstration"


def two_steps(recipe, context):
    """The metrics of two steps that each moved the policy, and skipped no update."""
    recipe = override(make_smallest(recipe), "schedule.prompts", 4)
    ctx, state, seen = context("chain"), start(0), []
    prepare(recipe, ctx)
    for _ in range(2):
        before = weights_sha256(ctx.model("policy"))
        state, metrics = asyncio.run(step(recipe, ctx, state))
        assert metrics["skipped"] == 0 and math.isfinite(metrics["loss"]) and math.isfinite(metrics["grad_norm"])
        seen.append((metrics, weights_sha256(ctx.model("policy")) != before))
    assert any(moved for _, moved in seen)
    return [m for m, _ in seen]


def with_facts(learner, *names):
    return pl.Chain((*map(pl.Fact, names), *learner.credit.links), learner.credit.unit)


@pytest.mark.parametrize("name", CHAINS + OTHERS)
def test_demonstrations_in_a_group(name, context):
    """What the objective reads of its own tokens is not asked of those that nobody sampled."""
    recipe = pl.recipe(name)
    learner = recipe.learners["policy"]
    swap = pl.rollout.Swap(k=1, when=always, mark=MARK)
    loss = pl.On(MARK, pl.Shaped()) + pl.On(MARK, learner.objective, absent=True)
    made = vary(
        recipe, collect=pl.links(recipe.collect, swap), credit=with_facts(learner, MARK), objective=loss
    )  # fmt: skip
    seen = two_steps(made, context)
    assert max(m[f"{MARK}/shaped"] for m in seen) > 0


@pytest.mark.parametrize("name", PAIRS)
def test_demonstrations_in_pairs(name, context):
    recipe = pl.recipe(name)
    two_steps(vary(recipe, collect=pl.links(recipe.collect, pl.rollout.Swap(k=1, when=always))), context)


def test_a_ratio_to_what_nobody_sampled_is_skipped(context):
    """Without `On`, a demonstration's behaviour is unknown, and the update is not made."""
    recipe = pl.recipe("grpo")
    bare = vary(recipe, collect=pl.links(recipe.collect, pl.rollout.Swap(k=1, when=always)))
    with pytest.raises(AssertionError):
        two_steps(bare, context)


@pytest.mark.parametrize("name", CHAINS + PAIRS + OTHERS)
def test_hints_that_training_does_not_see(name, context):
    """Answers behind a hint join the group of the bare prompt, whatever learns from it."""
    recipe = pl.recipe(name)
    link = pl.Demonstrate() if name == "sft" else pl.Sample(n=2)
    hinted = pl.Under(pl.Hinted(pl.Working(0.5)), link)
    made = vary(recipe, collect=pl.links(recipe.collect, hinted, pl.Hide(), pl.Score()))
    two_steps(made, context)
    ctx = context("chain")
    group = asyncio.run(make_smallest(made).collect(ctx, ("k", 1), Group(task=ctx.bench.tasks.task("train", 0))))
    shown = [e for e in group.episodes if e.facts.get("guided")]
    assert shown and all("hint:" in ctx.decode(e.rows[0].context()) for e in shown)
    assert not any("hint:" in ctx.decode(e.rows[0].view().ids_T.tolist()) for e in group.episodes)


@pytest.mark.parametrize("form", ["power", "saturating", "quantile", "mixture"])
@pytest.mark.parametrize("name", ["rloo", "ppo", "gigpo"])
def test_shaped_surrogates_of_other_advantages(name, form, context):
    recipe = pl.recipe(name)
    needs = {("policy", "logp"), *recipe.learners["policy"].needs}
    old = {"mixture": "policy", "quantile": "behaviour"}.get(form, "unknown")
    seen = two_steps(vary(recipe, objective=pl.Shaped(form, old=old), needs=tuple(sorted(needs))), context)
    assert all(m["shaped"] > 0 for m in seen)
