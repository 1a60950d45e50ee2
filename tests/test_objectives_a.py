"""Objectives, part A: the papers' own numbers through `explain`, where the gradient flows, and the edges."""

import asyncio
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from fake import FakeContext, episode, task
from hypothesis import given
from hypothesis import strategies as st

from palaestra import catalogue
from palaestra.credit.links import Center, Outcome, Scale, Shift, chain
from palaestra.curriculum.pool import Everything, Mixed
from palaestra.errors import UserError
from palaestra.explanation.method import explain
from palaestra.ledger.experiment import experiment_of
from palaestra.objective.algebra import reduce_terms
from palaestra.objective.policy import KL, Clipped, Imitation, Reinforce, TargetEntropy
from palaestra.recipes.base import grpo
from palaestra.recipes.objectives import apo, asymre, confucius3, dr_grpo, egsw, lite_ppo, nsr, rec
from palaestra.step import gather_groups, start
from palaestra.types import Example, Group, Reward, Row, Segment
from palaestra.update import backward, pack
from palaestra.values import vary


def group(totals, lengths=None, **fields):
    """Trajectories of one group; a field is a list with one value a trajectory."""
    lengths = lengths or [4] * len(totals)
    rows = [{"reward": r, "length": n} for r, n in zip(totals, lengths, strict=True)]
    for name, values in fields.items():
        for row, v in zip(rows, values, strict=True):
            row[name] = [v] * row["length"] if np.isscalar(v) else v
    return rows


def played(*totals):
    """A finished group."""
    return Group(task=task("t", (0,), ()), episodes=tuple(episode((0,), (1, 2), float(r)) for r in totals))


def advantages(recipe, *groups):
    found = explain(recipe, groups)["advantages"]
    return found[0] if len(groups) == 1 else found


def weights(recipe, *groups):
    found = explain(recipe, groups)["token_weights"]
    return found[0] if len(groups) == 1 else found


def batch_of(advantage, behaviour=0.0, dtype=torch.float64, **columns):
    """One row a value, one trained token a row."""
    examples = []
    for i, a in enumerate(advantage):
        mine = {k: v[i] if isinstance(v, list) else v for k, v in columns.items()}
        row = Row(segments=(Segment(ids=(0,)), Segment(ids=(1,), trained=True, logp=(behaviour,))))
        examples.append(Example(row=row, columns={"advantage": np.array([0.0, a]), **mine}))
    return pack(examples, dtype=dtype)


def token_gradient(objective, batch, **out):
    """d loss / d logp of the one token of every row."""
    given = {k: torch.tensor([[0.0, x] for x in v], dtype=torch.float64).requires_grad_() for k, v in out.items()}
    loss, metrics = objective(given, batch)
    grads = torch.autograd.grad(loss, list(given.values()), allow_unused=True, materialize_grads=True)
    return loss.item(), {k: g[:, 1].tolist() for k, g in zip(given, grads, strict=True)}, metrics


# ---- dr-grpo


def test_dr_grpo_has_no_length_bias():
    found = weights(dr_grpo.build(length=8), group([1, 0, 0, 0], [2, 4, 4, 4]))
    assert found[0] == pytest.approx([0.0234375] * 2)
    assert found[1] == pytest.approx([-0.0078125] * 4)
    assert advantages(dr_grpo.build(), group([1, 0, 0, 0])) == pytest.approx([0.75, -0.25, -0.25, -0.25])


@given(st.lists(st.integers(1, 30), min_size=4, max_size=4))
def test_dr_grpo_weighs_a_token_the_same_at_any_length(lengths):
    found = weights(dr_grpo.build(length=8), group([1, 0, 0, 0], lengths))
    assert [w[0] for w in found] == pytest.approx([0.0234375] + [-0.0078125] * 3)
    biased = weights(grpo.build(), group([1, 0, 0, 0], lengths))
    assert [w[0] * n for w, n in zip(biased, lengths, strict=True)] == pytest.approx([0.375] + [-0.125] * 3, rel=1e-5)


def test_dr_grpo_edges():
    assert advantages(dr_grpo.build(), group([1.0])) == [0.0]
    assert advantages(dr_grpo.build(), group([1e-9, 0.0])) == pytest.approx([5e-10, -5e-10], rel=1e-6)  # no epsilon


