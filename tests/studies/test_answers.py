"""Answers of a study: equal after a stop, the same random numbers for two models, and files that can be read."""

import json
from dataclasses import replace
from pathlib import Path

import palaestra as pl
import pytest
from palaestra.api import studying
from palaestra.api.studying import studies
from palaestra.catalogue import CHECKS
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.settings.fields import Settings
from palaestra.studies import items as module
from palaestra.studies.glance import verdict

ASK = ["study", "math-beyond", "--model", "tiny", "--base", "tiny-agent", "--task", "add", "problems=5", "samples=3"]
RIGHT = {"id": "a", "right": [True, False, False, True], "rewards": [1.0, 0.0, 0.0, 1.0], "texts": ["x"] * 4}


def item(**given):
    return {**RIGHT, **given}


def test_a_study_that_was_stopped_finds_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PART", 2)
    assert main([*ASK, "--out", str(tmp_path / "whole")]) == 0
    whole, asked = module._item, []

    async def breaks(*given):
        asked.append(given[3])
        if len(asked) == 8:
            raise KeyboardInterrupt
        return await whole(*given)

    monkeypatch.setattr(module, "_item", breaks)
    assert main([*ASK, "--out", str(tmp_path / "cut")]) != 0
    assert len(list((tmp_path / "cut" / "kept").iterdir())) == 4, "three parts of the first draw, one of the second"
    monkeypatch.setattr(module, "_item", whole)
    assert main([*ASK, "--out", str(tmp_path / "cut")]) == 0
    for name in ("items.jsonl", "study.json", "study.html"):
        assert (tmp_path / "cut" / name).read_text() == (tmp_path / "whole" / name).read_text()


def test_another_study_is_not_mixed_with_it(tmp_path, capsys):
    out = ["--out", str(tmp_path / "a")]
    assert main([*ASK, *out]) == 0
    made = (tmp_path / "a" / "study.json").stat().st_mtime_ns
    assert main([*ASK, *out]) == 0, "it is told again"
    assert (tmp_path / "a" / "study.json").stat().st_mtime_ns == made
    assert main([*ASK[:-1], "samples=4", *out]) == 2
    assert "its samples is 3, not 4; name another folder" in capsys.readouterr().err


def test_shares_and_pass_at_k():
    """2 of 4 right: pass@1 1/2, pass@2 1 - C(2,2)/C(4,2) = 5/6, and k above the samples counts all of them."""
    assert pl.studies.right_shares([item()]) == [0.5]
    assert pl.studies.passed([item()], 2) == pytest.approx([5 / 6])
    assert pl.studies.passed([item()], 9) == [1.0]
    assert pl.studies.quality([item(), item(right=[True] * 4)]) == [0.5, 1.0]
    assert pl.studies.quality([item(right=[None] * 4, rewards=[0.2, 0.4, 0.6, 0.8])]) == pytest.approx([0.5])
    assert str(pl.studies.quality([item(right=[], rewards=[], texts=[])])) == "[nan]"


@pytest.mark.parametrize("right, why", [([], "all its samples failed"), ([None, True], "nobody says which is right")])
def test_problems_without_a_verdict_are_named(right, why):
    with pytest.raises(UserError, match=f"problem 'a': {why}; this study needs answers that are right or wrong"):
        pl.studies.right_shares([item(right=right)])


def test_rows_for_data(tmp_path):
    pl.studies.keep_rows(tmp_path / "rows.jsonl", [{"id": "a", "prompt": "2 + 2?", "gold": "4", "texts": []}])
    assert json.loads((tmp_path / "rows.jsonl").read_text()) == {"id": "a", "prompt": "2 + 2?", "answer": "4"}


def test_the_start_of_a_run_is_known(tmp_path):
    folder = tmp_path / "run" / "checkpoints" / "step-2"
    folder.mkdir(parents=True)
    (tmp_path / "run" / "config.toml").write_text('model = "tiny-agent"\n')
    assert pl.studies.start_of(str(folder)) == "tiny-agent"
    assert pl.studies.start_of("tiny") == pl.studies.start_of(str(tmp_path)) == ""


def test_without_a_start_it_is_asked_for(tmp_path, capsys):
    assert main([*ASK[:4], "--task", "add", "--out", str(tmp_path / "a")]) == 2
    assert "tiny is compared with what it was before training; name that: base=DIR" in capsys.readouterr().err


def test_what_can_be_seen_is_told_of_the_problems_that_there_are(tmp_path, capsys):
    """Of 3 rows, (1.960 + .842) sqrt(.2 / 3) = .723, whatever number is asked for."""
    file = tmp_path / "own.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"{a} + 1 = ?", "answer": str(a + 1)}) + "\n" for a in range(3)))
    ask = [*ASK[:6], "--data", str(file), "problems=128", "samples=2"]
    assert main([*ask, "--out", str(tmp_path / "a")]) == 0
    assert "with 3 problems a difference of 72 points" in capsys.readouterr().err


def test_what_is_no_study_is_refused(tmp_path, capsys):
    assert main(["study", "grpo", "--out", str(tmp_path / "a")]) == 2
    assert "grpo is no study; " in capsys.readouterr().err
    assert main(["study", "--model", "tiny"]) == 2
    assert "name one study, or all" in capsys.readouterr().err
    assert main(["study", "all", "nothing=3", "--task", "add", "--out", str(tmp_path / "a")]) == 2
    assert "no study of the check-up takes 'nothing'" in capsys.readouterr().err


