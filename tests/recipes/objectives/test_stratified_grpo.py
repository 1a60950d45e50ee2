"""Stratified GRPO: advantages within strata and over all, and what is reported."""

import asyncio

import pytest
from palaestra.claims.objectives import stratified_grpo as stratified_grpo_claim
from palaestra.explanation.method import explain
from palaestra.ledger.measures import Cell
from palaestra.recipes.base import grpo
from palaestra.recipes.objectives import stratified_grpo
from palaestra.toys.hop import HopTasks
from palaestra.types import Episode, Group, Reward

from tests.recipes.objectives.helpers import advantages, near, scored


@pytest.mark.parametrize(
    ("alpha", "ddof", "expected"),
    [
        (1.0, 0, [1.414214, -0.707107, -0.707107, 0.707107, 0.707107, -1.414214]),
        (0.0, 0, [1, -1, -1, 1, 1, -1]),
        (0.8, 0, [1.331371, -0.765685, -0.765685, 0.765685, 0.765685, -1.331371]),
        (1.0, 1, [1.154701, -0.577350, -0.577350, 0.577350, 0.577350, -1.154701]),
        (0.0, 1, [0.912871, -0.912871, -0.912871, 0.912871, 0.912871, -0.912871]),
        (0.8, 1, [1.106335, -0.644454, -0.644454, 0.644454, 0.644454, -1.106335]),
    ],
)
def test_stratified(alpha, ddof, expected):
    group = scored(1, 0, 0, 1, 1, 0, stratum=[1, 1, 1, 2, 2, 2])
    assert advantages(stratified_grpo.build(alpha=alpha, ddof=ddof), *group) == near(expected)


def test_structure_is_reported_by_stratum():
    """Searches 0, 0, 1 with outcomes 0, 1, 1: mean 2/3, spread 2/3; only the first stratum varies, by 1/4 twice."""
    task = HopTasks(hops=(2, 2)).task("train", 0)
    episodes = (Episode(facts={"searches": s}, reward=Reward(total=r)) for s, r in ((0, 0.0), (0, 1.0), (1, 1.0)))
    found = asyncio.run(stratified_grpo_claim.Structure()(None, (), Group(task=task, episodes=tuple(episodes))))
    parts = {k: sum(e.reward.parts[k] for e in found.episodes) for k in found.episodes[0].reward.parts}
    assert parts == near({"searches": 1, "two hops": 3, "two hops solved": 2, "spread": 2 / 3, "within": 0.5})
    steps = [{"part/within": w, "part/spread": 1.0} for w in (0.9, 0.1, 0.3)]
    share = [stratified_grpo_claim.Share("within", "spread", n)(Cell(summary={}, steps=steps)) for n in (0, 2)]
    assert share == near([1.3 / 3, 0.2])


def test_one_stratum_is_grpo_and_a_stratum_of_one_keeps_the_global_term():
    group = scored(1, 0, 0)
    assert advantages(stratified_grpo.build(), *group) == near(advantages(grpo.build(), *group))
    alone = advantages(stratified_grpo.build(alpha=0.8, ddof=0), *scored(1, 0, 1, 0, stratum=[1, 2, 2, 2]))
    assert alone[0] == near(0.2)  # A_GN = 1, A_SAN = 0
    assert advantages(stratified_grpo.build(), *scored(1)) == [0.0]


def test_strata_are_those_of_one_prompt():
    group = scored(1, 0, stratum=[1, 1])
    both = explain(stratified_grpo.build(), [group, scored(1, 1, stratum=[1, 1])])["advantages"]
    assert both[0] == near(advantages(stratified_grpo.build(), *group)) and both[1] == [0.0, 0.0]


def test_without_a_count_the_stratum_is_the_number_of_calls():
    long = {"turn_lengths": [1, 1]}
    group = [{"reward": 1}, {"reward": 0}, {"reward": 1, **long}, {"reward": 1, **long}]
    found = advantages(stratified_grpo.build(alpha=1.0, ddof=0), *group)
    assert found == near([1, -1, 0, 0])