# ---- lite-ppo

EASY_HARD = (group([1, 0, 0, 0]), group([1, 1, 1, 0]))


def test_lite_ppo_divides_by_the_std_of_the_raw_batch():
    found = advantages(lite_ppo.build(), *EASY_HARD)
    assert found[0] == pytest.approx([1.403122] + [-0.467707] * 3, abs=1e-5)
    assert found[1] == pytest.approx([0.467707] * 3 + [-1.403122], abs=1e-5)
    population = advantages(lite_ppo.build(ddof=0), *EASY_HARD)
    assert population[0] == pytest.approx([1.5] + [-0.5] * 3, abs=1e-5)
    assert population[1] == pytest.approx([0.5] * 3 + [-1.5], abs=1e-5)
    centred = advantages(lite_ppo.build(ddof=0, centred=True), *EASY_HARD)
    assert centred[0][0] == pytest.approx(0.75 / 0.433013, abs=1e-5)
    own = advantages(vary(grpo.build(), credit=chain(Center("group"), Scale("group", ddof=0))), *EASY_HARD)
    assert own[0] == pytest.approx([1.732051] + [-0.577350] * 3, abs=1e-5)


def test_lite_ppo_counts_every_token_once():
    """Lengths 2 and 6 with per-token losses 1 and 0: 2/8, where the mean over sequences would be 1/2."""
    rows = [Row(segments=(Segment(ids=(0,)), Segment(ids=(1,) * n, trained=True))) for n in (2, 6)]
    batch = pack([Example(row=r, columns={"advantage": 0.0}) for r in rows], dtype=torch.float64)
    loss_BT = torch.tensor([[1.0], [0.0]], dtype=torch.float64) * batch.mask
    assert reduce_terms(loss_BT, batch, "tokens") == 0.25 and reduce_terms(loss_BT, batch, "sequences") == 0.5
    assert lite_ppo.build().learners["policy"].objective.reduce == "tokens"
    found = weights(lite_ppo.build(), group([1, 0], [2, 6]))
    assert found[0][0] == pytest.approx(-found[1][0])  # equal advantages weigh the same token by token


def test_lite_ppo_edges():
    """A nearly solved group is not blown up by its own tiny std; equal rewards give 0."""
    found = advantages(lite_ppo.build(), group([1, 1, 1, 0.999]), group([0, 0, 1, 1]))
    assert max(map(abs, found[0])) < 0.01
    own = advantages(grpo.build(), group([1, 1, 1, 0.999]))
    assert max(map(abs, own)) > 1
    assert advantages(lite_ppo.build(), group([1, 1]), group([1, 1])) == [[0, 0], [0, 0]]
    assert advantages(lite_ppo.build(), group([1]), group([0, 1]))[0] == pytest.approx([0.0])


# ---- nsr


def test_nsr_signs_and_subsets():
    outcomes = group([1, 0, 0, 1])
    assert advantages(nsr.build(), outcomes) == [0, -1, -1, 0]
    assert advantages(nsr.build(positive=1, negative=0), outcomes) == [1, 0, 0, 1]
    assert advantages(nsr.build(positive=0.1), outcomes) == pytest.approx([0.1, -1, -1, 0.1])


def test_nsr_denominator_is_the_subset():
    """Two wrong answers of four tokens each: eight tokens share the loss, not sixteen."""
    found = weights(nsr.build(), group([1, 0, 0, 1]))
    assert found[1] == pytest.approx([-1 / 8] * 4) and found[0] == [0.0] * 4
    both = weights(nsr.build(positive=0.1), group([1, 0, 0, 1]))
    assert both[1] == pytest.approx([-1 / 16] * 4) and both[0] == pytest.approx([0.1 / 16] * 4)


def test_nsr_edges():
    """Nobody right is the full signal; nobody wrong is no batch at all."""
    assert advantages(nsr.build(), group([0, 0])) == [-1, -1]
    assert weights(nsr.build(), group([1, 1])) == [[0.0] * 4] * 2
    assert advantages(nsr.build(), group([0])) == [-1]
    assert advantages(nsr.build(), group([0.5, 0.51])) == [-1, 0]  # half is not yet right
    credit = nsr.build().learners["policy"].credit
    assert credit([played(1, 1)], [], {})[0] == []


