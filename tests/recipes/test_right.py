"""What tells right answers from wrong ones has one idea of right: `Episode.is_right`."""

from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra import catalogue, values
from palaestra.abilities import ReadsRight
from palaestra.credit.table import Table
from palaestra.method import Recipe
from palaestra.run.first_step import first_step_notes
from palaestra.settings.overrides import arguments
from palaestra.types import Episode, Group, Reward, Row, Segment, Task

METHODS = [
    "apo",
    "bco",
    "carft",
    "confucius3",
    "embodied-planner-r1",
    "incorrect-synthetic-data",
    "kimi-k1.5",
    "kto",
    "nsr",
    "reinforce-ada",
]


def parts_of(method, **options):
    options |= {"long2short": "dpo"} if method == "kimi-k1.5" else {}
    recipe = pl.recipe(method, **options)
    return recipe, [x for _, x in values.walk(recipe) if isinstance(x, ReadsRight) and x.reads_right]


def played(*totals, solved=None):
    row = Row(segments=(Segment(ids=(1,), author="user", text="?"), Segment(ids=(2,), author="policy", logp=(-1.0,))))
    made = (Episode(rows=(row,), reward=Reward(total=t, solved=solved)) for t in totals)
    return Group(task=Task(id="0", prompt=(), answer="1"), episodes=tuple(made))


def test_right_is_what_the_reward_says_else_one_else_the_users_own():
    (half,) = played(0.5).episodes
    (full,) = played(1 - 1e-12).episodes
    assert full.is_right() and not half.is_right() and half.is_right(0.5) and not half.is_right(0.6)
    (said,) = played(0.2, solved=True).episodes
    assert said.is_right() and said.solved and not said.is_right(0.5)
    (denied,) = played(1.5, solved=False).episodes
    assert not denied.is_right() and denied.is_right(1.0)


@pytest.mark.parametrize("method", METHODS)
def test_each_method_takes_right_and_passes_it_to_its_parts(method):
    assert arguments(method)["right"].default is None
    recipe, parts = parts_of(method)
    assert parts, "no part says that it reads what is right"
    other = values.flatten(parts_of(method, right=0.7)[0])
    assert {k: x for k, x in other.items() if x == 0.7} and 0.7 not in values.flatten(recipe).values()


@pytest.mark.parametrize("method", METHODS)
def test_a_reward_that_never_reaches_it_is_said_in_the_first_step(method):
    recipe, _ = parts_of(method)
    graded, right = [played(0.2, 0.9)], [played(0.2, 1.0)]
    metrics = {"episodes": 2.0, "groups": 1.0, "grad_norm": 1.0}
    (line,) = [n for n in first_step_notes(metrics, graded, recipe) if "counts as right" in n]
    assert "the best reward was 0.9" in line and "right=" in line
    for seen, made in ((right, recipe), ([played(0.0, 0.0)], recipe), (graded, pl.recipe("grpo"))):
        assert not any("counts as right" in n for n in first_step_notes(metrics, seen, made))


def test_no_recipe_has_a_threshold_of_its_own():
    """Parts with a threshold of right leave it to the reward, in every recipe as it is built."""
    for entry in catalogue.all_entries():
        made = catalogue.find(entry.id).build() if entry.built else None
        for path, part in values.walk(made) if isinstance(made, Recipe) else ():
            assert not isinstance(part, ReadsRight) or part.reads_right, f"{entry.id}: {path}"


@pytest.mark.parametrize(("right", "wanted"), [(None, [-1, -1, 1]), (0.8, [-1, 1, 1])])
def test_credit_by_outcome_asks_the_reward(right, wanted):
    table = Table([played(0.2, 0.9, 1.0)], [], {})
    start = pl.Values(level="episode", x_N=table.reward_E)
    assert pl.credit.Outcome(1.0, -1.0, right=right)(start, table).x_N.tolist() == wanted
    assert table.right_E(right).tolist() == [x > 0 for x in wanted]
    rewards_G = np.array([0.2, 0.9, 1.0])
    assert pl.rollout.Enough(2, 0, right=right)(rewards_G) == (right is not None)
    unsaid = replace(played(0.9).episodes[0], reward=Reward(total=0.9, solved=True))
    assert Table([replace(played(0.9), episodes=(unsaid,))], [], {}).right_E().tolist() == [True]
