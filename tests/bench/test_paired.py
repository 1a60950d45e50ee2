"""What studies say of arms over the same seeds."""

import pytest
from benchmarks import paired


def test_holm_steps_down_and_stops_at_the_first_that_stands():
    assert paired.holm({"a": 0.01, "b": 0.02, "c": 0.04}) == {"a": True, "b": True, "c": True}
    assert paired.holm({"a": 0.01, "b": 0.03, "c": 0.04}) == {"a": True, "b": False, "c": False}
    assert paired.holm({"a": 0.03, "b": 0.001}) == {"a": True, "b": True}
    assert paired.holm({"a": 0.03, "b": 0.04}) == {"a": False, "b": False}


def test_p_of_the_paired_test():
    """Differences 1, 2, 3: t = 2 / (1 / sqrt 3) = 3.464 with 2 degrees of freedom, p = 0.0742."""
    assert paired.p_of([1.0, 2.0, 3.0]) == pytest.approx(0.0742, abs=1e-4)
    assert paired.p_of([0.0, 0.0]) == 1.0 and paired.p_of([0.125, 0.125]) == 0.0 and paired.p_of([0.5]) == 1.0
    assert paired.p_of([0.125, -0.125]) == pytest.approx(1.0)


def test_verdicts():
    each = {
        "up": [0.2, 0.21, 0.19, 0.2],
        "down": [-0.2, -0.21, -0.19, -0.2],
        "same": [0.01, -0.01, 0.01, -0.01],
        "wide": [0.3, -0.3, 0.2, 0.1],
    }
    assert paired.verdicts(each, 4, "more", "less", 0.03, "seeds") == {
        "up": "more",
        "down": "less",
        "same": "no difference that matters",
        "wide": "not decided",
    }


def test_one_missing_value_makes_all_a_trial():
    said = paired.verdicts({"a": [1.0, 1.1, 1.0], "b": [1.0, 1.1]}, 3, "more", "less", 0.1, "seeds")
    assert said == {"a": "trial: 3 of 3 seeds", "b": "trial: 2 of 3 seeds"}
    text = paired.summed_up("x", {"a": [1.0, 1.1, 1.0], "b": [1.0, 1.2]}, said, 3, "seeds")
    assert text == "Compared with x, a trial of 2 of 3 seeds: b +1.100, a +1.033."


def test_a_correction_over_more_arms_asks_for_more():
    """p = 0.0286: sure alone, not among three."""
    gains = [0.1, 0.2, 0.3, 0.1, 0.02]
    assert 0.02 < paired.p_of(gains) < 0.05
    alone = paired.verdicts({"a": gains}, 5, "more", "less", 0.01, "seeds")
    three = paired.verdicts({"a": gains, "b": [0.3, -0.3] * 2 + [0.1], "c": [0.3, -0.3] * 2 + [0.1]},
                            5, "more", "less", 0.01, "seeds")  # fmt: skip
    assert alone["a"] == "more" and three["a"] == "not decided"


def test_only_what_both_have_is_paired():
    assert paired.gains_over({1: 0.5, 2: 0.75}, {2: 0.25, 3: 1.0}) == [0.5]
