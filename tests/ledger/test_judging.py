"""From measured numbers to a verdict, by rules that can be recomputed from what a result stores."""

from dataclasses import replace
from math import isnan
from pathlib import Path

import pytest
from palaestra.errors import UserError
from palaestra.ledger.cells import CellOutcome, CellRequest
from palaestra.ledger.expectations import Greater, Needs, Same, Veto
from palaestra.ledger.judging import Measured, judge, per_seed
from palaestra.ledger.measures import Area, Balanced, Cell, Final, Less, Moving, OverMatchedStart, TokensTo
from palaestra.ledger.results import interval_of
from palaestra.settings.fields import Settings
from palaestra.stats import Interval, irregularity, mean_interval, sign_flip_interval
from palaestra.store import rollouts
from palaestra.types import Group, Reward, Task

from tests.fake import episode

BLOCKS = [range(0, 3), range(100, 103)]
EVEN = [0.0] * 6
UP = Greater("b", "a", by=0.02)


def measured(b, a=EVEN, vetoes=None, blocks=BLOCKS, **more):
    arms = {name: {"chain": list(v)} for name, v in {"a": a, "b": b, **more}.items()}
    return Measured(arms=arms, blocks=blocks, vetoes=vetoes or {})


@pytest.mark.parametrize(
    ("b", "verdict", "why"),
    [
        ([0.10, 0.11, 0.12, 0.10, 0.11, 0.12], "reproduced", ""),
        ([0.010, 0.011, 0.012, 0.010, 0.011, 0.012], "smaller", ""),
        ([-0.10, -0.11, -0.12, -0.10, -0.11, -0.12], "reversed", ""),
        ([0.001, -0.001, 0.002, -0.002, 0.001, -0.001], "not-reproduced", ""),
        ([0.2, -0.2, 0.3, -0.1, 0.2, -0.2], "inconclusive", "the interval does not decide"),
        ([-0.30, -0.31, -0.32, -0.20, 0.01, -0.1], "not-reproduced", "below 0, but not in each block of seeds"),
        ([0.3, 0.3, None, 0.3, 0.3, 0.3], "inconclusive", "not every seed of both arms has finished with a number"),
    ],
)
def test_the_interval_over_all_seeds_decides_and_each_block_must_agree(b, verdict, why):
    found = judge(UP, measured(b))
    assert (found["verdict"], found["reason"]) == (verdict, why)
    assert (found["effect"] is None) == (None in b)


def test_blocks_that_do_not_agree_leave_the_claim_open():
    blocks = [range(0, 5), range(100, 105)]
    found = judge(UP, measured([0.30, 0.31, 0.32, 0.30, 0.31, 0.05, 0.2, 0.30, -0.02, 0.25], [0.0] * 10, blocks=blocks))
    assert found["ci95"][0] > 0 > found["by_block"][1]["ci95"][0]
    assert (found["verdict"], found["reason"]) == ("inconclusive", "the blocks of seeds do not agree")


def test_effect_and_blocks_are_t_intervals_of_paired_differences():
    a, b = [0.1, 0.3, 0.2, 0.2, 0.1, 0.3], [0.3, 0.6, 0.3, 0.4, 0.2, 0.6]
    found = judge(UP, measured(b, a))
    whole = mean_interval([0.2, 0.3, 0.1, 0.2, 0.1, 0.3])
    assert found["effect"] == pytest.approx(0.2)
    assert found["ci95"] == pytest.approx([whole.low, whole.high])
    first = mean_interval([0.2, 0.3, 0.1])
    assert found["by_block"][0]["ci95"] == pytest.approx([first.low, first.high])


def test_few_seeds_and_missing_arms_leave_the_claim_open():
    short = [range(0, 2), range(100, 102)]
    assert judge(UP, measured([0.1] * 4, [0.0] * 4, blocks=short))["reason"] == "2 seeds in a block are too few"
    one = Measured(arms={"a": {"chain": EVEN}}, blocks=BLOCKS, vetoes={})
    found = judge(UP, one)
    assert (found["verdict"], found["reason"]) == ("inconclusive", "needs the arms a and b")


