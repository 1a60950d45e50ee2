"""Pictures: what they show, and that odd runs do not break them."""

import math
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from matplotlib.image import imread
from palaestra.stats import Interval, proportion
from palaestra.store.folder import evaluations_of
from palaestra.view.drawing import MOST_TOLD, percent, series, short_number, smooth
from palaestra.view.plots import compare, curve, curve_svg, diverging_colour, token_weights

from tests.synthetic import metrics


def width_of(path):
    return imread(path).shape[1]


def words(svg):
    return {e.text for e in ET.fromstring(svg).iter() if e.tag.endswith("text")}


def test_a_curve_is_drawn_for_900_pixels_twice_as_fine(tmp_path):
    records = metrics(30)
    curve(records, tmp_path / "curve.png", evaluations=evaluations_of(records), title="grpo on chain: $x_1$")
    assert width_of(tmp_path / "curve.png") == 1800


def test_the_curve_tells_before_and_after():
    records = metrics(30)
    found = words(curve_svg(records, evaluations=evaluations_of(records)))
    assert {
        "24%",
        "95%",
        "reward of the training batch",
        "answer length, tokens",
        "entropy, nats a token",
        "step",
    } <= found
    without = [{k: v for k, v in r.items() if k != "entropy"} for r in records]
    assert "answers cut off" in words(curve_svg(without))


def test_points_tell_their_numbers():
    """What is pointed at: each step of every panel, and each evaluation with its interval; no number for what is none."""
    records = [{"step": i, "reward": math.nan if i == 2 else i / 10, "length": 3.0 * i} for i in range(1, 5)]
    svg = curve_svg(records, evaluations=[(0, proportion(1, 4)), (4, proportion(3, 4))])
    told = re.findall(r"<use [^>]*><title>([^<]*)</title></use>", svg)
    reward = [f"step {i}: reward of the training batch {i / 10:g}" for i in (1, 3, 4)]
    assert [t for t in told if "reward" in t] == reward
    assert [t for t in told if "length" in t] == [f"step {i}: answer length, tokens {3 * i}" for i in range(1, 5)]
    held = [t for t in told if "held out" in t]
    assert len(held) == 2 and held[1].startswith("step 4: 75% held out, 95% interval 30% to 95%")
    assert "points=" not in svg and "point=" not in svg
    many = [{"step": i, "reward": 0.5} for i in range(MOST_TOLD + 1)]
    assert "<title>" not in curve_svg(many)


def test_a_picture_inside_a_page_takes_its_colours():
    svg = curve_svg(metrics(5), evaluations=[(0, proportion(1, 9))])
    assert svg.startswith("<svg") and "<script" not in svg and "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", svg)
    assert "var(--ink)" in svg and "var(--train)" in svg and "var(--held)" in svg
    assert curve_svg(metrics(5)) == curve_svg(metrics(5))
    ids = [set(re.findall(r' id="([a-z]\w{10})"', curve_svg(metrics(5), narrow=n))) for n in (False, True)]
    assert ids[0] and not ids[0] & ids[1]  # two pictures of one page share no clip path


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize(
    "records",
    [
        [],
        [{"step": 1, "reward": 0.5}],
        [{"step": i, "reward": math.nan if i == 2 else 100.0 * i, "length": None} for i in range(1, 6)],
        [{"step": i, "reward": 0.0, "length": 4, "truncated": 0.0} for i in range(1, 4)],
    ],
)
def test_odd_runs_are_drawn(records, narrow):
    evaluations = [(0, Interval(mean=0.4, low=-math.inf, high=math.inf, n=1)), (5, proportion(5, 9))]
    assert "</svg>" in curve_svg(records, narrow=narrow)
    assert "</svg>" in curve_svg(records, evaluations=evaluations, narrow=narrow)


def test_rewards_on_another_scale_leave_accuracy_a_panel_of_its_own():
    one = [{"step": i, "reward": i / 9} for i in range(1, 6)]
    many = [{"step": i, "reward": 10.0 * i} for i in range(1, 6)]
    between = [(40, proportion(3, 9)), (0, proportion(1, 9)), (20, proportion(2, 9))]
    assert {"11%", "33%"} <= words(curve_svg(many, evaluations=between))  # in whatever order they are given
    count = [curve_svg(r, evaluations=[(0, proportion(1, 9))]).count('id="axes_') for r in (one, many)]
    assert count == [3, 4]


@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_recipes_are_compared(tmp_path, seeds):
    runs = {f"recipe-{i}": [metrics(10, after=300 + 20 * i + s) for s in range(seeds)] for i in range(10)}
    compare(runs, tmp_path / "compare.png", title="ten")
    assert width_of(tmp_path / "compare.png") == 1800


def test_runs_without_evaluation_or_steps_are_compared(tmp_path):
    steps = [r for r in metrics(10) if "reward" in r]
    compare({"a": [steps, steps[:4]], "b": [[]]}, tmp_path / "compare.png")
    assert width_of(tmp_path / "compare.png") == 1800


def test_token_weights_of_explain(tmp_path):
    groups = [[{"reward": 1}, {"turn_rewards": [0, 1]}], [{"reward": 0}]]
    result = {"advantages": [[1.0, [-1.0, -0.5]], [0.0]], "token_weights": [[[0.1] * 4, [-0.3, 0.0]], [[]]]}
    token_weights(groups, result, tmp_path / "weights.png", title="grpo")
    assert width_of(tmp_path / "weights.png") == 1800


def test_smoothing_keeps_constants_and_neither_lags_nor_overshoots():
    assert smooth(np.full(9, 3.0)) == pytest.approx(np.full(9, 3.0))
    y = smooth(np.arange(100.0))
    assert y[40:60] == pytest.approx(np.arange(40.0, 60.0))
    assert y.min() >= 0 and y.max() <= 99
    assert len(smooth(np.array([]))) == 0


def test_numbers_as_people_write_them():
    assert [percent(x) for x in (0.0, 0.004, 0.24, 0.951, 0.994, 1.0, math.nan)] == [
        "0%",
        "0.4%",
        "24%",
        "95%",
        "99.4%",
        "100%",
        "?",
    ]
    assert [short_number(x) for x in (1, -0.5, [2.0, 2.0], [1, -3], 0.33333)] == ["1", "−0.5", "2", "−3 to 1", "0.333"]
    assert diverging_colour(1)[2] > diverging_colour(1)[0] and diverging_colour(-1)[0] > diverging_colour(-1)[2]
    x, y = series([{"a": 1, "b": 2}, {"a": 2}, {"a": 3, "b": math.nan}], "a", "b")
    assert (x.tolist(), y.tolist()) == ([1.0], [2.0])
