"""GiGPO: advantages of trajectories and of turns in the same state, and its edges."""

import numpy as np
import pytest
from palaestra.credit.scopes import anchor
from palaestra.errors import UserError
from palaestra.explanation.method import explain
from palaestra.recipes.objectives import gigpo

from tests.recipes.objectives.helpers import advantages, by_token, groups_of, near, scored

SUCCESS = {"turn_rewards": [0, 0, 10], "turn_lengths": [2, 1, 1], "states": ["s0", "a", "b"]}
FAILURE = {"turn_rewards": [0] * 5, "turn_lengths": [1] * 5, "states": ["s0", "c", "d", "e", "f"]}


@pytest.mark.parametrize(
    ("options", "first", "later"),
    [
        ({}, (9.5125, -9.5125), (5, -5)),
        ({"variant": "released"}, (10.7625, -8.2625), (6.25, -3.75)),
        ({"std": True}, (1.414214, -1.414214), (0.707107, -0.707107)),
        ({"std": True, "variant": "released"}, (1.914722, -1.431676), (1.207615, -0.724569)),
        ({"omega": 0.0}, (5, -5), (5, -5)),
        ({"episode": 0.0}, (4.5125, -4.5125), (0, 0)),
        ({"gamma": 1.0, "episode": 0.0}, (5, -5), (0, 0)),
    ],
)
def test_gigpo(options, first, later):
    """Every token of a turn gets the turn's advantage: the first turn of the success has two."""
    won, lost = advantages(gigpo.build(**options), SUCCESS, FAILURE)
    won, lost = np.broadcast_to(won, 4), np.broadcast_to(lost, 5)
    assert list(won) == near([first[0]] * 2 + [later[0]] * 2, 2e-5)
    assert list(lost) == near([first[1]] + [later[1]] * 4, 2e-5)


def test_gigpo_counts_a_state_as_often_as_it_is_visited():
    """gamma 1: returns 1 1 0 at s: mean 2/3."""
    again = {"turn_rewards": [0, 1], "turn_lengths": [1, 1], "states": ["s", "s"]}
    found = advantages(gigpo.build(gamma=1.0, episode=0.0), again, {"reward": 0, "length": 1, "states": ["s"]})
    assert found == [near([1 / 3, 1 / 3]), near([-2 / 3])]


def test_gigpo_charges_actions_that_were_not_executed():
    """Returned 1 each: .1 less for the turn of the second; in the released code for its episode score as well."""
    group = [{"reward": 1, "length": 1, "executed": [x], "states": ["s"]} for x in (True, False)]
    assert advantages(gigpo.build(), *group) == by_token(0.05, -0.05, n=1)
    assert advantages(gigpo.build(variant="released"), *group) == by_token(0.1, -0.1, n=1)


def test_gigpo_edges():
    assert advantages(gigpo.build(), *scored(1, 0)) == by_token(1, -1)  # no states: all first turns start alike
    assert advantages(gigpo.build(std=True), *scored(1, 1)) == by_token(0, 0)
    assert advantages(gigpo.build(), *scored(1)) == by_token(0)
    with pytest.raises(UserError, match="'states' for its turn 1"):
        advantages(gigpo.build(), {"reward": 1, "turn_lengths": [1, 1]})
    apart = explain(gigpo.build(omega=1.0, episode=0.0), [[SUCCESS], [FAILURE]])["advantages"]
    assert apart == [by_token(0), by_token(0, n=5)]  # the same key in another task is another state


def test_similar_states_join_the_first_anchor():
    anchors: list[str] = []
    assert [anchor(s, anchors, 0.9) for s in ("at a1, box b2", "at a1, box b3", "elsewhere", "at a1, box b2")] == [
        0,
        0,
        1,
        0,
    ]
    near_states = [{"reward": r, "states": [s]} for r, s in ((1, "at a1, box b2"), (0, "at a1, box b3"))]
    assert advantages(gigpo.build(episode=0.0), *near_states) == by_token(0, 0)
    assert advantages(gigpo.build(episode=0.0, similarity=0.9), *near_states) == by_token(0.5, -0.5)


@pytest.mark.parametrize(("omega", "size"), [(1.0, 0.5), (2.0, 1.0), (0.0, 0.0)])
def test_the_size_of_step_advantages_is_logged(omega, size):
    """Two first turns that return 1 and 0 start in one state: half a point away from their mean."""
    made, _ = gigpo.build(omega=omega).learners["policy"].credit(groups_of([1, 0]), [[[{}], [{}]]], {})
    assert [x.columns["track:step_credit"].tolist() for x in made] == [near([0, size, size])] * 2
