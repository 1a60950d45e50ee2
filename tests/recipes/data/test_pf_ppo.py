"""PF-PPO: the weights of each form, the rule that chooses one, and what is drawn."""

import asyncio
from collections import Counter

import numpy as np
import palaestra as pl
import pytest
from palaestra.recipes.data import pf_ppo
from palaestra.types import Episode, Example, Reward, Row, Segment

from tests.recipes.objectives.helpers import near

REWARDS = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
TRUTH = np.array([0.0, 1.0, 0.0, 0.0, 1.0])
ONE = np.zeros(5, int)


@pytest.mark.parametrize(
    ("form", "weights"),
    [
        ("best", [0, 0, 0, 0, 1]),
        ("best_random", [1 / 8, 1 / 8, 1 / 8, 1 / 8, 1 / 2]),
        ("best_worst", [1 / 2, 0, 0, 0, 1 / 2]),
        ("pow", [0.4, 0.1, 0, 0.1, 0.4]),
        ("max_min", [1 / 2, 0, 0, 0, 1 / 2]),
        ("max_random", [1 / 8, 1 / 8, 1 / 8, 1 / 8, 1 / 2]),
    ],
)
def test_weights_of_one_prompt(form, weights):
    found = pf_ppo.weigh(REWARDS, ONE, form)
    assert (found / found.sum()).tolist() == near(weights, 1e-12)


def test_ranks_are_those_within_a_prompt_and_equals_share():
    """The second prompt is worse throughout; the third cannot be ranked."""
    rewards, groups = np.array([9.0, 8, 7, 3, 3, 1, 5, 5]), np.array([0, 0, 0, 1, 1, 1, 2, 2])
    by = lambda form: pf_ppo.weigh(rewards, groups, form).tolist()
    assert by("best_worst") == near([1 / 2, 0, 1 / 2, 1 / 4, 1 / 4, 1 / 2, 1 / 2, 1 / 2], 1e-12)
    assert by("best_random") == near([1 / 2, 1 / 4, 1 / 4, 1 / 4, 1 / 4, 1 / 2, 1 / 2, 1 / 2], 1e-12)
    assert by("best") == near([1, 0, 0, 1 / 2, 1 / 2, 0, 1 / 2, 1 / 2], 1e-12)


def test_r2_of_all_and_of_what_is_left():
    """y = [0, 1, 0, 0, 1] against r: 1 / 12 of all five, and 1 of the best and the worst."""
    assert pf_ppo.fit_r2(REWARDS, TRUTH, np.ones(5)) == near(1 / 12, 1e-9)
    assert pf_ppo.reliability(REWARDS, TRUTH, ONE, "best_worst") == near(1.0, 1e-9)
    assert pf_ppo.reliability(REWARDS, TRUTH, ONE, "best") == 0.0  # one point is no line
    assert pf_ppo.fit_r2(REWARDS, np.ones(5), np.ones(5)) == 0.0


def test_pairs_are_averaged_within_bins():
    """Rewards near 0 with 0 and 1, rewards near 1 with 1 and 1: two points, whatever their scatter."""
    rewards, truth = np.array([0.0, 0.05, 0.95, 1.0]), np.array([0.0, 1.0, 1.0, 1.0])
    assert pf_ppo.reliability(rewards, truth, np.arange(4), "max_random") == near(1.0, 1e-9)
    assert pf_ppo.fit_r2(rewards, truth, np.ones(4)) < 0.5


class Fixed:
    """A credit that gives an example of a token for each (reward, group)."""

    def __init__(self, pairs):
        self.pairs = pairs

    def __call__(self, groups, signals, state):
        rows = [Row(segments=(Segment(ids=(i, i), trained=True),), key=("k",)) for i in range(len(self.pairs))]
        columns = [{"reward": float(r), "group": float(g)} for r, g in self.pairs]
        return [Example(row=r, columns=c) for r, c in zip(rows, columns, strict=True)], state


def test_examples_are_drawn_by_their_rank_within_the_prompt():
    pairs = [(r, g) for g in range(40) for r in (0.0, 0.5, 1.0)]
    found, _ = pf_ppo.ResampledByRank(Fixed(pairs), "best_worst")([], [], {})
    count = Counter(e.columns["reward"] for e in found)
    assert len(found) == 120 and count[0.5] == 0 and abs(count[1.0] - 60) < 20
    again, _ = pf_ppo.ResampledByRank(Fixed(pairs), "best_worst")([], [], {})
    assert [e.row.context() for e in again] == [e.row.context() for e in found]
    marked, _ = pf_ppo.MarkRedrawn(pf_ppo.ResampledByRank(Fixed(pairs), "best_worst"))([], [], {})
    different = len({e.row.context() for e in found})
    assert {float(x) for e in marked for x in e.columns["redrawn"]} == {1 - different / 120}
    assert {float(x) for e in pf_ppo.MarkRedrawn(Fixed(pairs))([], [], {})[0] for x in e.columns["redrawn"]} == {0.0}


def test_the_form_with_the_largest_r2_is_trained_with(context, monkeypatch):
    """A reward model that knows nothing between 0 and 1: the best and the worst alone are to be trusted."""
    ctx, trained = context("chain"), []
    rng = np.random.default_rng(0)

    async def attempts(ctx, n, sample, label):
        true = rng.integers(0, 2, (40, 5)).astype(float)
        said = lambda x: Episode(status="finished", reward=Reward(total=float(x)))
        return [pl.Group(task=pl.Task(id=f"{i}"), episodes=tuple(map(said, row))) for i, row in enumerate(true)]

    async def unsure(ctx, group):
        sure = rng.random(len(group.episodes)) < 0.4
        return [
            Reward(total=2 * e.total - 1 if s else rng.uniform(-0.9, 0.9))
            for e, s in zip(group.episodes, sure, strict=True)
        ]

    async def train(self, recipe):
        trained.append(recipe)
        return pl.Result(metrics={"x": 1})

    monkeypatch.setattr(pl.run, "attempt_tasks", attempts)
    monkeypatch.setattr(type(ctx), "train", train)
    program = pf_ppo.build(reward=unsure, choose=True)
    metrics = asyncio.run(program.run(ctx)).metrics
    assert metrics["form"] in ("best_worst", "max_min") and metrics["x"] == 1
    assert metrics["r2"][metrics["form"]] == max(metrics["r2"].values()) > metrics["r2"]["max_random"]
    assert trained == [pf_ppo.filtered(program.recipe, metrics["form"])]


def test_the_reward_model_is_the_users():
    async def model(ctx, group):
        return [Reward(total=0.0) for _ in group.episodes]

    score = pf_ppo.build(reward=model).collect.links[1]
    assert score.reward is model and score.shadow
    with pytest.raises(pl.UserError, match="choose=True compares a reward model"):
        pf_ppo.build(choose=True)
