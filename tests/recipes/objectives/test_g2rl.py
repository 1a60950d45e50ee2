"""G2RL: novelty of gradient directions, shaped rewards, bounds and placebo."""

import numpy as np
import pytest
from palaestra.credit.links import Chain
from palaestra.errors import UserError
from palaestra.explanation.method import explain
from palaestra.recipes.objectives import g2rl
from palaestra.run.first_step import first_step_notes

from tests.recipes.objectives.helpers import groups_of

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


@pytest.mark.parametrize("weight", [1.0, 0.5, 0.0])
def test_the_size_of_the_bonus_is_logged(weight):
    """r' = r (1 + weight nubar), nubar as above."""
    signals = [[[{g2rl.SIGNAL: f[None]}] for f in FEATURES]]
    made, _ = g2rl.build(weight=weight).learners["policy"].credit(groups_of([1, 0, 1]), signals, {})
    assert [x.columns["track:novelty_bonus"][1] for x in made] == pytest.approx(
        [weight * b for b in (0.523188, 1, 1)], abs=1e-5
    )


def test_g2rl_scales_rewards_between_the_users_bounds():
    """Rewards 5, 0, 5 between 0 and 5 are those of 1, 0, 1; 0 to 5 without bounds are told of."""
    signals = [[[{g2rl.SIGNAL: f[None]}] for f in FEATURES]]
    shaped = lambda rewards, bounds: [
        float(x.columns["advantage"].max())
        for x in Chain((g2rl.Explore("text", bounds=bounds),))(groups_of(rewards), signals, {})[0]
    ]
    assert shaped([5, 0, 5], (0, 5)) == pytest.approx(shaped([1, 0, 1], None))
    metrics = {"episodes": 3.0, "groups": 1.0, "grad_norm": 1.0}
    told = lambda rewards, **how: [
        n for n in first_step_notes(metrics, groups_of(rewards), g2rl.build(**how)) if "bounds=" in n
    ]
    assert "between 0 and 5" in told([5, 0, 5])[0] and not told([1, 0, 1]) and not told([5, 0, 5], bounds=(0, 5))
    with pytest.raises(UserError, match="the lowest reward first"):
        g2rl.build(bounds=(1, 0))
