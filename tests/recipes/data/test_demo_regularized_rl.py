"""Demonstration-regularised RL: the exact solver, and every KL option held against where it must end."""

import asyncio
import math

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.claims.data.demo_regularized_rl import EXPERIMENT
from palaestra.credit.gae import Gae
from palaestra.explanation.method import explain
from palaestra.recipes.data.demo_regularized_rl import build
from palaestra.recipes.data.demo_regularized_rl import tables as rows
from palaestra.recipes.data.demo_regularized_rl.tables import (
    DemonstrationRegularised,
    TabularMDP,
    clone,
    soft_backup,
    soft_values,
    step_gap,
    trajectory_kl,
    value,
)
from palaestra.types import Episode, Example, Group, Reward, Row, Segment
from palaestra.update import pack

from tests.fake import task
from tests.objective.test_kl import KINDS, REF, loss_gradient, reward_gradient

SMALL = {
    "demonstrations": (0, 4, 16),
    "states": 3,
    "actions": 2,
    "horizon": 3,
    "branches": 2,
    "epsilon": 0.02,
    "bonus": 0.3,
}


@pytest.fixture(scope="module")
def mdp():
    return rows.draw_mdp(("test",), 5, 3, 4, 2)


@pytest.fixture(scope="module")
def prior(mdp):
    return pl.rng_of(("prior",)).dirichlet(np.ones(3), mdp.shape[:2])


# ---- the form for language models


def test_the_kl_to_the_clone_is_taken_from_the_reward_of_a_whole_reply():
    """beta .5 and 1.5 nats from the clone: a right reply is worth .25, a wrong one like the clone's 0."""
    clone_part, rl = (part.runnable for part in build(beta=0.5).parts.values())
    same = {"logp": [-1.0, -1.0], "behaviour_logp": [-1.0, -1.0]}
    group = [{"reward": 1, **same, "clone_logp": [-2.0, -1.5]}, {"reward": 0, **same, "clone_logp": [-1.0, -1.0]}]
    assert explain(rl, [group])["advantages"][0] == pytest.approx([0.125, -0.125])
    assert build().parts["rl"].model == pl.Output("clone") and clone_part == pl.recipe("sft")


# ---- the solver


def test_reference_values():
    """pi_BC = (.8, .2), Q = (0, 1), lambda = .5; counts (3, 0) with kappa 1."""
    policy, v = soft_backup(np.array([[0.0, 1.0]]), np.array([[0.8, 0.2]]), 0.5)
    assert policy[0] == pytest.approx([0.351214, 0.648786], abs=1e-6)
    assert v[0] == pytest.approx(0.411607, abs=1e-6)
    kl = float((policy * np.log(policy / [0.8, 0.2])).sum())
    assert v[0] == pytest.approx(0.648786 - 0.5 * kl, abs=1e-6)
    assert clone(np.array([[[3.0, 0.0]]])).tolist() == [[[0.8, 0.2]]]


def test_a_state_without_demonstrations_is_uniform_and_kappa_is_positive():
    assert clone(np.zeros((1, 1, 4)), 0.1).tolist() == [[[0.25] * 4]]
    with pytest.raises(pl.UserError, match="kappa"):
        clone(np.zeros((1, 1, 4)), 0.0)


@pytest.mark.parametrize("weight", [0.05, 0.5])
def test_the_value_is_the_return_less_the_kl_and_no_policy_has_more(mdp, prior, weight):
    found = soft_values(mdp, prior, weight)
    worth = lambda p: value(mdp, p) - weight * trajectory_kl(mdp, p, prior)
    assert worth(found.policy_HSA) == pytest.approx(found.v_HS[0, 0], abs=1e-12)
    rng = pl.rng_of(("others",))
    for share in (0.01, 0.3, 1.0):
        other = (1 - share) * found.policy_HSA + share * rng.dirichlet(np.ones(3), mdp.shape[:2])
        assert worth(other) < found.v_HS[0, 0]


def test_weight_0_is_the_plain_maximum_and_a_large_one_the_prior(mdp, prior):
    plain, near = soft_values(mdp, prior, 0.0), soft_values(mdp, prior, 1e-4)
    assert value(mdp, plain.policy_HSA) == pytest.approx(plain.v_HS[0, 0])
    assert near.v_HS[0, 0] == pytest.approx(plain.v_HS[0, 0], abs=0.01) and near.v_HS[0, 0] < plain.v_HS[0, 0]
    assert soft_values(mdp, prior, 1e6).policy_HSA == pytest.approx(prior, abs=1e-5)


