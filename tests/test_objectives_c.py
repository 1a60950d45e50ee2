"""Rover, effective rank, attention rhythm, high-entropy tokens, STEER, RAPO, G2RL, CARFT: the papers' numbers by hand."""

import asyncio
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra import catalogue
from palaestra.credit.links import Chain
from palaestra.errors import UserError
from palaestra.explanation.method import explain
from palaestra.objective.kl import kl_terms
from palaestra.objective.tokens import DualClipped, TokenWeighted, TopTokens, mark_top_share
from palaestra.recipes.objectives import (
    attention_rhythm,
    carft,
    effective_rank,
    g2rl,
    high_entropy_tokens,
    rapo,
    rover,
    steer,
)
from palaestra.run.driver import prepare
from palaestra.step import start, step
from palaestra.store.codec import decode, encode
from palaestra.types import Episode, Example, Group, Reward, Row, Segment, Task
from palaestra.update import backward, pack
from palaestra.values import override


def batch_of(*rows, **columns):
    """One batch of rows given as their per-token advantages, behind one prompt token; other columns [tokens] by row."""
    examples = []
    for b, advantage in enumerate(rows):
        n = len(advantage)
        row = Row(segments=(Segment(ids=(0,)), Segment(ids=tuple(range(b, b + n)), trained=True, logp=(-1.0,) * n)))
        more = {k: np.array([0.0, *v[b]]) for k, v in columns.items()}
        examples.append(Example(row=row, columns={"advantage": np.array([0.0, *advantage]), **more}))
    return pack(examples, dtype=torch.float64)


def outputs(batch, **given):
    """[B, T] leaves that need gradients, behind one prompt token."""
    out = {}
    for name, rows in given.items():
        x = torch.zeros_like(batch.mask)
        for b, values in enumerate(rows):
            x[b, 1 : 1 + len(values)] = torch.tensor(values, dtype=torch.float64)
        out[name] = x.requires_grad_()
    return out


def groups_of(rewards, facts=None):
    """One group of one-row episodes with two trained tokens."""
    said = [Segment(ids=(i, i + 1), trained=True, policy="policy", logp=(-1.0, -1.0)) for i in range(len(rewards))]
    episodes = tuple(
        Episode(rows=(Row(segments=(Segment(ids=(0,)), s)),), reward=Reward(total=float(r)), status="finished")
        for r, s in zip(rewards, said, strict=True)
    )
    return [Group(task=Task(id="t"), episodes=episodes)]


# ---- rover

ROVER = [
    {"reward": 1, "length": 2, "vocab_mean_logp": [-2, -2.020411], "policy_vocab_mean_logp": [-2, -2]},
    *[{"reward": 0, "length": 2, "vocab_mean_logp": [-2, -2], "policy_vocab_mean_logp": [-2, -2]}] * 3,
]


def test_rover_first_update_is_reinforce_with_a_centred_reward():
    """Q = 0: weight of a token = 2 y / N, y = rt + the successor's mean log-ratio, and rt at the last token."""
    found = explain(rover.build(), [ROVER])
    assert found["advantages"][0] == [0.75, -0.25, -0.25, -0.25]
    assert found["token_weights"][0][0] == pytest.approx([2 * (0.75 - 0.020411) / 8, 2 * 0.75 / 8])
    assert found["token_weights"][0][1] == pytest.approx([-2 * 0.25 / 8] * 2)


def test_rover_reference_values():
    """pi_old = (.5, .5), pi(s') = (.6, .4), pi(a|s) = .55, rt = .5: y = .479589, error .147670."""
    old = math.log(0.5)
    mean = (math.log(0.6) + math.log(0.4)) / 2
    assert mean - old == pytest.approx(-0.020411, abs=1e-6)
    batch = batch_of([0.5, 0.5], policy_vocab_mean_logp=[[old, old]], behaviour_logp=[[old, old]])
    out = outputs(batch, logp=[[math.log(0.55), old + 0.5]], vocab_mean_logp=[[old, mean]])
    loss, _ = rover.UniformBellman()(out, batch)
    assert 2 * loss.item() == pytest.approx(0.147670, abs=1e-6)  # Q = y at the last token: no error there
    loss.backward()
    assert out["vocab_mean_logp"].grad is None  # a target
    assert out["logp"].grad[0, 1].item() == pytest.approx(math.log(1.1) - 0.479589, abs=1e-6)
    bare, _ = rover.UniformBellman(bootstrap=False)(out, batch)
    assert 2 * bare.item() == pytest.approx((math.log(1.1) - 0.5) ** 2, abs=1e-9)