def test_the_list_says_what_each_answers(capsys):
    assert main(["study", "--list"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "math-beyond * Did training reach problems that the start never solves?" in lines
    assert "backtracking + How many back-steps before RL are best for this model and problem?" in lines


def test_the_check_up_is_one_page(tmp_path, capsys):
    out = tmp_path / "all"
    words = ["problems=3", "samples=2", "temperatures=[0.5]", "best_of=0", "questions=8", "statements=64", "layers=[2]"]
    assert (
        main(["study", "all", "--model", "tiny", "--base", "tiny-agent", "--task", "add", "--out", str(out), *words])
        == 0
    )
    page = (out / "study.html").read_text()
    told = capsys.readouterr().out
    for name in ("math-beyond", "rlhf-diversity", "calibration", "forgetting", "sawmil"):
        first = json.loads((out / name / "study.json").read_text())["findings"][0]
        assert f'<a href="{name}/study.html">' in page and first in told
    glance = next(t for t in json.loads((out / "study.json").read_text())["tables"] if t["title"] == "At a glance")
    assert [r[0].split(":")[0] for r in glance["rows"]] == [
        "accuracy", "pass@k", "diversity", *(["diversity lost beyond what a colder start loses"] * (len(glance["rows"]) - 8)),
        "calibration error", "confidence less share of right answers", "forgetting", "forgetting", "probes",
    ]  # fmt: skip
    assert all("(" in r[1] and r[2] for r in glance["rows"]), "each has its interval and what it says"
    assert (out / "chart-4.png").is_file() and "Right answers by confidence" in page


def test_what_an_interval_says():
    x = lambda low, high: pl.stats.Interval(mean=(low + high) / 2, low=low, high=high, n=9)
    assert verdict(x(-0.1, 0.1), 1) == verdict(x(0, 0.1), 1) == "no change is seen"
    assert [verdict(x(0.1, 0.2), way) for way in (1, -1, 0)] == ["better", "worse", "more"]
    assert [verdict(x(-0.2, -0.1), way) for way in (1, -1, 0)] == ["worse", "better", "less"]


def test_a_check_up_without_a_model_trains_the_built_in_one_first(tmp_path, monkeypatch):
    """Which is then compared with what it began with."""
    asked = []

    def trained(settings, out, talk):
        asked.append((settings.recipe, settings.task, settings.steps, dict(settings.set)))
        return replace(settings, model="tiny-agent", set={"base": "tiny", **settings.set}, task="count")

    monkeypatch.setattr(studying, "train_embedded", trained)
    monkeypatch.setattr(studying, "make_study", lambda settings, out, talk: asked.append(settings.recipe) or out)
    report = {"findings": ["x"], "question": "?", "protocol": {}, "numbers": {}, "tables": [], "charts": []}
    monkeypatch.setattr(studying, "read_report", lambda folder: report)
    studying.check_up(Settings(recipe="grpo", set={"probes": False}), tmp_path, talk=False)
    assert asked[0][0] == "grpo" and {*asked[1:]} == {"math-beyond", "rlhf-diversity", "calibration", "forgetting"}
    asked.clear()
    studying.check_up(Settings(recipe="grpo", task="add", set={"base": "tiny"}), tmp_path, talk=False)
    assert "math-beyond" in asked and asked[-1] == "sawmil" and len(asked) == 5, "and nothing is trained"


def test_a_check_up_of_pairs_says_what_it_needs_before_a_model_is_loaded(tmp_path, monkeypatch):
    """Named, or those that the run of the model was trained on; and goes on where something says what is right."""
    data = tmp_path / "pairs.jsonl"
    rows = [{"prompt": f"{n}+1", "chosen": str(n + 1), "rejected": "no"} for n in range(8)]
    data.write_text("".join(json.dumps(r) + "\n" for r in rows))
    run, asked = tmp_path / "run", []
    monkeypatch.setattr(studying, "run_of", lambda model: run if model == "trained" else None)
    monkeypatch.setattr(studying, "stored_run", lambda place: Settings(recipe="dpo", data=str(data)))
    monkeypatch.setattr(studying, "make_study", lambda settings, out, talk: asked.append(settings.recipe) or out)
    monkeypatch.setattr(
        studying,
        "read_report",
        lambda folder: {"findings": ["x"], "question": "?", "protocol": {}, "numbers": {}, "tables": [], "charts": []},
    )
    start = Settings(recipe="grpo", model="trained", set={"probes": False})
    for settings in (start, replace(start, model="other", data=str(data))):
        with pytest.raises(UserError, match=r"no answer, and the check-up asks which.*--columns chosen=answer"):
            studying.check_up(settings, tmp_path / "out", talk=False)
    assert not asked
    given = {"columns": "chosen=answer", "reward": "exact"}
    for name, value in given.items():
        studying.check_up(replace(start, data=str(data), **{name: value}), tmp_path, talk=False)
    assert len(asked) == 8


def test_the_page_names_all_studies():
    page = (Path(__file__).parents[2] / "docs" / "studies.md").read_text()
    for name, study in studies().items():
        place = f"#{name}" if name in CHECKS else f"methods/{name}.md"
        assert f"| [{name}]({place}) | {study.question} |" in page