def test_the_gap_of_a_step_is_its_worst_case():
    """Against 125 values between the bounds; never above the quadratic bound, and that of weight 0 is the width."""
    rng = pl.rng_of(("gap",))
    prior, upper, width = rng.dirichlet(np.ones(3))[None], rng.random((1, 3)), rng.random((1, 3))
    for weight in (0.05, 0.5, 5.0):
        policy, _ = soft_backup(upper, prior, weight)
        bound = step_gap(policy, width, weight)[0]
        worst = 0.0
        for share in np.ndindex(5, 5, 5):
            true = upper - width * np.array(share) / 4
            best = soft_backup(true, prior, weight)[1][0]
            own = float((policy * true).sum() - weight * (policy * np.log(policy / prior)).sum())
            worst = max(worst, best - own)
        assert worst == pytest.approx(bound, abs=1e-9)
        assert bound <= width.max() ** 2 / (2 * weight) + 1e-12
    assert step_gap(np.array([[1.0, 0.0]]), np.array([[0.3, 9.0]]), 0.0)[0] == pytest.approx(0.3)
    tiny = step_gap(np.array([[1.0, 0.0]]), np.array([[0.3, 0.0]]), 1e-9)[0]
    assert tiny == pytest.approx(0.0, abs=1e-12)  # the other action is impossible under the prior


# ---- the oracle of every KL option

Q, WEIGHT = torch.tensor([0.3, 1.0, -0.5, 0.6], dtype=torch.float64), 0.4


def at_the_optimum():
    policy, _ = soft_backup(Q.numpy()[None], REF.numpy()[None], WEIGHT)
    return torch.tensor(np.log(policy[0]), requires_grad=True)


def climb(theta):
    """The gradient of minus the mean reward."""
    return torch.autograd.grad(-(torch.softmax(theta, -1) * Q).sum(), theta)[0].numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_as_a_loss_k2_and_full_end_at_the_exact_optimum_and_no_other(kind):
    left = climb(at_the_optimum()) + WEIGHT * np.array(loss_gradient(kind, at_the_optimum()))
    assert (abs(left).max() < 1e-12) == (kind in ("k2", "full")), left
    assert abs(left).max() < 1e-12 or abs(left).max() > 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_in_the_reward_k1_alone_ends_at_the_exact_optimum(kind):
    left = climb(at_the_optimum()) + WEIGHT * np.array(reward_gradient(kind, at_the_optimum()))
    assert (abs(left).max() < 1e-12) == (kind == "k1"), left


@pytest.fixture
def tree():
    """Two tokens of three in a row, every sequence with a reward: its table, its reference, and its optimum."""
    rng = pl.rng_of(("tree",))
    reward, ref = np.zeros((2, 4, 3)), rng.dirichlet(np.ones(3), (2, 4))
    reward[1, 1:] = rng.random((3, 3))
    to = np.zeros((2, 4, 3, 4))
    to[0, :, range(3), [1, 2, 3]] = 1
    to[1, ..., 0] = 1
    mdp = TabularMDP(reward_HSA=reward, next_HSAS=to)
    return mdp, ref, soft_values(mdp, ref, WEIGHT)


def sequences(tree):
    """A group of all nine, with the signals of the optimum and of the reference."""
    mdp, ref, best = tree
    episodes, signals = [], []
    for a in range(3):
        for b in range(3):
            pi, other = (np.log([p[0, 0, a], p[1, 1 + a, b]]) for p in (best.policy_HSA, ref))
            said = Segment(ids=(a, b), trained=True, policy="policy", logp=tuple(pi))
            row = Row(segments=(Segment(ids=(0,)), said))
            paid = Reward(total=float(mdp.reward_HSA[1, 1 + a, b]))
            episodes.append(Episode(rows=(row,), reward=paid, status="finished"))
            signals.append({"policy_value": np.zeros(3), "ref_logp": np.array([0.0, *other]),
                            "policy_logp": np.array([0.0, *pi])})  # fmt: skip
    return Group(task=task("t", (0,), ()), episodes=tuple(episodes)), [[[s] for s in signals]]


@pytest.mark.parametrize("link", [pl.credit.LessKL(WEIGHT), Gae(gamma=1.0, lam=1.0, kl=WEIGHT)], ids=["LessKL", "Gae"])
def test_at_the_optimum_every_sequence_is_worth_the_same(tree, link):
    """r(y) - lambda log pi*(y) / ref(y) = V(s_1), so no sequence has an advantage over another."""
    group, signals = sequences(tree)
    found, _ = pl.Chain((link,))([group], signals, {})
    first = [x.columns["advantage"][1] for x in found]
    assert first == pytest.approx([tree[2].v_HS[0, 0]] * 9, abs=1e-9)


def test_the_margin_of_dpo_at_the_optimum_is_the_difference_of_the_rewards(tree):
    group, signals = sequences(tree)
    for y, z in ((0, 8), (4, 2)):
        pair = [Example(row=group.episodes[i].rows[0], columns={"sign": s, **signals[0][i][0]}, unit="pair")
                for i, s in ((y, 1.0), (z, -1.0))]  # fmt: skip
        batch = pack(pair, "policy", dtype=torch.float64)
        _, logged = pl.DPO(beta=WEIGHT)({"logp": batch["policy_logp"]}, batch)
        assert float(logged["margin"]) == pytest.approx(group.episodes[y].total - group.episodes[z].total, abs=1e-6)


