"""MATH-Beyond: unsolved problems, expansion against a second draw of the start, and what is said of it."""

import json

import palaestra as pl
import pytest
from palaestra.cli.main import main
from palaestra.recipes.analysis import math_beyond as beyond
from palaestra.recipes.analysis.math_beyond.report import example, how_often, shortened


def items(*rights):
    return [
        {
            "id": str(i),
            "right": [bool(x) for x in r],
            "texts": ["t"] * len(r),
            "rewards": list(r),
            "tokens": [4 + 2 * x for x in r],
            "cut": [not x for x in r],
            "prompt": "p",
            "gold": "1",
        }
        for i, r in enumerate(rights)
    ]


def report(first, again, after):
    return beyond.BeyondStart(n=2).report(items(*first), items(*again), items(*after))


def test_the_bound_of_the_catalogue():
    """0 of 1,024: p <= .0029212; and p = .001 still gives pass@1024 = .641029."""
    assert beyond.bound(1024) == pytest.approx(0.0029212, abs=1e-7)
    assert beyond.bound(1) == pytest.approx(0.95)


def test_expansion_is_measured_against_a_second_draw():
    """Problems 0 to 3 are unsolved at first; the start solves 1 of them when drawn again, the model 3: 1/2 more."""
    first = [(0, 0)] * 4 + [(1, 0)] * 2
    again = [(1, 0), (0, 0), (0, 0), (0, 0), (1, 1), (0, 0)]
    after = [(1, 1), (1, 0), (0, 1), (0, 0), (0, 0), (0, 0)]
    numbers = report(first, again, after).numbers
    assert numbers["unsolved"] == 4 and numbers["expansion"].mean == pytest.approx(0.5)
    assert numbers["expansion_rate"].mean == 0.75 and numbers["expansion_rate_of_start"].mean == 0.25
    # of problems 4 and 5 the start drawn again misses one, the model both
    assert numbers["lost"].mean == pytest.approx(0.5)
    # shares of right answers: 1/2 0 0 0 1 0 before, 1 1/2 1/2 0 0 0 after
    assert numbers["changed"] == pytest.approx((0.5 + 0.5 + 0.5 + 0 + 1 + 0) / 6)
    assert numbers["sharper"].mean == pytest.approx(0.5 / 6)


def test_a_model_with_the_starts_weights_is_the_start():
    same = [(1, 0), (0, 0), (0, 1)]
    numbers = report([(0, 0), (0, 0), (1, 1)], same, same).numbers
    assert numbers["changed"] == numbers["expansion"].mean == numbers["lost"].mean == 0


MANY = 40


@pytest.mark.parametrize(
    "first, again, after, said",
    [
        ([(0, 0)] * MANY, [(0, 0)] * MANY, [(1, 1)] * MANY, "Expansion"),
        ([(1, 0)] * MANY + [(0, 0)], [(1, 0)] * MANY + [(0, 0)], [(1, 1)] * MANY + [(0, 0)], "Sharpening"),
        ([(1, 1)] * MANY + [(0, 0)], [(1, 1)] * MANY + [(0, 0)], [(0, 0)] * MANY + [(0, 0)], "Worse"),
        ([(0, 0)] * MANY, [(0, 0)] * MANY, [(0, 0)] * MANY, "No difference"),
        ([(1, 1)] * MANY, [(1, 1)] * MANY, [(1, 1)] * MANY, "These problems cannot tell"),
    ],
)
def test_the_answer_comes_first(first, again, after, said):
    findings = report(first, again, after).findings
    assert findings[0].startswith(said) and len(findings) in (3, 4)
    assert findings[-1].startswith("Who guesses among 1 answer is right 100.0% of the time")
    assert any("never solved in 2 answers" in line for line in findings) == (said != "These problems cannot tell")


def test_the_page_says_which_problems_moved_and_how_long_answers_are():
    """Right answers have 6 tokens here, and wrong ones 4, which are cut."""
    first = [(0, 0), (1, 1), (1, 0)]
    tables = {t.title: t for t in report(first, first, [(1, 0), (0, 0), (1, 0)]).tables}
    assert [tuple(r)[:2] for r in tables["Which were gained and lost"].rows] == [("gained", "0"), ("lost", "1")]
    assert tuple(tables["Which were gained and lost"].rows[0])[3:] == ("1", "t", "t")
    assert [tuple(r) for r in tables["How long the answers are"].rows] == [
        ("start", "5.0", "6.0", "3 of 6"),
        ("model", "4.7", "6.0", "4 of 6"),
    ]
    assert "Which were gained and lost" not in {t.title for t in report(first, first, first).tables}
    assert len(shortened("a\n" * 300)) == 203 and shortened(" a\n b ") == "a b"


