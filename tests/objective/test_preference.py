"""Losses on pairs by hand: the catalogue's reference values, and where their gradients go."""

import math

import numpy as np
import pytest
import torch
from palaestra.errors import UserError
from palaestra.objective.preference import DPO, Hinge, ImitatePreferred, JensenShannon, preference_margins
from palaestra.types import Example, Row, Segment
from palaestra.update import pack

near = lambda x: pytest.approx(x, abs=1e-6)


def batch_of(*pairs, gap=0.0, ref=(0.0, 0.0), tokens=(1, 1), dtype=torch.float64):
    """Pairs of log p(chosen), log p(rejected) of whole answers, spread evenly over their tokens; and the leaves."""
    rows, logp = [], []
    for i, pair in enumerate(pairs):
        for sign, total, r, n in zip((1.0, -1.0), pair, ref, tokens, strict=True):
            row = Row(segments=(Segment(ids=(0,)), Segment(ids=(1,) * n, trained=True)))
            columns = {"sign": sign, "gap": gap, "ref_logp": np.array([0.0, *[r / n] * n])}
            rows.append(Example(row=row, columns=columns, unit=f"pair {i}"))
            logp.append([0.0, *[total / n] * n])
    width = max(map(len, logp))
    made = torch.tensor([x + [0.0] * (width - len(x)) for x in logp], dtype=dtype)
    return pack(rows, dtype=dtype), {"logp": made.requires_grad_()}


def loss_of(objective, *pairs, **given):
    batch, out = batch_of(*pairs, **given)
    loss, metrics = objective(out, batch)
    (grad,) = torch.autograd.grad(loss, out["logp"])
    return loss.item(), grad[:, 1].tolist(), {k: float(v) for k, v in metrics.items()}


def test_mio():
    """T = (.2, -.3), and late, when both answers sank: T = (-1, -6); beta 1."""
    mio, dpo = JensenShannon(beta=1.0), DPO(beta=1.0)
    loss, grad, metrics = loss_of(mio, (0.2, -0.3))
    assert loss == near(0.576247) and grad == near([-0.225083, 0.212779])
    assert (metrics["chosen"], metrics["rejected"], metrics["margin"]) == (near(0.2), near(-0.3), near(0.5))
    loss, grad, _ = loss_of(dpo, (0.2, -0.3))
    assert loss == near(0.474077) and grad == near([-0.377541, 0.377541])
    assert loss_of(mio, (-1.0, -6.0))[1] == near([-0.365529, 0.001236])
    assert loss_of(dpo, (-1.0, -6.0))[1] == near([-0.006693, 0.006693])


def test_mio_weighs_its_halves():
    assert loss_of(JensenShannon(beta=1.0, chosen=1.0), (0.2, -0.3))[1] == near([-0.450166, 0.0])


