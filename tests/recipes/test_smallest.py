"""`--smoke`: a recipe at its smallest."""

import palaestra as pl
import pytest
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
