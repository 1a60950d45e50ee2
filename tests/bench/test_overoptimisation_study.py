"""The study of over-optimisation: KL and gold of best of n, the ways that are compared, and what its page says."""

import json
import math
from itertools import product

import numpy as np
import palaestra as pl
import pytest
from benchmarks.overoptimisation import page, study
from palaestra.markdown import fill_marks


def test_chances_of_the_best_are_those_of_all_draws():
    scores = np.array([0.3, 2.0, -1.0, 0.3])
    for n in (1, 2, 3):
        chance = np.zeros(4)
        for drawn in product(range(4), repeat=n):
            top = [i for i in range(4) if scores[i] == max(scores[j] for j in drawn)]
            chance[top] += 1 / len(top) / 4**n
        assert study.chances_of_best(scores, n) == pytest.approx(chance)


def test_the_kl_of_the_best_is_below_its_closed_form_and_reaches_it_where_answers_differ():
    scores = np.arange(4096.0)
    texts = [str(i) for i in range(4096)]
    for n in (1, 4, 16):
        assert study.kl_of_best(scores, texts, n) == pytest.approx(study.closed_form(n), abs=0.01)
    alike = ["a" if i >= 2048 else "b" for i in range(4096)]
    assert study.kl_of_best(scores // 2048, alike, 16) == pytest.approx(math.log(2), abs=1e-3)
    assert study.closed_form(1) == 0 and study.closed_form(4) == pytest.approx(math.log(4) - 0.75)


def test_a_proxy_that_is_wrong_lowers_gold_and_one_that_is_right_raises_it():
    gold = np.array([[1.0, 0.0, 1.0, 0.0]])
    texts = [["a", "b", "c", "d"]]
    right, wrong = (study.best_curve(s * gold + np.arange(4) * 0.01, gold, texts) for s in (1, -1))
    assert [p["at"] for p in right] == study.DECLARED["best of"]
    assert right[0]["gold"] == wrong[0]["gold"] == 0.5 and right[-1]["gold"] > 0.99 and wrong[-1]["gold"] < 0.01
    assert right[0]["kl"] == 0 and right[-1]["proxy"] > right[0]["proxy"]


def test_learned_ways_have_as_many_answers_steps_and_the_same_rate():
    for way in study.LEARNED:
        made = study.recipe_of(way)
        assert (made.schedule.prompts, made.schedule.steps) == (16, 24) and made.collect.links[0].n == 4
        assert made.learners["policy"].optimiser == pl.AdamW(lr=study.DECLARED["learned"]["rate"], warmup=3)


def test_the_kl_of_a_model_to_itself_is_zero():
    tasks = study.source("gold-test")
    held = study.unlike(tasks, "test", 3)
    prompts, made = study.sample("tiny", held, 2, ("test",))
    assert study.rises("tiny", prompts, made) == pytest.approx([0.0] * 6, abs=1e-3)
    gold = study.gold_rewards(tasks, held, [[f"= {t.answer}", "= x"] for t in held])
    assert gold.tolist() == [[1.0, 0.0]] * 3


def test_cells_that_are_there_are_not_run_again(tmp_path, monkeypatch):
    file, ran = tmp_path / "results.json", []

    class Block:
        def __init__(self, folder, seed):
            self.seed, self.facts = seed, {"pairs": 2}

        def run(self, way):
            ran.append((way, self.seed))
            return [{"at": 0, "kl": 0.0}]

    monkeypatch.setattr(study, "Block", Block)
    study.run_seed(file, 0, ["ppo"])
    for seed in (0, 0, 1):
        study.run_seed(file, seed)
    assert ran == [("ppo", 0), ("best of n", 0), ("dpo", 0), *((w, 1) for w in study.WAYS)]
    assert set(json.loads(file.read_text())["cells"]) == {f"{w}/{s}" for w in study.WAYS for s in (0, 1)}


def curve(golds, kls, proxies, bounds=None):
    return [
        {"at": at, "kl": k, "gold": g, "proxy": x, **({"closed form": study.closed_form(at)} if bounds else {})}
        for at, (g, k, x) in enumerate(zip(golds, kls, proxies, strict=True), 1)
    ]


def results_with(seeds=range(5)):
    """PPO rises and falls below the start; DPO and best of n rise."""
    cells, starts = {}, {}
    for seed in seeds:
        e = 0.01 * math.sin(seed + 1)
        starts[f"{seed}"] = {"pairs": 64, "ranked right": 0.6 + e}
        for way, golds, kls in (
            ("best of n", (0.5, 0.55, 0.6), (0.0, 0.6, 1.2)),
            ("dpo", (0.5, 0.6, 0.62), (0.0, 1.0, 3.0)),
            ("ppo", (0.5, 0.55, 0.2 + e), (0.0, 1.0, 9.0)),
        ):
            golds = [golds[0] + e, *(g + 1.5 * e for g in golds[1:])]
            cells[f"{way}/{seed}"] = {"points": curve(golds, kls, (0.0, 1.0, 2.0 + e), way == "best of n")}
    return {"cells": cells, "starts": starts}


def test_the_rule_names_what_is_over_optimised():
    text = page.conclusions(results_with())
    assert "gold below it):** ppo." in text and "Not complete" not in text
    assert "**At 1 nats**" in text and "At 0.5 nats" in text
    partial = page.conclusions(results_with(range(3)))
    assert partial.startswith("- **Not complete:** 9 of the 15") and "gold below it):** no verdict yet." in partial


def test_gold_at_a_kl_is_on_the_line_between_points():
    points = curve((0.5, 0.7, 0.3), (0.0, 1.0, 3.0), (0, 0, 0))
    assert page.at_kl(points, 0.5) == pytest.approx(0.1) and page.at_kl(points, 2.0) == pytest.approx(0.0)
    assert page.at_kl(points, 4.0) is None


def test_the_page_has_what_the_results_say():
    text = page.PAGE.read_text()
    results = json.loads((page.HERE / "results.json").read_text())
    assert fill_marks(text, page.made_parts(results)) == text, "python -m benchmarks.overoptimisation.page"
    assert page.PICTURE.read_text() == page.picture(results), "python -m benchmarks.overoptimisation.page"
