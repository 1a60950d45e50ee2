"""Linear probes: against the condition of their optimum, by hand, and against labels that say nothing."""

import numpy as np
import pytest
from palaestra.models.inside.activation import activations
from palaestra.models.inside.probe import fit_probe
from palaestra.models.load import load


def test_two_points_by_hand():
    """x = -1, +1: by symmetry W' = (-w, w), b = 0, and the optimum has ridge w = 1 - sigmoid(2 w)."""
    probe = fit_probe(np.array([[-1.0], [1.0]]), ["no", "yes"], ridge=0.1)
    w = probe.weight_CD[1, 0]
    assert probe.weight_CD[0, 0] == pytest.approx(-w) and probe.bias_C == pytest.approx([0, 0], abs=1e-7)
    assert 0.1 * w == pytest.approx(1 / (1 + np.exp(2 * w)), abs=1e-7)
    assert probe.predict(np.array([[-3.0], [0.2]])) == ["no", "yes"]
    assert np.exp(probe.logp(np.array([[0.0], [5.0]]))).sum(1) == pytest.approx([1, 1])


def test_the_optimum_has_no_slope():
    rng = np.random.default_rng(0)
    x, y = rng.normal(3, 5, (60, 4)), rng.integers(0, 3, 60)
    probe, z = fit_probe(x, y.tolist(), ridge=0.05), (x - x.mean(0)) / x.std(0)
    miss = np.exp(probe.logp(x)) - np.eye(3)[y]
    weight = probe.weight_CD * x.std(0)
    assert np.abs(miss.T @ z / 60 + 0.05 * weight).max() < 1e-6 and np.abs(miss.mean(0)).max() < 1e-6


def test_the_balanced_optimum_is_of_means_over_classes():
    """The bias has no slope where each example counts 1 / n of its class."""
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(50, 2)), np.array([0] * 40 + [1] * 7 + [2] * 3)
    probe = fit_probe(x, y.tolist(), ridge=0.05, balanced=True)
    miss = np.exp(probe.logp(x)) - np.eye(3)[y]
    assert np.abs((miss / np.bincount(y)[y][:, None]).sum(0)).max() < 1e-6 < 1e-2 < np.abs(miss.mean(0)).max()


def test_what_the_model_knows_and_what_nobody_does():
    """The last digit that a model has read, from its states, on numbers that the probe has not seen."""
    rng, model = np.random.default_rng(1), load("tiny")
    numbers = rng.choice(900, 160, replace=False) + 100
    states, last = activations(model, [f"{n}" for n in numbers], [2])[:, 0], [int(n) % 10 for n in numbers]
    shuffled = rng.permutation(last).tolist()
    assert fit_probe(states[:120], last[:120]).accuracy(states[120:], last[120:]) > 0.95
    assert fit_probe(states[:120], shuffled[:120]).accuracy(states[120:], shuffled[120:]) < 0.4


def test_one_class_is_no_probe():
    for labels in ([1, 1], [1, 2, 3]):
        with pytest.raises(ValueError, match="labels of"):
            fit_probe(np.eye(2), labels)
