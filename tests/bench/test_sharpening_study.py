"""The study of adding and sharpening: pass@k of counts, what is said of them, and the page."""

import pytest
from benchmarks.sharpening import page, study
from palaestra.markdown import fill_marks

N = page.N


def block(counts, first=None, cold=None):
    return {"again": counts, "first": first or counts, "cold": cold or counts, "golds": ["1", "2"] * (len(counts) // 2)}


def results(end, start=(N // 2, 0), arms=study.ARMS, seeds=study.DECLARED["seeds"]):
    """Every block begins with these counts and ends with those of `end`, a little apart from seed to seed."""
    at = [(t, n) for t in study.TASKS for n in seeds]
    return {
        "starts": {f"{t}/{n}": block([start[0] + n, start[1]]) for t, n in at},
        "cells": {f"{t}/{a}/{n}": {"again": [end[0], end[1]]} for t, n in at for a in arms},
    }


def test_pass_at_k_of_counts():
    """Half of the answers to one problem are right, none to the other: pass@1 1/4, pass@N 1/2."""
    assert page.passed([N // 2, 0], 1) == pytest.approx(0.25) and page.passed([N // 2, 0], N) == 0.5


def test_a_recipe_that_is_right_more_often_sharpens_and_one_that_reaches_more_adds():
    sharp = results((N, 0))
    one, many = (page.said_of(sharp, k)["grpo"] for k in page.KS)
    assert (one, many) == ("above", "no difference that matters") and page.read_of(one, many) == "sharpens"
    more = results((N // 2, 1))
    assert page.read_of(*(page.said_of(more, k)["grpo"] for k in page.KS)) == "adds"
    assert "- **Sharpens:** rloo pass@1 +0.2" in page.conclusions(sharp)
    same = results((N // 2 + 1, 0))
    assert page.read_of(*(page.said_of(same, k)["grpo"] for k in page.KS)) == "neither is seen"


def test_expansion_is_counted_on_problems_that_the_first_draw_never_solved():
    some = results((N // 2, 1))
    hard, now, before = page.expansion(some, "grpo")
    assert (hard, now, before) == (9, 9, 0)


def test_missing_cells_give_no_verdict():
    some = results((N, 0), seeds=(0, 1))
    assert "36 of 54 declared cells are run" in page.conclusions(some)
    assert {*page.said_of(some, 1).values()} == {"trial: 6 of 9 blocks"}


def test_the_page_has_places_for_its_parts():
    made = fill_marks(page.PAGE.read_text(), page.made_parts(results((N, 0))))
    assert "| grpo |" in made and f"| add | {N} |" in made and "a baseline" in made
    assert "trial" in page.conclusions({"starts": {}, "cells": {}})


def test_a_guess_is_one_of_the_answers_that_a_block_has():
    line = next(x for x in page.tasks_table(results((N, 0))).splitlines() if x.startswith("| add | 1 |"))
    assert line.split("|")[4].strip() == "0.500"


def test_recipes_are_as_they_are_but_for_the_size():
    for arm in study.ARMS:
        made = study.recipe_of(arm)
        assert made.schedule.prompts == study.DECLARED["prompts"] and made.schedule.steps == study.DECLARED["steps"]
        assert made.collect.links[0].n == study.DECLARED["samples"]
    assert len(study.ARMS) == 6 and len(study.TASKS) == 3