@pytest.mark.parametrize(
    ("b", "verdict"),
    [
        ([0.01, -0.01, 0.0, 0.01, -0.01, 0.0], "reproduced"),
        ([0.51, 0.49, 0.5, 0.51, 0.49, 0.5], "not-reproduced"),
        ([0.2, -0.2, 0.1, 0.2, -0.2, 0.1], "inconclusive"),
    ],
)
def test_an_equivalence(b, verdict):
    assert judge(Same("b", "a", within=0.1), measured(b))["verdict"] == verdict


def test_an_equivalence_needs_each_block():
    """Long blocks: the interval over all is inside +-0.1, the mean of the second is not."""
    blocks = [range(0, 40), range(100, 103)]
    b = [0.001, -0.001] * 20 + [0.101, 0.102, 0.103]
    found = judge(Same("b", "a", within=0.1), measured(b, [0.0] * 43, blocks=blocks))
    assert (found["verdict"], found["reason"]) == ("inconclusive", "the blocks of seeds do not agree")


@pytest.mark.parametrize(("fall", "verdict"), [(0.029, "reproduced"), (0.031, "not-reproduced")])
def test_a_veto_stops_what_costs_too_much(fall, verdict):
    spoken = {"accuracy": {"a": [0.9] * 6, "b": [0.9 - fall] * 6}}
    found = judge(UP, measured([0.1] * 6, vetoes=spoken), vetoes={"accuracy": Veto()})
    assert found["verdict"] == verdict
    assert ("vetoed: accuracy: -" in found["reason"]) == (verdict != "reproduced")
    assert found["said"]["accuracy"]["effect"] == pytest.approx(-fall)


def test_a_veto_may_be_against_another_arm_and_is_none_where_the_measure_rises():
    spoken = {"x": {"start": [0.5] * 6, "a": [0.1] * 6, "b": [0.4] * 6}}
    over_start = {"x": Veto(against="start")}
    assert judge(UP, measured([0.1] * 6, vetoes=spoken), vetoes=over_start)["verdict"] == "not-reproduced"
    assert judge(UP, measured([0.1] * 6, vetoes=spoken), vetoes={"x": Veto()})["verdict"] == "reproduced"


def test_a_veto_that_nobody_could_measure_leaves_the_claim_open():
    """A number that is missing is no fall: it does not refute."""
    unknown = {"x": {"a": [0.1] * 6, "b": [None] * 6}}
    found = judge(UP, measured([0.1] * 6, vetoes=unknown), vetoes={"x": Veto()})
    assert (found["verdict"], found["reason"]) == ("inconclusive", "x: not measured")
    assert judge(UP, measured(EVEN, vetoes=unknown), vetoes={"x": Veto()})["verdict"] == "not-reproduced"


@pytest.mark.parametrize(
    ("placebo", "said"),
    [
        ([0.0, 0.01, 0.0, 0.01, 0.0, 0.01], "needed: states"),
        ([0.1, 0.101, 0.099, 0.1, 0.101, 0.099], "not needed: states"),
        ([0.2, -0.1, 0.3, -0.1, 0.1, 0.2], "open whether it is needed: states"),
    ],
)
def test_a_placebo_says_whether_the_effect_has_the_reason(placebo, said):
    found = judge(UP, measured([0.1] * 6, placebo=placebo), (Needs("placebo", "states"),))
    assert found["said"]["placebo"]["said"] == said and found["verdict"] == "reproduced"


def test_a_program_alone_is_an_illustration():
    assert judge(UP, measured([0.1] * 6), illustration=True)["verdict"] == "illustration"