def test_nsr_moves_probability_along_the_prior():
    """p = (.5, .3, .2), token 0 wrong: drawn with probability p0, it moves the logits by (-.25, .15, .10) in expectation."""
    logits = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log().requires_grad_()
    logp = torch.log_softmax(logits, -1)[0]
    out = {"logp": torch.stack([torch.zeros((), dtype=torch.float64), logp])[None]}
    loss, _ = nsr.build().learners["policy"].objective(out, batch_of([-1.0], behaviour=math.log(0.5)))
    assert (-0.5 * torch.autograd.grad(loss, logits)[0]).tolist() == pytest.approx([-0.25, 0.15, 0.10])


# ---- asymre


def test_asymre_baseline():
    assert advantages(asymre.build(), group([1, 0, 0, 0])) == pytest.approx([0.85, -0.15, -0.15, -0.15])
    assert advantages(asymre.build(), group([1, 1, 1, 1])) == pytest.approx([0.1] * 4)
    assert advantages(asymre.build(), group([1.0])) == pytest.approx([0.1])
    assert advantages(asymre.build(shift=0.0), group([1, 1])) == [0.0, 0.0]


def test_asymre_reads_no_ratio():
    stale = group([1, 0], behaviour_logp=[-9.0, -0.1])
    assert weights(asymre.build(), stale) == weights(asymre.build(), group([1, 0]))


def test_gates_refuse_credit_that_learns_from_equal_rewards():
    for recipe in (asymre.build(), nsr.build(positive=0.1)):
        with pytest.raises(UserError, match="Mixed drops"):
            vary(recipe, pool=Mixed(4))
        assert vary(recipe, pool=Everything()).learners["policy"].credit.keeps_equal
    for recipe in (asymre.build(shift=0.0), rec.build(), confucius3.build(), lite_ppo.build(), grpo.build()):
        assert vary(recipe, pool=Mixed(4)).pool.size == 4
    assert chain(Outcome(), Center("batch")).keeps_equal and not chain(Outcome(), Center("group")).keeps_equal
    assert not chain(Shift(0.1), Center("group")).keeps_equal


# ---- rec


@pytest.mark.parametrize(
    ("A", "rho", "one", "two", "ring"),
    [(1, 1.3, 0, 0, 0), (1, 0.3, 1, 0, 1), (-1, 0.7, 0, 0, 0), (-1, 3.5, 1, 0, 1), (1, 1.1, 1, 1, 1)],
)
def test_rec_masks(A, rho, one, two, ring):
    for trust, kept in (("one-side", one), ("two-side", two), ("ring", ring), ("all", 1)):
        for weighted in (False, True):
            objective = Reinforce(trust=trust, weighted=weighted)
            _, grad, _ = token_gradient(objective, batch_of([A], behaviour=-1.0), logp=[-1.0 + math.log(rho)])
            assert grad["logp"] == pytest.approx([-A * kept * (rho if weighted else 1)]), (trust, weighted)


def test_rec_one_side_with_ratio_has_the_gradient_of_ppo():
    A, logp = [1.0, 1.0, -1.0, -1.0, 0.5], [-0.5, -1.6, -0.5, -1.6, -1.05]
    ours = token_gradient(Reinforce(trust="one-side", weighted=True), batch_of(A, -1.0), logp=logp)[1]
    ppo = token_gradient(Clipped(), batch_of(A, -1.0), logp=logp)[1]
    assert ours["logp"] == pytest.approx(ppo["logp"])


def test_rec_regularisers():
    """OPMD halves at tau 1; tau * Imitation is a baseline lowered by tau; Kimi's term is tau (log rho)^2."""
    groups = group([1, 0, 0], [1, 2, 3])
    plain, half = (weights(rec.build("all", tau=t), groups) for t in (0.0, 1.0))
    assert half[0] == pytest.approx([w / 2 for w in plain[0]])
    forward_kl = vary(rec.build("all"), objective=Reinforce(reduce="tokens") + 0.1 * Imitation())
    shifted = weights(asymre.build(shift=-0.1), groups)
    for found, expected in zip(weights(forward_kl, groups), shifted, strict=True):
        assert found == pytest.approx(expected)
    kimi = 2 * 0.5 * KL("k2", model="behaviour", reduce="tokens")
    loss, grad, _ = token_gradient(kimi, batch_of([0.0], behaviour=-1.0), logp=[-0.9])
    assert loss == pytest.approx(0.5 * 0.01) and grad["logp"] == pytest.approx([2 * 0.5 * 0.1])


