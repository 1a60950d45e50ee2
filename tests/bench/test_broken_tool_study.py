"""The study of a tool that breaks: its arms, its controls, and what its page says of numbers."""

import json

import palaestra as pl
import pytest
from benchmarks.broken import page, study
from palaestra.markdown import fill_marks
from palaestra.values import walk

SEEDS = study.DECLARED["seeds"]
PLACES = {seed: i for i, seed in enumerate(SEEDS)}


def results_with(late_calls, seeds=SEEDS, never=0.2):
    """Cells whose late calls are those of each (arm, condition), apart by seed."""
    steps, late = study.DECLARED["steps"], study.DECLARED["late"]
    cells = {
        f"{arm}/{condition}/{seed}": {
            "calls": [0.5] * (steps - late)
            + [late_calls.get((arm, condition), 0.5) + 0.01 * PLACES.get(seed, 0)] * late,
            "right": [0.5] * steps,
            "greedy": 0.6,
        }
        for arm in page.ARMS
        for condition in study.DECLARED["conditions"]
        for seed in seeds
    }
    world = {"sampled": never, "greedy": 0.5}
    starts = {
        f"{form}/{seed}": {
            w: {**world, "sampled": never + 0.001 * PLACES.get(seed, 0)} for w in ("never", "intact", "broken")
        }
        for form in page.FORMS
        for seed in seeds
    }
    return {"cells": cells, "starts": starts}


def test_half_of_the_sums_are_shown_with_a_call():
    rows = study.shown_calls(400, 0)
    lengths = [len(r["messages"]) for r in rows]
    assert set(lengths) == {2, 4} and 160 < lengths.count(4) < 240
    talk = next(r["messages"] for r in rows if len(r["messages"]) == 4)
    a, b = talk[0]["content"].split("+")
    assert talk[1]["content"] == study.CALL % (a, b)
    assert int(talk[2]["content"]) == int(a) + int(b) and talk[3]["content"] == f"= {int(a) + int(b)}"
    assert study.shown_calls(5, 0) == rows[:5] != study.shown_calls(5, 1)


@pytest.mark.parametrize("form", page.FORMS)
def test_the_tool_breaks_at_the_step_that_is_declared(form):
    intact, broken = study.problem(form), study.problem(form, 1.0, study.DECLARED["break"])
    assert intact != broken and "fails" not in str(intact) and "break_tool" not in intact
    said = broken.get("break_tool") or broken["env"]
    assert said == "add=1@8" or said.endswith("fails=1.0,fails_from=8)")


def test_arms_differ_in_what_they_pay_alone():
    for arm in page.ARMS:
        made = study.recipe_of(arm)
        assert made.schedule == pl.Schedule(prompts=8, steps=24)
        (sample,) = [x for _, x in walk(made.collect) if isinstance(x, pl.Sample)]
        assert sample.n == 8
    penalties = [x.penalty for arm in page.ARMS[:2] for _, x in walk(study.recipe_of(arm)) if hasattr(x, "penalty")]
    assert penalties == [0.0, 0.5]


def test_who_calls_less_than_with_the_intact_tool_notices():
    results = results_with({("torl", "broken"): 0.1, ("zerotir", "broken"): 0.9})
    text = page.arms_table(results)
    assert text.count("notices") == 1 and text.count("calls more") == 1
    assert "| torl | 0.500 [0.500, 0.500] | 0.520" in text
    assert page.before(results, "torl") == dict.fromkeys(SEEDS, 0.5)
    assert "above" in page.right_table(results)
    assert "Not complete" not in page.conclusions(results)


def test_a_missing_cell_makes_everything_a_trial():
    results = results_with({("torl", "broken"): 0.1})
    del results["cells"][f"tool-star/broken/{SEEDS[-1]}"]
    assert "trial: 4 of 5 seeds" in page.arms_table(results) and "notices" not in page.arms_table(results)
    assert page.conclusions(results).startswith("- **Not complete: 39 of 40 declared cells")


def test_seeds_that_were_not_declared_are_not_counted():
    results = results_with({}, seeds=[SEEDS[0], 8000])
    assert list(page.column(results, "torl", "broken", "calls")) == SEEDS[:1]
    assert list(page.of_start(results, "call", "never", "sampled")) == SEEDS[:1]


def test_the_page_has_what_the_results_say():
    results = json.loads((page.HERE / "results.json").read_text())
    text = page.PAGE.read_text()
    assert fill_marks(text, page.made_parts(results)) == text, "python -m benchmarks.broken.page"
    assert page.PICTURE.read_text() == page.picture(results)