def test_rover_successor_skips_what_others_wrote():
    x, mask = torch.tensor([[9.0, 1, 9, 9, 2, 3]]), torch.tensor([[0.0, 1, 0, 0, 1, 1]])
    assert rover.successors(x, mask)[mask > 0].tolist() == [2, 3, 0]


def test_rover_edges():
    lone = {**ROVER[1], "reward": 1}
    assert explain(rover.build(), [[lone]])["token_weights"][0] == [[0.0, 0.0]]
    bare = explain(rover.build(), [[{"reward": 1}, {"reward": 0}]])
    assert bare["advantages"] == [[0.5, -0.5]] and bare["token_weights"] is None
    assert "'vocab_mean_logp'" in bare["notes"][0]


# ---- high-entropy tokens


def test_top_entropy_mask():
    """k = ceil(rho N): 1 of 5, 2 of 6, 2 of 10."""
    H = torch.tensor([[0.1, 2.0, 0.3, 1.5, 0.05]])
    assert mark_top_share(H, torch.ones(1, 5) > 0, 0.2).tolist() == [[0, 1, 0, 0, 0]]
    assert (np.quantile(H, 0.8) <= H).tolist() == [[False, True, False, False, False]]
    for n, k in ((6, 2), (10, 2), (1, 1)):
        assert mark_top_share(torch.zeros(1, n), torch.ones(1, n) > 0, 0.2).sum() == k  # ties: exactly k
    assert mark_top_share(torch.zeros(1, 3), torch.zeros(1, 3) > 0, 0.2).sum() == 0


@pytest.mark.parametrize(("variant", "expected"), [("released", 1.0), ("paper", 0.2)])
def test_high_entropy_normaliser(variant, expected):
    """Five tokens with A = 1, one selected: the surrogate is 1 over the selected, 1/5 over all."""
    batch = batch_of([1.0] * 5)
    out = outputs(batch, logp=[[-1.0] * 5], entropy=[[0.1, 2.0, 0.3, 1.5, 0.05]])
    objective = high_entropy_tokens.build(variant=variant).learners["policy"].objective
    loss, metrics = objective(out, batch)
    assert loss.item() == pytest.approx(-expected)
    assert float(metrics["tokens_selected"]) == pytest.approx(0.2)
    loss.backward()
    assert out["logp"].grad[0].nonzero().flatten().tolist() == [2]
    assert out["entropy"].grad is None  # the choice is not learned


def test_high_entropy_through_explain():
    a = {"reward": 1, "entropy": [0.1, 2.0, 0.3, 1.5, 0.05]}
    b = {"reward": 0, "entropy": [0.0] * 5}
    found = explain(high_entropy_tokens.build(), [[a, b]])["token_weights"][0]
    assert found[0] == pytest.approx([0, 0.70710578 / 10, 0, 0.70710578 / 10, 0], abs=1e-6)
    assert found[1] == [0.0] * 5
    low = explain(high_entropy_tokens.build(0.8, "low-entropy"), [[a, b]])["token_weights"][0]
    assert [w != 0 for w in low[0]] == [True, False, True, False, True]
    bare = explain(high_entropy_tokens.build(), [[{"reward": 1}, {"reward": 0}]])
    assert bare["token_weights"] is None and "'entropy'" in bare["notes"][0]


