"""Diversity of texts by hand, and the power of a study."""

import math

import numpy as np
import palaestra as pl
import pytest
from palaestra.studies import diversity

GOING = [["i", "am", "going"], ["i", "am", "going"], ["lets", "go", "i", "i"]]


def test_single_words_of_the_catalogue(monkeypatch):
    """5 different words of 10; 10 draws of 50,257 words give 9.9991 different ones, of 10 words 6.5132."""
    monkeypatch.setattr(diversity, "LONGEST", 1)
    assert pl.studies.distinct_ngrams(GOING, 50257) == pytest.approx(0.500045, abs=1e-6)
    assert pl.studies.distinct_ngrams(GOING, 10) == pytest.approx(0.767670, abs=1e-6)


def test_longer_ones_are_averaged():
    """(a b c): 3 words, 2 pairs, 1 triple, all different, of 4 possible; lengths 4 and 5 have none."""
    expected = [4 * (1 - 0.75**n) for n in (3, 2, 1)]
    by_hand = np.mean([3 / expected[0], 2 / expected[1], 1 / expected[2]])
    assert pl.studies.distinct_ngrams([(1, 2, 3)], 4) == pytest.approx(by_hand)


def test_equal_and_empty_texts():
    """C equal texts of one token: 1 / C, nearly; an empty text is a token of its own."""
    assert pl.studies.distinct_ngrams([(7,)] * 5, 10**6) == pytest.approx(1 / 5, abs=1e-5)
    assert pl.studies.distinct_ngrams([(), ()], 10**6) == pytest.approx(1 / 2, abs=1e-5)
    assert pl.studies.distinct_ngrams([()], 1) == 1
    with pytest.raises(ValueError, match="no texts"):
        pl.studies.distinct_ngrams([], 5)


def test_spread():
    """cos((1,2,2), (2,1,2)) = 8/9; of opposite vectors it is 2, of equal ones 0."""
    assert pl.studies.spread(np.array([[1.0, 2, 2], [2, 1, 2]])) == pytest.approx(1 / 9)
    assert pl.studies.spread(np.array([[1.0, 0], [-3, 0]])) == pytest.approx(2)
    assert pl.studies.spread(np.array([[1.0, 1], [2, 2], [3, 3]])) == pytest.approx(0)
    with pytest.raises(ValueError, match="fewer than two"):
        pl.studies.spread(np.ones((1, 2)))


def test_power():
    """(1.95996 + 0.84162) sqrt(.2 / 200) = .08859."""
    assert pl.studies.least_difference(200) == pytest.approx(2.801585 * math.sqrt(0.001), abs=1e-5)
    assert pl.studies.least_difference(0) == 1 and pl.studies.least_difference(1) == 1
    assert pl.studies.least_difference(800) == pytest.approx(pl.studies.least_difference(200) / 2)
