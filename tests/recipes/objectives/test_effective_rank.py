"""VERL: growth of the rank, the potential, and a bonus that turns no sign."""

import asyncio

import numpy as np
import pytest
from palaestra.credit.links import Chain
from palaestra.credit.table import Table, Values
from palaestra.errors import UserError
from palaestra.explanation.method import explain
from palaestra.recipes.objectives import effective_rank
from palaestra.run.driver import prepare
from palaestra.step import start, step
from palaestra.store.codec import decode, encode
from palaestra.types import Episode, Group, Reward, Row, Segment, Task

from tests.recipes.objectives.helpers import near


def test_rank_growth():
    assert effective_rank.growth(np.array([1.0, 2, 4])) == pytest.approx((1.75, 1.5))
    assert effective_rank.growth(np.array([1.0, 2])) == pytest.approx((1, 0))
    assert effective_rank.growth(np.array([1.0])) == effective_rank.growth(np.array([])) == (0, 0)


def test_rank_potential():
    phi = effective_rank.potential(np.array([[4, 1.75, 1.5]]), np.array([4, 1.4, 1.0]))
    assert phi.tolist() == pytest.approx([0.065869], abs=1e-6)


RANKS = {"policy_prefix_rank:1": np.array([0.0, 1, 2, 4])}  # of three tokens, stride 1


def ranked(advantages):
    """Episodes of three tokens whose reward is the advantage, with the ranks 1, 2, 4."""
    said = Segment(ids=(1, 2, 3), trained=True, policy="policy", logp=(-1.0,) * 3)
    row = Row(segments=(Segment(ids=(0,)), said))
    episodes = tuple(Episode(rows=(row,), reward=Reward(total=a), status="finished") for a in advantages)
    return [Group(task=Task(id="t"), episodes=episodes)], [[[dict(RANKS)] for _ in advantages]]


def test_rank_bonus():
    """A' = A + min(relu(Phi), |A| / 2): never more than half, nothing at 0, no sign flips."""
    link, before = Chain((effective_rank.RankBonus(stride=1),)), {"rank": 4, "velocity": 1.4, "acceleration": 1.0}
    found, state = link(*ranked([1.0, -1, 0, 0.1]), {"effective_rank": before, "batches": 1})
    shaped = [float(x.columns["advantage"][1]) for x in found]
    assert shaped == pytest.approx([1.065869, -0.934131, 0, 0.15], abs=1e-6)
    assert state["effective_rank"]["velocity"] == pytest.approx(0.7 * 1.4 + 0.3 * 1.75)


def test_answers_too_short_for_a_growth_are_said():
    """Three tokens are three prefixes of one token, and none of two."""
    groups, _ = ranked([1.0, 0.0])
    assert effective_rank.RankBonus(stride=1).first_step_note(groups) == ""
    note = effective_rank.RankBonus(stride=2).first_step_note(groups)
    assert note.startswith("the longest answer of the first step has 3 tokens") and "stride=1" in note
    assert effective_rank.RankBonus(stride=2).first_step_note(ranked([1.0, 1.0])[0]) == ""


def test_first_batch_has_no_baseline_and_the_store_survives():
    link = Chain((effective_rank.RankBonus(stride=1),))
    found, state = link(*ranked([1.0, -1]), {})
    assert [float(x.columns["advantage"][1]) for x in found] == [1, -1]
    assert state["effective_rank"] == {"rank": 4.0, "velocity": 1.75, "acceleration": 1.5}
    assert decode(*encode(state)) == state
    assert link([], [], state)[1] == state  # an empty batch leaves it


def test_rank_through_explain():
    """Alone, explain is a first batch: GRPO's advantages. The missing signal is named."""
    group = [{"reward": r, "length": 4, "prefix_rank:4": [0, 0, 0, 2.0]} for r in (1, 0)]
    assert explain(effective_rank.build(stride=4), [group])["advantages"][0] == pytest.approx(
        [0.7071058, -0.7071058], abs=1e-5
    )
    with pytest.raises(UserError, match="prefix_rank:40"):
        explain(effective_rank.build(), [[{"reward": 1}, {"reward": 0}]])


def test_rank_state_survives_a_run(context, small):
    recipe, ctx, state = small(effective_rank.build(stride=4)), context(), start(0)
    prepare(recipe, ctx)
    for _ in range(2):
        state, _ = asyncio.run(step(recipe, ctx, state))
    store = state["credit"]["policy"]
    assert store["batches"] == 2 and store["effective_rank"]["rank"] > 1


def test_rank_bonus_on_token_advantages():
    """Ranks 2 and 3 of prefixes: ER 3, ERV 1, ERA 0 against means 2, .5, 0: Phi = .5 tanh(.5) + .5 tanh(1) = .611856, at each
    token at most half of its own |A|."""
    said = Segment(ids=(1, 2, 3, 4), trained=True, logp=(-1.0,) * 4)
    episode = Episode(rows=(Row(segments=(Segment(ids=(0,)), said)),), reward=Reward(total=1.0), status="finished")
    ranks = {"policy_prefix_rank:2": np.array([0, 0, 2.0, 0, 3.0])}
    means = {"effective_rank": {"rank": 2.0, "velocity": 0.5, "acceleration": 0.0}, "batches": 1}
    table = Table([Group(task=Task(id="t"), episodes=(episode,))], [[[ranks]]], means)
    A = np.array([1.0, -4.0, 0.2, 2.0])
    found = effective_rank.RankBonus(stride=2)(Values(level="token", x_N=A), table).x_N
    assert (found - A).tolist() == near([0.5, 0.611856, 0.1, 0.611856])


def test_rank_bonus_on_gae():
    learner = effective_rank.build(base="gae").learners["policy"]
    assert [type(x).__name__ for x in learner.credit.links] == ["Gae", "Center", "Scale", "RankBonus"]
    assert learner.heads == ("value",) and effective_rank.build() == effective_rank.build(base="grpo")