@settings(max_examples=20)
@given(st.lists(st.integers(1, 6), min_size=2, max_size=5), st.sampled_from(["entropy", "low-entropy", "random"]))
def test_token_weights_do_not_depend_on_the_split(lengths, by):
    """Law 2: ranks are of the optimiser batch, whatever is in a micro-batch."""
    rng, found = np.random.default_rng(len(lengths)), []
    batch = batch_of(*[rng.standard_normal(n) for n in lengths])
    theta = torch.tensor(rng.standard_normal(batch.mask.shape))

    def forward(part):  # the token's number in the row and the row's first id find its parameters
        rows, T = part["ids"][:, 1], part["ids"].shape[1]
        logp = leaf[rows, :T] * part.mask
        return {"logp": logp, "entropy": (logp * 3).sin() * part.mask}

    objective = TokenWeighted(DualClipped(), TopTokens(0.3, by, over="selected"))
    for budget in (1, 1000):
        leaf = theta.clone().requires_grad_()
        metrics = backward(forward, objective, batch, budget)
        found.append((leaf.grad, metrics["tokens_selected"]))
    torch.testing.assert_close(found[0][0], found[1][0])
    assert float(found[0][1]) == pytest.approx(math.ceil(0.3 * sum(lengths) - 1e-9) / sum(lengths))


def test_dual_clip():
    """A = -1 and rho = e^3 = 20.1: the gain is bounded by c A = -10 and passes no gradient; A = 1 is clipped at 1.28."""
    batch = batch_of([-1.0, -1.0, 1.0])
    out = outputs(batch, logp=[[2.0, 0.0, 0.0]])
    loss, _ = DualClipped()(out, batch)
    assert loss.item() == pytest.approx((10 + math.e - 1.28) / 3)
    loss.backward()
    assert out["logp"].grad[0].tolist() == pytest.approx([0, 0, math.e / 3, 0])


# ---- steer


def binary_entropy(x):
    return -(x * math.log(x) + (1 - x) * math.log(1 - x))


def test_steer_reference_values():
    """Binary vocabulary, A = 1, x = x_old = .5, .9, .1: Omega, and both weights."""
    x = [0.5, 0.9, 0.1]
    logp, H = torch.tensor(np.log(x)), torch.tensor([binary_entropy(p) for p in x])
    omega = steer.entropy_change(logp, logp, H, torch.ones(3))
    assert omega.tolist() == pytest.approx([0, 0.021972, -1.779752], abs=1e-5)
    batch = batch_of([1.0] * 3, behaviour_logp=[logp.tolist()])
    out = outputs(batch, logp=[logp.tolist()], entropy=[H.tolist()])
    for mapping, expected in (("linear", [1.2, 1.195062, 0.8]), ("exp", [1, 0.997249, 0.8])):
        w, _ = steer.EntropyChange(mapping)(out, batch)
        assert w[0, 1:].tolist() == pytest.approx(expected, abs=1e-5)
        assert w[0, 0] == 0


def test_steer_has_the_sign_of_the_entropy_change():
    """dH / dz_a = -x (log x + H) for the token's own logit; Omega has this sign, and its size up to (1 - x) / x."""
    z = torch.tensor([0.3, -1.0, 0.8, 0.1], dtype=torch.float64, requires_grad=True)
    for token in range(4):
        logp = torch.log_softmax(z, 0)
        H = -(logp.exp() * logp).sum()
        slope, x = torch.autograd.grad(H, z)[0][token], logp[token].exp().item()
        omega = steer.entropy_change(logp[token], logp[token], H, torch.tensor(1.0)).item()
        assert slope.item() * (1 - x) / x == pytest.approx(-omega, rel=1e-9)


def test_steer_weights_multiply_the_clipped_loss():
    """Everything equal: the middle of linear (1.0). Equal rewards: nothing moves. Weights pass no gradient."""
    group = [{"reward": r, "length": 2, "entropy": [0.5, 0.5]} for r in (1, 0)]
    found = explain(steer.build(), [group])["token_weights"][0]
    assert found[0] == pytest.approx([0.70710578 / 4] * 2, abs=1e-6)
    equal = [{"reward": 1, "length": 2, "entropy": [0.5, 0.5]}] * 2
    assert explain(steer.build("exp"), [equal])["token_weights"][0] == [[0.0, 0.0]] * 2
    batch = batch_of([1.0, 1.0])
    out = outputs(batch, logp=[[-1.0, -1.0]], entropy=[[0.2, 2.0]])
    loss, _ = TokenWeighted(DualClipped(), steer.EntropyChange())(out, batch)
    loss.backward()
    assert out["entropy"].grad is None
    assert out["logp"].grad[0, 1:].tolist() == pytest.approx([-0.6, -0.4])  # m .5, 0.6: the extremes 1.2 and .8, halved


