"""Losses by the names people type: closed forms by hand, and every gradient against finite differences in float64."""

import math

import numpy as np
import pytest
import torch
from palaestra.errors import UserError
from palaestra.objective.anchored import (
    AnchoredPair,
    GeometricMean,
    LogRatioModulated,
    NoiseContrastive,
    PowerReward,
    ReversePairKL,
    SquaredSides,
)
from palaestra.objective.covariance import ClipCov, KLCov, share_of
from palaestra.objective.mismatch import TIS
from palaestra.objective.policy import Clipped, Reinforce
from palaestra.objective.preference import AOT, DPO, IPO, Hinge, ImitatePreferred, JensenShannon, OddsRatio, log1mexp
from palaestra.objective.shaped import GammaWeighted, SoftGated
from palaestra.objective.unpaired import BCO, KTO
from palaestra.types import Example, Row, Segment
from palaestra.update import backward, pack

near = lambda x: pytest.approx(x, abs=1e-9)
sigmoid = lambda x: 1 / (1 + math.exp(-x))


def rows_of(*logps, behaviour=None, **columns):
    """Rows of trained tokens with these log-probs, behind one prompt token; the batch, and the leaf."""
    examples = []
    for i, logp in enumerate(logps):
        n = len(logp)
        old = tuple(behaviour[i]) if behaviour else (-1.0,) * n
        said = Segment(ids=tuple(range(1, n + 1)), trained=True, logp=old)
        own = {k: np.array([0.0, *v[i]]) if isinstance(v[i], list) else v[i] for k, v in columns.items() if k != "unit"}
        unit = columns["unit"][i] if "unit" in columns else ""
        examples.append(Example(row=Row(segments=(Segment(ids=(0,)), said)), columns=own, unit=unit))
    batch = pack(examples, dtype=torch.float64)
    leaf = torch.zeros_like(batch.mask)
    for b, logp in enumerate(logps):
        leaf[b, 1 : 1 + len(logp)] = torch.tensor(logp, dtype=torch.float64)
    return batch, leaf.requires_grad_()


def policy_rows():
    """Log-ratios (.2, -.1, .05) with A = 1, and (-.3, .4) with A = -2; the row's mean ratios are e^.05 each."""
    return rows_of([-0.8, -1.1, -0.95], [-1.3, -0.6], advantage=[[1.0] * 3, [-2.0] * 2])


def pair_rows(n=3):
    """Pairs of answers of other lengths."""
    rng, logps, ref, sign, unit = np.random.default_rng(3), [], [], [], []
    for i in range(n):
        for s, size in ((1.0, 2 + i), (-1.0, 4 - i)):
            logps.append((-1.5 * rng.random(size) - 0.1).tolist())
            ref.append((-1.5 * rng.random(size) - 0.1).tolist())
            sign.append(s)
            unit.append(f"pair {i}")
    return rows_of(*logps, ref_logp=ref, sign=sign, unit=unit)


def label_rows(labels=(1.0, 1.0, -1.0, 0.0, 0.0)):
    """Log-ratios of whole rows: .6, -.2, .5; of answers to other prompts .1 and .3."""
    h = (0.6, -0.2, 0.5, 0.1, 0.3)[: len(labels)]
    return rows_of(*([-1.0 + x / 2] * 2 for x in h), ref_logp=[[-1.0, -1.0] for _ in h], label=list(labels))


def value(objective, given):
    batch, leaf = given
    loss, metrics = objective({"logp": leaf}, batch)
    (grad,) = torch.autograd.grad(loss, leaf, allow_unused=True, materialize_grads=True)
    return loss.item(), grad, {k: float(v) for k, v in metrics.items()}


def by_differences(objective, given, step=1e-6):
    """The gradient at the trained tokens, by central differences."""
    batch, leaf = given
    grad = torch.zeros_like(leaf)
    for at in (batch.mask > 0).nonzero().tolist():
        ends = []
        for sign in (1, -1):
            moved = leaf.detach().clone()
            moved[tuple(at)] += sign * step
            ends.append(float(objective({"logp": moved}, batch)[0]))
        grad[tuple(at)] = (ends[0] - ends[1]) / (2 * step)
    return grad


