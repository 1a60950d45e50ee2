"""KDRL: the two estimators' values and gradients, masks, the schedule, and the teacher in the reward."""

import asyncio
import math
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.claims.data.kdrl import EXPERIMENT
from palaestra.errors import UserError
from palaestra.models.model import Model
from palaestra.recipes.data import kdrl
from palaestra.run.driver import prepare
from palaestra.schedule import resolve
from palaestra.settings.overrides import make_smallest
from palaestra.step import start, step
from palaestra.types import Group

from tests.fake import FakeContext, task
from tests.objective.helpers import token_batch, token_gradient

PI, TEACHER = (0.6, 0.4), (0.9, 0.1)


def learner(**options):
    return resolve(kdrl.build(**options), 0).learners["policy"]


def mean_over_actions(**options):
    """The loss without reward and its gradient on the logit of action 1, over actions drawn from pi."""
    objective = learner(rl=False, **options).objective
    loss, slope = 0.0, 0.0
    for a, (p, t) in enumerate(zip(PI, TEACHER, strict=True)):
        batch = token_batch([0.0], math.log(p), teacher_logp=[np.array([0.0, math.log(t)])])
        one, grads, _ = token_gradient(objective, batch, logp=[math.log(p)])
        loss += p * one
        slope += p * grads["logp"][0] * ((a == 0) - PI[0])  # d log pi(a) / d logit of the first
    return loss, slope


@pytest.mark.parametrize(
    ("kind", "value", "slope"), [("k2", 0.433683, -0.430022), ("k3", 0.311239, -0.300000), (None, 0.433683, -0.430022)]
)
def test_reference_values(kind, value, slope):
    """pi = (.6, .4), T = (.9, .1): the reverse KL is .311239, its gradient -.430022; k2 has the gradient, k3 the value."""
    assert mean_over_actions(kind=kind) == pytest.approx((value, slope), abs=1e-6)
    exact = sum(p * math.log(p / t) for p, t in zip(PI, TEACHER, strict=True))
    assert exact == pytest.approx(0.311239, abs=1e-6)


def test_the_annealed_weight_reaches_its_end_at_step_80():
    at = lambda t: resolve(kdrl.build(kdrl.ANNEALED), t).learners["policy"].objective.parts[1].weight
    assert [at(t) for t in (0, 40, 80, 500)] == pytest.approx([5e-3, 3e-3, 1e-3, 1e-3])
    assert at(79) > 1e-3


def test_the_loss_is_the_surrogate_plus_beta_times_the_kl():
    """A = 2, pi = pi_old, u = log(.6 / .9): -2 + .5 u^2 / 2."""
    batch = token_batch([2.0], math.log(0.6), teacher_logp=[np.array([0.0, math.log(0.9)])])
    loss, _, _ = token_gradient(learner(beta=0.5).objective, batch, logp=[math.log(0.6)])
    assert loss == pytest.approx(-2 + 0.25 * math.log(0.6 / 0.9) ** 2)
    assert token_gradient(learner(beta=0.0).objective, batch, logp=[math.log(0.6)])[0] == pytest.approx(-2)


def test_without_a_teacher_one_is_made_on_the_embedded_problem():
    made = kdrl.embedded(0.2)
    assert made.parts["kdrl"].models == {"teacher": pl.Output("teacher")}
    assert made.parts["kdrl"].runnable == kdrl.build(0.2)


def credit_of(totals, **options):
    """The columns of every example of two groups with such rewards."""
    ctx, asked = FakeContext(), task("t", (0,), ())
    ctx.models["teacher"] = ctx.models["ref"]
    with torch.no_grad():
        ctx.models["teacher"].U += 0.3 * torch.arange(6.0)
    groups = []
    for g, rewards in enumerate(totals):
        made = [ctx.sample(asked, ("kd", g, n), length=1 + n) for n in range(len(rewards))]
        paid = (replace(e, reward=pl.Reward(total=float(r), solved=r == 1)) for e, r in zip(made, rewards, strict=True))
        groups.append(Group(task=asked, episodes=tuple(paid)))
    made = learner(**options)
    signals = ctx.measure(groups, made.needs)
    return made.credit(groups, signals, {})[0], signals, groups