def test_two_groups_of_differences_need_the_permutation_interval_too():
    """Nine seeds gain a lot or nothing: t says above 0, the signs' permutations say so as well; with more zeros not."""
    blocks = [range(0, 5), range(100, 105)]
    found = judge(UP, measured([1.0, 1.0, 0.9, 0.0, 1.0] * 2, [0.0] * 10, blocks=blocks))
    assert found["shape"] == "two groups" and found["ci95_permutation"][0] > 0
    assert judge(UP, measured([0.1] * 6))["shape"] == ""
    few = judge(UP, measured([0.1, 0.1, 0.1, 0.11, 0.11], [0.0] * 5, blocks=[range(5)]))
    assert few["shape"] == "two groups" and "ci95_permutation" not in few and few["verdict"] == "reproduced"


def test_several_tasks_give_the_interquartile_mean():
    """Differences .1 .1 .1 .1 .2 .2 | .2 .2 .2 .2 .3 .9: a quarter of twelve is cut off each end."""
    arms = {
        "a": {t: [0.0] * 6 for t in ("one", "two")},
        "b": {"one": [0.1, 0.1, 0.1, 0.1, 0.2, 0.2], "two": [0.2, 0.2, 0.2, 0.2, 0.3, 0.9]},
    }
    found = judge(UP, Measured(arms=arms, blocks=BLOCKS, vetoes={}))
    assert found["effect"] == pytest.approx((0.1 + 0.2 * 5) / 6) and "shape" not in found


# ---- what touches, what is lost


def between(low, high, mean=None):
    return Interval(mean=(low + high) / 2 if mean is None else mean, low=low, high=high, n=10)


@pytest.mark.parametrize(
    ("effect", "block", "verdict"),
    [
        (between(0.01, 0.05, 0.02), between(0.01, 0.1), "reproduced"),  # the margin itself
        (between(0.0, 0.1), between(0.01, 0.1), "inconclusive"),  # which touches 0
        (between(0.01, 0.05), between(0.0, 0.1), "inconclusive"),
        (between(0.001, 0.019), between(0.001, 0.03), "smaller"),
        (between(0.001, 0.019), between(-0.01, 0.03), "not-reproduced"),  # below the margin, whatever the block
        (between(-0.1, 0.0), between(-0.1, -0.01), "not-reproduced"),
        (between(-0.1, -0.01), between(-0.1, 0.0), "not-reproduced"),
        (between(-0.01, 0.02), between(-0.01, 0.02), "inconclusive"),  # which touches the margin
        (between(-0.03, 0.03), between(-0.03, 0.03), "inconclusive"),
    ],
)
def test_an_interval_that_touches_does_not_lie_above_or_below(effect, block, verdict):
    agrees = between(0.001, 0.5) if effect.low >= 0 else between(-0.5, -0.001)
    assert UP.judge(effect, [agrees, block]).verdict == verdict


@pytest.mark.parametrize(
    ("effect", "block", "verdict"),
    [
        (between(-0.09, 0.09), between(-0.5, 0.5), "reproduced"),  # a block's mean counts
        (between(-0.1, 0.05), between(-0.1, 0.1), "inconclusive"),
        (between(-0.05, 0.1), between(-0.1, 0.1), "inconclusive"),
        (between(-0.05, 0.05), between(-0.3, -0.1), "inconclusive"),
        (between(-0.05, 0.05), between(0.05, 0.15), "inconclusive"),
        (between(-0.3, -0.11), between(-0.3, -0.11), "not-reproduced"),
        (between(0.1, 0.3), between(0.1, 0.3), "inconclusive"),
    ],
)
def test_an_equivalence_lies_inside_both_margins(effect, block, verdict):
    assert Same("b", "a", within=0.1).judge(effect, [between(-0.01, 0.01), block]).verdict == verdict


