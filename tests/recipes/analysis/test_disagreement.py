"""Disagreement of annotators: measures by hand, labels in answers, and items of a user."""

import json
import math

import numpy as np
import palaestra as pl
import pytest
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.recipes.analysis import disagreement as study
from palaestra.recipes.analysis.disagreement.measures import (
    DisagreementScore,
    distance,
    majority_f1,
    named_label,
    varcorr,
    variance,
)
from palaestra.recipes.analysis.disagreement.report import tell
from palaestra.types import Message, Task


def binary(*ps):
    return np.array([[1 - p, p] for p in ps])


ASK = ["study", "disagreement", "--model", "tiny-agent", "--base", "tiny-agent"]
P = binary(0, 0.4, 0.5, 1)


def test_measures_of_the_catalogue():
    """p = (0, .4, .5, 1): q = (.1, .3, .5, .9) has VarCorr .985501 and is .075 away; the collapsed q .999584 and .20."""
    near, far = binary(0.1, 0.3, 0.5, 0.9), binary(0, 0.05, 0.95, 1)
    assert varcorr(P, near) == pytest.approx(0.985501, abs=1e-6)
    assert np.mean(distance(P, near)) == pytest.approx(0.075)
    assert varcorr(P, binary(0, 0.05, 0.95, 1)) is not None
    assert varcorr(P, far) == pytest.approx(0.999584, abs=1e-6)
    assert np.mean(distance(P, far)) == pytest.approx(0.2)


def test_what_does_not_vary_has_no_correlation():
    assert varcorr(P, binary(0, 1, 0, 1)) is None and varcorr(binary(1), binary(1)) is None


def test_the_majority():
    """Of three clear items the model has two right: F1 of "no" 2/3, of "yes" 2/3; the tie is left out."""
    q = binary(0.1, 0.6, 0.9, 1)
    f1, n = majority_f1(P, q)
    assert n == 3 and f1 == pytest.approx(2 * 1 / 3 * 0.5 + 2 * 1 / 3 * 0.5 + 0) == pytest.approx(2 / 3)
    assert math.isnan(majority_f1(binary(0.5), binary(0.5))[0])


def test_three_labels():
    """1/2 (|.5 - .2| + |.5 - .2| + |0 - .6|) = .6, and sum p (1 - p) = .5."""
    p, q = np.array([[0.5, 0.5, 0.0]]), np.array([[0.2, 0.2, 0.6]])
    assert distance(p, q) == pytest.approx([0.6]) and variance(p) == pytest.approx([0.5])


def test_halves():
    """yes yes no no: neighbours in the circle differ by 1, 0, 1, 0; the odd one out of three is dropped in turn."""
    assert study.halves_distance(["yes", "yes", "no", "no"], ["no", "yes"]) == pytest.approx(0.5)
    assert study.halves_distance(["yes", "yes", "no"], ["no", "yes"]) == pytest.approx(2 / 3)
    assert study.halves_distance(["yes"] * 4, ["no", "yes"]) == 0
    assert math.isnan(study.halves_distance(["yes"], ["no", "yes"]))


@pytest.mark.parametrize(
    "text, label",
    [
        ("fair", "fair"),
        ("  Fair. ", "fair"),
        ("I think it is fair", "fair"),
        ("not fair", "not fair"),
        ("It is not fair!", "not fair"),
        ("unfair", None),
        ("fair or not fair or odd", None),
        ("", None),
        ("**odd**", "odd"),
        ("<think>It may be odd or fair.</think>fair", "fair"),
        ("Not odd, I think.\nAnswer: fair", "fair"),
        ("Is it odd? No. The answer is **not fair**.", "not fair"),
        ("odd or fair: \\boxed{fair}", "fair"),
        ("fair, not fair", None),
    ],
)
def test_labels_in_answers(text, label):
    assert named_label(text, ["fair", "not fair", "odd"]) == label