def test_rec_data_shaping():
    dropped = vary(rec.build("all"), credit=chain(rec.DropSurplus()))
    assert advantages(dropped, group([1, 0, 0, 0])) == [0.5, -0.5, 0, 0]
    assert advantages(dropped, group([1, 1, 0])) == pytest.approx([1 / 3, 1 / 3, -2 / 3])  # nothing to drop
    assert advantages(dropped, group([0, 0]), group([1.0])) == [[0, 0], [0]]
    weighted = vary(rec.build("all"), credit=chain(Center("group"), rec.Reweight()))
    found = advantages(weighted, group([1, 0, 0, 0]))
    assert found == pytest.approx([1.587750] + [-0.194700] * 3, abs=1e-6)


def test_rec_edges():
    assert advantages(rec.build(), group([1.0])) == [0.0]
    unknown = batch_of([1.0], behaviour=float("nan"))
    plain = token_gradient(Reinforce(), unknown, logp=[-1.0])
    assert plain[0] == 1.0 and plain[1]["logp"] == [-1.0]  # offline data: no ratio is read
    with pytest.raises(ValueError, match="one-side, two-side, ring"):
        token_gradient(Reinforce(trust="two sides"), batch_of([1.0]), logp=[0.0])


# ---- egsw


def softmax_weights(A, H, alpha, P):
    from palaestra.recipes.objectives.egsw import relative_softmax

    score = np.array(A) + alpha * np.array(H)
    return relative_softmax(score / P, np.zeros(len(A), int)) / len(A)


def test_egsw_weights():
    A, H = [1, -1, 0], [0.5, 0.5, 1.0]
    assert softmax_weights(A, H, 0.5, 1) == pytest.approx([0.622006, 0.084179, 0.293815], abs=1e-6)
    assert softmax_weights(A, H, 0.5, 2) == pytest.approx([0.486578, 0.179002, 0.334420], abs=1e-6)
    assert softmax_weights(A, H, 0.0, 1) == pytest.approx([0.665241, 0.090031, 0.244728], abs=1e-6)
    raw = np.exp(np.array(A) + 0.5 * np.array(H))
    assert raw == pytest.approx([3.490343, 0.472367, 1.648721], abs=1e-6)


def test_egsw_multiplies_the_advantage():
    """Rewards 1, -1, 0 have mean 0 and std 1: A is the reward; G w A = 3 * .622006, -3 * .084179, 0."""
    found = advantages(egsw.build(alpha=0.5), group([1, -1, 0], entropy=[0.5, 0.5, 1.0]))
    assert found == pytest.approx([3 * 0.622006, -3 * 0.084179, 0], abs=1e-5)


def test_egsw_uses_the_mean_entropy_of_a_sequence():
    rows = [
        {"reward": 1, "entropy": [0.2, 0.8]},
        {"reward": -1, "entropy": [0.5]},
        {"reward": 0, "entropy": [2.0, 0, 1]},
    ]
    assert advantages(egsw.build(alpha=0.5), rows) == pytest.approx([1.866018, -0.252537, 0], abs=1e-5)


def test_egsw_token_by_token_compares_those_still_running():
    """Position 0 has three answers, position 1 two; the last one has the position for itself: weight 1."""
    rows = [
        {"reward": 1, "entropy": [0.5, 0.0, 9.0]},
        {"reward": -1, "entropy": [0.5, 0.0]},
        {"reward": 0, "entropy": [1.0]},
    ]
    found = advantages(egsw.build(alpha=0.5, level="token"), rows)
    two = 2 / (1 + math.exp(-2))
    assert found[0] == pytest.approx([3 * 0.622006, two, 1.0], abs=1e-5)
    assert found[1] == pytest.approx([-3 * 0.084179, -(2 - two)], abs=1e-5)


