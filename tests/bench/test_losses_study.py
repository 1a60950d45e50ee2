"""The study of preference losses: its pairs, its arms, and what its page says of numbers."""

import json
import math

import numpy as np
import palaestra as pl
import pytest
from benchmarks.losses import page, study
from palaestra.markdown import fill_marks
from palaestra.tasks.procedural import final_answer


def answer(middle, end):
    return f"1+2={middle}\n{middle}+1={end}\n= {end}"


def pairs_of(n, seed=0):
    rng = np.random.default_rng(seed)
    made = []
    for i in range(n):
        a, b = rng.choice(9, 2, replace=False)
        made.append({"prompt": f"p{i}", "answer": str(a), "chosen": answer(3, a), "rejected": answer(3, b)})
    return made


def test_pairs_are_right_and_wrong_answers_of_one_length():
    texts = [["1+2=3\n= 3", "1+2=4\n= 4", "= 5", "1+2=3\n= x", "1+2=3"], ["= 1", "= 1", "= 1", "= 1", "= 1"]]
    found = study.candidates([("1+2 mod 9", "3"), ("1+0 mod 9", "1")], texts)
    assert found == [[{"prompt": "1+2 mod 9", "answer": "3", "chosen": "1+2=3\n= 3", "rejected": "1+2=4\n= 4"}]]


def test_neither_length_nor_answer_line_tells_which_is_chosen():
    """Of pairs whose chosen answer is mostly 0, so that the answer line alone gets 0.9 right, those that are kept
    leave it little.
    """
    rng = np.random.default_rng(1)
    found = []
    for i in range(400):
        a, b = (0, int(rng.integers(1, 9))) if rng.random() < 0.6 else rng.choice(9, 2, replace=False)
        found.append([{"prompt": f"p{i}", "answer": str(a), "chosen": answer(3, a), "rejected": answer(3, b)}])
    before = study.blind_accuracy([x[0] for x in found])
    kept = study.balanced(found, 160, np.random.default_rng(0))
    after = study.blind_accuracy(kept)
    assert len(kept) == 160 == len({p["prompt"] for p in kept})
    assert before["length"] == after["length"] == 0.5
    assert before["answer line"] > 0.75 and abs(after["answer line"] - 0.5) < 0.1


def test_a_rule_by_length_is_seen():
    pairs = [{**p, "rejected": p["rejected"].split("\n")[-1]} for p in pairs_of(10)]
    assert study.blind_accuracy(pairs)["length"] == 1.0


@pytest.mark.parametrize("share", [0.0, 0.2, 0.4])
def test_exactly_a_share_is_turned_round_and_a_larger_share_has_the_smaller(share):
    pairs = pairs_of(50)
    turned = {p["prompt"] for p, q in zip(pairs, study.flipped(pairs, share, 3), strict=True) if p != q}
    more = {p["prompt"] for p, q in zip(pairs, study.flipped(pairs, 0.4, 3), strict=True) if p != q}
    assert len(turned) == round(50 * share) and turned <= more
    both = study.flipped(pairs, share, 3)
    assert all({p["chosen"], p["rejected"]} == {q["chosen"], q["rejected"]} for p, q in zip(pairs, both, strict=True))


def test_arms_have_as_many_updates_and_answers():
    for arm in study.LOSSES:
        made = study.recipe_of(arm, 1e-4, 160)
        rows = study.rows_for(arm, pairs_of(160))
        assert made.schedule.steps == 20 and made.schedule.prompts * 20 == len(rows)
        assert made.learners["policy"].optimiser == pl.AdamW(lr=1e-4, warmup=3)
    assert len(study.LOSSES) == 11


def test_labelled_rows_turn_with_their_pair():
    (pair,) = study.flipped(pairs_of(1), 1.0, 0)
    rows = study.rows_for("kto", [pair])
    assert [(final_answer(r["response"]) == r["answer"], r["right"]) for r in rows] == [(False, True), (True, False)]


def test_the_rate_with_most_right_answers_is_chosen_and_of_equal_ones_the_smaller():
    tuning = {
        f"{length}/{arm}/{rate:g}/9000": {"rate": rate, "greedy": g}
        for arm, by in {"dpo": {1e-5: 0.4, 3e-5: 0.6, 1e-4: 0.5}, "ipo": {1e-5: 0.5, 3e-5: 0.5, 1e-4: 0.4}}.items()
        for rate, g in by.items()
        for length in study.LENGTHS
    }
    assert study.best_rates({"tuning": tuning}) == {"dpo": 3e-5, "ipo": 1e-5}


def results_with(gain, seeds=range(5), arms=tuple(study.LOSSES)):
    """Cells whose arms differ from dpo by `gain` (by arm) and noise of blocks that all arms share."""
    cells, starts = {}, {}
    for length in study.LENGTHS:
        for seed in seeds:
            level = 0.5 + 0.01 * seed
            starts[f"{length}/{seed}"] = {"greedy": level, "sampled": level, "pairs": 160,
                                          "blind": {"length": 0.5, "answer line": 0.5}}  # fmt: skip
            for arm in arms:
                for flips in study.DECLARED["flips"]:
                    own = 0.002 * math.sin(len(arm) * (seed + 1))  # no two arms alike to the last digit
                    value = level + gain.get(arm, 0.0) + own
                    cells[f"{length}/{arm}/{flips:g}/{seed}"] = {"greedy": value, "sampled": value, "rate": 1e-4}
    return {"cells": cells, "starts": starts, "tuning": {}}


def test_verdicts_follow_the_declared_rule():
    results = results_with({"cpo": 0.1, "kto": -0.1, "orpo": 0.004})
    rows = {x.split(" | ")[0]: x for x in page.arms_table(results, 0.0).splitlines()}
    assert rows["| cpo"].endswith(", better |") and ", above |" in rows["| cpo"]
    assert rows["| kto"].endswith(", worse |") and ", below |" in rows["| kto"]
    assert rows["| simpo"].endswith(", no difference that matters |")
    assert rows["| dpo"].endswith("|  |")
    text = page.conclusions(results)
    assert "Not complete" not in text and "better: cpo +0.1" in text and "worse: kto -0.1" in text


def test_a_missing_block_makes_everything_a_trial():
    results = results_with({"cpo": 0.1})
    del results["cells"]["long/aot/0/4"]
    text = page.arms_table(results, 0.0)
    assert "trial: 9 of 10 blocks" in text and "better" not in text and "above" not in text
    assert "better" in page.arms_table(results, 0.2)
    assert page.conclusions(results).startswith("- **Not complete:** 1 of the 330 declared cells")


def test_seeds_that_were_not_declared_are_not_counted():
    results = results_with({}, seeds=[0, 9000])
    assert len(page.column(results, "dpo", 0.0)) == 2 == len(page.starts(results))


def test_the_page_has_what_the_results_say():
    text = page.PAGE.read_text()
    results = json.loads((page.HERE / "results.json").read_text())
    assert fill_marks(text, page.made_parts(results)) == text, "python -m benchmarks.losses.page"