def test_where_none_was_gained_or_lost_those_that_changed_most_are_shown():
    """Shares 1/2 to 1, 1 to 1/2, and 1/2 to 1/2, which did not change."""
    first, after = [(1, 0), (1, 1), (1, 0)], [(1, 1), (1, 0), (0, 1)]
    tables = {t.title: t for t in report(first, first, after).tables}
    assert [tuple(r)[:2] for r in tables["Which changed most"].rows] == [("+50 points", "0"), ("−50 points", "1")]
    assert "Which changed most" not in {t.title for t in report(first, first, first).tables}


def test_an_example_is_a_right_answer_where_there_is_one():
    assert example({"texts": ["a", "b"], "right": [False, True]}) == "b"
    assert example({"texts": ["a", "b"], "right": [False, False]}) == "a"


def seen_report(seen):
    """Two problems of which the model learned one: 0 to 1 of 2 answers there, and 1 to 1 on the other."""
    first, after = items((0, 0), (1, 0)), items((1, 0), (1, 0))
    return beyond.BeyondStart(n=2).report(first, first, after, seen=seen)


def test_problems_that_the_model_was_trained_on_stand_apart():
    report = seen_report([True, False])
    assert "trained on 1 of these 2 problems; on the other 1 one answer is right +0.0 points" in report.findings[0]
    table = next(t for t in report.tables if t.title == "How often one answer is right")
    assert [(r[0], r[1], r[2].split()[0], r[3].split()[0], r[4].split()[0]) for r in table.rows] == [
        ("all", "2", "25.0%", "50.0%", "+25.0"),
        ("trained on", "1", "0.0%", "50.0%", "+50.0"),
        ("not trained on", "1", "50.0%", "50.0%", "+0.0"),
    ]
    assert [x["trained"] for x in report.items] == [True, False]


def test_a_loss_is_said_without_a_minus_sign():
    assert (
        how_often(pl.stats.Interval(mean=-0.25, low=-0.4, high=0.1, n=8)) == "+25.0 points (−10.0 to +40.0) less often"
    )


def test_nothing_is_said_of_training_that_is_not_known_or_had_other_problems():
    assert "trained" not in " ".join(seen_report([]).findings + seen_report([False, False]).findings)
    assert "trained on all of these" in seen_report([True, True]).findings[0]
    assert len(seen_report([]).tables[0].rows) == 1


def test_several_starts_have_a_union_and_an_intersection():
    a, b = items((0, 0), (0, 0), (1, 1)), items((0, 0), (1, 0), (0, 0))
    (table,) = beyond.starts_table([a, b])
    assert [tuple(row) for row in table.rows] == [
        ("base", "2"),
        ("base 2", "2"),
        ("at least one of them", "3"),
        ("all of them", "1"),
    ]
    assert beyond.starts_table([a]) == []


def test_own_rows_and_the_problems_that_stay(tmp_path):
    """A user's file, and what no start solves as rows for the next run."""
    rows = [{"prompt": f"What is {a} + 1?", "answer": str(a + 1)} for a in range(4)]
    rows += [{"prompt": "Which town?", "answer": "Ulm an der Donau"}]
    file = tmp_path / "own.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    out = tmp_path / "out"
    words = ["problems=5", "samples=2", "also=tiny-agent"]
    ask = ["study", "math-beyond", "--base", "tiny", "--data", str(file)]
    assert main([*ask, "--model", "tiny", "--out", str(out), *words]) == 0
    found = json.loads((out / "study.json").read_text())
    assert found["numbers"]["changed"] == 0 and found["tables"][-1]["title"] == "Problems never solved"
    kept = [json.loads(x) for x in (out / "unsolved.jsonl").read_text().splitlines()]
    assert {"prompt", "answer"} <= kept[0].keys() and "Ulm an der Donau" in [r["answer"] for r in kept]
    assert pl.open(out).summary["findings"] == found["findings"]


def test_numbers_that_say_nothing_are_refused():
    with pytest.raises(pl.UserError, match="samples"):
        beyond.build(samples=1)
