"""SPIRAL: what a role earns is compared with its own running mean; the arms of its claim."""

import asyncio
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.claims.games.spiral import EXPERIMENT, play_at_random
from palaestra.recipes.games.spiral import TellSelfPlay, build
from palaestra.types import Group, Reward, payment, rng_of

from tests.fake import episode, task


def game(first, name="t"):
    """A game of self-play that pays the first seat so much, and the second one the opposite."""
    made = episode((0,), (1, 2), float(first))
    rows = tuple(replace(made.rows[0], seat=s) for s in ("p0", "p1"))
    reward = Reward(total=first, parts={payment("p0"): first, payment("p1"): -first})
    found = replace(made, rows=rows, reward=reward)
    return Group(task=replace(task(name, (0,), ()), domain="kuhn"), episodes=(found,))


def credit(recipe, *games):
    """(seat, advantage) of the rows that are trained, and the state."""
    examples, state = recipe.learners["policy"].credit(list(games), [], {})
    found = [
        (e.row.seat, float(e.columns["advantage"][at]))
        for e in examples
        if (at := np.flatnonzero(e.row.view().trained_T)).size and (at := int(at[0])) >= 0
    ]
    return found, state


def test_each_role_has_its_own_mean():
    """The catalogue's: returns 1, -1, 1 have A = 1, -1.05, 1.0025 in one role, and the opposite in the other."""
    games = [game(r, f"t{i}") for i, r in enumerate((1.0, -1.0, 1.0))]
    found, state = credit(build(), *games)
    expected = [("p0", 1), ("p1", -1), ("p0", -1.05), ("p1", 1.05), ("p0", 1.0025), ("p1", -1.0025)]
    assert [s for s, _ in found] == [s for s, _ in expected]
    assert [a for _, a in found] == pytest.approx([a for _, a in expected])
    assert state["running means"] == pytest.approx({"kuhn/p0": 0.047625, "kuhn/p1": -0.047625})


def test_one_mean_and_none():
    """Of all seats together: after 1 the mean is 0.05, so -1 becomes -1.05."""
    assert [a for _, a in credit(build("batch"), game(1.0))[0]] == pytest.approx([1, -1.05])
    assert [a for _, a in credit(build("none"), game(1.0))[0]] == [1, -1]


def test_a_draw_that_was_expected_trains_nothing():
    assert credit(build(), game(0.0))[0] == []
    found, _ = credit(build(), game(1.0, "t0"), game(0.0, "t1"))
    assert [a for _, a in found] == pytest.approx([1, -1, -0.05, 0.05])


def test_options():
    made = build(past=0.25, every=7, keep=3, games=9, length=8)
    assert made.references == {"past": pl.rollout.Snapshots(7, 3)} and made.schedule.prompts == 9
    assert made.collect.links[0].cast == pl.rollout.Sometimes(pl.rollout.Alternate(pl.rollout.Frozen("past")), 0.25)
    plain = build()
    assert not plain.references and plain.collect.links[0].cast is None
    assert plain.learners["policy"].update.epochs == 2
    assert plain.learners["policy"].objective == pl.Clipped(reduce="constant")  # of the run's longest answer


def test_a_coin_bets_half_of_the_time():
    said = [play_at_random((), rng_of((i,))) for i in range(400)]
    assert abs(said.count("b") - 200) < 40 and set(said) == {"p", "b"}


def test_the_arms_share_their_start_and_differ_in_one_thing():
    assert not EXPERIMENT.lacks()
    arms = {name: arm.parts for name, arm in EXPERIMENT.every_arm.items()}
    assert len({repr(parts["shown"]) for parts in arms.values()}) == 1
    base = arms["self-play"]["rl"].runnable
    rate = lambda r: pl.override(r, "sample.max_tokens", 4).learners["policy"]
    assert rate(build(baseline="batch", length=64)) == arms["one baseline"]["rl"].runnable.learners["policy"]
    fixed = arms["fixed opponent"]["rl"].runnable
    assert replace(fixed, collect=base.collect) == base and fixed.collect != base.collect
    past = arms["earlier selves"]["rl"].runnable
    assert replace(past, collect=base.collect, references={}) == base
    assert arms["start"]["rl"].runnable.schedule.steps == 0


@pytest.mark.parametrize("arm", list(EXPERIMENT.every_arm))
def test_an_arm_runs_and_is_measured(arm, context, tmp_path):
    """At smoke size; the start is measured as it is, the others after their games."""
    pytest.importorskip("pyspiel")
    made = EXPERIMENT.every_arm[arm]
    for path, given in {"parts.shown.runnable.schedule.steps": 2, "parts.rl.runnable.schedule.prompts": 4}.items():
        made = pl.override(made, path, given)
    found = asyncio.run(made.run(context("kuhn", out=tmp_path, tokens=40))).metrics
    value = EXPERIMENT.measure(pl.ledger.Cell(summary=found))
    assert -1 < value <= 0 and (found["parts"]["rl"]["steps"] > 0) == (arm != "start")


@pytest.mark.parametrize(("seats", "share"), [(("p0", "p1"), 1.0), (("p0",), 0.0)])
def test_a_game_tells_whether_both_of_its_sides_train(seats, share):
    group = game(1.0)
    (e,) = group.episodes
    group = replace(group, episodes=(replace(e, rows=tuple(r for r in e.rows if r.seat in seats)),))
    (told,) = asyncio.run(TellSelfPlay()(None, ("k",), group)).episodes
    assert told.reward.parts["self_play"] == share and told.total == e.total
