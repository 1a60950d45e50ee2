"""Embodied Planner-R1: advantages by hand, completion as reward, silent observations."""

import asyncio

import pytest
from palaestra.claims.objectives import embodied_planner_r1 as planner_claim
from palaestra.explanation.method import explain
from palaestra.recipes.objectives import embodied_planner_r1 as planner
from palaestra.toys.grid import GridTasks
from palaestra.types import Episode, Event, Group, Reward, Row, Segment, Task
from palaestra.update import pack

from tests.recipes.objectives.helpers import advantages, near, scored


def test_planner_advantages_and_token_mean():
    free = planner.build(kl=0.0, entropy=0.0)
    assert advantages(free, *scored(1, 0, 0, 1)) == near([0.866025, -0.866025, -0.866025, 0.866025])
    assert advantages(free, *scored(0, 0, 0, 0)) == [0.0] * 4
    group = scored(1, 0, length=[4, 2])
    weights = explain(free, [group])["token_weights"][0]
    assert sum(map(sum, weights)) == near(0.235702)  # the loss is minus this at ratio 1
    by_row = explain(planner.build(kl=0.0, entropy=0.0, reduce="sequences"), [group])["token_weights"][0]
    assert sum(map(sum, by_row)) == near(0.0)


def test_planner_needs_what_it_names():
    found = explain(planner.build(), [scored(1, 0)])
    assert found["advantages"][0] == near([0.707107, -0.707107]) and found["token_weights"] is None
    assert "'ref_logp' and 'entropy'" in found["notes"][0]


def test_observations_carry_no_gradient():
    """think act obs obs think act: four agent tokens."""
    said = {"author": "policy", "policy": "policy", "trained": True}
    row = Row(
        segments=(
            Segment(ids=(0,)),
            Segment(ids=(1, 2), logp=(-1.0, -1.0), **said),
            Segment(ids=(3, 4)),
            Segment(ids=(5, 6), logp=(-1.0, -1.0), turn=1, **said),
        )
    )
    group = Group(task=Task(id="t"), episodes=(Episode(rows=(row,), reward=Reward(total=1.0)),))
    examples, _ = planner.build().learners["policy"].credit([group], [[[{}]]], {})
    batch = pack(examples)
    assert batch.mask[0].tolist() == [0, 1, 1, 0, 0, 1, 1] and batch.n_tokens == 4


@pytest.mark.parametrize(
    ("paid", "status", "reward"),
    [
        ([0.0, 1.0, 0.0], "finished", 1.0),  # success is sticky
        ([1.0], "truncated:length", 0.0),  # its marker was cut off
        ([0.0, -1.0], "finished", 0.0),
        ([0.0], "truncated:turns", 0.0),
        ([0.3, 1.0], "truncated:turns", 1.0),
    ],
)
def test_completion(paid, status, reward):
    events = tuple(Event(row=0, token=-1, value=x) for x in paid)
    assert planner.completion(Reward(total=sum(paid), events=events), status).total == reward


def test_a_dense_reward_pays_for_the_way_behind_it():
    task = GridTasks().task("train", 0)
    way = task.meta["start"].distance
    left = (way, 1, 0, way + 2)
    group = Group(
        task=task,
        episodes=tuple(Episode(facts={"distance": d}, reward=Reward(total=float(d == 0))) for d in left),
    )
    found = asyncio.run(planner_claim.Approach()(None, (), group))
    assert [e.total for e in found.episodes] == near([0.0, 1 - 1 / way, 1.0, 0.0])