@given(st.floats(-5, 5), st.floats(0, 5), st.floats(0.1, 10))
def test_egsw_equal_scores_are_grpo(a, h, P):
    assert softmax_weights([a] * 5, [h] * 5, 0.3, P) == pytest.approx([0.2] * 5)


def test_egsw_edges():
    with pytest.raises(UserError, match="'entropy'"):
        explain(egsw.build(), [group([1, 0])])
    assert advantages(egsw.build(alpha=0.0), group([1, 1])) == [0, 0]
    assert advantages(egsw.build(), group([1.0], entropy=[0.7])) == [0.0]
    huge = advantages(egsw.build(temperature=1e-4), group([1, 0], entropy=[0.1, 0.2]))
    assert np.isfinite(huge).all() and huge[1] == pytest.approx(0.0)
    flat = advantages(egsw.build(temperature=1e9), group([1, 0], entropy=[0.1, 5.0]))
    assert flat == pytest.approx(advantages(grpo.build(), group([1, 0])), abs=1e-6)
    masked = group([1, 0], entropy=[0.1, 0.2], ref_logp=[-1.0, -1.0])
    assert explain(egsw.build(kl=0.1), [masked])


# ---- apo


def kl_weights(recipe, rows):
    """d loss / d logp of the KL term alone, relative to its unweighted value."""
    learner = recipe.learners["policy"]
    silent = vary(recipe, objective=learner.objective.parts[1])
    plain = vary(recipe, objective=1e-3 * KL("k3"))
    return [a[0] / b[0] for a, b in zip(weights(silent, rows), weights(plain, rows), strict=True)]


def test_apo_difficulty_share():
    found = apo.kl_share(np.array([0.25, 0.5, 0.75, 0.0, 1.0]))
    assert found == pytest.approx([0.869804, 0.743119, 0.493165, 1, 1], abs=1e-6)


def test_apo_shapes_advantages_and_kl():
    rows = group([1, 0, 0, 0], [100, 150, 80, 5000], ref_logp=[-1.5] * 4)
    assert advantages(apo.build(), rows) == pytest.approx([1.5, -0.50025, -0.5, -0.523909], abs=1e-6)
    assert kl_weights(apo.build(), rows) == pytest.approx([0.493165, 1, 1, 1], abs=1e-6)
    assert advantages(apo.build(stcr=False), rows) == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-6)
    released = kl_weights(vary(apo.build(), objective=Clipped() + 1e-3 * KL("k3")), rows)
    assert released == pytest.approx([1] * 4)


def test_apo_signs():
    """A formatted wrong answer (reward .5) may have A > 0: DADS counts it as positive, STCR as wrong."""
    rows = group([1.5, 0.5, 0, 0, 0, 0], [10, 30, 5, 5, 5, 5], ref_logp=[-1.5] * 6)
    share = float(apo.kl_share(np.array([5 / 6]))[0])
    assert kl_weights(apo.build(), rows)[:2] == pytest.approx([share, share])
    plain, shaped = (advantages(apo.build(stcr=s, base=1.01), rows) for s in (False, True))
    assert shaped[1] == pytest.approx(plain[1] * (2 - 1.01**-20)) and shaped[2:] == pytest.approx(plain[2:])


def test_apo_edges():
    """Nobody right: no length rule. Equal rewards: A = 0 and the full KL acts."""
    assert advantages(apo.build(), group([0.5, 0, 0], [9, 99, 999], ref_logp=[-1] * 3))[1:] == pytest.approx(
        [-0.57735] * 2, abs=1e-5
    )
    same = group([1, 1], ref_logp=[-1.5, -1.5])
    assert kl_weights(apo.build(), same) == pytest.approx([1, 1])
    assert weights(apo.build(), same)[0] == pytest.approx([-1e-3 * (1 - math.exp(-0.5)) / 8] * 4)
    bare = explain(apo.build(), [group([1, 0])])  # the reference is the loss's
    assert bare["advantages"][0] == pytest.approx([0.707107, -0.707107]) and bare["token_weights"] is None
    assert "'ref_logp'" in bare["notes"][0]