@pytest.mark.parametrize(
    "text, labels, label",
    [
        ("1 or 10", ["1", "10"], None),
        ("10", ["1", "10"], "10"),
        ("It is a 1.", ["1", "10"], "1"),
        ("No. I am not sure", ["no", "not sure"], None),
        ("I am not sure, really", ["no", "sure", "not sure"], "not sure"),
    ],
)
def test_a_label_inside_another_is_told_by_its_place(text, labels, label):
    assert named_label(text, labels) == label


def test_spellings_of_a_label_are_one():
    """Of "No", "no", "no", "yes" no is 3/4; what is empty or null is no label."""
    items = [task(1, ("No", "no", "no", "yes", "", None)), task(2, (" YES ",))]
    shares, labels = study.shares_of(items)
    assert labels == ["YES", "no"] and [list(p) for p in shares] == [[0.25, 0.75], [1.0, 0.0]]
    assert study.annotation_remarks(items) == [
        "2 annotations are empty and left out",
        "labels that differ in upper and lower case are one: 'No' = 'no', 'YES' = 'yes'",
    ]
    assert study.annotation_remarks([task(1, ("yes", "no"))]) == []
    assert study.halves_distance(["No", "", "no"], ["no", "yes"]) == 0


def test_shares_of_answers():
    assert study.sampled_shares(["yes", "Yes.", "no", "what?"], ["no", "yes"]).tolist() == pytest.approx([1 / 3, 2 / 3])
    assert study.sampled_shares(["what?"], ["no", "yes"]) is None


@pytest.mark.parametrize(
    "text, shares",
    [
        ("no: 25%\nyes: 75%", [0.25, 0.75]),
        ("- Yes: 30 %, no: 30%", [0.5, 0.5]),
        ("yes: 150%\nno: 0%", [0.0, 1.0]),
        ("yes: 80%", None),
        ("yes: 0%, no: 0%", None),
        ("about half", None),
    ],
)
def test_stated_percentages(text, shares):
    found = study.stated_shares(text, ["no", "yes"])
    assert found is None if shares is None else found.tolist() == pytest.approx(shares)


def task(i, said):
    return Task(id=str(i), prompt=(Message(role="user", content=f"Is {i} much?"),), meta={"annotations": said})


def test_items_are_shown_with_what_annotators_said():
    asked = study.AskedItems([task(1, ("yes", "no")), task(2, ("no",))], 1, ["no", "yes"])
    text = asked.task("test", 0).prompt[0].content
    assert asked.split_size("test") == 1 and text.startswith("Is 1 much?\nyes, no\n\nIs 2 much?\n")
    assert text.endswith("no: N%, yes: N%")
    assert study.AskedItems([task(1, ("yes",))], 0, ()).task("test", 0).prompt[0].content == "Is 1 much?"


@pytest.mark.parametrize("said, why", [([()], "has no annotations"), ([("yes",), ("yes",)], "nobody disagrees")])
def test_items_without_disagreement_are_refused(said, why):
    with pytest.raises(UserError, match=why):
        study.shares_of([task(i, each) for i, each in enumerate(said)])


def test_a_better_majority_can_hide_a_worse_picture():
    worse = pl.stats.Interval(mean=0.1, low=0.05, high=0.15, n=9)
    low, high = (DisagreementScore(0.5, d, f, 9) for d, f in ((0.1, 0.6), (0.2, 0.8)))
    assert "a better majority score hides it" in tell(low, high, worse, [0.1], {"policy": 2})[0]
    assert tell(high, low, worse, [], {})[0].startswith("Training made the picture of annotators worse:")
    assert tell(low, high, worse, [0.1], {"policy": 2})[-1].startswith("2 items had no answer")


