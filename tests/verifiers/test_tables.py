"""Metrics of tables, by hand. Values of scikit-learn 1.5's user guide where it has one."""

import math

import pytest
from palaestra.verifiers.tables import TABLE_METRICS, position_score

from tests.recipes.objectives.helpers import near

CASES = [
    ("accuracy", ["a", "b", "b", "c"], ["a", "b", "c", "c"], 0.75),
    ("accuracy", ["1.0", " x"], ["1", "x "], 1.0),
    # 2 hits of 3 said and 3 there: 4 / 6
    ("f1", ["1", "1", "1", "0"], ["1", "1", "0", "1"], 2 / 3),
    ("f1", ["0", "0"], ["1", "1"], 0.0),
    # of a: 1 hit, 1 said, 2 there; of b: 1 hit, 2 said, 1 there; of c: none
    ("macro_f1", ["a", "b", "b"], ["a", "a", "b"], (2 / 3 + 2 / 3) / 2),
    # the example of sklearn.metrics.roc_auc_score and of its guide
    ("auc", ["0.1", "0.4", "0.35", "0.8"], ["0", "0", "1", "1"], 0.75),
    ("auc", ["0.5", "0.5"], ["no", "yes"], 0.5),
    ("auc", ["0.1", "0.9"], ["1", "1"], 0.5),
    # the example of sklearn.metrics.log_loss: probabilities of "spam" .1, .9, .8, .35
    ("logloss", ["0.1", "0.9", "0.8", "0.35"], ["ham", "spam", "spam", "ham"], 0.21616),
    ("logloss", ["0", "0"], ["1", "0"], 34.538776 / 2),  # -log 1e-15
    # the examples of sklearn.metrics.mean_absolute_error and its like: y = 3, -.5, 2, 7; a = 2.5, 0, 2, 8
    ("mae", ["2.5", "0.0", "2", "8"], ["3", "-0.5", "2", "7"], 0.5),
    ("rmse", ["2.5", "0.0", "2", "8"], ["3", "-0.5", "2", "7"], math.sqrt(0.375)),
    ("r2", ["2.5", "0.0", "2", "8"], ["3", "-0.5", "2", "7"], 0.948608),
    ("rmsle", ["2.5", "5", "4", "8"], ["3", "5", "2.5", "7"], 0.199),
]


@pytest.mark.parametrize(("name", "given", "answers", "value"), CASES)
def test_by_hand(name, given, answers, value):
    assert TABLE_METRICS[name].score(given, answers) == near(value, 1e-3 if name == "rmsle" else 2e-5)


def test_a_better_submission_scores_better():
    right = {"label": ["1", "0", "1"], "chance": ["0.9", "0.1", "0.8"], "number": ["1", "0", "1"]}
    wrong = {"label": ["0", "0", "0"], "chance": ["0.2", "0.7", "0.1"], "number": ["3", "2", "0"]}
    for name, m in TABLE_METRICS.items():
        good, bad = (m.score(x[m.predicts], ["1", "0", "1"]) for x in (right, wrong))
        assert (good > bad) == m.higher, name


@pytest.mark.parametrize("name", ["rmse", "mae", "rmsle", "r2", "auc", "logloss"])
def test_what_is_no_number_is_said(name):
    for bad in ("nan", "inf", "cat", ""):
        with pytest.raises(ValueError, match="is no number"):
            TABLE_METRICS[name].score([bad, "1"], ["1", "0"])


def test_probabilities_and_logarithms_have_bounds():
    with pytest.raises(ValueError, match="from 0 to 1"):
        TABLE_METRICS["logloss"].score(["1.1", "0"], ["1", "0"])
    with pytest.raises(ValueError, match="above -1"):
        TABLE_METRICS["rmsle"].score(["-1", "0"], ["1", "0"])


def test_places_on_a_leaderboard_as_in_the_catalogue():
    board = (0.95, 0.9, 0.85, 0.8, 0.7)
    for score, position in ((0.97, 1), (0.95, 1), (0.86, 0.6), (0.7, 0.2), (0.1, 0)):
        assert position_score(score, board, True) == near(position), score
    assert position_score(0.3, (0.1, 0.2, 0.3, 0.4), False) == 0.5
    assert position_score(0.86, (0.7, 0.95, 0.8, 0.9, 0.85), True) == near(0.6)  # in any order