SMOOTH = [
    *((o, policy_rows) for o in (
        Clipped(low=0.9, high=0.9, ratio="sequence-mean"),
        Clipped(low=0.01, high=0.02, ratio="sequence-mean", reduce="tokens"),
        KLCov(share=0.4, weight=0.3), KLCov(share=0.0), ClipCov(share=0.2, least=-0.1, most=0.3),
        GeometricMean(), GeometricMean(low=0.15, high=0.25), SoftGated(), SoftGated(positive=3.0, negative=0.5, reduce="tokens"),
    )),
    *((o, pair_rows) for o in (
        DPO(smoothing=0.1), DPO(smoothing=0.1, robust=True), DPO(normalise=True),
        DPO(beta=2.0, reference_free=True, normalise=True, target=1.0), DPO(reference_free=True, smoothing=0.2),
        IPO(), IPO(normalise=False), AOT(), AOT(paired=False, smoothing=0.1), OddsRatio(), OddsRatio(beta=2.0),
        ImitatePreferred() + 0.1 * OddsRatio(), DPO() + 0.5 * ImitatePreferred(),
        AnchoredPair(), AnchoredPair(anchor="down"), NoiseContrastive(), ReversePairKL(smoothing=0.1), SquaredSides(),
        LogRatioModulated(), PowerReward(), PowerReward(alpha=-0.5),
    )),
    (KTO(point="zero", good=2.0), lambda: label_rows((1.0, 1.0, -1.0))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("objective", "given"), SMOOTH, ids=lambda x: str(x) if not callable(x) or hasattr(x, "needs") else ""
)
def test_the_gradient_is_that_of_finite_differences(objective, given):
    torch.testing.assert_close(value(objective, given())[1], by_differences(objective, given()), atol=1e-8, rtol=1e-6)


SPLIT = [
    AOT(), AOT(paired=False), KTO(), BCO(), Clipped(ratio="sequence-mean"), ClipCov(share=0.4, least=-1.0), KLCov(share=0.4),
    GammaWeighted(),
]  # fmt: skip


@pytest.mark.parametrize("objective", SPLIT)
def test_a_batch_that_is_split_for_memory_gives_the_same_gradient(objective):
    given = pair_rows if isinstance(objective, AOT) else label_rows if isinstance(objective, KTO | BCO) else policy_rows
    grads = []
    for budget in (1, 1000):
        batch, leaf = given()
        # finds a row of a part again by its number
        batch.columns["row"] = torch.arange(len(leaf), dtype=torch.float64)
        forward = lambda part, leaf=leaf: {"logp": leaf[part["row"].long()][:, : part.mask.shape[1]]}
        backward(forward, objective, batch, budget)
        grads.append(leaf.grad)
    torch.testing.assert_close(*grads)


def test_gspo():
    """Both rows have the ratio s = e^.05: A s / n for each token, or nothing where a clip holds it."""
    s = math.exp(0.05)
    loss, grad, metrics = value(Clipped(low=0.5, high=0.5, ratio="sequence-mean"), policy_rows())
    assert loss == near((-s + 2 * s) / 2) and metrics["ratio"] == near(s)
    assert grad[0, 1:].tolist() == near([-s / 6] * 3) and grad[1, 1:3].tolist() == near([2 * s / 4] * 2)
    loss, grad, metrics = value(Clipped(low=3e-4, high=4e-4, ratio="sequence-mean"), policy_rows())
    assert loss == near((-1.0004 + 2 * s) / 2) and metrics["clipped"] == near(3 / 5)  # A > 0 is clipped, A < 0 is not
    assert not grad[0].any() and grad[1, 1:3].tolist() == near([2 * s / 4] * 2)


def test_gspo_token():
    """The value and, with equal advantages, the gradient of GSPO; else each token has the gradient of its own."""
    token, whole = (Clipped(low=0.5, high=0.5, ratio=f"sequence-mean{x}") for x in ("-token", ""))
    for a, b in zip(value(token, policy_rows())[:2], value(whole, policy_rows())[:2], strict=True):
        torch.testing.assert_close(torch.as_tensor(a), torch.as_tensor(b))
    uneven = lambda: rows_of([-0.8, -1.1], advantage=[[1.0, 0.0]])
    s = math.exp(0.05)
    assert value(token, uneven())[1][0, 1:].tolist() == near([-s / 2, 0.0])
    assert value(whole, uneven())[1][0, 1:].tolist() == near([-s / 4, -s / 4])


def test_cispo():
    """Every token keeps a gradient, the weight is at most the cap: e^.2 is cut to 1.1, e^.4 too."""
    cispo = Reinforce(reduce="tokens", weighted=True, cap=1.1)
    loss, grad, _ = value(cispo, policy_rows())
    w = [1.1, math.exp(-0.1), math.exp(0.05)], [math.exp(-0.3), 1.1]
    assert grad[0, 1:].tolist() == near([-x / 5 for x in w[0]]) and grad[1, 1:3].tolist() == near(
        [2 * x / 5 for x in w[1]]
    )
    logp = [-0.8, -1.1, -0.95], [-1.3, -0.6]
    assert loss == near(
        sum(-a * x * y for a, ws, ls in zip((1, -2), w, logp, strict=True) for x, y in zip(ws, ls, strict=True)) / 5
    )


def test_sapo():
    """On policy the gradient is that of the plain ratio; at rho = e^.2, tau = 1: rho sech^2((rho - 1) / 2)."""
    on = rows_of([-1.0], [-1.0], advantage=[[1.0], [-1.0]])
    loss, grad, metrics = value(SoftGated(), on)
    assert grad[:, 1].tolist() == near([-0.5, 0.5]) and metrics["gate"] == near(1.0)
    assert loss == near((-2.0 + 2 / 1.05) / 2)
    rho = math.exp(0.2)
    off = rows_of([-0.8], [-0.8], advantage=[[1.0], [-1.0]])
    sech2 = lambda tau: 1 / math.cosh(tau * (rho - 1) / 2) ** 2
    assert value(SoftGated(), off)[1][:, 1].tolist() == near([-rho * sech2(1.0) / 2, rho * sech2(1.05) / 2])


def one_pair(chosen, rejected, tokens=(1, 1), ref=(0.0, 0.0)):
    """A pair whose whole answers have these log-probs, spread evenly."""
    spread = lambda totals: [[x / n] * n for x, n in zip(totals, tokens, strict=True)]
    return rows_of(*spread((chosen, rejected)), ref_logp=spread(ref), sign=[1.0, -1.0], unit=["p", "p"])


def test_ipo():
    """beta .5 asks for a margin of 1: h = (.6, .2) over 2 and 1 tokens is .3 - .2 per token, .4 in all."""
    given = {"tokens": (2, 1), "ref": (-1.0, -1.0)}
    assert value(IPO(beta=0.5), one_pair(-0.4, -0.8, **given))[0] == near((0.1 - 1) ** 2)
    assert value(IPO(beta=0.5, normalise=False), one_pair(-0.4, -0.8, **given))[0] == near((0.4 - 1) ** 2)


def test_robust_and_conservative_dpo():
    """m = 1: conservative mixes in the flipped loss, robust takes it away and is unbiased under flips."""
    good, flipped = math.log1p(math.exp(-1)), math.log1p(math.exp(1))
    given = one_pair(1.0, 0.0)
    assert value(DPO(beta=1.0, smoothing=0.1), given)[0] == near(0.9 * good + 0.1 * flipped)
    robust = lambda pair: value(DPO(beta=1.0, smoothing=0.1, robust=True), pair)[0]
    assert robust(given) == near((0.9 * good - 0.1 * flipped) / 0.8)
    # a tenth of the labels flipped: the mean is the loss of clean labels
    assert 0.9 * robust(given) + 0.1 * robust(one_pair(0.0, 1.0)) == near(good)
    with pytest.raises(UserError, match=r"DPO\.smoothing is 0\.5"):
        DPO(smoothing=0.5, robust=True)


def test_simpo_and_cpo():
    """Log-probs -2 over 4 tokens and -2 over 2: .5 apart per token, 0 in all."""
    given = one_pair(-2.0, -2.0, tokens=(4, 2))
    simpo = DPO(beta=2.0, reference_free=True, normalise=True, target=0.4)
    loss, _, metrics = value(simpo, given)
    assert loss == near(math.log1p(math.exp(-(2 * 0.5 - 0.4)))) and metrics["margin"] == near(1.0)
    cpo = DPO(beta=0.1, reference_free=True) + 1.0 * ImitatePreferred()
    assert value(cpo, given)[0] == near(math.log(2) + 0.5)


def test_orpo():
    """p = .5 and .2 per token: odds 1 and .25, so the log odds ratio is log 4."""
    given = one_pair(2 * math.log(0.5), 3 * math.log(0.2), tokens=(2, 3))
    loss, _, metrics = value(OddsRatio(), given)
    assert loss == near(math.log(1 + 1 / 4)) and metrics["margin"] == near(math.log(4))
    assert value(ImitatePreferred() + 0.1 * OddsRatio(), given)[0] == near(math.log(2) + 0.1 * math.log(1.25))


def test_log_odds_of_a_sure_token_stay_finite():
    x = torch.tensor([0.0, -1e-17, -1e-3, -1.0, -50.0], dtype=torch.float64, requires_grad=True)
    y = log1mexp(x)
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert y.isfinite().all() and grad.isfinite().all()
    assert y[2:].tolist() == pytest.approx([math.log(-math.expm1(-1e-3)), math.log1p(-math.exp(-1)), -math.exp(-50)])


def test_aot_sorts_margins_and_those_of_the_reference():
    """Margins (3, 1) against the reference's (0, 2): in order (1 - 0, 3 - 2), so both pairs are 1 apart."""
    rows = rows_of([3.0], [0.0], [1.0], [0.0], ref_logp=[[0.0], [0.0], [2.0], [0.0]], sign=[1.0, -1.0] * 2,
                   unit=["a", "a", "b", "b"])  # fmt: skip
    assert value(AOT(beta=1.0), rows)[0] == near(math.log1p(math.exp(-1)))
    dpo = (math.log1p(math.exp(-3)) + math.log1p(math.exp(1))) / 2
    assert value(DPO(beta=1.0), rows)[0] == near(dpo)
    # h chosen (3, -1), h rejected (0, 0): the order of the pairs does not matter
    assert value(AOT(beta=1.0, paired=False), rows)[0] == near(dpo)
    assert AOT().couples == "batch"


def test_kto():
    """z = .2, the mean of .1 and .3; label by label, beta .5; answers to other prompts get no gradient."""
    kto = KTO(beta=0.5, good=2.0, bad=3.0)
    loss, grad, metrics = value(kto, label_rows())
    v = [sigmoid(0.5 * (0.6 - 0.2)), sigmoid(0.5 * (-0.2 - 0.2)), sigmoid(0.5 * (0.2 - 0.5))]
    assert loss == near((2 * (1 - v[0]) + 2 * (1 - v[1]) + 3 * (1 - v[2])) / 3)
    slope = [-2 * 0.5 * v[0] * (1 - v[0]) / 3, -2 * 0.5 * v[1] * (1 - v[1]) / 3, 3 * 0.5 * v[2] * (1 - v[2]) / 3, 0, 0]
    assert grad[:, 1].tolist() == near(slope) and grad[:, 2].tolist() == near(slope)
    assert metrics["reference_point"] == near(0.2) and metrics["margin"] == near(0.2 - 0.5)
    labelled = by_differences(kto, label_rows())[:3]  # moving a labelled row does not move z
    torch.testing.assert_close(grad[:3], labelled, atol=1e-8, rtol=1e-6)


def test_the_reference_point_of_kto():
    assert value(KTO(point="batch"), label_rows())[2]["reference_point"] == near(0.3)
    assert value(KTO(point="zero"), label_rows())[2]["reference_point"] == 0.0
    away = rows_of([-2.0], [-2.0], ref_logp=[[-1.0], [-1.0]], label=[1.0, 0.0])
    assert value(KTO(), away)[2]["reference_point"] == 0.0  # a KL is not below 0
    with pytest.raises(UserError, match=r"no answer to another prompt.*MismatchedAnswer"):
        value(KTO(), label_rows((1.0, 1.0, -1.0)))


def test_bco():
    """beta 1: mean r of good answers .2, of the bad one .5, so the shift is .35; no gradient flows through it."""
    loss, grad, metrics = value(BCO(beta=1.0, bad=2.0), label_rows((1.0, 1.0, -1.0)))
    m = [0.6 - 0.35, -0.2 - 0.35, 0.35 - 0.5]
    weight, sign = [1, 1, 2], [1, 1, -1]
    assert loss == near(sum(w * math.log1p(math.exp(-x)) for w, x in zip(weight, m, strict=True)) / 3)
    expected = [-w * s * (1 - sigmoid(x)) / 3 for w, s, x in zip(weight, sign, m, strict=True)]
    assert grad[:, 1].tolist() == near(expected) and metrics["reference_point"] == near(0.35)
    assert value(BCO(beta=1.0), label_rows((1.0, 1.0)))[2]["reference_point"] == near(0.2)  # one side alone


def test_pairs_without_a_shift_are_the_critic_of_mio():
    """TRL's bco_pair is twice the Jensen-Shannon estimator: softplus(-r_c) + softplus(r_r)."""
    given = one_pair(0.2, -0.3)
    both = math.log1p(math.exp(-0.2)) + math.log1p(math.exp(-0.3))
    assert value(2 * JensenShannon(beta=1.0), given)[0] == near(both)


def test_losses_that_hold_each_answer_to_something_of_its_own():
    """r_c = log 2 and r_r = -log 3: sigmoids 2/3 and 1/4, and of m = log 6, 6/7."""
    pair = one_pair(math.log(2), -math.log(3))
    assert value(AnchoredPair(beta=1.0), pair)[0] == near(1 - 2 / 3 + 1 / 4)
    assert value(AnchoredPair(beta=1.0, anchor="down"), pair)[0] == near(2 / 3 + 1 - 6 / 7)
    nca = -math.log(2 / 3) - (math.log(1 / 3) + math.log(3 / 4)) / 2
    assert value(NoiseContrastive(beta=1.0), pair)[0] == near(nca)
    exo = 6 / 7 * math.log(6 / 7 / 0.9) + 1 / 7 * math.log(1 / 7 / 0.1)
    assert value(ReversePairKL(beta=1.0, smoothing=0.1), pair)[0] == near(exo)
    sppo = (math.log(2) - 1) ** 2 + (1 - math.log(3)) ** 2
    assert value(SquaredSides(beta=0.5), pair)[0] == near(sppo)
    w = 6**2 / (6**2 + 1)
    assert value(LogRatioModulated(beta=1.0, temperature=0.5), pair)[0] == near((1 - w) * math.log(7 / 6) + w / 6)


def test_the_reverse_divergence_is_0_where_the_policy_is_as_sure_as_the_label():
    loss, grad, _ = value(ReversePairKL(beta=1.0, smoothing=0.2), one_pair(math.log(4), 0.0))
    assert loss == near(0.0) and grad.abs().max() < 1e-12
    with pytest.raises(UserError, match="smoothing"):
        ReversePairKL(smoothing=0.0)


def test_alphapo():
    """p = .5 and .25 per token, alpha 1: R = 1 - 2 and 1 - 4; alpha to 0 is SimPO."""
    given = one_pair(2 * math.log(0.5), 3 * math.log(0.25), tokens=(2, 3))
    loss, _, metrics = value(PowerReward(beta=1.0, alpha=1.0, target=0.5), given)
    assert metrics["margin"] == near(2.0) and loss == near(math.log1p(math.exp(-1.5)))
    simpo = DPO(beta=2.0, reference_free=True, normalise=True, target=1.0)
    assert value(PowerReward(alpha=0.0), given)[0] == near(value(simpo, given)[0])
    assert value(PowerReward(alpha=1e-7), given)[0] == pytest.approx(value(simpo, given)[0], abs=1e-6)


def test_gmpo():
    """Log-ratios (.2, -.1, .05) with A = 1 are held from above at .1, (-.3, .4) with A = -2 from below at -.1."""
    loss, grad, metrics = value(GeometricMean(low=0.1, high=0.1), policy_rows())
    up, down = math.exp((0.1 - 0.1 + 0.05) / 3), math.exp((-0.1 + 0.4) / 2)
    assert loss == near((-up + 2 * down) / 2) and metrics["clipped"] == near(2 / 5)
    assert grad[0, 1:].tolist() == near([0.0, -up / 6, -up / 6])
    assert grad[1, 1:3].tolist() == near([0.0, 2 * down / 4])


def test_kl_cov():
    """A of (1, 1, 1, -2, -2) is 1.2 or -1.8 from its mean, log pi .15, -.15, 0, -.35, .35: c = .18, -.18, 0, .63, -.63.
    The two highest, whose log-ratios are .2 and -.3, pay for them.
    """
    loss, grad, metrics = value(KLCov(share=0.4, weight=0.5), policy_rows())
    up, down = [math.exp(x) for x in (0.2, -0.1, 0.05)], [math.exp(x) for x in (-0.3, 0.4)]
    assert loss == near((-sum(up) + 2 * sum(down) + 0.5 * 0.5) / 5) and metrics["covariance_held"] == near(2 / 5)
    assert grad[0, 1:].tolist() == near([(0.5 - up[0]) / 5, -up[1] / 5, -up[2] / 5])
    assert grad[1, 1:3].tolist() == near([(2 * down[0] - 0.5) / 5, 2 * down[1] / 5])


def test_bounds_between_which_no_covariance_lies_are_refused():
    """Nothing would be cut, and the run would be GRPO without a word."""
    for least, most in ((6.0, 5.0), (1.0, 1.0)):
        with pytest.raises(UserError, match=r"ClipCov\.most"):
            ClipCov(least=least, most=most)


def test_clip_cov():
    """Ratios e^.2 with A = 1 and e^-.3 with A = -2 are clipped at 1.2 and .8; of the others c is -.18, 0, -.63. Between -.1
    and 1 lies 0 alone, so that token has no gradient, and no loss.
    """
    loss, grad, metrics = value(ClipCov(share=1.0, least=-0.1, most=1.0), policy_rows())
    assert loss == near((-1.2 - math.exp(-0.1) + 1.6 + 2 * math.exp(0.4)) / 5)
    assert grad[0, 1:].tolist() == near([0, -math.exp(-0.1) / 5, 0])
    assert grad[1, 1:3].tolist() == near([0, 2 * math.exp(0.4) / 5])
    assert metrics["covariance_cut"] == near(1 / 5) and metrics["clipped"] == near(2 / 5)
    some = value(ClipCov(share=0.4, least=-1.0), policy_rows())[2]
    assert some["covariance_cut"] == near(2 / 5)  # two of the three that are open
    plain = value(Clipped(reduce="tokens"), policy_rows())
    assert value(ClipCov(share=0.0), policy_rows())[:1] == plain[:1]


@pytest.mark.parametrize(
    ("n", "share", "k"), [(10_000, 2e-4, 2), (100, 2e-4, 1), (100, 0.0, 0), (0, 0.5, 0), (3, 1.0, 3)]
)
def test_a_share_of_tokens_is_at_least_one_of_them(n, share, k):
    assert share_of(n, share) == k


def test_vespo():
    """Ratios of answers e^.15 with A = 1 and e^.1 with A = -2: phi = e^(3 + 2 .15 - 3 e^.15) and e^(2 + 3 .1 - 2 e^.1)."""
    loss, grad, metrics = value(GammaWeighted(), policy_rows())
    up, down = math.exp(3 + 0.3 - 3 * math.exp(0.15)), math.exp(2 + 0.3 - 2 * math.exp(0.1))
    assert loss == near((2.85 * up - 2 * 1.9 * down) / 5)
    assert grad[0, 1:].tolist() == near([-up / 5] * 3) and grad[1, 1:3].tolist() == near([2 * down / 5] * 2)
    assert metrics["gamma_weight"] == near((3 * up + 2 * down) / 5)
    same = rows_of([-1.0, -1.0], advantage=[[1.0, 1.0]])
    assert value(GammaWeighted(), same)[2]["gamma_weight"] == near(1)  # on policy


def mismatch_rows():
    """pi_old / mu: (e^.5, e^-1) in the first row and (1, e^.2) in the second; an unknown mu in the third."""
    behaviour = [[-1.0, -1.0], [-1.0, -1.0], [float("nan"), float("nan")]]
    old = [[-0.5, -2.0], [-1.0, -0.8], [-0.3, -0.3]]
    return rows_of(*old, behaviour=behaviour, policy_logp=old, advantage=[[1.0, 1.0]] * 3)


@pytest.mark.parametrize(
    ("mask", "weights"),
    [
        ({"cap": 1.5}, [[1.5, math.exp(-1)], [1, math.exp(0.2)], [1, 1]]),
        ({"cap": 1.5, "floor": 0.5}, [[1.5, 0.5], [1, math.exp(0.2)], [1, 1]]),
        # IcePop: two sides, dropped
        ({"cap": 1.5, "floor": 0.5, "drop": True}, [[0, 0], [1, math.exp(0.2)], [1, 1]]),
        # MIS: the row's ratio e^-.5 or e^.2, dropped above the cap
        ({"cap": 1.1, "drop": True, "level": "sequence"}, [[math.exp(-0.5)] * 2, [0, 0], [1, 1]]),
        ({"cap": 1.1, "level": "sequence"}, [[math.exp(-0.5)] * 2, [1.1, 1.1], [1, 1]]),
        # geometric mean e^-.25 or e^.1, as a mask alone
        ({"cap": 1.2, "floor": 0.9, "drop": True, "level": "geometric", "plain": True}, [[0, 0], [1, 1], [1, 1]]),
    ],
)
def test_masks_against_the_mismatch_of_sampler_and_trainer(mask, weights):
    _, grad, metrics = value(TIS(Reinforce(reduce="tokens"), **mask), mismatch_rows())
    torch.testing.assert_close(grad[:, 1:], -torch.tensor(weights, dtype=torch.float64) / 6)
    assert metrics["tis_weight"] == near(float(np.mean(weights)))


def test_bounds_of_a_mask():
    with pytest.raises(UserError, match=r"TIS\.floor is 3"):
        TIS(Reinforce(), floor=3.0)
    with pytest.raises(UserError, match="say drop=True"):
        TIS(Reinforce(), plain=True)


@pytest.mark.parametrize("loss", [IPO, AOT, OddsRatio, KTO, BCO, AnchoredPair, SquaredSides])
def test_beta_of_every_loss_is_above_0(loss):
    with pytest.raises(UserError, match=rf"{loss.__name__}\.beta is 0"):
        loss(beta=0)


@pytest.mark.parametrize("loss", [IPO(), AOT(), OddsRatio(), DPO(normalise=True), Hinge()])
def test_held_out_pairs_are_ranked_by_the_margin(loss):
    batch, leaf = pair_rows()
    margin_U = loss.measures({"logp": leaf}, batch)["margin"]
    assert margin_U.shape == (3,) and margin_U.mean().item() == near(value(loss, (batch, leaf))[2]["margin"])
