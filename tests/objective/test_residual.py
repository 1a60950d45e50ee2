"""The residual of AGRO, TBA and Kimi k1.5: one loss, its optimum, units and reference."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from palaestra.credit.links import Center, Chain
from palaestra.explanation.method import explain
from palaestra.objective.residual import Balance
from palaestra.objective.subset import On
from palaestra.recipes.objectives import agro, tba
from palaestra.types import Group, Task
from palaestra.update import pack

from tests.fake import episode
from tests.objective.helpers import balance, batch_of, out_of


@pytest.mark.parametrize(("unbiased", "n"), [(False, 7), (True, 6)])
def test_balance_keeps_the_digits_of_its_batch(unbiased, n):
    """Seven generations, whose share 1/7 (1/6) float32 rounds: sum delta^2 / 2 n in float64."""
    h, A = np.array([0.2, -0.1, 0.3, 0.0, -0.4, 0.5, 0.1]), np.array([0.5, -0.5, 0.3, -0.3, 0.1, -0.1, 0.0])
    expected = (((0.5 * (h - h.mean()) - A) ** 2).sum()) / (2 * n)
    found, _, _ = balance(Balance(beta=0.5, unbiased=unbiased), h.tolist(), A.tolist())
    assert found == pytest.approx(expected, rel=1e-14)


def test_the_mean_of_the_ratios_carries_no_gradient():
    """Advantages 1 and 0, which no mean was taken from: hbar = -.1, delta = [-.85, -.15], dL/dlogpi = beta delta / n."""
    loss, slope, _ = balance(Balance(beta=0.5), [0.2, -0.4], [1.0, 0.0])
    assert loss == pytest.approx((0.85**2 + 0.15**2) / 4)
    assert slope == pytest.approx([-0.2125, -0.0375])


@pytest.mark.parametrize("options", [{}, {"centred": False}, {"unbiased": True}, {"on_policy": True}])
def test_a_generation_that_is_left_out_is_none(options):
    """`On` takes all tokens of the second row: the others are what a group without it is, and nothing is NaN."""
    own, objective = batch_of([0.5], [-0.5], [0.25]), Balance(beta=0.5, model="behaviour", **options)
    more = batch_of([0.5], [9.0], [-0.5], [0.25], **{"is:shown": [[0.0], [1.0], [0.0], [0.0]]})
    columns = dict(more.columns)
    columns["behaviour_logp"] = columns["behaviour_logp"].clone()
    columns["behaviour_logp"][1] = float("nan")
    one_prompt = lambda b, n, **more: replace(
        b, columns={**b.columns, **more, "episode": torch.arange(n)}, unit_B=torch.zeros(n).long(), n_units=1
    )
    own, more = one_prompt(own, 3), one_prompt(more, 4, **columns)
    found = []
    for batch, logp, part in ((own, [[-0.9], [-0.5], [-1.3]], objective),
                              (more, [[-0.9], [-7.0], [-0.5], [-1.3]], On("shown", objective, absent=True))):  # fmt: skip
        out = out_of(batch, logp=logp)
        loss, metrics = part(out, batch)
        grad = torch.autograd.grad(loss, out["logp"])[0].sum(1).tolist()
        found.append((float(loss.detach()), [g for g in grad if g], [float(v) for v in metrics.values()]))
    for a, b in zip(*found, strict=True):
        assert a == pytest.approx(b)


def test_agro_vanishes_at_the_optimum():
    """beta = .5 and r = [1, 0] need log-ratios 2 apart."""
    loss, slope, _ = balance(Balance(beta=0.5), [1.0, -1.0], [0.5, -0.5])
    assert loss == pytest.approx(0) and slope == pytest.approx([0, 0])


def test_mirror_descent_is_agro_without_the_mean_of_the_ratios():
    """Equal where the log-ratios of a group have mean 0; apart by tau * hbar / n elsewhere. AGRO's slope is beta times."""
    for ratios in ([0.1, -0.1], [0.2, -0.1]):
        centred = balance(Balance(beta=0.5), ratios, [0.5, -0.5])[1]
        mirror = balance(Balance(beta=0.5, centred=False, weight="policy"), ratios, [0.5, -0.5])[1]
        apart = [m - c / 0.5 for m, c in zip(mirror, centred, strict=True)]
        assert apart == pytest.approx([0.5 * sum(ratios) / 2 / 2] * 2)


def test_at_the_reference_all_three_are_one_policy_gradient():
    """h = 0: slopes -A / n times beta, 1 and 2 / beta."""
    A, beta = [0.75, -0.25, -0.25, -0.25], 0.3
    for weight, factor in (("variance", beta), ("policy", 1.0), ("balance", 2 / beta)):
        slope = balance(Balance(beta=beta, weight=weight), [0.0] * 4, A)[1]
        assert slope == pytest.approx([-a / 4 * factor for a in A])


def test_prompts_weigh_the_same_whatever_their_groups_size():
    loss, slope, _ = balance(Balance(beta=0.5), [0.2, -0.1, 0.3], [0.5, -0.5, 0.0], units=[0, 0, 1])
    assert loss == pytest.approx(0.0903125 / 2)
    assert slope == pytest.approx([-0.10625 / 2, 0.10625 / 2, 0.0])  # a group of one has no residual


def test_a_unit_is_a_group():
    groups = [Group(task=Task(id=i), episodes=(episode((0,), (1,), 1.0), episode((0,), (2,), 0.0))) for i in "ab"]
    one, two = (Chain((Center(),), unit=unit)(groups, [], {})[0] for unit in ("group", "row"))
    assert [pack(found).unit_B.tolist() for found in (one, two)] == [[0, 0, 1, 1], [0, 1, 2, 3]]


def test_generations_are_whole_whatever_their_length():
    _, slope, _ = balance(Balance(beta=0.5), [0.2, -0.1], [0.5, -0.5], lengths=[3, 1])
    assert slope == pytest.approx([-0.10625, 0.10625])


def test_equal_rewards_pull_ratios_together():
    _, slope, _ = balance(Balance(beta=0.5), [0.2, -0.2], [0.0, 0.0])
    assert slope[0] > 0 > slope[1]


def test_a_reference_is_needed():
    for recipe in (agro.build(), tba.build()):
        found = explain(recipe, [[{"reward": 1}, {"reward": 0}]])
        assert found["advantages"] == [[0.5, -0.5]] and found["token_weights"] is None
        assert "'ref_logp'" in found["notes"][0]
