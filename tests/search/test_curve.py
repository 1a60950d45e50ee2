"""Accuracy against generated tokens: equal budgets, intervals, and who always stands beside."""

import json
from pathlib import Path

import palaestra as pl
import pytest
from palaestra.cli.main import main
from palaestra.search.curve import draw
from palaestra.stats import paired_share_difference, proportion
from PIL import Image


@pytest.fixture(scope="module")
def curve(tmp_path_factory):
    out = tmp_path_factory.mktemp("curve")
    found = pl.search.accuracy_curve(task="chain", strategies=["weighted"], budget=64, n=6, out=out)
    return found, out


def test_best_of_n_and_majority_always_stand_beside(curve):
    found, _ = curve
    assert list(found["curves"]) == ["weighted (oracle)", "best-of-n (oracle)", "majority"]
    assert {name: c["oracle"] for name, c in found["curves"].items()} == {
        "weighted (oracle)": True, "best-of-n (oracle)": True, "majority": False,
    }  # fmt: skip
    assert found["budgets"] == [8, 16, 32, 64]
    for each in found["curves"].values():
        assert [p["budget"] for p in each["points"]] == [p["tokens"] for p in each["points"]] == [8, 16, 32, 64]


def test_each_point_is_the_search_with_that_budget(curve):
    """What a smaller budget gives is cut from what a larger one sampled, and no other than it would be alone."""
    found, out = curve
    for at, budget in enumerate(found["budgets"]):
        alone = pl.search.run(task="chain", strategy="majority", budget=budget, n=6)
        folder = out / "search" / f"majority-{budget}"
        assert list(map(json.loads, (folder / "answers.jsonl").read_text().splitlines())) == alone["answers"]
        point = found["curves"]["majority"]["points"][at]
        right = sum(x["solved"] for x in alone["answers"])
        expected = proportion(right, 6)
        assert (point["mean"], point["low"], point["high"], point["n"]) == (
            expected.mean, expected.low, expected.high, 6,
        )  # fmt: skip


def test_the_difference_is_paired_by_problem(curve):
    found, out = curve
    solved = {
        name: [json.loads(x)["solved"] for x in (out / "search" / f"{name}-64" / "answers.jsonl").open()]
        for name in ("majority", "best-of-n")
    }
    expected = paired_share_difference(*([float(x) for x in solved[n]] for n in ("majority", "best-of-n")))
    assert found["curves"]["best-of-n (oracle)"]["above majority"] == expected.json()
    assert "above majority" not in found["curves"]["majority"]


def test_with_a_reward_model_the_oracle_is_drawn_as_what_can_be_reached(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("def brief(prompts, completions):\n    return [-len(c) for c in completions]\n")
    found = pl.search.accuracy_curve(
        task="chain", strategies=["best-of-n"], budget=24, n=3, reward_model="mine.py:brief", out="out"
    )
    assert {name: c["oracle"] for name, c in found["curves"].items()} == {
        "best-of-n": False, "majority": False, "best-of-n (oracle)": True,
    }  # fmt: skip
    ends = {name: c["points"][-1]["mean"] for name, c in found["curves"].items()}
    assert ends["best-of-n (oracle)"] >= max(ends.values())


def test_oracles_are_drawn_dashed_and_named(curve, tmp_path, monkeypatch):
    found, out = curve
    drawn = []
    monkeypatch.setattr("palaestra.search.curve.save", lambda figure, path: drawn.append(figure))
    draw(found, tmp_path / "x.png")
    axes = drawn[0].axes[0]
    styles = {c.get_label(): c.lines[0].get_linestyle() for c in axes.containers}
    assert styles == {"weighted (oracle)": "--", "best-of-n (oracle)": "--", "majority": "-"}
    assert [t.get_text() for t in axes.get_legend().get_texts()] == list(styles)
    assert [t.get_text() for t in axes.get_xticklabels()] == ["8", "16", "32", "64"]
    with Image.open(out / "curve.png") as picture:
        assert picture.size[0] > 1000


def test_the_command_says_accuracy_and_where_the_picture_is(curve, capsys):
    """In the same folder nothing is searched again."""
    found, out = curve
    argv = ["eval", "--task", "chain", "--n", "6", "--budget", "64", "--with", "weighted", "--out", str(out)]
    before = {p: p.stat().st_mtime_ns for p in out.glob("search/*/answers.jsonl")}
    assert main(argv) == 0
    text = capsys.readouterr().out
    assert "best-of-n (oracle)\n          8 tokens" in text and f"picture: {out}/curve.png" in text
    assert before == {p: p.stat().st_mtime_ns for p in out.glob("search/*/answers.jsonl")} and len(before) == 12
    assert main([*argv, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["curves"] == found["curves"]


def test_flags_of_a_search_need_one(capsys):
    assert main(["eval", "--budget", "64"]) == 2
    assert "--budget and --reward-model belong to a search; add --with NAME" in capsys.readouterr().err


def test_without_answers_there_is_no_accuracy(tmp_path):
    with pytest.raises(pl.UserError, match="no accuracy can be measured"):
        pl.search.accuracy_curve(data=[{"prompt": "1+1"}, {"prompt": "1+2"}], strategies=["majority"], budget=8)
