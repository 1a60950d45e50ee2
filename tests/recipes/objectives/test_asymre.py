"""AsymRE: its baseline, the released group of one, and no ratio."""

import pytest
from palaestra.recipes.objectives import asymre

from tests.recipes.objectives.helpers import advantages, group, near, scored, weights


def test_asymre_baseline():
    assert advantages(asymre.build(), group([1, 0, 0, 0])) == pytest.approx([0.85, -0.15, -0.15, -0.15])
    assert advantages(asymre.build(), group([1, 1, 1, 1])) == pytest.approx([0.1] * 4)
    assert advantages(asymre.build(), group([1.0])) == pytest.approx([0.1])
    assert advantages(asymre.build(shift=0.0), group([1, 1])) == [0.0, 0.0]


def test_asymre_reads_no_ratio():
    stale = group([1, 0], behaviour_logp=[-9.0, -0.1])
    assert weights(asymre.build(), stale) == weights(asymre.build(), group([1, 0]))


def test_asymre_released_group_of_one():
    build = lambda: asymre.build(variant="released")
    assert advantages(build(), *scored(0.7)) == near([0.7])
    assert advantages(asymre.build(), *scored(0.7)) == near([0.1])
    assert advantages(build(), *scored(1, 0, 0, 0)) == near([0.85, -0.15, -0.15, -0.15])
    assert advantages(build(), *scored(1, 1)) == near([0.1, 0.1])
