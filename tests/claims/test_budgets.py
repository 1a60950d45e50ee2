"""What claims about whom to sample, what to train on and what to try compare with."""

import asyncio
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import palaestra as pl
import pytest
from palaestra.claims.data.dars import AlikeGroups, Mirrored
from palaestra.claims.data.pf_ppo import MixedUp, UnsureMiddle
from palaestra.claims.data.reinforce_ada import first_four, trained
from palaestra.credit.table import Table
from palaestra.ledger.experiment import experiment_of
from palaestra.pipeline import Pipeline
from palaestra.recipes.data.pf_ppo import ByReward
from palaestra.types import Group, Reward, Task

from tests.claims.two_steps import runs_two_steps
from tests.fake import episode
from tests.rows import every

METHODS = ("dars", "reinforce-ada", "pf-ppo", "eframe", "pcl")


def group(*totals, muted=()):
    made = (episode((0,), (1,), float(r)) for r in totals)
    return Group(
        task=Task(id="a/0", domain="a"), episodes=tuple(replace(e, muted=i in muted) for i, e in enumerate(made))
    )


def paid(table):
    return pl.Values(level="episode", x_N=np.array([e.total for e in table.episodes]))


def recipe_of(arm):
    return list(arm.parts.values())[-1].runnable if isinstance(arm, Pipeline) else arm


# two arms, and the fields of a recipe in which alone they may differ
PAIRS = [
    ("dars", "dars", "sixteen", ("collect",)),
    ("dars", "dars", "hard", ("collect",)),
    ("dars", "dars", "easy", ("collect",)),
    ("dars", "dars", "alike weight", ("learners",)),
    ("reinforce-ada", "balance", "four", ("collect",)),
    ("reinforce-ada", "balance", "positive", ("collect",)),
    ("reinforce-ada", "balance", "all rounds", ("collect",)),
    ("reinforce-ada", "balance", "first four", ("collect",)),
    ("reinforce-ada", "balance", "own mean", ("learners",)),
    ("pf-ppo", "max min", "all samples", ("learners",)),
    ("pf-ppo", "max min", "pow", ("learners",)),
    ("pf-ppo", "max min", "max random", ("learners",)),
    ("pf-ppo", "max min", "mixed up", ("learners",)),
    ("eframe", "eframe", "no filter", ("learners",)),
    ("eframe", "eframe", "no replay", ("learners", "schedule")),
    ("eframe", "eframe", "no further", ("collect",)),
    ("eframe", "no replay", "twenty", ("collect",)),
    ("pcl", "pcl", "uniform", ("draw", "learners")),
    ("pcl", "pcl", "untaught", ("learners",)),
    ("pcl", "pcl", "stopped", ("learners",)),
    ("pcl", "uniform", "filtered", ("pool",)),
]


@every(("method", "one", "other", "fields"), PAIRS)
def test_arms_differ_in_settings_alone(method, one, other, fields):
    a, b = (recipe_of(experiment_of(method).arms[n]) for n in (one, other))
    assert a != b and replace(a, **{f: getattr(b, f) for f in fields}) == b
    kept = [(x.learners["policy"].objective, x.learners["policy"].optimiser) for x in (a, b)]
    assert kept[0] == kept[1] and a.schedule.prompts == b.schedule.prompts


@every("method", METHODS)
def test_every_arm_is_tuned_alike(method):
    e = experiment_of(method)
    assert not e.lacks() and {len(e.settings_of(a)) for a in e.arms} == {1 if method == "pcl" else 3}
    named = {x for m, *pair, _ in PAIRS if m == method for x in pair}
    assert named == set(e.arms) and not e.tuning_tokens


def test_easy_prompts_get_what_hard_ones_would():
    """TopUp("equal") of 8 answers: none right 24 more, two right 3, half right none."""
    count = Mirrored(pl.rollout.TopUp("equal", most=32))
    rates = [np.array([1.0] * k + [0.0] * (8 - k)) for k in range(9)]
    assert [count(x) for x in rates] == [0, 0, 0, 0, 0, 1, 3, 11, 24]


def test_a_group_of_sixteen_weighs_as_one_of_eight():
    groups = [group(*[1.0, 0.0] * 4), group(*[1.0, 0.0] * 8)]
    table = Table(groups, [], {})
    x = AlikeGroups(8)(pl.Center("group")(paid(table), table), table).x_N
    assert np.abs(x[:8]).sum() == np.abs(x[8:]).sum() == 4.0


def test_the_first_four_train_whatever_they_are():
    assert first_four(np.zeros(8)) == [0, 1, 2, 3] and first_four(np.ones(3)) == [0, 1, 2]
    table = Table([group(1, 0, 0, 0, 0, 0, 1, 0, muted=(2, 3, 4, 5))], [], {})
    x = pl.Center(trained)(paid(table), table).x_N
    assert x[[0, 1, 6, 7]].tolist() == [0.5, -0.5, 0.5, -0.5]


def test_an_unsure_reward_says_nothing_and_a_sure_one_the_truth():
    async def truth(ctx, found):
        return [Reward(total=e.total, solved=e.total == 1) for e in found.episodes]

    async def verdicts(judge, found):
        return await judge(ctx, found)

    bench = SimpleNamespace(reward=truth)
    ctx = SimpleNamespace(bench=bench, seed=0, step=3, judging=nullcontext, verdicts=verdicts)
    truth_N = np.array([1.0, 0.0] * 300)
    found = asyncio.run(UnsureMiddle(share=0.7, most=0.9)(ctx, group(*truth_N)))
    said_N = np.array([r.total for r in found])
    sure_N = np.abs(said_N) == 1
    assert 0.2 < sure_N.mean() < 0.4 and np.abs(said_N[~sure_N]).max() <= 0.9
    assert np.array_equal(said_N[sure_N] == 1, truth_N[sure_N] == 1)
    assert abs(np.corrcoef(said_N[~sure_N], truth_N[~sure_N])[0, 1]) < 0.15
    assert all(0.4 < said_N[~sure_N & (truth_N == t)].std() < 0.65 for t in (0, 1))
    assert [r.total for r in asyncio.run(UnsureMiddle()(ctx, group(*truth_N)))] == said_N.tolist()


def test_mixed_up_weights_are_as_uneven():
    rewards_N = np.array([-1.0, -0.3, 0.2, 1.0, 1.0, 0.5, 0.1, -0.7])
    plain = ByReward("max_min")
    found = [MixedUp(plain)(np.append(rewards_N, x)) for x in np.linspace(0, 0.5, 8)]
    assert all(Counter(x) == Counter({0.0: 6, 1.0: 3}) for x in found)
    assert len({tuple(x) for x in found}) > 4


ARMS = [(m, n, recipe_of(a)) for m in METHODS for n, a in experiment_of(m).arms.items()]


@pytest.mark.by_row
@pytest.mark.parametrize("arm", [pytest.param(a, id=f"{m}:{n}") for m, n, a in ARMS])
def test_every_arm_runs(arm, context, small):
    runs_two_steps(small(arm), context())