def test_what_is_too_small_or_equal_is_not_told_as_hidden():
    """At a difference of 0, and where F1 is 0 before and after, nothing is hidden."""
    some = DisagreementScore(0.5, 0.2, 0.0, 9)
    tiny = pl.stats.Interval(mean=0.0001, low=0.00005, high=0.00015, n=9)
    assert tell(some, some, tiny, [], {})[0].startswith("No difference of over 0.005")
    worse = pl.stats.Interval(mean=0.1, low=0.05, high=0.15, n=9)
    assert tell(some, some, worse, [], {})[0].startswith("Training made the picture of annotators worse: ")
    better = pl.stats.Interval(mean=-0.1, low=-0.15, high=-0.05, n=9)
    assert tell(some, some, better, [], {})[0].startswith("Training made the picture of annotators better")


@pytest.fixture
def films(tmp_path):
    said = [["good", "bad", "good"], ["bad", "bad"], ["good", "bad"], ["good"] * 3, ["bad", "good"]]
    rows = [{"prompt": f"Film {i}: good or bad?", "annotations": x} for i, x in enumerate(said)]
    file = tmp_path / "films.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return [*ASK, "--data", str(file), "--out", str(tmp_path / "out")]


def test_what_can_be_seen_is_told_of_the_items_that_there_are(films, capsys):
    """z = 1.960 + .842, times .2 / sqrt 5 = .251; and not of the 200 asked for."""
    assert main([*films, "read=scored"]) == 0
    assert "with 5 items a difference of 0.251 in the distance" in capsys.readouterr().err


def test_more_shots_than_items_are_refused_first(films, capsys):
    assert main([*films, "items=9", "shots=4"]) == 2
    assert "shots=4 of 5 items leaves 1 to measure" in capsys.readouterr().err


def test_the_toy_is_what_it_says():
    """At a = b half of the annotators say yes; far apart nearly all agree; the demonstration is one of them."""
    tasks = [pl.toys.Opinions(annotators=5).task("train", i) for i in range(400)]
    gap = {t.id: int(t.prompt[0].content.split()[0]) - int(t.prompt[0].content.split()[2][:-1]) for t in tasks}
    yes = lambda some: np.mean([a == "yes" for t in some for a in t.meta["annotations"]])
    assert 0.35 < yes([t for t in tasks if abs(gap[t.id]) < 12]) < 0.65
    assert yes([t for t in tasks if gap[t.id] > 60]) > 0.9 > 0.1 > yes([t for t in tasks if gap[t.id] < -60])
    for t in tasks[:20]:
        said = t.meta["annotations"]
        assert said.count(t.answer) >= said.count("no" if t.answer == "yes" else "yes")


def test_items_of_a_user(tmp_path, capsys):
    said = [["good", "bad", "good"], ["bad", "bad"], ["good", "bad"], ["good"] * 3, ["bad", "good"]]
    rows = [{"prompt": f"Film {i}: good or bad?", "annotations": x} for i, x in enumerate(said)]
    file, out = tmp_path / "films.jsonl", tmp_path / "out"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    ask = ["study", "disagreement", "--model", "tiny-agent", "--base", "tiny-agent", "--data", str(file), "items=5"]
    status = main([*ask, "samples=3", "--max-tokens", "8", "--out", str(out)])
    told = capsys.readouterr().err
    assert status == 0 or "items were answered with one of the labels (bad, good)" in told


def test_probabilities_of_labels_are_those_of_whole_answers():
    """With one label of twice the model's probability of the other; a long label is no less likely for its length alone."""
    from palaestra.models.load import load

    model = load("tiny")
    (q_K,) = study.scored_shares(model, [task(7, ("a",))], ["no", "yes"])
    pairs, _ = pl.run.spell_texts(
        model, [pl.run.WrittenText(x, (Message(role="user", content="Is 7 much?"),)) for x in ("no", "yes")]
    )
    no, yes = (float(x.sum()) for x in pl.models.score_pairs(model, pairs))
    assert q_K.tolist() == pytest.approx([1 / (1 + math.exp(yes - no)), 1 / (1 + math.exp(no - yes))])
