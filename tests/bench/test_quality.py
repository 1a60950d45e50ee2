"""Time to quality: when a run is over, which setting is chosen, and the ratio of the page, by hand."""

from math import exp, log

import pytest
from benchmarks.quality import cell, page, study

CHOICE, SEEDS = cell.DECLARED["seeds of choice"], cell.DECLARED["seeds"]


def test_a_run_is_over_when_the_mean_of_the_last_steps_stands_at_the_target():
    course = cell.Course("chain")
    assert [course.note(r) for r in (1, 1, 1, 1)] == [False] * 4  # a whole window, not less
    assert not course.note(0.7) and course.note(1.05) and course.reached  # 4.7 / 5, then 4.75 / 5
    assert [s["reward"] for s in course.steps][-1] == 1.05


def test_a_run_that_does_not_get_there_is_over_at_the_most_steps():
    course = cell.Course("constraints")
    assert [course.note(0.1) for _ in range(100)].index(True) == 99 and not course.reached


def ended(seconds, reached=True):
    return {"reached": reached, "steps": [{"reward": 1, "wall": 2 * seconds, "processor": seconds}]}


def cells(system, *settings):
    return {
        study.name_of("chain", system, i, s): c
        for i, each in enumerate(settings)
        for s, c in zip(CHOICE, each, strict=True)
    }


def test_the_setting_with_the_fewest_seconds_is_chosen_among_those_that_every_seed_reaches():
    slow, fast, risky = (ended(9), ended(9)), (ended(5), ended(7)), (ended(1), ended(1, reached=False))
    assert study.chosen(cells("trl", slow, risky, fast, slow, slow), "chain", "trl") == 2
    assert study.chosen(cells("trl", slow, risky, fast), "chain", "trl") is None  # not all tried
    assert study.chosen(cells("trl", *[risky] * 5), "chain", "trl") is None


def test_seeds_that_count_come_after_the_choice_and_the_systems_take_turns():
    slow, fast = (ended(9), ended(9)), (ended(5), ended(7))
    tried = cells("trl", slow, fast, slow, slow, slow) | cells("palaestra", fast, slow, slow, slow, slow)
    left = [x for x in study.missing(tried, ["chain"]) if study.name_of(*x) not in tried]
    assert left[:2] == [("chain", "palaestra", 0, SEEDS[0]), ("chain", "trl", 1, SEEDS[0])] and len(left) == 10
    assert not any(task == "constraints" for task, *_ in left)
    assert [x[1] for x in study.missing({}, ["chain"])][:4] == ["palaestra", "trl"] * 2


def test_the_ratio_is_a_geometric_mean_over_seeds_that_both_reach():
    alike = [(ended(5), ended(5))] * 5
    run = cells("trl", *alike) | cells("palaestra", *alike)
    for seed, own, peer in ((0, 1.0, 2.0), (1, 1.0, 8.0), (2, 1.0, None)):
        run[study.name_of("chain", "palaestra", 0, seed)] = ended(own)
        run[study.name_of("chain", "trl", 0, seed)] = ended(peer or 3.0, reached=peer is not None)
    found = page.ratio(run, "chain")
    assert found.mean == pytest.approx(4.0) and found.n == 2
    spread = 12.706 * abs(log(8) - log(2)) / 2  # t of one degree of freedom times the error of the mean of two
    assert found.low == pytest.approx(4 / exp(spread), rel=1e-3)
    assert "2 of 3" in str(page.result_rows(run, "chain"))
