"""Endogenous reward: the catalogue's numbers, and the likelihood inside a group."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from palaestra.credit.links import Center, Scale, chain
from palaestra.models.score import logit_and_value
from palaestra.recipes.rewards import endogenous_reward
from palaestra.rewards.intrinsic import Endogenous, endogenous_rewards
from palaestra.rollout.collect import Score
from palaestra.run.driver import prepare

from tests.recipes.helpers import played
from tests.recipes.rewards.helpers import attempts, reward_of, run


def test_endogenous_reward_of_the_catalogue():
    logits, actions = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 0.0]], dtype=torch.float64), torch.tensor([0, 1])
    f, v = logit_and_value(logits, actions).T.numpy()
    assert v == pytest.approx([2.407606, 1.551445], abs=1e-6)
    r = endogenous_rewards(f, v)
    assert r == pytest.approx([0.448555, 1.0], abs=1e-6) and r.sum() == pytest.approx(1.448555, abs=1e-6)
    assert r.sum() - v[0] == pytest.approx(-0.959051, abs=1e-6)
    logits[1] += 5
    moved = endogenous_rewards(*logit_and_value(logits, actions).T.numpy())
    assert moved - r == pytest.approx([-5, 5]) and moved.sum() == pytest.approx(r.sum())


def test_endogenous_reward_is_the_likelihood_inside_a_group(context):
    """V(s_1) is one constant, so group-relative advantages are those of log pi(y | x)."""
    recipe, ctx = endogenous_reward.build(), context()
    prepare(recipe, ctx)
    group = attempts(ctx, "= 3", "1+1=2\n= 2", "no", "")
    scores = [r.total for r in run(reward_of(recipe)(ctx, group))]
    learner = recipe.learners["policy"]
    signals = ctx.measure([group], (("ref", "logp"),))[0]
    logp = [float(s[0]["ref_logp"].sum()) for s in signals]
    relative = chain(Center("group"), Scale("group"))
    for x in (scores, logp):
        assert np.ptp(x) > 1
    a, b = (explained(relative, x) for x in (scores, logp))
    assert a == pytest.approx(b, abs=1e-4)
    assert reward_of(recipe) == Endogenous("ref") and learner.credit.links[0].kl == 0.01
    assert recipe.references == {"ref": "policy"}


def explained(credit, totals):
    examples, _ = credit([played(*totals)], [], {})
    return [float(e.columns["advantage"][1]) for e in examples]


def test_endogenous_token_rewards_reach_the_critic(context):
    recipe, ctx = endogenous_reward.build(kl=0.0), context()
    prepare(recipe, ctx)
    group = run(Score(reward=reward_of(recipe))(ctx, (), attempts(ctx, "= 3")))
    (e,) = group.episodes
    zero = [[[{"policy_value": np.zeros(len(r.view().ids_T))} for r in e.rows]]]
    gae = replace(recipe.learners["policy"].credit.links[0], lam=1.0)
    ((example,), _) = chain(gae)([group], zero, {})
    returns = example.columns["return"][e.rows[0].view().trained_T]
    assert returns[0] == pytest.approx(e.total) and returns[-1] == pytest.approx(e.reward.events[-1].value)