# ---- the program


def run(context, **options):
    return asyncio.run(DemonstrationRegularised(**{**SMALL, **options}).run(context(seed=3))).metrics


def test_the_program_knows_good_policies_and_repeats(context):
    found = run(context)
    assert found == run(context)
    for n, x in found["by_demonstrations"].items():
        assert x["gap"] <= 0.02 and 0 < x["episodes"] < 1_000_000, n
        assert x["missing"] <= 0.02 + x["lambda"] * 10  # the KL to the clone costs lambda times so many nats at most
    few = found["by_demonstrations"]
    assert few["0"]["lambda"] == 0 and few["16"]["lambda"] == pytest.approx(4 * few["4"]["lambda"])
    assert few["16"]["lambda"] == pytest.approx(0.02 * found["optimum"] * 16 / (3 * 2 * 3))
    assert few["16"]["clone"] < few["4"]["clone"] < few["0"]["clone"]
    assert found["env_steps"] == sum(x["episodes"] for x in few.values()) * 3


def test_the_gap_that_is_known_holds_in_truth(context):
    """With bonuses as large as the proof's, the policy of the upper values is within the gap of the regularised optimum."""
    program = DemonstrationRegularised(**{**SMALL, "bonus": 2.0})
    mdp = rows.draw_mdp(("truth",), 4, 2, 3, 2)
    prior, rng = clone(np.ones(mdp.shape) * [[[9.0, 1.0]]]), pl.rng_of(("play",))
    arrivals = np.zeros((*mdp.shape, 4))
    for weight in (0.0, 0.1):
        best = soft_values(mdp, prior, weight).v_HS[0, 0]
        for n in (1, 30, 300, 3000, 30000):
            plan = program.plan(mdp, arrivals, prior, weight)
            kl = trajectory_kl(mdp, plan.upper_HSA, prior) if weight else 0.0
            assert best - (value(mdp, plan.upper_HSA) - weight * kl) <= plan.gap + 1e-9
            played = rows.play(mdp, *rows.explorers(plan, n, rng), rng)
            arrivals += rows.arrivals_of(mdp, *played)
        assert plan.gap < 2.0


def test_slope_over_the_clones_that_are_not_enough():
    x = lambda n, enough=0.0: {"episodes": n, "first": 10.0, "missing": 0.01, "enough": enough}
    found = rows.summary_of({"0": x(1e5), "10": x(1e4), "100": x(1e3), "1000": x(1.0, enough=1.0)})
    assert found == pytest.approx({"slope": -1.0, "saved": 2.0, "saved_first": 0.0, "missing": 0.01})
    assert math.isnan(rows.summary_of({"10": x(1e4)})["slope"])


def test_the_claim_has_a_start_that_plays_nothing(context):
    arms = EXPERIMENT.every_arm
    assert not EXPERIMENT.lacks() and arms["start"].most == 0 and arms["nobody"].expert == "nobody"
    assert [len(EXPERIMENT.settings_of(a)) for a in arms] == [1, 3, 3]
    found = run(context, most=0)
    assert found["env_steps"] == 0 and found["slope"] == 0


def test_the_gap_is_that_of_the_plan_not_of_the_best_lower_value():
    """One state: .5 seen once, bounds 0 and 1; .9 seen 100 times, bounds .89 and .91. The plan takes the first and lacks .4."""
    mdp = TabularMDP(reward_HSA=np.array([[[0.5, 0.9]]]), next_HSAS=np.ones((1, 1, 2, 1)))
    arrivals = np.array([1.0, 100.0]).reshape(1, 1, 2, 1)
    plan = DemonstrationRegularised(bonus=1.0).plan(mdp, arrivals, np.full((1, 1, 2), 0.5), 0.0)
    assert plan.upper_HSA[0, 0].tolist() == [1, 0] and plan.widest_HSA[0, 0].tolist() == [1, 0]
    assert plan.gap == pytest.approx(1.0)


def test_each_episode_doubts_at_one_step():
    """Three policies, each that of the upper values but for its own step; which one plays is drawn."""
    upper, widest = np.zeros((3, 1, 2)), np.zeros((3, 1, 2))
    upper[..., 0], widest[..., 1] = 1, 1
    plan = rows.TablePlan(upper_HSA=upper, widest_HSA=widest, gap=1.0)
    policies, which = rows.explorers(plan, 300, pl.rng_of(("doubt",)))
    assert policies[:, :, 0, 1].tolist() == np.eye(3).tolist()
    assert set(which.tolist()) == {0, 1, 2}
