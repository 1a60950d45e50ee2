"""Endogenous reward: the catalogue's numbers, and the likelihood inside a group."""

import asyncio
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.claims.rewards.endogenous_reward import KINDS, SHARES, WRONG, Ranking, pairs_of
from palaestra.credit.links import Center, Scale, chain
from palaestra.models.score import logit_and_value
from palaestra.recipes.rewards import endogenous_reward
from palaestra.rewards.intrinsic import Endogenous, endogenous_rewards
from palaestra.rewards.verify import response_text
from palaestra.rollout.collect import Score
from palaestra.run.driver import prepare
from palaestra.types import Reward

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


def test_deciding_seeds_have_other_facts_than_trials():
    every = [pairs_of(seed) for seed in (*range(SHARES), 2000)]
    asked, known = [{p.question for p in pairs} for pairs in every], pl.toys.CommonFacts().known
    assert sum(map(len, every)) == WRONG * sum(kind in KINDS for kind, *_ in known)
    assert len(set.union(*asked)) == sum(map(len, asked)) and pairs_of(200) != every[0]
    assert {p.question for p in pairs_of(1000)} == asked[-1]
    answers = {question: (kind, answer) for kind, question, answer in known}
    for p in every[0]:
        assert answers[p.question] == (p.kind, p.right) and (p.kind, p.wrong) in answers.values()
        assert answers[p.other][0] == p.kind and len({p.right, p.wrong, answers[p.other][1]}) == 3


def length(ctx, group):
    return [Reward(total=float(len(response_text(e)))) for e in group.episodes]


def right(ctx, group):
    return [Reward(total=float(response_text(e) == group.task.answer)) for e in group.episodes]


def same(ctx, group):
    return [Reward(total=1.0) for _ in group.episodes]


@pytest.mark.parametrize(("reward", "expected"), [(right, 1.0), (same, 0.5), (length, None)])
def test_a_ranking_counts_pairs(context, reward, expected):
    """Ties are half; `more letters` looks at pairs alone whose right answer has more of them."""

    async def judge(ctx, group):
        return reward(ctx, group)

    metrics = asyncio.run(Ranking(judge).run(context("facts"))).metrics
    more, fewer = (np.mean([sign * (len(p.right) - len(p.wrong)) > 0 for p in pairs_of(0)]) for sign in (1, -1))
    assert metrics["ranked"] == pytest.approx((more + 1 - fewer) / 2 if expected is None else expected)
    assert metrics["more letters"] == (1.0 if expected is None else expected)
    assert expected is None or all(metrics[f"ranked/{k}"] == expected for k in KINDS)


def test_a_ranking_can_ask_another_question(context):
    asked = []

    async def judge(ctx, group):
        asked.append(group.task.prompt[0].content)
        return same(ctx, group)

    ctx = context("facts")
    asyncio.run(Ranking(judge).run(ctx))
    asyncio.run(Ranking(judge, own=False).run(ctx))
    own, other = asked[: len(asked) // 2], asked[len(asked) // 2 :]
    assert own == [p.question for p in pairs_of(0)] and other == [p.other for p in pairs_of(0)]


def test_a_judge_is_asked_in_the_words_that_are_chosen(context):
    """Its template is replaced, and the verdict is read as before."""
    seen = []

    def likes_the_first(request):
        seen.append(request.messages[-1].content)
        return "[[A]]"

    judge = pl.Pairwise(client=pl.Scripted(likes_the_first))
    metrics = asyncio.run(Ranking(judge, words="which is right").run(context("facts"))).metrics
    assert metrics["ranked"] == 0.5 and all("Which of the two is the right answer?" in text for text in seen)
    assert len(seen) == 2 * len(pairs_of(0))
