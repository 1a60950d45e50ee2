"""RLGF: who begins and who ends, what is trained, which steps are whose, and a few steps of every kind."""

import asyncio
import math

import numpy as np
import pytest
import torch
from palaestra import schedule
from palaestra.credit.table import Table, Values
from palaestra.ledger.experiment import experiment_of
from palaestra.models.load import load
from palaestra.recipes.data import kdrl, rlgf
from palaestra.recipes.data.rlgf import rollin
from palaestra.run.driver import prepare
from palaestra.settings.overrides import make_smallest
from palaestra.step import start, step
from palaestra.types import Episode, Example, Group, Reward, Row, Segment, Task
from palaestra.update import pack
from palaestra.values import flatten, override

KINDS = ("ppo++", "aggrevate", "lols", "d2lols")


def collected(ctx, recipe, n=1):
    prepare(recipe, ctx)
    group = Group(task=ctx.bench.tasks.task("train", n))
    return asyncio.run(recipe.collect(ctx, ("k", n), group))


def reply(e):
    return [s for s in e.rows[0].segments if s.replies]


def test_how_much_is_rolled_in():
    """A guide of five tokens: h is each of 1..4 as often, so with beta .8 it is 2 tokens in the mean."""
    u = (np.arange(1000) + 0.5) / 1000
    h = [rollin.kept_tokens(x, 5) for x in u]
    assert [h.count(i) for i in range(6)] == [0, 250, 250, 250, 250, 0] and 0.8 * np.mean(h) == pytest.approx(2)
    assert {rollin.kept_tokens(x, 2) for x in u} == {1}


@pytest.mark.parametrize(("trained", "mask"), [(False, [0, 0, 1, 1, 1]), (True, [1, 1, 0, 0, 0])])
def test_the_mask_of_two_tokens_of_five(trained, mask):
    """What is kept of the first is trained where it is the policy's: ppo++ [0,0,1,1,1], aggrevate [1,1,0,0,0]."""
    owner = {"policy": "policy" if trained else "", "trained": trained}
    said = Segment(
        ids=(5, 6, 7, 8), logp=(-1.0, -2.0, -3.0, -4.0), version=0, moved=((1, 1), (2, 2)), finish="eos", **owner
    )
    kept = rollin.cut_turn(said, 2, lambda ids: " ".join(map(str, ids)))
    assert (kept.ids, kept.logp, kept.moved, kept.text, kept.finish) == ((5, 6), (-1.0, -2.0), ((1, 1),), "5 6", "")
    other = {"policy": "" if trained else "policy", "trained": not trained}
    row = Row(segments=(kept, Segment(ids=(1, 2, 3), logp=(-1.0,) * 3, **other)))
    assert row.view("policy").trained_T.tolist() == mask


@pytest.mark.parametrize("kind", ["ppo++", "aggrevate"])
def test_one_begins_and_the_other_ends(context, kind):
    """Each says its part, training sees the policy's alone, and the answer that is judged is both together."""
    ctx, recipe = context("chain"), rlgf.build(kind, beta=1.0)
    group = collected(ctx, recipe)
    assert len(group.episodes) == 8
    for e in group.episodes:
        first, second = reply(e)
        assert len(first.ids) >= 1 and first.finish == "" and second.finish
        assert [s.trained for s in (first, second)] == [kind == "aggrevate", kind == "ppo++"]
        assert [s.policy for s in (first, second)] == (["policy", ""] if kind == "aggrevate" else ["", "policy"])
        assert first.logp is not None and second.logp is not None
        assert e.facts["rolled-in"] == len(first.ids) / (len(first.ids) + len(second.ids))
        assert e.reward.total == ctx.bench.tasks.check(first.text + second.text, group.task)
    assert len({len(reply(e)[0].ids) for e in group.episodes}) > 1


def test_without_a_roll_in(context):
    """Plain answers of the policy; where the guide would say all of it, nothing is played."""
    for e in collected(context("chain"), rlgf.build("ppo++", beta=0.0)).episodes:
        assert [s.trained for s in reply(e)] == [True] and e.facts["rolled-in"] == 0
    assert not collected(context("chain"), rlgf.build("aggrevate", beta=0.0)).episodes


def test_a_share_beta_is_rolled_in(context):
    """P(no roll-in) = .2 at beta .8."""
    ctx, recipe = context("chain"), rlgf.build("ppo++", samples=150)
    rolled = [e.facts["rolled-in"] > 0 for e in collected(ctx, recipe).episodes]
    assert 0.7 < np.mean(rolled) < 0.9


def test_a_guide_that_says_one_token_is_no_start(context, monkeypatch):
    """An end at once is no state to start from."""
    monkeypatch.setattr(rollin, "first_turn", lambda e: Segment(ids=(1,), logp=(0.0,)))
    assert {e.facts["rolled-in"] for e in collected(context("chain"), rlgf.build("ppo++", beta=1.0)).episodes} == {0}


def test_the_guide_is_another_model(context):
    """A guide whose weights are nothing says other things than the policy, and it is not trained."""
    ctx = context("chain")
    ctx.models["guide"] = load("tiny")
    for p in ctx.models["guide"].module.parameters():
        p.data.mul_(0.0)
    for kind, place in (("ppo++", 0), ("aggrevate", 1)):
        recipe = rlgf.build(kind, beta=1.0, kl=0.0)
        said = [reply(e)[place] for e in collected(ctx, recipe).episodes]
        assert all(np.ptp(s.logp) < 1e-6 and s.logp[0] < -3 for s in said)


