"""The accuracy of a ranking."""

import math

import numpy as np
from palaestra.rewards.probe import accuracy


def test_accuracy_of_ranking():
    score, label = np.array([3.0, 1.0, 2.0]), np.array([1.0, 0.0, 0.0])
    assert accuracy([(score, label)]) == 1 and accuracy([(-score, label)]) == 0
    assert accuracy([(np.zeros(3), label)]) == 0.5 and math.isnan(accuracy([(score, np.ones(3))]))