def test_steer_ignores_what_is_not_finite():
    batch = batch_of([1.0, 1.0])
    out = outputs(batch, logp=[[-1.0, -1.0]], entropy=[[math.inf, 1.0]])
    w, _ = steer.EntropyChange()(out, batch)
    assert torch.isfinite(w).all()


# ---- rapo


def test_rapo_estimator():
    q = torch.tensor([2.0, 0.5, 1.0])
    assert kl_terms(-q.log(), torch.zeros(3), "forward").tolist() == pytest.approx([0.386294, 0.153426, 0], abs=1e-6)
    pi, ref = torch.tensor([0.2, 0.3, 0.5]), torch.tensor([0.7, 0.2, 0.1])
    assert float((pi * kl_terms(pi.log(), ref.log(), "forward")).sum()) == pytest.approx(
        float((ref * (ref / pi).log()).sum())
    )


def test_rapo_tempered_reference():
    from palaestra.models.forward import power_logp

    logp = torch.tensor([[0.7, 0.2, 0.1]]).log().repeat(3, 1)
    for phi, expected in ((0.5, [0.522879, 0.279491, 0.197630]), (0.0, [1 / 3] * 3), (1.0, [0.7, 0.2, 0.1])):
        found = power_logp(logp, torch.arange(3), torch.full((3,), phi)).exp()
        assert found.tolist() == pytest.approx(expected, abs=1e-6)


def test_rapo_exponents():
    assert rapo.exponents(np.array([0.0, 1, 1, 0]), "sample").tolist() == [0, 1, 1, 0]
    assert rapo.exponents(np.array([0.0, 1, 1, 0]), "group").tolist() == [0.5] * 4
    assert rapo.exponents(np.array([-1.0, 3, 1]), "sample").tolist() == [0, 1, 0.5]
    assert rapo.exponents(np.array([1.0, 1]), "sample").tolist() == [1, 1]  # nothing to compare
    assert rapo.exponents(np.array([0.0]), "sample").tolist() == [0]
    assert rapo.exponents(np.array([0.0, 1]), "none").tolist() == [1, 1]


def test_rapo_skips_failed_episodes():
    (group,) = groups_of([0.0, 1.0])
    broken = replace(group, episodes=(group.episodes[0], Episode(status="error:endpoint"), group.episodes[1]))
    found = asyncio.run(rapo.Temper()(None, (), broken)).episodes
    assert [e.facts.get("exponent") for e in found] == [0.0, None, 1.0]


def test_rapo_token_weights():
    """Equal rewards leave the forward KL alone: d k / d logp = -q log q with q = pihat / pi, alpha / (G |o|)."""
    group = [
        {"reward": 1, "logp": [-1.0], "entropy": [0.0], "ref_power_logp": [-1.0 + math.log(2)]},
        {"reward": 1, "logp": [-1.0], "entropy": [0.0], "ref_power_logp": [-1.0]},
    ]
    found = explain(rapo.build(alpha=0.1), [group])["token_weights"][0]
    assert found[0] == pytest.approx([0.1 * 2 * math.log(2) / 2]) and found[1] == pytest.approx([0])
    bare = explain(rapo.build(), [[{"reward": 1}, {"reward": 0}]])
    assert bare["token_weights"] is None and "'ref_power_logp'" in bare["notes"][0]


# ---- g2rl

FEATURES = np.array([[1.0, 0], [1, 0], [0, 1]])


def test_g2rl_reference_values():
    r = np.array([1.0, -1, 1])
    nu = g2rl.novelty(FEATURES, r)
    assert nu.tolist() == pytest.approx([0.880797, 0.5, 1], abs=1e-6)
    assert g2rl.scale_novelty(nu, "equation").tolist() == pytest.approx([0.761594, 0, 1], abs=1e-6)
    assert g2rl.scale_novelty(nu, "text").tolist() == pytest.approx([0.523188, -1, 1], abs=1e-6)