def test_advantages_are_whitened_over_the_policys_tokens_alone(context):
    ctx, recipe = context("chain"), rlgf.build("aggrevate", beta=1.0, kl=0.0, gamma=1.0)
    group = collected(ctx, recipe)
    learner = recipe.learners["policy"]
    signals = ctx.measure([group], learner.needs)
    table = Table([group], signals, {})
    found = learner.credit.values(table)
    assert len(found.x_N) == sum(len(reply(e)[0].ids) for e in group.episodes)
    assert found.x_N.mean() == pytest.approx(0, abs=1e-6) and found.x_N.std(ddof=1) == pytest.approx(1, abs=1e-3)


def test_the_roles_of_a_step():
    """ppo++ and aggrevate always the same, lols by the step, d2lols changes after tau steps."""
    share = lambda kind, at, **o: schedule.resolve(rlgf.build(kind, **o).collect, at).links[0].student
    assert [share(k, 0) for k in KINDS] == [1, 0, 0.8, 0]
    assert [share("d2lols", at) for at in (19, 20)] == [0, 1] and share("d2lols", 3, tau=3) == 1


def test_all_attempts_of_a_step_have_the_same_roles(context):
    ctx, recipe = context("chain"), rlgf.build("lols", beta=1.0, tau=0.5, samples=2)
    prepare(recipe, ctx)
    seen = []
    for at in range(6):
        with_step = ctx.at(recipe, at)
        groups = [
            asyncio.run(with_step.collect(ctx, (0, "step", at, i), Group(task=ctx.bench.tasks.task("train", i))))
            for i in range(2)
        ]
        roles = {reply(e)[0].trained for g in groups for e in g.episodes}
        assert len(roles) == 1
        seen += roles
    assert set(seen) == {True, False}


def attempt(guide_ends):
    """Two tokens of the policy, paid 1 at the last one."""
    said = Segment(ids=(1, 2), trained=True, policy="policy", logp=(0.0, 0.0))
    return Episode(
        rows=(Row(segments=(Segment(ids=(0,)), said)),), reward=Reward(total=1.0), status="finished",
        facts={"rolled-in": 0.5, "guide-ends": float(guide_ends)},
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["lols", "d2lols"])
def test_each_role_has_its_critic(kind):
    """With gamma 1, lambda .95: values .5 .5 give .475 .5 where the policy ends, 0 .8 give .99 .2 where the guide
    does, and the targets lie on top of the values of the same critic."""
    learner = rlgf.build(kind, gamma=1.0, kl=0.0).learners["policy"]
    signal = {"policy_value": np.array([0, 0.5, 0.5]), "policy_value-of-guide": np.array([0, 0, 0.8])}
    group = Group(task=Task(id="t"), episodes=(attempt(False), attempt(True)))
    table = Table([group], [[[signal], [signal]]], {})
    by_role = next(link for link in learner.credit.links if isinstance(link, rlgf.ByRole))
    found = by_role(Values(level="episode", x_N=table.reward_E), table)
    assert found.x_N == pytest.approx([0.475, 0.5, 0.99, 0.2])
    assert table.columns["return"].x_N == pytest.approx([0.975, 1.0, 0.99, 1.0])
    assert learner.heads == ("value", "value-of-guide")


def test_a_critic_learns_from_its_role_alone():
    """The gradient of each head lies on the tokens of its own attempts."""
    objective = rlgf.build("lols", kl=0.0).learners["policy"].objective
    rows = [e.rows[0] for e in (attempt(False), attempt(True))]
    column = lambda *xs: np.array([0.0, *xs])
    examples = [
        Example(row=row, columns={
            "advantage": column(0, 0), "return": column(1, 1), "is:guide-ends": column(ends, ends),
            "is:rolled-in": column(0.5, 0.5), "policy_value": column(0, 0), "policy_value-of-guide": column(0, 0),
        })
        for ends, row in enumerate(rows)
    ]  # fmt: skip
    batch = pack(examples, dtype=torch.float64)
    names = ("logp", "value", "value-of-guide")
    out = {n: torch.zeros(2, 3, dtype=torch.float64, requires_grad=True) for n in names}
    loss, _ = objective(out, batch)
    own, guides = torch.autograd.grad(loss, [out["value"], out["value-of-guide"]])
    assert own[0, 1:].abs().min() > 0 and not own[1].any()
    assert guides[1, 1:].abs().min() > 0 and not guides[0].any()


def test_one_role_has_one_critic():
    for kind in ("ppo++", "aggrevate"):
        assert rlgf.build(kind).learners["policy"].heads == ("value",)


@pytest.mark.parametrize(("method", "role"), [(rlgf, "guide"), (kdrl, "teacher")])
def test_the_embedded_problem_makes_its_model_unless_one_is_given(method, role):
    """A model that the user names was replaced by the one that the pipeline makes."""
    made = method.embedded()
    first, trained = made.parts
    assert first == role and made.parts[trained].models.keys() == {role}
    assert method.embedded(**{role: "DIR"}).references[role] == "DIR"


def test_settings_of_the_released_code():
    found = flatten(rlgf.build())
    ends = {"update.epochs": 5, ".gamma": 0.99, ".lam": 0.95, ".kl": 0.001, ".low": 0.2, ".high": 0.2, ".beta": 0.8}
    for end, value in ends.items():
        assert {v for k, v in found.items() if k.endswith(end)} == {value}, end


@pytest.mark.parametrize("arm", [a for a in experiment_of("rlgf").arms if a != "guide"])
def test_two_steps_of_every_arm(arm, context):
    recipe = make_smallest(experiment_of("rlgf").arms[arm].parts["rl"].runnable)
    ctx, state = context("chain"), start(0)
    prepare(recipe, ctx)
    for _ in range(2):
        state, metrics = asyncio.run(step(override(recipe, "schedule.prompts", 2), ctx, state))
        assert metrics["skipped"] == 0 and math.isfinite(metrics["loss"]) and math.isfinite(metrics["grad_norm"])
