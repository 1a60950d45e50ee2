"""Attention rhythm: which tokens are amplified in each mode, by hand."""

import numpy as np
import pytest
from palaestra.errors import UserError
from palaestra.explanation.method import explain
from palaestra.recipes.objectives import attention_rhythm
from palaestra.values import override

WAAD, FAI = [0, 0.5, 0.7, 0.7], [0.35, 0.2, 0.2, 0]


def rhythm(mode, waad=WAAD, fai=FAI, **settings):
    """gamma of the four tokens of a right answer, and of a wrong one."""
    recipe, given = attention_rhythm.build(mode), {"waad:10": waad, "fai:10:50": fai, "entropy": [0, 1, 2, 3]}
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
