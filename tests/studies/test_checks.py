"""Calibration, forgetting and probes of the check-up, one template for all models, and guesses beside."""

import json
import math
import shutil

import numpy as np
import palaestra as pl
import pytest
from palaestra.cli.main import main
from palaestra.models.embedded import FOLDERS
from palaestra.studies.checks import calibration, forgetting
from palaestra.studies.confidence import calibration_error, error_difference, error_interval, voted
from palaestra.studies.power import least_shift
from palaestra.studies.statements import plain_statements


def test_the_calibration_error_by_hand():
    """Bins (.9, 1]: three sure, two right; (.4, .5]: two half sure, one right; (.1, .2]: one at .2, right.

    3/6 |2/3 - 1| + 2/6 |1/2 - .5| + 1/6 |1 - .2| = 1/6 + 0 + .8/6 = .3
    """
    assert calibration_error([1, 1, 1, 0.5, 0.5, 0.2], [1, 1, 0, 1, 0, 1]) == pytest.approx(0.3)
    assert calibration_error([0.0, 0.0], [0, 0]) == 0
    # .3 lies in (.2, .3] and .31 in (.3, .4]: together they would cancel
    assert calibration_error([0.3, 0.31], [1, 0]) == pytest.approx((0.7 + 0.31) / 2)
    assert calibration_error([0.3, 3 / 10], [1, 0]) == pytest.approx(0.2)


@pytest.mark.parametrize("given", [([], []), ([0.5], [1, 0]), ([1.2], [1])])
def test_what_is_no_confidence_is_refused(given):
    with pytest.raises(ValueError, match="confidences between 0 and 1"):
        calibration_error(*given)


def test_an_ideal_model_shows_an_error_too():
    """Of one answer that is half sure the error is always .5; with 4,000 of them it is near 0."""
    interval, ideal = error_interval([0.5], [1], ("one",))
    assert interval.mean == interval.low == interval.high == ideal == 0.5
    right = (np.arange(4000) % 2).tolist()
    interval, ideal = error_interval([0.5] * 4000, right, ("many",))
    assert interval.mean == 0 and 0 < ideal < 0.02


def test_a_model_that_did_not_change_differs_by_nothing():
    one = ([0.9, 0.4, 0.7], [1, 0, 1])
    x = error_difference(one, one, ("same",))
    assert x.mean == x.low == x.high == 0
    report = calibration.CalibrationStudy().report({"start": one, "model": one})
    assert report.numbers["more_sure"].mean == report.numbers["changed"] == 0
    assert "not seen to be calibrated better or worse" in report.findings[0]


def test_a_model_that_is_sure_and_wrong_is_seen():
    sure = ([1.0] * 60, [1.0, 0.0] * 30)
    fair = ([0.5] * 60, [1.0, 0.0] * 30)
    report = calibration.CalibrationStudy().report({"start": fair, "model": sure})
    assert report.findings[0].startswith("The model is overconfident and calibrated worse than its start")
    assert report.numbers["ece"].mean == report.numbers["more_ece"].mean == report.numbers["more_sure"].mean == 0.5
    assert report.numbers["more_brier"].mean == 0.25, "(1 - 1/2) / 1 less 1/4"
    back = calibration.CalibrationStudy().report({"start": sure, "model": fair})
    assert "calibrated better than its start" in back.findings[0]


def test_the_most_frequent_answer_votes():
    """ "= 4" three times of five, as a last line in any case; of equally frequent ones the first."""
    item = {"texts": ["2+2=4\n= 4", "= 4", "= 5", " = 4 ", "= 6"], "right": [True, True, False, True, False]}
    assert voted(item) == (0.6, 1.0)
    assert voted({"texts": ["a", "b"], "right": [False, True]}) == (0.5, 0.0)


def test_least_shift_by_hand():
    """(1.95996 + .84162) / sqrt(100) = .28016 sd; of an sd of 2 twice that."""
    assert least_shift(100) == pytest.approx(0.280158, abs=1e-5)
    assert least_shift(100, 2.0) == pytest.approx(0.560317, abs=1e-5)
    assert least_shift(0) == math.inf


def questions(n=4):
    ask = lambda i: (pl.Message(role="user", content=f"q{i}"),)
    return [
        forgetting.OtherQuestion(id=str(i), kind="a" if i < 3 else "b", prompt=ask(i), answer=f"x{i}") for i in range(n)
    ]


def test_options_are_answers_of_the_same_kind():
    some = questions()
    options = forgetting.options_of(some, 0)
    assert [x[0] for x in options] == ["x0", "x1", "x2", "x3"]
    assert {*options[0]} == {"x0", "x1", "x2"} and options[3] == ["x3"], "nobody else is of its kind"
    assert options == forgetting.options_of(some, 0)


def test_likelihood_and_choice_by_hand():
    """Right answers at -1 and -2 become -2 and -2: -.5 nats. The first was chosen and is no more."""
    some, options = questions()[:2], [["x0", "x1"], ["x1", "x0"]]
    scores = {"start": [[-1.0, -1.5], [-2.0, -1.0]], "model": [[-2.0, -1.5], [-2.0, -1.0]]}
    report = forgetting.Forgetting().report(some, options, scores, {}, {})
    assert report.numbers["likelihood"].mean == -0.5 and report.numbers["changed"] == 0.5
    assert report.numbers["choice"].mean == -0.5 and report.numbers["chance"] == 0.5
    assert "cannot show that choices were forgotten" in report.findings[1], "1 of 2 is what guessing gets"
    same = forgetting.Forgetting().report(some, options, {"start": scores["start"], "model": scores["start"]}, {}, {})
    assert same.numbers["likelihood"].mean == same.numbers["choice"].mean == 0


