"""The study of sight: its scenes, its arms, and what its page says of numbers."""

from collections import Counter

import palaestra as pl
import pytest
from benchmarks.sight import page, study


def test_half_of_all_answers_to_a_question_are_the_same():
    rows = study.questions(600, 7)
    for asked, common in study.COMMON.items():
        answers = Counter(r["answer"] for r in rows if r["domain"] == asked)
        assert answers[common] / answers.total() == pytest.approx(0.5, abs=0.1)
        assert set(answers) == set(study.ANSWERS[asked])


def test_no_picture_comes_twice_and_other_seeds_have_others():
    images = [r["image"] for seed in (1, 2) for r in study.questions(40, seed)]
    assert len(set(images)) == 80


def test_only_exactly_the_right_answer_is_paid():
    assert study.exactly(" top left\n", "top left") == 1.0
    assert study.exactly("top left top", "top left") == 0.0


def test_arms_differ_in_what_is_shown_and_what_learns():
    full, frozen, removed = (study.arm_of(x) for x in ("full", "frozen tower", "picture removed"))
    assert frozen.learners["policy"].rates["tower"] == 0 == frozen.learners["policy"].rates["projector"]
    assert pl.values.difference(full, removed)
    assert removed.draw.control.media == "removed" and full.draw.control.media == "kept"
    assert frozen.draw == full.draw and removed.learners == full.learners


def cells(**gains):
    before = {"with picture": 0.5, "removed": 0.4, "swapped": 0.4}
    return {"cells": {f"short/{arm}/{seed}": {"before": before,
                                              "after": {k: v + gain[k] + 0.01 * seed for k, v in before.items()}}
                      for arm, gain in gains.items() for seed in range(3)}}  # fmt: skip


def test_a_gain_that_stays_with_another_picture_is_not_one_of_sight():
    seen = {"with picture": 0.2, "removed": 0.0, "swapped": 0.0}
    results = cells(
        full=seen, **{"picture removed": dict.fromkeys(seen, 0.1), "frozen tower": {**seen, "swapped": 0.2}}
    )
    rows = {x.split(" | ")[0]: x for x in page.arms_table(results, "short", 3).splitlines()}
    more, alike = "+0.200 [+0.200, +0.200], more |", "0.000], no difference that matters |"
    assert rows["| full"].endswith(more) and rows["| full"].count(more) == 2
    assert rows["| picture removed"].count(alike) == 2
    assert more in rows["| frozen tower"] and rows["| frozen tower"].endswith(alike)
    assert "trial: 3 of 5 seeds" in page.arms_table(results, "short", 5)
    assert "not run" in rows["| picture swapped"] and "0.500" in rows["| start"]
    pairs = page.pairs_table(results, ["short", "longer"], 3)
    assert "| full less picture removed | +0.100 [+0.100, +0.100], more | not run |" in pairs
