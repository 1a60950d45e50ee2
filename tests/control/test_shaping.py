"""Potentials keep returns, a decomposition's loss is that of the catalogue, and its rewards sum to returns."""

import asyncio
from dataclasses import replace
from itertools import combinations

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.control.shaping import decomposition_loss
from palaestra.errors import UserError


def games_of(sim, n=32, key=("games",)):
    return pl.control.play_games(sim, pl.control.PPO().start(sim, key).act, n, key)


@pytest.mark.parametrize(("total", "expected"), [(10.0, 0.0), (9.0, 0.0625)])
def test_the_sampled_loss_has_no_bias(total, expected):
    """r = (1, 2, 3, 4), T = 4, K = 2: the mean over the six pairs; biased it is 5/12 for R = 10."""
    pairs = torch.tensor(list(combinations((1.0, 2.0, 3.0, 4.0), 2)))
    mean, steps = torch.full((6,), total / 4), torch.full((6,), 4.0)
    assert decomposition_loss(pairs, mean, steps).mean().item() == pytest.approx(expected, abs=1e-6)
    assert decomposition_loss(pairs, mean, steps)[1].item() == pytest.approx(-0.25 if total == 10 else 0.0625 - 0.5)
    if total == 10:
        assert decomposition_loss(pairs, mean).mean().item() == pytest.approx(5 / 12)


def test_rewards_by_hand():
    paths = {
        "reward": np.array([[[1.0, 2.0, 0.0], [3.0, 4.0, 0.0]]]),  # two agents
        "alive": np.array([[True, True, False]]), "over": np.array([[False, True, False]]),
        "obs": np.array([[[[1.0], [2.0], [9.0]]] * 2]).reshape(1, 2, 3, 1),
        "next_obs": np.array([[[[2.0], [3.0], [9.0]]] * 2]).reshape(1, 2, 3, 1),
    }  # fmt: skip
    assert pl.control.as_paid(paths) is paths["reward"]
    assert pl.control.at_the_end(paths).tolist() == [[[0.0, 5.0, 0.0], [0.0, 5.0, 0.0]]]
    found = pl.control.Potential(first_number, gamma=0.5)(paths)
    assert found.tolist() == [[[1 + 0.5 * 2 - 1, 2 + 0 - 2, 0.0], [3 + 0.5 * 2 - 1, 4 + 0 - 2, 0.0]]]


def first_number(obs):
    return obs[..., 0]


def test_a_potential_adds_the_same_to_every_game_that_begins_alike():
    """Discounted, all that it adds is -phi of the first state, as phi after the end is 0."""
    paths = games_of(pl.control.Rooms(), key=("potential",))
    added = pl.control.Potential(far_right, gamma=0.9)(paths) - paths["reward"]
    ended = paths["over"].any(1)
    discounted = (added[:, 0] * 0.9 ** np.arange(added.shape[-1])).sum(1)
    assert ended.any()
    assert discounted[ended] == pytest.approx(-far_right(paths["obs"])[ended, 0, 0])


def far_right(obs):
    return obs[..., :19].argmax(-1) / 19


def steps_of(paths):
    return paths["next_obs"]


def shares(paths):
    """Factors that tell everything: the reward itself."""
    return paths["reward"][..., None]


def test_a_decomposition_finds_the_rewards_that_it_can_see():
    sim = pl.control.SimpleSpread(horizon=5)
    told = pl.control.Decomposition(updates=600, lr=3e-3).start(shares, ("finds",))
    games = games_of(sim, 64)
    found = told(games)
    assert told.loss < 0.05
    assert np.corrcoef(found.ravel(), games["reward"].ravel())[0, 1] > 0.95
    # an agent's rewards sum to the team's return
    off = found.sum(2).mean(1) - pl.control.returns_of(games)
    assert np.abs(off).mean() < 0.2 * pl.control.returns_of(games).std() + 0.5


@pytest.mark.parametrize("sampled", [0, 4])
def test_law_06_a_decomposition_is_its_keys(sampled):
    games = games_of(pl.control.Rooms(), key=("bits",))  # of several lengths
    made = pl.control.Decomposition(sampled=0 if not sampled else 2, updates=3)
    one, other, third = (made.start(steps_of, ("bits", k))(games) for k in (0, 0, 1))
    assert (one == other).all() and not (one == third).all()
    assert not one[~games["alive"][:, None]].any()


def test_a_store_keeps_the_last_games():
    told = pl.control.Decomposition(keep=40, updates=1).start(steps_of, ("keep",))
    for i in range(3):
        told(games_of(pl.control.SimpleSpread(), 16, ("keep", i)))
    assert len(told.stored) == 40


def test_what_cannot_be_decomposed_is_said():
    with pytest.raises(UserError, match="take 2"):
        pl.control.Decomposition(sampled=1)
    told = pl.control.Decomposition(sampled=30).start(steps_of, ("few",))
    with pytest.raises(UserError, match="has 15 steps, fewer than 30"):
        told(games_of(pl.control.SimpleSpread(horizon=5)))
    with pytest.raises(UserError, match="fitted to nothing"):
        pl.control.Decomposition().start(steps_of, ("none",)).reward(games_of(pl.control.SimpleSpread(horizon=5)))


def test_a_learner_learns_from_what_is_shaped():
    """With rewards that say the opposite, the policy does the opposite."""
    learner = replace(pl.control.PPO(), games=32, lr=3e-3)
    good, bad = (
        asyncio.run(learner.learn(pl.control.SimpleSpread(), 12_000, ("sign",), shaping=s)) for s in (approach, retreat)
    )
    assert (
        pl.control.mean_return(pl.control.SimpleSpread(), good.act, 100, ("t",))
        > pl.control.mean_return(pl.control.SimpleSpread(), bad.act, 100, ("t",)) + 10
    )


def approach(paths):
    return pl.control.SimpleSpread().quantities(paths)["approach"]


def retreat(paths):
    return -approach(paths)


def test_a_game_that_ends_early_is_paid_as_if_it_stayed():
    """gamma 0.5: r (1 + 0.5 + 0.25) with two of four steps left; nothing after, and nothing more at the horizon."""
    paths = {
        "over": np.array([[False, True, False, False], [False, False, False, True]]),
        "alive": np.array([[True, True, False, False], [True] * 4]),
    }
    reward = np.array([[[0.2, 0.6, 9.0, 9.0]], [[0.1, 0.2, 0.3, 0.4]]])
    given = pl.control.stay_rewards(reward, paths, 4, 0.5)[:, 0]
    assert given[0] == pytest.approx([0.2, 1.05, 0, 0]) and given[1] == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert pl.control.stay_rewards(reward, paths, 4, 1.0)[0, 0, 1] == pytest.approx(1.8)