def test_common_knowledge_is_of_all_kinds_and_of_its_own():
    some = forgetting.common_knowledge(64)
    assert len(some) == len({q.id for q in some}) == 64 and len({q.kind for q in some}) == 5


def test_words_of_plain_statements_do_not_tell_which_are_true():
    """Each country, city and sum stands as often in a true statement as in a false one."""
    rows = plain_statements()
    assert {r["answer"] for r in rows} == {"true", "false"} and {r["domain"] for r in rows} == {"capitals", "sums"}
    assert len({r["prompt"] for r in rows}) == len(rows)
    capitals = [r for r in rows if r["domain"] == "capitals"]
    for answer in ("true", "false"):
        words = sorted(r["prompt"].split(" is ")[1] for r in capitals if r["answer"] == answer)
        assert words == sorted(r["prompt"].split(" is ")[1] for r in capitals if r["answer"] == "true")
    for r in rows:
        if r["domain"] == "sums":
            left, right = r["prompt"].split(" = ")
            assert (sum(map(int, left.split(" + "))) == int(right)) == (r["answer"] == "true")


def test_guesses_by_hand():
    """Of 4 answers: one guess is right 1/4 of the time, two 1 - (3/4)^2 = 7/16."""
    items = [{"gold": x} for x in ("a", "b", "c", "d", "a", None)]
    assert pl.studies.possible_answers(items) == 4 and pl.studies.possible_answers(items, 9) == 9
    assert pl.studies.guessed(4) == 0.25 and pl.studies.guessed(4, 2) == pytest.approx(7 / 16)
    assert pl.studies.possible_answers([{"gold": None}]) == 0 and math.isnan(pl.studies.guessed(0))


def test_the_greedy_answer_is_as_sure_as_the_model_says(tmp_path):
    ask = ["study", "calibration", "--model", "tiny", "--base", "tiny", "--task", "bool", "problems=4"]
    assert main([*ask, "confidence=probability", "--out", str(tmp_path / "a")]) == 0
    items = [json.loads(line) for line in (tmp_path / "a" / "items.jsonl").read_text().splitlines()]
    sure = [x["model"]["confidence"] for x in items]
    assert all(0 < c <= 1 for c in sure) and len({*sure}) > 1
    assert [x["start"] for x in items] == [x["model"] for x in items]


@pytest.fixture
def other(tmp_path):
    """The built-in model with a template that puts a line in front of every question."""
    folder = tmp_path / "other"
    shutil.copytree(FOLDERS["tiny"], folder)
    file = folder / "chat_template.jinja"
    file.write_text(file.read_text().replace("<|begin|>", "<|begin|><|system|>hm<|end|>"))
    return folder


ASK = ["study", "math-beyond", "--base", "tiny", "--task", "count", "problems=8", "samples=8", "--json"]


def test_one_template_is_held_for_both(tmp_path, other, capsys):
    """Equal weights with another template differ from their start, unless the template is held."""
    told = {}
    for i, template in enumerate(("own", "base", str(FOLDERS["tiny"] / "chat_template.jinja"))):
        ask = [*ASK, "--model", str(other), f"template={template}", "--out", str(tmp_path / str(i))]
        assert main(ask) == 0
        told[i] = json.loads((tmp_path / str(i) / "study.json").read_text())
    changed = [told[i]["numbers"]["changed"] for i in told]
    assert changed[0] > 0 and changed[1] == changed[2] == 0
    said = [told[i]["protocol"]["templates"] for i in told]
    assert said[0].startswith("the models' chat templates differ, and what is measured is both changes")
    assert said[1] == "one template for all models, the start's; they differ by themselves"
    assert "one template for all models" in (tmp_path / "1" / "study.html").read_text()


def test_a_template_that_cannot_be_written_is_refused(tmp_path, capsys):
    ask = [*ASK, "--model", "tiny", "--out", str(tmp_path / "a")]
    assert main([*ask, "template=nowhere.jinja"]) == 2
    assert "no such file; give own, base or a file with one" in capsys.readouterr().err


def test_a_guess_stands_beside(tmp_path):
    """8 problems of bool(d=1) have 2 answers: a guess is right half of the time, and within 8 nearly always."""
    ask = [*ASK[:5], "bool(d=1)", *ASK[6:-1], "--model", "tiny", "--out", str(tmp_path / "a")]
    assert main(ask) == 0
    told = json.loads((tmp_path / "a" / "study.json").read_text())
    assert told["numbers"]["guess"] == 0.5 and told["numbers"]["guess_within_n"] == 1 - 0.5**8
    assert "these problems say little" in told["findings"][-1]
    assert told["tables"][0]["columns"][-1] == "a guess" and told["tables"][0]["rows"][0][-1] == "50.0%"
    assert told["charts"][0]["lines"][-1]["name"] == "a guess"