@pytest.mark.parametrize(
    ("fall", "speaks", "doubts"),
    [
        (between(-0.2, 0.142), False, False),  # its mean is allowed
        (between(-0.2, 0.138), False, True),
        (between(-0.2, -0.03), False, True),  # its end touches what is allowed
        (between(-0.2, -0.031), True, False),
        (between(-0.04, -0.02), False, False),  # as much as is allowed
        (between(0.05, 0.2), False, False),
        (between(float("nan"), float("nan")), False, True),
    ],
)
def test_a_veto_speaks_where_the_interval_lies_further_and_doubts_where_the_mean_does(fall, speaks, doubts):
    veto = Veto(falls=0.03)
    assert (veto.speaks(fall), veto.doubts(fall)) == (speaks, doubts)


def test_a_doubt_leaves_open_what_would_hold_and_changes_nothing_else():
    doubtful = {"x": {"a": [0.9] * 6, "b": [0.7, 0.95, 0.7, 0.95, 0.7, 0.95]}}
    found = judge(UP, measured([0.1] * 6, vetoes=doubtful), vetoes={"x": Veto()})
    assert (found["verdict"], found["reason"]) == ("inconclusive", found["said"]["x"]["said"])
    assert found["said"]["x"]["doubts"] and not found["said"]["x"]["speaks"]
    for b, verdict in (([-0.1, -0.11] * 3, "reversed"), ([0.010, 0.011, 0.012] * 2, "smaller")):
        told = judge(UP, measured(b, vetoes=doubtful), vetoes={"x": Veto()})["verdict"]
        assert told == ("inconclusive" if verdict == "smaller" else verdict)


def test_a_reason_says_where_its_arm_harms():
    """It ends below the arm that is compared with, so it takes away more than the effect."""
    harmed = measured([0.1] * 6, placebo=[-0.3, -0.31, -0.3, -0.31, -0.3, -0.31])
    said = judge(UP, harmed, (Needs("placebo", "states"),))["said"]["placebo"]["said"]
    assert said == "needed (0.305 below a without it): states"


@pytest.mark.parametrize(
    ("b", "verdict"),
    [
        ([0.010, 0.011, 0.012, 0.010, 0.011, 0.012], "not-reproduced"),  # smaller
        ([0.2, -0.2, 0.3, -0.1, 0.2, -0.2], "not-reproduced"),  # open
        ([-0.10, -0.11, -0.12, -0.10, -0.11, -0.12], "reversed"),
    ],
)
def test_one_veto_of_two_is_enough_whatever_the_effect(b, verdict):
    spoken = {"cheap": {"a": [0.5] * 6, "b": [0.5] * 6}, "dear": {"a": [0.9] * 6, "b": [0.5] * 6}}
    found = judge(UP, measured(b, vetoes=spoken), vetoes={"cheap": Veto(), "dear": Veto()})
    assert found["verdict"] == verdict and ("vetoed: dear: -" in found["reason"]) == (verdict != "reversed")


def test_a_seed_that_failed_in_either_arm_leaves_the_claim_open():
    lost = [0.0, None, 0.0, 0.0, 0.0, 0.0]
    assert judge(UP, measured([0.1] * 6, lost))["reason"] == "not every seed of both arms has finished with a number"
    placebo = judge(UP, measured([0.1] * 6, placebo=lost), (Needs("placebo", "states"),))
    assert placebo["verdict"] == "reproduced" and placebo["said"]["placebo"]["said"] == "placebo: not measured"