# ---- confucius3


def test_confucius_hardness():
    for right_as, wrong_as in ((1, -1), (1, 0)):
        found = advantages(confucius3.build(), group([right_as] + [wrong_as] * 3))
        assert found == pytest.approx([2.076, -0.692, -0.692, -0.692])
    D = [-0.256 * mu + 1.256 for mu in (-1, 0, 1)]
    assert pytest.approx([1.512, 1.256, 1.0]) == D
    hardness = confucius3.Hardness()
    assert [hardness.slope * mu + hardness.level for mu in (-1, 0, 1)] == pytest.approx(D)
    assert advantages(confucius3.build(pshw=False), group([1, 0, 0, 0])) == pytest.approx([1.5, -0.5, -0.5, -0.5])
    assert advantages(confucius3.build(), group([1, 1]), group([0])) == [[0, 0], [0]]


def test_confucius_sums_tokens():
    found = weights(confucius3.build(length=8), group([1, 0, 0, 0], [1, 2, 3, 4]))
    assert [w[0] for w in found] == pytest.approx([2.076 / 32] + [-0.692 / 32] * 3)


def test_confucius_corrects_no_age():
    """The ratio is against the policy before the update: a stale behaviour log-prob changes nothing."""
    stale = group([1, 0], behaviour_logp=[-3.0, -0.2], logp=[-1.0, -1.0])
    found = weights(confucius3.build(), stale)
    assert found[0][0] == pytest.approx(1.256 / (2 * 64)) and found[1][0] == pytest.approx(-1.256 / (2 * 64))


@pytest.mark.parametrize(("entropy", "loss", "slope"), [(0.3, 0.00025, -1), (0.55, 0.0, 0), (0.8, 0.00025, 1)])
def test_targeted_entropy(entropy, loss, slope):
    found, grad, metrics = token_gradient(0.001 * TargetEntropy(0.55), batch_of([0.0, 0.0]), entropy=[entropy] * 2)
    assert found == pytest.approx(loss)
    assert grad["entropy"] == pytest.approx([0.001 * slope / 2] * 2)
    assert metrics["entropy"] == pytest.approx(entropy)


def test_targeted_entropy_is_of_the_whole_batch():
    """Entropies .2 and .9 lie above .5 together: in micro-batches of one row, too, both are pushed down."""
    assert TargetEntropy().couples == (Clipped() + 0.001 * TargetEntropy()).couples == "batch"
    batch = batch_of([0.0, 0.0], row=[0.0, 1.0])
    for budget in (1, 100):
        H = torch.tensor([0.2, 0.9], dtype=torch.float64, requires_grad=True)

        def forward(part, H=H):
            mine = H[part["row"].long()]
            return {"entropy": torch.stack([torch.zeros_like(mine), mine], 1)}

        backward(forward, TargetEntropy(0.5), batch, budget)
        assert H.grad.tolist() == pytest.approx([0.5, 0.5])


def test_first_phase_is_grpo_with_a_target():
    bare = explain(confucius3.build(phase=1), [group([1, 0])])
    assert bare["token_weights"] is None and "'entropy'" in bare["notes"][0]
    rows = group([1, 0], entropy=[0.3, 0.3])
    assert advantages(confucius3.build(phase=1), rows) == advantages(grpo.build(), rows)


def test_recent_samples_are_recovered():
    """Six kept groups for a batch of four: two are carried over, and come first in the next batch."""
    pool, ctx = Mixed(4), FakeContext()
    kept = [played(1, 0) for _ in range(6)]
    ready, _, state = asyncio.run(pool(ctx, [*kept, played(1, 1)], {}))
    assert ready == kept[:4] and state["waiting"] == kept[4:]
    later = [played(1, 0, 0) for _ in range(3)]
    ready, _, state = asyncio.run(pool(ctx, later, state))
    assert ready == [*kept[4:], *later[:2]] and state["waiting"] == later[2:]
    assert confucius3.build().schedule.max_age == 1 and confucius3.build(rsr=False).schedule.max_age == 0