@pytest.mark.parametrize(("form", "shaped"), [("equation", [1.761594, -1, 2]), ("text", [1.523188, 0, 2])])
def test_g2rl_shapes_rewards_before_the_group(form, shaped):
    """Through the whole credit; rewards 1, 0, 1 are r = 1, -1, 1. Directions count, not lengths."""
    group = [
        {"reward": (r + 1) / 2, "length": 2, "head_gradient": f}
        for r, f in zip([1, -1, 1], [[3, 0], [5, 0], [0, 2]], strict=True)
    ]
    found = explain(g2rl.build(form), [group])["advantages"][0]
    expected = (np.array(shaped) - np.mean(shaped)) / (np.std(shaped, ddof=1) + 1e-6)
    assert found == pytest.approx(expected.tolist(), abs=1e-5)


def test_g2rl_edges():
    """All alike, or alone: r' = r. Without features of its own a row is 0, and explained by nobody."""
    for f in ([[1, 0]] * 2, [[0, 0]] * 2):
        group = [{"reward": r, "length": 2, "head_gradient": x} for r, x in zip((1, 0), f, strict=True)]
        assert explain(g2rl.build(), [group])["advantages"][0] == pytest.approx([0.7071063, -0.7071063], abs=1e-5)
    assert explain(g2rl.build(), [[{"reward": 1, "length": 2, "head_gradient": [1, 0]}]])["advantages"] == [[0.0]]
    assert g2rl.novelty(np.array([[1.0, 0]]), np.array([1.0])).tolist() == [0]
    with pytest.raises(UserError, match="head_gradient"):
        explain(g2rl.build(), [[{"reward": 1}, {"reward": 0}]])


def test_g2rl_bounds_and_placebo():
    table = g2rl.build().learners["policy"].credit
    groups = groups_of([1, 0, 1])
    signals = [[[{g2rl.SIGNAL: f[None]}] for f in FEATURES]]
    plain = [float(x.columns["advantage"].max()) for x in table(groups, signals, {})[0]]
    assert all(g2rl.SIGNAL not in x.columns for x in table(groups, signals, {})[0])  # a feature is no token column
    big = Chain((g2rl.Explore("equation", weight=5.0),))(groups, signals, {})[0]
    assert max(x.columns["advantage"].max() for x in big) == 3
    other = Chain((g2rl.Explore("text", placebo=True),))(groups, signals, {})[0]
    assert len(plain) == len(other) == 3


# ---- effective rank


def test_rank_growth():
    assert effective_rank.growth(np.array([1.0, 2, 4])) == pytest.approx((1.75, 1.5))
    assert effective_rank.growth(np.array([1.0, 2])) == pytest.approx((1, 0))
    assert effective_rank.growth(np.array([1.0])) == effective_rank.growth(np.array([])) == (0, 0)


def test_rank_potential():
    phi = effective_rank.potential(np.array([[4, 1.75, 1.5]]), np.array([4, 1.4, 1.0]))
    assert phi.tolist() == pytest.approx([0.065869], abs=1e-6)


RANKS = {"policy_prefix_rank:1": np.array([0.0, 1, 2, 4])}  # of three tokens, stride 1


def ranked(advantages):
    """Episodes of three tokens whose reward is the advantage, with the ranks 1, 2, 4."""
    said = Segment(ids=(1, 2, 3), trained=True, policy="policy", logp=(-1.0,) * 3)
    row = Row(segments=(Segment(ids=(0,)), said))
    episodes = tuple(Episode(rows=(row,), reward=Reward(total=a), status="finished") for a in advantages)
    return [Group(task=Task(id="t"), episodes=episodes)], [[[dict(RANKS)] for _ in advantages]]


def test_rank_bonus():
    """A' = A + min(relu(Phi), |A| / 2): never more than half, nothing at 0, no sign flips."""
    link, before = Chain((effective_rank.RankBonus(stride=1),)), {"rank": 4, "velocity": 1.4, "acceleration": 1.0}
    found, state = link(*ranked([1.0, -1, 0, 0.1]), {"effective_rank": before, "batches": 1})
    shaped = [float(x.columns["advantage"][1]) for x in found]
    assert shaped == pytest.approx([1.065869, -0.934131, 0, 0.15], abs=1e-6)
    assert state["effective_rank"]["velocity"] == pytest.approx(0.7 * 1.4 + 0.3 * 1.75)


