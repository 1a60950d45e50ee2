"""`--smoke`: a recipe at its smallest."""

from dataclasses import fields

import palaestra as pl
import pytest
from palaestra import catalogue
from palaestra.control import PPO, SAC, DoubleQ
from palaestra.schedule import HasSmallest, change_inside
from palaestra.settings.overrides import SMOKE_EXAM, make_smallest


@pytest.mark.parametrize(
    ("method", "exam", "size"), [("evolve-bandits", "bandits", "n"), ("mua-rl", "service", "tasks")]
)
def test_exams_are_cut(method: str, exam: str, size: str) -> None:
    recipe = pl.recipe(method)
    assert getattr(recipe.evaluate[exam], size) > SMOKE_EXAM
    assert getattr(make_smallest(recipe).evaluate[exam], size) == SMOKE_EXAM


def test_small_exams_stay() -> None:
    recipe = pl.recipe("evolve-bandits", exam=2)
    assert make_smallest(recipe).evaluate["bandits"].n == 2


@pytest.mark.parametrize("learner", [PPO(), DoubleQ(), DoubleQ(per_step=0.5), SAC()])
def test_learners_are_small(learner) -> None:
    small = make_smallest(learner)
    assert small != learner and make_smallest(small) == small
    assert all(getattr(small, name) <= least for name, least in learner.smallest.items())


def test_smaller_ones_stay() -> None:
    assert make_smallest(PPO(games=2, epochs=1, minibatches=1)) == PPO(games=2, epochs=1, minibatches=1)


def test_a_small_program_has_a_small_learner() -> None:
    """LERO's default makes 16,000 steps with each candidate, and 16 updates an iteration of 64 games."""
    small = make_smallest(catalogue.find("lero").embedded())
    assert (small.trial, small.population, small.games) == (2, 1, 8)
    assert (small.learner.games, small.learner.epochs, small.learner.minibatches) == (4, 2, 2)


def test_what_says_how_small_it_is_has_these_fields_and_may_be_so_small() -> None:
    checked = set[type]()

    def check(part: object) -> object:
        if isinstance(part, HasSmallest):
            assert set(part.smallest) <= {f.name for f in fields(part)}
            make_smallest(part)
            checked.add(type(part))
        return part

    for entry in catalogue.all_entries():
        if entry.built and entry.family in ("llm4rl", "agents", "inference", "domains", "games"):
            change_inside(catalogue.find(entry.id).build(), check)
    assert len(checked) > 12, checked