def test_recovery_lives_for_one_step():
    """A group of the step before is trained on first; without recovery it is too old."""

    def fresh(e):
        segments = tuple(replace(s, version=1) for s in e.rows[0].segments)
        return replace(e, rows=(replace(e.rows[0], segments=segments),))

    async def collect(context, key, given):
        return replace(given, episodes=tuple(map(fresh, played(1, 0).episodes)))

    def draw(context, key, n, state):
        return [task(str(i), (0,), ()) for i in range(n)], state

    for rsr in (True, False):
        recipe = vary(confucius3.build(rsr=rsr), draw=draw, collect=collect, pool=Mixed(4))
        waiting = played(1, 0, 0)
        state = start(0) | {"step": 1, "pool": {"waiting": [waiting]}}
        ready, _ = asyncio.run(gather_groups(recipe, FakeContext(), state))
        assert (ready[0] is waiting) == rsr and len(ready) == 4


# ---- all

IDS = ("apo", "asymre", "confucius3", "dr-grpo", "egsw", "lite-ppo", "nsr", "rec")
RECIPES = {i: catalogue.recipe(i) for i in IDS}
RECIPES |= {"confucius3, phase 1": confucius3.build(phase=1), "rec, ring": rec.build("ring", weighted=True)}


@pytest.mark.parametrize("name", RECIPES)
def test_law_02_gradient_of_any_split(name):
    ctx, learner = FakeContext(), RECIPES[name].learners["policy"]
    asked = task("t", (0,), ())
    groups = [
        Group(
            task=asked,
            episodes=tuple(
                replace(ctx.sample(asked, ("law 2", g, n), length=1 + n), reward=Reward(total=float(n % 2)))
                for n in range(4)
            ),
        )
        for g in range(2)
    ]
    examples, _ = learner.credit(groups, ctx.measure(groups, learner.needs), {})
    batch, found = pack(examples, dtype=torch.float64), []
    for budget in (1, 12, 1000):
        ctx.model("policy").zero_grad()
        told = backward(ctx.forward("policy", learner.objective.needs), learner.objective, batch, budget)
        gradient = torch.cat([p.grad.flatten() for p in ctx.model("policy").parameters()])
        found.append((gradient, {k: float(v) for k, v in told.items()}))
    assert found[0][0].abs().max() > 0
    for gradient, metrics in found[1:]:
        assert torch.allclose(found[0][0], gradient, rtol=1e-9, atol=1e-14)
        assert metrics == pytest.approx(found[0][1], rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("module", [apo, asymre, confucius3, dr_grpo, egsw, lite_ppo, nsr, rec])
def test_masked_slots_may_hold_anything(module):
    """A NaN outside the trained tokens changes neither loss nor gradient."""
    learner = module.build().learners["policy"]
    needs = {"logp", "entropy"}
    found = []
    for rubbish in (0.0, float("nan")):
        rows, columns = [], []
        for i, a in enumerate((1.0, -1.0)):
            rows.append(
                Row(
                    segments=(
                        Segment(ids=(0, 5), logp=(rubbish, rubbish)),
                        Segment(ids=(1,) * (i + 1), trained=True, logp=(-1.0,) * (i + 1)),
                    )
                )
            )
            quiet = np.array([rubbish, rubbish] + [-1.2] * (i + 1))
            columns.append(dict.fromkeys(("ref_logp", "policy_logp", "kl_weight"), quiet) | {"advantage": quiet * a})
        batch = pack([Example(row=r, columns=c) for r, c in zip(rows, columns, strict=True)], dtype=torch.float64)
        out = {n: (-0.9 * batch.mask).requires_grad_() for n in needs}
        loss, _ = learner.objective(out, batch)
        found.append([loss.item(), torch.autograd.grad(loss, out["logp"])[0].tolist()])
    assert found[0] == found[1] and np.isfinite(found[0][0])


@pytest.mark.parametrize("method", IDS)
def test_experiments_vary_one_thing(method):
    """Arms share optimiser and number of samples; the claim's two arms exist."""
    arms = experiment_of(method).arms
    optimisers = {a.learners["policy"].optimiser for a in arms.values()}
    assert len(optimisers) == 1 and len({a.collect for a in arms.values()}) == 1
    assert len({(a.schedule.lag, a.schedule.prompts) for a in arms.values()}) == 1
