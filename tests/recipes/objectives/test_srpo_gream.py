"""GREAM's SRPO: advantages by hand, and partial credit for the codes of an item."""

import asyncio

import pytest
from palaestra.recipes.objectives import srpo_gream
from palaestra.types import Episode, Group, Reward, Row, Segment, Task

from tests.recipes.objectives.helpers import advantages, groups_of, near, scored


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


def test_codes_are_marks_words_or_letters():
    """A code of several characters matches as a whole: <a_12> is not half of <a_13>."""
    worth, gold = srpo_gream.worth, "<a_12><b_3><c_0><d_7>"
    said = (gold, "<a_12><b_3><c_0><d_1>", "<a_12> <b_3> <c_9> <d_7>", "<a_13><b_3><c_0><d_7>", "<a_12><b_3>")
    assert [worth(x, gold) for x in said] == [1.0, 0.866, 0.707, 0.0, 0.0]
    assert [worth(x, "toys wood 12") for x in ("toys wood 12", "toys wood 1", "toys tin 12")] == [1.0, 0.707, 0.5]
    assert worth("aeip", "aeim") == 0.866 and worth("", "aeim") == 0.0


def test_what_partial_credit_adds_is_a_part_of_the_reward():
    task = Task(id="t", answer="<a_1><b_2>")
    said = [Segment(ids=(1,), trained=True, logp=(-1.0,), text=f"= {x}") for x in ("<a_1><b_2>", "<a_1><b_3>", "<a_4>")]
    rewards = (1.0, 0.0, 0.0)
    episodes = tuple(
        Episode(rows=(Row(segments=(s,)),), reward=Reward(total=r), status="finished")
        for s, r in zip(said, rewards, strict=True)
    )
    found = asyncio.run(srpo_gream.PartialCredit()(None, ("k",), Group(task=task, episodes=episodes)))
    assert [(e.total, dict(e.reward.parts)) for e in found.episodes] == [
        (1.0, {"exact": 1.0, "partial": 0.0}), (0.5, {"exact": 0.0, "partial": 0.5}), (0.0, {"exact": 0.0, "partial": 0.0}),
    ]  # fmt: skip


@pytest.mark.parametrize("bonus", [1.0, 0.5, 0.0])
def test_the_size_of_the_bonus_is_logged(bonus):
    """One hit of five, k = 2: rho .4, sigma .489898; a hit has .6 / sigma, a miss (.6 - .75) / sigma."""
    made, _ = srpo_gream.build(bonus=bonus, k=2).learners["policy"].credit(groups_of([1, 0, 0, 0, 0]), [[[{}]] * 5], {})
    assert [x.columns["track:bonus"][1] for x in made[:2]] == near([1.224745 * bonus, 0.306186 * bonus])