def test_a_teacher_of_another_vocabulary_is_refused(context, monkeypatch):
    """Its log-probs of the student's token ids were those of other texts, in silence."""
    ctx = context()
    own = ctx.model("policy")
    other = own.tokenizer.train_new_from_iterator(["other words"] * 9, 300)
    monkeypatch.setattr(ctx, "load", lambda name, lora=None: Model("other", own.module, other, "elsewhere"))
    with pytest.raises(UserError, match=r"elsewhere has another vocabulary .* take one of the same base"):
        prepare(kdrl.build(teacher="elsewhere"), ctx)


@pytest.mark.parametrize(("mask", "taught"), [("answers", [0, 1, 1, 1, 1]), ("groups", [0, 0, 0, 1, 1])])
def test_masks(mask, taught):
    """The groups are right, wrong, wrong; and wrong, wrong."""
    found, _, _ = credit_of([[1, 0, 0], [0, 0]], mask=mask)
    on = [x.columns["taught"][x.row.view().trained_T] for x in found]
    assert [sorted(set(x.tolist())) for x in on] == [[t] for t in taught]


def test_a_masked_answer_counts_in_the_mean_and_is_not_distilled():
    """Two tokens with u = 1 each, one masked: (0 + 1 / 2) / 2."""
    batch = token_batch([0.0, 0.0], -1.0, teacher_logp=[np.array([0.0, -2.0])] * 2,
                        taught=[np.zeros(2), np.ones(2)])  # fmt: skip
    loss, _, _ = token_gradient(learner(rl=False, mask="answers").objective, batch, logp=[-1.0, -1.0])
    assert loss == pytest.approx(0.25)


def test_the_teacher_in_the_reward_is_taken_from_the_advantage():
    """After the division by the deviation: A - beta sum_t u."""
    plain, signals, groups = credit_of([[1, 0, 0]], beta=0.0, how="reward")
    found, _, _ = credit_of([[1, 0, 0]], beta=0.5, how="reward")
    for e, (a, b) in enumerate(zip(plain, found, strict=True)):
        view = groups[0].episodes[e].rows[0].view()
        u = (view.logp_T - signals[0][e][0]["teacher_logp"])[view.trained_T].sum()
        both = (x.columns["advantage"][view.trained_T] for x in (a, b))
        assert np.subtract(*both) == pytest.approx(0.5 * u) and abs(u) > 0.01
    with pytest.raises(pl.UserError, match='how="reward"'):
        kdrl.build(how="reward", mask="answers")


@pytest.mark.parametrize("options", [{}, {"mask": "groups"}, {"how": "reward"}, {"rl": False, "kind": "full"}])
def test_two_steps_of_every_form(context, options):
    recipe, ctx, state = make_smallest(kdrl.build(0.01, **options)), context("chain"), start(0)
    prepare(recipe, ctx)
    for _ in range(2):
        state, metrics = asyncio.run(step(recipe, ctx, state))
        assert metrics["skipped"] == 0 and math.isfinite(metrics["loss"])


def test_the_claim_tunes_every_arm_and_teaches_by_another_model():
    assert not EXPERIMENT.lacks()
    sizes = {arm: len(EXPERIMENT.settings_of(arm)) for arm in EXPERIMENT.arms}
    assert sizes == {a: 4 if a in ("kdrl", "k3", "wrong answers", "start as teacher") else 2 for a in sizes}
    for arm, pipeline in EXPERIMENT.arms.items():
        assert pipeline.parts["rl"].models == {
            "teacher": pl.Output("sft" if arm == "start as teacher" else "teacher")
        }, arm


def test_both_terms_are_means_over_all_tokens():
    """Answers of one and of three tokens, u = 1: tokens, not answers, weigh alike."""
    from palaestra.types import Example, Row, Segment
    from palaestra.update import pack

    made = []
    for n, taught in ((1, 1.0), (3, 0.0)):
        said = Segment(ids=tuple(range(1, n + 1)), trained=True, policy="policy", logp=(-1.0,) * n, version=0)
        columns = {"advantage": np.zeros(n + 1), "teacher_logp": np.full(n + 1, -2.0), "taught": np.full(n + 1, taught)}
        made.append(Example(row=Row(segments=(Segment(ids=(0,)), said)), columns=columns))
    batch = pack(made, "policy", dtype=torch.float64)
    logp = torch.full(batch.mask.shape, -1.0, dtype=torch.float64)
    loss, _ = learner(beta=1.0, mask="answers").objective({"logp": logp}, batch)
    assert float(loss) == pytest.approx(0.5 / 4)