def test_reasons_and_vetoes_speak_also_where_a_seed_of_a_compared_arm_failed():
    lost, spoken = [0.0, None, 0.0, 0.0, 0.0, 0.0], {"x": {"a": [0.9] * 6, "b": [0.5] * 6, "c": [None] * 6}}
    asked = {"x": Veto(), "y": Veto(against="c")}
    needs = (Needs("placebo", "states"),)
    found = judge(UP, measured([0.1] * 6, lost, {**spoken, "y": spoken["x"]}, placebo=EVEN), needs, asked)
    assert found["verdict"] == "inconclusive" and found["effect"] is None
    told = {n: c["said"] for n, c in found["said"].items()}
    assert told == {
        "placebo": "needed: states",
        "x": "x: -0.4 [-0.4, -0.4], a fall of 0.03 is allowed",
        "y": "y: not measured",
    }
    found = judge(UP, measured(lost, placebo=EVEN), needs)
    assert found["said"]["placebo"]["said"] == "placebo: not measured"
    few = measured([0.1] * 2, [0.0] * 2, {"x": {"a": [0.9] * 2, "b": [0.5] * 2}}, [range(1), range(100, 101)])
    assert judge(UP, few, needs, {"x": Veto()})["said"]["x"]["said"] == "x: not measured"


@pytest.mark.parametrize(
    ("b", "placebo", "said"),
    [
        ([0.2] * 6, [0.0] * 6, "needed: states"),  # nothing is left
        ([0.2] * 6, [0.1, -0.1, 0.1, -0.1, 0.1, -0.1], "needed: states"),  # nothing certain
        ([0.2] * 6, [0.15] * 6, "adds 0.05, and 0.15 stay without it: states"),
        ([0.2] * 6, [0.2] * 6, "not needed: states"),
        ([0.2] * 6, [0.4, 0.0, 0.3, 0.1, 0.2, 0.1], "open whether it is needed: states"),
        ([0.0, 0.1, -0.1, 0.0, 0.1, -0.1], [-0.3] * 6, "no certain effect; against placebo: +0.3 [0.206, 0.394]"),
        ([-0.2] * 6, [0.1] * 6, "the effect is negative; against placebo: -0.3 [-0.3, -0.3]"),
        # of an effect that one block alone has nothing is needed
        ([0.3, 0.31, 0.32, 0.3, -0.02, 0.31], [0.0] * 6, "no certain effect; against placebo: +0.253 [0.113, 0.394]"),
        # less than the margin is missing, and more than half of what there is may be
        ([0.015, 0.016, 0.017] * 2, [0.008, 0.006, 0.004] * 2, "adds 0.01, and 0.006 stay without it: states"),
        ([0.015, 0.016, 0.017] * 2, [0.03, 0.016, -0.01] * 2, "open whether it is needed: states"),
        ([0.015, 0.016, 0.017] * 2, [0.014, 0.016, 0.018] * 2, "not needed: states"),
    ],
)
def test_a_reason_is_said_to_be_needed_only_where_nothing_certain_is_left_without_it(b, placebo, said):
    found = judge(UP, measured(b, [0.0] * 6, placebo=placebo), (Needs("placebo", "states"),))
    assert found["said"]["placebo"]["said"] == said


def test_the_compared_arm_is_no_reason():
    found = judge(UP, measured([0.2] * 6), (Needs("a", "states"),))
    assert found["said"]["a"]["said"] == "this experiment has no arm that lacks this alone: states"


def test_the_shortest_block_must_be_long_enough():
    uneven = [range(0, 5), range(100, 102)]
    assert judge(UP, measured([0.1] * 7, [0.0] * 7, blocks=uneven))["reason"] == "2 seeds in a block are too few"


def test_a_seed_of_several_tasks_is_their_mean_and_none_where_one_failed():
    assert per_seed({"one": [0.25, 0.5, None], "two": [0.75, None, 0.5]}) == [0.5, None, None]


@pytest.mark.parametrize("sign", [1, -1])
def test_the_wider_of_both_intervals_decides_where_differences_are_irregular(sign):
    """Five of ten differences lie on the other side of 0: t leaves it out, 31 subsets of 1023 do not."""
    b = [sign * x for x in (1.0, 1.0, 1.0, 1.0, 1.0, -0.03, -0.03, -0.04, -0.04, -0.03)]
    found = judge(UP, measured(b, [0.0] * 10, blocks=[range(10)]))
    assert found["shape"] == "two groups" and found["ci95"][0] * found["ci95"][1] > 0
    assert found["ci95_permutation"][0] < 0 < found["ci95_permutation"][1]
    assert (found["verdict"], found["reason"]) == ("inconclusive", "the interval does not decide")


