"""TEMPO: advantages of a prefix tree by hand, their weights and edges."""

from palaestra.explanation.method import explain
from palaestra.recipes.objectives import tempo

from tests.recipes.objectives.helpers import advantages, by_token, near, scored

A, B, C, D, E, F, G = range(10, 17)
FOUR = scored(1, 0, 0, 0, tokens=[[A, B, C], [A, B, D], [A, E, F], [A, E, G]])


def test_tempo():
    found = advantages(tempo.build(), *FOUR)
    assert found[0] == near([1.5, 2, 2.5]) and found[1] == near([-0.5, 0, -1.5])
    assert found[2] == near([-0.5, -1, -0.5]) and found[3] == near([-0.5, -1, -0.5])
    found = advantages(tempo.build(ddof=0), *FOUR)
    assert found[0] == near([1.732051, 2.309401, 2.886751]) and found[1] == near([-0.577350, 0, -1.732051])
    assert found[2] == near([-0.577350, -1.154701, -0.577350])


def test_tempo_without_std_and_td_alone():
    """Without std: V(root) .25, V(A) .25, V(AB) .5; the TD terms of ABC are 0, .25, .5."""
    assert advantages(tempo.build(std=False), *FOUR)[0] == near([0.75, 1.0, 1.25])
    assert advantages(tempo.build(outcome=0.0, std=False), *FOUR)[0] == near([0.0, 0.25, 0.5])


def test_tempo_weights_count_tokens():
    weights = explain(tempo.build(), [FOUR])["token_weights"][0]
    assert weights[0] == near([x / 12 for x in (1.5, 2, 2.5)])


def test_tempo_edges():
    for group, n in (([FOUR[0]], 3), (scored(1, 1, tokens=[[A, B], [A, C]]), 2)):
        assert advantages(tempo.build(), *group) == by_token(*[0.0] * len(group), n=n)
    same = advantages(tempo.build(), *scored(1, 0, tokens=[[A], [A]]))  # one leaf: no token tells them apart
    assert same == by_token(0.707107, -0.707107, n=1)
    shorter = advantages(tempo.build(outcome=0.0, std=False), *scored(1, 0, tokens=[[A, B], [A]]))
    assert shorter == [near([0.0, 0.5]), [0.0]]  # an answer that ends in an inner node