def test_first_batch_has_no_baseline_and_the_store_survives():
    link = Chain((effective_rank.RankBonus(stride=1),))
    found, state = link(*ranked([1.0, -1]), {})
    assert [float(x.columns["advantage"][1]) for x in found] == [1, -1]
    assert state["effective_rank"] == {"rank": 4.0, "velocity": 1.75, "acceleration": 1.5}
    assert decode(*encode(state)) == state
    assert link([], [], state)[1] == state  # an empty batch leaves it


def test_rank_through_explain():
    """Alone, explain is a first batch: GRPO's advantages. The missing signal is named."""
    group = [{"reward": r, "length": 4, "prefix_rank:4": [0, 0, 0, 2.0]} for r in (1, 0)]
    assert explain(effective_rank.build(), [group])["advantages"][0] == pytest.approx([0.7071058, -0.7071058], abs=1e-5)
    with pytest.raises(UserError, match="prefix_rank:4"):
        explain(effective_rank.build(), [[{"reward": 1}, {"reward": 0}]])


def test_rank_state_survives_a_run(context, small):
    recipe, ctx, state = small(effective_rank.build()), context(), start(0)
    prepare(recipe, ctx)
    for _ in range(2):
        state, _ = asyncio.run(step(recipe, ctx, state))
    store = state["credit"]["policy"]
    assert store["batches"] == 2 and store["effective_rank"]["rank"] > 1


# ---- attention rhythm

WAAD, FAI = [0, 0.5, 0.7, 0.7], [0.35, 0.2, 0.2, 0]


def rhythm(mode, waad=WAAD, fai=FAI, **settings):
    """gamma of the four tokens of a right answer, and of a wrong one."""
    recipe, given = attention_rhythm.build(mode), {"waad:10": waad, "fai:2:10": fai, "entropy": [0, 1, 2, 3]}
    measured = {q: given[q] for _, q in recipe.learners["policy"].needs}
    right = {"reward": 1, "length": 4, **measured}
    for path, setting in settings.items():
        recipe = override(recipe, path, setting)
    good, bad = explain(recipe, [[right, {**right, "reward": 0}]])["advantages"][0]
    one = np.sqrt(0.5) / (1 + 1e-6 / np.sqrt(0.5))
    assert bad == pytest.approx([-one] * 4, abs=1e-6)  # negative advantages stay
    return (np.array(good) * np.ones(4) / one).tolist()


def test_changes():
    assert attention_rhythm.changes(np.array(WAAD)).tolist() == pytest.approx([0.5, 0.2, 0, 0])


def test_rhythm_modes():
    """40% of 4 tokens are 2; a score of 0 never counts."""
    assert rhythm("local") == pytest.approx([1.5, 1.5, 1, 1], abs=1e-5)
    assert rhythm("global") == pytest.approx([1.5, 1.5, 1, 1], abs=1e-5)
    assert rhythm("entropy") == pytest.approx([1, 1, 1.5, 1.5], abs=1e-5)
    assert rhythm("bottom") == pytest.approx([1, 1.5, 1, 1.5], abs=1e-5)
    assert sum(rhythm("random")) == pytest.approx(5, abs=1e-4)
    assert rhythm("global", fai=[0.0] * 4) == pytest.approx([1] * 4, abs=1e-5)


def test_rhythm_coupled():
    """Anchor 2 is dominated (low WAAD after a change): it shares with its introduction. Anchor 0 is not: 1.5."""
    found = rhythm("coupled", waad=[0.5, 0.9, 0.1, 0.2], fai=[0.3, 0, 0.5, 0])
    assert found == pytest.approx([1.5, 1.25, 1.25, 1], abs=1e-5)
    assert rhythm("coupled", waad=[0.5, 0.9, 0.1, 0.2], fai=[0.3, 0, 0.5, 0], alpha=1.0)[2] == pytest.approx(
        1, abs=1e-5
    )


def test_rhythm_names_what_is_missing():
    with pytest.raises(UserError, match="waad:10"):
        explain(attention_rhythm.build("local"), [[{"reward": 1}, {"reward": 0}]])
    assert explain(attention_rhythm.build("random"), [[{"reward": 1}, {"reward": 0}]])


# ---- carft