# ---- intervals


def test_the_permutation_interval_is_of_the_means_of_subsets():
    """Three differences 1, 2, 6: subset means 1, 1.5, 2, 3, 3.5, 4, 6; at a level of 1/2, k = 2."""
    found = sign_flip_interval([1.0, 2.0, 6.0], level=0.5)
    assert (found.mean, found.low, found.high) == (3.0, 1.5, 4.0)
    middle = sign_flip_interval([1.0, 2.0, 6.0], level=0.0)  # the fourth of seven
    assert (middle.low, middle.high) == (3.0, 3.0)
    assert sign_flip_interval([1.0] * 5).low == float("-inf")  # 2 of 32 is more than 5%
    with pytest.raises(ValueError, match="between 1 and 20"):
        sign_flip_interval([])


@pytest.mark.parametrize(
    ("values", "seen"),
    [
        ([0.1, 0.2, 0.3, 0.4, 0.5], ""),
        ([0.0, 0.01, 0.9, 1.0], "two groups"),
        ([0.0, 0.0, 0.01, 0.02, 0.0, 1.0], "skewed"),
        ([0.0, 0.0, -0.01, -0.02, 0.0, -1.0], "skewed"),
        ([0.0, 0.1, 0.2, 0.3, 1.0], "skewed"),  # by 1.21
        ([0.0, 0.0, 0.25, 0.5, 1.0, 1.0], "two groups"),  # a gap of half of the range
        ([0.3, 0.3, 0.3], ""),
        ([0.0, 1.0], ""),
    ],
)
def test_what_is_not_like_a_normal_distribution_is_named(values, seen):
    assert irregularity(values) == seen


# ---- measures


def cell(*steps, **summary):
    return Cell(summary=summary, steps=[{"sampled_tokens": t, "reward": r} for t, r in steps])


def test_the_area_is_a_mean_over_tokens():
    """(0 + 1) / 2 over 100 tokens, 1 over 300: (50 + 300) / 400."""
    assert Area()(cell((100, 0.0), (200, 1.0), (500, 1.0))) == pytest.approx(350 / 400)
    assert Area()(cell((100, 0.0))) != Area()(cell((100, 0.0)))  # NaN


def test_the_tokens_to_a_level():
    run = cell(*((1000 * i, 0.1 * i) for i in range(1, 9)))
    assert TokensTo(0.3, window=3)(run) == 4.0  # the mean of .2, .3, .4
    for never in (TokensTo(0.9, window=3), TokensTo(0.0, window=9)):
        assert isnan(never(run))


def test_training_that_never_moves_has_no_mean():
    steps = [{"sampled_tokens": 1, "updates": i > 0, "reward": float(i)} for i in range(4)]
    assert Moving()(Cell(summary={}, steps=steps)) == 2.0 and Moving(2)(Cell(summary={}, steps=steps)) == 1.5
    assert isnan(Moving(4)(Cell(summary={}, steps=steps))) and isnan(Moving()(Cell(summary={}, steps=steps[:1])))


def test_a_constant_verdict_has_one_half_of_a_balanced_accuracy():
    """Of answers three quarters are right; who calls all right is right of these."""
    step = {"reward": 0.75, "part/right and said so": 0.75, "part/wrong and said so": 0.0}
    assert Balanced()(Cell(summary={}, steps=[step])) == 0.5
    assert isnan(Balanced()(Cell(summary={}, steps=[{**step, "reward": 1.0}])))


