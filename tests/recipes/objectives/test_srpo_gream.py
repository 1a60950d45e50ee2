"""GREAM's SRPO: advantages by hand, and partial credit for the codes of an item."""

from palaestra.recipes.objectives import srpo_gream

from tests.recipes.objectives.helpers import advantages, near, scored


def test_srpo():
    assert advantages(srpo_gream.build(k=2), *scored(1, 0, 0, 0, 0)) == near([3.013593] + [-0.753398] * 4)
    graded = scored(1, 0.707, 0.5, 0, 0)
    assert advantages(srpo_gream.build(k=2), *graded) == near([2.493238, 0.296951, -0.173114, -1.308538, -1.308538])
    assert advantages(srpo_gream.build(bonus=0.0), *graded) == near(
        [1.268495, 0.603137, 0.133072, -1.002352, -1.002352]
    )
    assert advantages(srpo_gream.build(), *scored(1, 1)) == [0.0, 0.0]
    assert advantages(srpo_gream.build(), *scored(1)) == [0.0]


def test_partial_credit():
    worth = srpo_gream.worth
    assert [worth(x, "aeim") for x in ("aeim", "aeip", "aejm", "afim", "beim")] == [1.0, 0.866, 0.707, 0.5, 0.0]
    assert worth(None, "aeim") == worth("aei", "aeim") == 0.0 and worth("aeimx", "aeimy") == 0.95