def test_info_nce():
    sim = torch.tensor([[0.9, 0.1], [0.2, 0.8]], dtype=torch.float64)
    assert carft.info_nce(sim, torch.ones(2), 0.1).tolist() == pytest.approx([0.000335, 0.002476], abs=1e-6)
    assert carft.info_nce(sim, torch.tensor([1.0, 0.0]), 0.1).tolist() == pytest.approx([0.000335, 0], abs=1e-6)


def contrastive(right, z1, z2):
    batch = batch_of(*[[0.0, 0.0]] * len(right))
    batch = replace(batch, columns={**batch.columns, "annotation": z1[:, None], "right": torch.tensor(right)})
    return carft.InfoNCE(0.1)({"embedding": z2[:, None]}, batch)


def test_contrast_learns_only_from_right_answers():
    z1, z2 = torch.eye(2, dtype=torch.float64), torch.rand(2, 2, dtype=torch.float64).requires_grad_()
    loss, metrics = contrastive([0.0, 0.0], z1, z2)
    assert loss.item() == 0 == float(metrics["contrast"])
    loss, _ = contrastive([1.0, 0.0], z1, 3 * z2)
    loss.backward()
    assert z2.grad.abs().sum() > 0 and torch.isfinite(z2.grad).all()
    again, _ = contrastive([1.0, 0.0], z1, 7 * z2)
    assert again.item() == pytest.approx(loss.item())  # cosines


def test_annotation_is_measured_and_never_trained(context, small):
    recipe, ctx, state = small(carft.build()), context(), start(0)
    prepare(recipe, ctx)
    assert catalogue.parent_of("carft") == "ppo"
    state, metrics = asyncio.run(step(recipe, ctx, state))
    own, noted = ctx.seen[0].episodes[0].rows
    solution = ctx.bench.tasks.steps(ctx.seen[0].task)
    assert (
        noted.segments[-1].text == "\n".join(solution)
        and noted.segments[:-1] == own.segments[: len(noted.segments) - 1]
    )
    assert not noted.view("policy").trained_T.any()
    needs = recipe.learners["policy"].needs
    found, _ = recipe.learners["policy"].credit(ctx.seen, ctx.measure(ctx.seen, needs), {})
    assert all(x.row.segments[-1].author == "policy" for x in found) and len(found) == metrics["episodes"]
    assert {x.columns["annotation"].shape for x in found} == {(1, 64)}
    for x in found:
        reply = x.row.segments[-1]
        marked = x.columns["span"][x.row.view().trained_T].astype(bool)
        text = ctx.decode([i for i, on in zip(reply.ids, marked, strict=True) if on])
        whole = ctx.decode(reply.ids)
        assert text == (whole.rpartition("\n")[0] or whole)


def test_shuffled_annotations_come_from_the_next_group():
    (one,), (two,) = groups_of([1.0]), groups_of([1.0])
    note = Row(segments=(Segment(ids=(5, 6), author=carft.ANNOTATION, trained=True),))
    groups = [replace(g, episodes=(replace(g.episodes[0], rows=(*g.episodes[0].rows, note)),)) for g in (one, two)]
    signals = [
        [[{"policy_embedding": np.full((1, 2), 9.0)}, {"policy_embedding": np.full((1, 2), float(g))}]] for g in (1, 2)
    ]
    for shuffled, expected in ((False, [1, 2]), (True, [2, 1])):
        found, _ = carft.WithAnnotation(Chain(), shuffled)(groups, signals, {})
        assert [x.columns["annotation"][0, 0] for x in found] == expected
        assert [x.columns["right"] for x in found] == [1, 1]


def test_carft_needs_a_worked_solution(context, small):
    """A demonstration of one line is an answer without working: an error that says how to mend it."""
    ctx = context(task="add")
    (group,) = groups_of([1.0])
    task = replace(ctx.bench.tasks.task("train", 0), meta={"demonstration": "= 4"})
    with pytest.raises(UserError, match="demonstration"):
        asyncio.run(carft.Annotate()(ctx, (), replace(group, task=task)))


def test_carft_names_what_is_missing():
    group = [{"reward": 1, "value": [0.0], "ref_logp": [-1.0]}, {"reward": 0, "value": [0.0], "ref_logp": [-1.0]}]
    with pytest.raises(UserError, match="embedding"):
        explain(carft.build(), [group])
