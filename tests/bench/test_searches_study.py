"""The study of searches: its problems, its pairs, and what its page says of numbers."""

import json
import math

import numpy as np
import palaestra as pl
import pytest
from benchmarks.searches import page, study
from palaestra.markdown import fill_marks
from palaestra.types import Message

EACH = (*page.SINGLE.values(), *study.STRATEGIES, study.ORACLE)


def task(prompt):
    return pl.Task(id=prompt, prompt=(Message(role="user", content=prompt),), answer="3")


def right(text, task):
    return text.endswith(f"= {task.answer}")


def test_blocks_have_problems_of_their_own():
    for name in study.TASKS:
        one, other = (study.unlike(study.source(name, f"search-{name}-{seed}"), "test", 8) for seed in (0, 1))
        prompts = [{t.prompt[0].content for t in each} for each in (one, other)]
        assert len(prompts[0]) == len(prompts[1]) == 8 and prompts[0] != prompts[1]


def test_pairs_are_right_and_wrong_answers_to_one_problem():
    texts = [["1\n= 3", "1\n= 4", " "], ["= 3", "= 3"], ["= 5", "= 6"], ["= 2", "= 3"]]
    pairs = study.pairs_of([task(f"p{i}") for i in range(4)], texts, right, 9, np.random.default_rng(0))
    assert {p["prompt"]: (p["chosen"], p["rejected"]) for p in pairs} == {
        "p0": ("1\n= 3", "1\n= 4"),
        "p3": ("= 3", "= 2"),
    }
    assert len(study.pairs_of([task("a"), task("b")], [["= 3", "= 1"]] * 2, right, 1, np.random.default_rng(0))) == 1


def test_beginnings_are_equally_many_lines_that_differ():
    pairs = [{"prompt": "p", "chosen": "a\nb\nc\n= 3", "rejected": "a\nx\n= 4"},
             {"prompt": "q", "chosen": "= 3", "rejected": "= 4"},
             {"prompt": "r", "chosen": "\n= 3", "rejected": "x\n= 4"}]  # fmt: skip
    assert study.beginnings(pairs, np.random.default_rng(0)) == [{"prompt": "p", "chosen": "a\nb", "rejected": "a\nx"}]


def test_single_answers_are_drawn_once():
    found = [
        pl.search.run("tiny", task="chain", strategy=kind(), budget=48, n=3, max_tokens=24)
        for kind in (study.Greedy, study.Sampled)
    ]
    assert [x["candidates"] for x in found] == [1.0, 1.0] and all(x["most_tokens"] <= 24 for x in found)
    assert not any(x["oracle"] for x in found)


def test_tokens_that_were_spent_leave_single_answers_out(tmp_path):
    for name, tokens in (("beam-scored-64", 63), ("majority-scored-32", 32), ("Greedy-scored-64", 4)):
        (tmp_path / "search" / name).mkdir(parents=True)
        (tmp_path / "search" / name / "answers.jsonl").write_text(json.dumps({"tokens": tokens}) + "\n")
    assert study.spent_by(tmp_path) == [round(63 / 64, 4), 1.0]


def test_blocks_that_are_there_are_not_run_again(tmp_path, monkeypatch):
    file, asked = tmp_path / "results.json", []

    def run_block(folder, *block):
        asked.append(block)
        return {"strategies": {}}

    monkeypatch.setattr(study, "run_block", run_block)
    for seeds in (["0"], ["0", "1"]):
        monkeypatch.setattr(
            "sys.argv", ["study", "--out", str(file), "--models", "tiny", "--tasks", "bool", "--seeds", *seeds]
        )
        study.main()
    assert asked == [("bool", "tiny", 0), ("bool", "tiny", 1)]
    assert list(json.loads(file.read_text())["blocks"]) == ["bool/tiny/0", "bool/tiny/1"]


def results_with(gain, models=("tiny",), seeds=range(5)):
    """Blocks whose strategies differ from the majority vote by `gain` at the whole budget."""
    blocks = {}
    for model in models:
        for name in study.TASKS:
            for seed in seeds:
                level = 0.5 + 0.01 * seed
                value = lambda s, level=level, seed=seed: (
                    level + gain.get(s, 0.0) + 0.002 * math.sin(len(s) * (seed + 1))
                )
                blocks[f"{name}/{model}/{seed}"] = {
                    "pairs": 160, "beginnings": 90, "ranked right": 0.7,
                    "least and most tokens over the budget": [1.0, 1.0],
                    "strategies": {s: {"accuracy": [0.3, 0.35, 0.4, value(s)], "tokens": [1] * 4} for s in EACH},
                }  # fmt: skip
    return {"blocks": blocks}


def test_verdicts_follow_the_declared_rule():
    results = results_with({"beam": 0.1, "mcts": -0.1, page.GREEDY: -0.2})
    rows = {x.split(" | ")[0]: x for x in page.strategies_table(results, "chain", "tiny").splitlines()}
    assert rows["| beam"].endswith(", better |") and rows["| mcts"].endswith(", worse |")
    assert rows["| weighted"].endswith(", no difference that matters |") and ", above |" in rows["| weighted"]
    assert rows["| majority"].endswith("|  |") and rows[f"| {page.GREEDY}"].count("|  ") >= 4
    text = page.conclusions(results)
    assert text.startswith("- **Not complete:** 15 of the 45 declared blocks are run.") and "better: beam +0.1" in text


def test_a_missing_seed_leaves_a_trial_and_undeclared_seeds_are_not_counted():
    results = results_with({"beam": 0.1}, seeds=[0, 1, 2, 3, 9000])
    text = page.strategies_table(results, "chain", "tiny")
    assert "trial: 4 of 5 seeds" in text and "better" not in text
    assert len(page.column(results, "chain", "tiny", "beam")) == 4


def test_the_picture_has_a_panel_of_each_task_with_seeds():
    drawn = page.picture(results_with({"beam": 0.1}))
    assert drawn.count("<polyline") == len(study.TASKS) * (len(study.STRATEGIES) + 2)
    assert all(f"{name}, tiny" in drawn for name in study.TASKS) and "stroke-dasharray" in drawn
    assert "<polyline" not in page.picture(results_with({}, seeds=[0]))


def test_the_page_has_what_the_results_say():
    text = page.PAGE.read_text()
    results = json.loads((page.HERE / "results.json").read_text())
    assert fill_marks(text, page.made_parts(results)) == text, "python -m benchmarks.searches.page"
    assert page.PICTURE.read_text() == page.picture(results), "python -m benchmarks.searches.page"
    for block in results["blocks"].values():  # budgets equal to 1%
        least, most = block["least and most tokens over the budget"]
        assert least == pytest.approx(1, abs=0.01) and most == pytest.approx(1, abs=0.01)
