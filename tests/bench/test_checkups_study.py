"""The study of check-ups: its arms, and what its page says of numbers."""

import palaestra as pl
import pytest
from benchmarks.checkups import page, study
from palaestra.markdown import fill_marks
from palaestra.recipes.analysis.math_beyond import BeyondStart
from palaestra.studies.glance import MEASURES


def cell(**given):
    """Numbers of a check-up, 0 but for those that are given by the page's names."""
    made = {name: {} for name, _ in (*page.MEASURES.values(), *page.BESIDE.values())}
    for measure, (name, number) in page.MEASURES.items():
        made[name][number] = given.get(measure.replace(" ", "_"), 0.0)
    return {**made, "seconds": {"training": 7.0, "check-up": 13.0}}


def results(seeds=(0, 1, 2, 3, 4), **changes):
    cells = {f"{arm}/{n}": cell() for arm in study.ARMS for n in seeds}
    cells |= {f"grpo/{n}": cell(accuracy=0.3 + n / 100, **changes) for n in seeds}
    return {"cells": cells | {"untrained/0": cell()}}


def test_arms_have_as_many_steps_and_problems():
    for arm in study.ARMS:
        made = study.recipe_of(arm, "tiny")
        schedule = made.schedule
        assert (schedule.prompts, schedule.steps) == (study.DECLARED["prompts"], study.DECLARED["steps"])
        if arm in ("dpo", "grpo"):
            assert made.collect.links[0].n == study.DECLARED["samples"]
    taught = study.recipe_of("distil", "tiny")
    assert f"n={study.DECLARED['samples']}" in repr(taught.collect)
    assert taught != study.recipe_of("distil", "tiny-agent")


def test_measures_are_those_of_the_check_up():
    assert {*page.MEASURES.values()} <= {(name, number) for name, number, *_ in MEASURES}
    assert {*page.MEASURES} == {*study.DECLARED["matters"]}


def test_an_arm_that_changes_is_told_and_the_others_are_not():
    verdicts = page.said_of(results(), "accuracy")
    assert verdicts == {"sft": "no difference that matters", "dpo": "no difference that matters", "grpo": "up",
                        "distil": "no difference that matters"}  # fmt: skip
    told = page.conclusions(results())
    assert "- **grpo** changes accuracy +0.320" in told and "Not complete" not in told
    down = page.said_of(results(diversity=-0.2), "diversity")
    assert down["grpo"] == "down", "five seeds that agree to the digit"


def test_missing_cells_are_told_and_give_no_verdict():
    some = results(seeds=(0, 1))
    assert "9 of 21 declared cells are run" in page.conclusions(some)
    assert {*page.said_of(some, "accuracy").values()} == {"trial: 2 of 5 seeds"}


def test_seeds_that_were_not_declared_are_left_out():
    some = results()
    some["cells"]["grpo/8000"] = cell(accuracy=9.0)
    assert page.column(some, "grpo", page.MEASURES["accuracy"]).keys() == {0, 1, 2, 3, 4}


def test_the_page_has_places_for_its_parts():
    text = page.PAGE.read_text()
    made = fill_marks(text, page.made_parts(results()))
    assert "| accuracy |" in made and "| largest change of the untrained start | 0 |" in made
    assert "not run" in page.made_parts({"cells": {}})["arms"]


def test_numbers_of_a_report_are_means(tmp_path):
    right = [{"id": "a", "problem": 0, "right": [True, False], "texts": ["x", "y"], "rewards": [1.0, 0.0], "tokens": [1, 1],
              "cut": [False] * 2, "prompt": "p", "gold": "1"}]  # fmt: skip
    report = BeyondStart(n=2).report(right, right, right)
    pl.studies.page.write_study(tmp_path, report)
    numbers = study.numbers_of(tmp_path)
    assert numbers["sharper"] == numbers["within_n"] == 0 and numbers["guess"] == pytest.approx(1)