@pytest.mark.parametrize(
    ("beta", "eta", "margin", "dpo", "rpo"),
    [(0.01, 0.005, 0.07, 0.658760, 0.660760), (0.1, 0.5, 0.7, 0.403186, 2.403186)],
)
def test_rpo(beta, eta, margin, dpo, rpo):
    """The sum of the chosen answer's log-prob, weighted eta * beta, beside DPO."""
    pair, ref = (-40.0, -60.0), (-42.0, -55.0)
    loss, _, metrics = loss_of(DPO(beta=beta), pair, ref=ref)
    assert loss == near(dpo) and metrics["margin"] == near(margin)
    whole = DPO(beta=beta) + (eta * beta) * ImitatePreferred(total=True)
    assert loss_of(whole, pair, ref=ref, tokens=(8, 5))[0] == near(rpo)
    mean = DPO(beta=beta) + 0.2 * ImitatePreferred()
    assert loss_of(mean, pair, ref=ref, tokens=(8, 5))[0] == near(dpo + 0.2 * 5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rpo_with_eta_0_is_dpo_bit_for_bit(dtype):
    rng = np.random.default_rng(0)
    pairs = [tuple(map(float, rng.normal(-30, 9, 2))) for _ in range(16)]
    found = [
        loss_of(objective, *pairs, ref=(-30.0, -31.0), tokens=(7, 5), dtype=dtype)[:2]
        for objective in (DPO(), DPO() + 0.0 * ImitatePreferred(total=True))
    ]
    assert found[0] == found[1]


def test_new_settings_of_dpo_that_are_off_change_no_bit():
    """What DPO was before it stood on a base: the published results were measured with it."""
    pairs = [(-3.0, -2.5), (-1.0, -4.0), (-7.0, -7.5)]
    batch, out = batch_of(*pairs, ref=(-2.0, -3.0), tokens=(3, 2), dtype=torch.float32)
    m_U = 0.1 * preference_margins(out, batch)
    plain = torch.nn.functional.softplus(-m_U)
    smooth = 0.9 * plain + 0.1 * torch.nn.functional.softplus(m_U)
    for expected, smoothing in ((1.0 * plain + 0.0 * smooth, 0.0), (smooth, 0.1)):
        loss, _ = DPO(smoothing=smoothing)(out, batch)
        ours, theirs = (torch.autograd.grad(x, out["logp"], retain_graph=True)[0] for x in (loss, expected.sum() / 3))
        assert loss.item() == (expected.sum() / 3).item() and torch.equal(ours, theirs)


def test_step_apo_asks_for_a_margin_as_large_as_the_advantage_gap():
    """h_c - h_r = 2, Q .6 and -.4; at the level of solutions Q is scaled by .3."""
    apo = DPO(beta=0.3, offset=1.0)
    assert loss_of(apo, (2.0, 0.0), gap=1.0)[0] == near(0.913015)
    assert loss_of(apo, (2.0, 0.0), gap=0.3)[0] == near(0.554355)
    assert loss_of(DPO(beta=0.3), (2.0, 0.0), gap=1.0)[0] == near(0.437488)


def test_label_smoothing():
    assert loss_of(DPO(beta=0.3, smoothing=0.1), (1.0, 0.0))[0] == near(0.584355)
    assert loss_of(DPO(beta=0.3), (1.0, 0.0))[0] == near(0.554355)


def test_length_control():
    """A chosen answer that is 3 tokens longer counts as .3 nats apart already."""
    given = {"tokens": (5, 2)}
    assert loss_of(DPO(beta=1.0, length_weight=0.1), (0.5, 0.0), **given)[0] == near(math.log1p(math.exp(-0.8)))
    assert loss_of(DPO(beta=1.0, length_weight=0.1), (0.5, 0.0), tokens=(2, 5))[0] == near(math.log1p(math.exp(-0.2)))


def test_hinge_stops_where_the_margin_is_reached():
    assert loss_of(Hinge(beta=0.5), (1.0, 0.0))[:2] == (near(0.5), near([-0.5, 0.5]))
    assert loss_of(Hinge(beta=0.5), (3.0, 0.0))[:2] == (0.0, [0.0, 0.0])


def test_rrhf_ranks_by_mean_log_probs():
    """Scores A -1.2, B -1.0, C -2.0, D -1.5: order B>A>D>C costs nothing, D>A>B>C costs .3 + .5 + .2."""
    score = dict(zip("ABCD", (-1.2, -1.0, -2.0, -1.5), strict=True))
    rank = Hinge(beta=1.0, least=0.0, score="likelihood")

    def cost(order):
        pairs = [(5 * score[a], 5 * score[b]) for i, a in enumerate(order) for b in order[i + 1 :]]
        loss, _, _ = loss_of(rank, *pairs, tokens=(5, 5))
        return loss * len(pairs)

    assert cost("BADC") == near(0.0) and cost("DABC") == near(1.0)


def test_a_likelihood_needs_no_reference():
    batch, out = batch_of((-1.0, -2.0))
    bare = type(batch)(**{**{f: getattr(batch, f) for f in ("unit_B", "n_tokens", "n_rows", "n_units")},
                          "columns": {k: v for k, v in batch.columns.items() if k != "ref_logp"}})  # fmt: skip
    _, metrics = Hinge(score="likelihood")(out, bare)
    assert set(metrics) == {"margin", "preferred"}


@pytest.mark.parametrize("loss", [DPO, JensenShannon, Hinge])
def test_beta_is_above_0(loss):
    with pytest.raises(UserError, match=f"{loss.__name__}.beta is 0"):
        loss(beta=0)