def test_verdicts_that_no_step_logs_are_counted_in_the_rollouts(tmp_path):
    """Of the last part: 3 of 4 right answers are called right, 1 of 2 wrong ones wrong: (3/4 + 1/2) / 2."""
    said = [(1, 1), (1, 1), (1, 1), (1, 0), (0, 0), (0, 1), (1, 0.5)]  # what is no verdict counts nowhere

    def written(step, pairs, part="rl", name="gold"):
        rewards = [Reward(total=float(total), parts={name: float(x)}) for x, total in pairs]
        made = [replace(episode((0,), (1,), 0.0), reward=r) for r in rewards]
        file = tmp_path / part / "rollouts" / f"step-{step:06d}.parquet"
        rollouts.write(file, step, [Group(task=Task(id="t"), episodes=tuple(made))], rollouts.NOTHING, str)

    written(1, [(1, 1), (0, 0)], "shown")
    written(1, [(0, 1)] * 50)
    for step in range(2, 12):
        written(step, said)
    steps = [{"step": i, "reward": 0.5, "part/gold": 0.5} for i in range(1, 12)]
    run = Cell(summary={"parts": {"shown": {}, "rl": {}}}, steps=steps, folder=tmp_path)
    assert Balanced("part/gold")(run) == pytest.approx(0.625)
    assert Balanced("part/gold", first=2)(run) == pytest.approx((3 / 4 + 1 / 52) / 2)
    for unknown in (Balanced("part/other"), Balanced()):
        assert isnan(unknown(run))
    assert isnan(Balanced("part/gold")(replace(run, folder=tmp_path / "rl" / "none", summary={})))
    assert isnan(Balanced("part/gold")(replace(run, folder=None)))


def test_less_of_a_measure():
    assert Less(Final("x"), of=1.0)(Cell(summary={"x": 0.25})) == 0.75


def test_diversity_is_measured_beside_the_start_at_the_temperature_with_the_same_accuracy():
    """The start: pass@1 .2 .4 .6 and pass@8 .9 .8 .6 at three temperatures; at .5 it has .7 between them."""
    share = lambda one, eight: {"pass@1": {"mean": one}, "pass@8": {"mean": eight}}
    at = {"1.3": share(0.2, 0.9), "1": share(0.4, 0.8), "0.7": share(0.6, 0.6)}
    start = Cell(summary={"at_temperature": at})
    run = lambda one, eight: Cell(summary={"sampled_after": share(one, eight)})
    assert OverMatchedStart(8).beside(run(0.5, 0.72), start) == pytest.approx(0.02)
    assert OverMatchedStart(8).beside(run(0.9, 0.6), start) == pytest.approx(0.0)  # constant beyond
    with pytest.raises(UserError, match="at_temperature"):
        OverMatchedStart(8).beside(run(0.5, 0.7), Cell(summary={}))


def outcome_of(summary):
    request = CellRequest(label="", settings=Settings(), tokens=1)
    return CellOutcome(request=request, folder=Path(), cell=Cell(summary=summary))


@pytest.mark.parametrize("of, high", [("accuracy", 1.0), ("reward", 9.0)])
def test_the_interval_of_shares_stays_between_0_and_1(of, high):
    """Of an accuracy over seeds, whose t interval goes beyond 1; a mean reward may."""
    shares = (1.0, 1.0, 0.75)
    outcomes = [outcome_of({f"{of}_after": {"mean": x, "n": 64}}) for x in shares]
    found = interval_of(Final(), shares, outcomes)
    assert found.mean == pytest.approx(11 / 12) and found.high == pytest.approx(
        min(high, 11 / 12 + 4.302653 / 12), abs=1e-4
    )
    several = [outcome_of({"sampled_after": {"pass@4": {"of": "accuracy", "mean": x, "n": 64}}}) for x in shares]
    assert interval_of(Final("sampled_after.pass@4.mean"), shares, several).high == 1.0
    assert interval_of(Less(Final(), of=1.0), shares, outcomes).high > 1
