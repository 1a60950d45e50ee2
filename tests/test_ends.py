"""What a summary says of the held-out problems."""

import pytest
from palaestra.ends import HeldOut, at_ends, end_of, evaluation_of, parts_of, with_before
from palaestra.stats import mean_interval, proportion

SHARE = HeldOut(of="accuracy", interval=proportion(1, 4)).json()
MEAN = {**SHARE, "of": "reward"}


@pytest.mark.parametrize(
    ("before", "after"), [(SHARE, SHARE), (MEAN, MEAN), (SHARE, MEAN), ({}, SHARE), (MEAN, {}), ({}, {})]
)
def test_what_is_written_is_read(before, after):
    summary = at_ends(before, after)
    assert [end_of(summary, e) for e in ("before", "after")] == [before, after]
    assert set(summary) == {f"{x['of']}_{e}" for e, x in (("before", before), ("after", after)) if x}


def test_summaries_of_older_versions_are_accuracies():
    assert end_of({"accuracy_after": {"mean": 0.5, "n": 2}}, "after") == {"of": "accuracy", "mean": 0.5, "n": 2}
    assert end_of({"accuracy_after": {}}, "after") == {} == end_of({"accuracy_after": None}, "after")
    assert HeldOut.read({"mean": 0.25, "low": None, "high": None, "n": 4}).of == "accuracy"
    assert HeldOut.read({}) is None and HeldOut.read(SHARE).json() == SHARE


@pytest.mark.parametrize(
    ("mean", "low", "of"), [(0.281, -0.052, "reward"), (-0.2, None, "reward"), (0.5, 0.1, "accuracy")]
)
def test_a_mean_below_zero_is_no_accuracy_whatever_an_older_run_called_it(mean, low, of):
    found = {"mean": mean, "low": low, "high": 0.614, "n": 32}
    assert HeldOut.read(found).of == of
    assert end_of({"accuracy_before": found}, "before")["of"] == of
    assert end_of({"accuracy_before": found | {"of": "accuracy"}}, "before")["of"] == "accuracy"


def test_a_pipeline_begins_where_its_first_part_did():
    first = {**SHARE, "mean": 0.0}
    whole = with_before({**at_ends(SHARE, SHARE), "steps": 3}, {**at_ends(first, SHARE), "steps": 1})
    assert whole == {"accuracy_before": first, "accuracy_after": SHARE, "steps": 3}


def test_a_first_part_that_measures_something_else_gives_no_number_before():
    """It would stand beside no number after."""
    whole = with_before({**at_ends(SHARE, SHARE), "steps": 3}, {**at_ends(MEAN, MEAN), "steps": 1})
    assert whole == {"accuracy_after": SHARE, "steps": 3}


def test_of_several_things_measured_the_main_one_is_first_and_none_is_lost():
    ranking = HeldOut(of="ranking", interval=proportion(1, 4))
    margin = HeldOut(of="margin", interval=mean_interval([1.0, 2.0]))
    found = evaluation_of([margin, ranking])
    assert found == ranking.json() | {"beside": [margin.json()]}
    assert parts_of(found) == [ranking.json(), margin.json()]
    assert at_ends({}, found) == {"ranking_after": ranking.json(), "margin_after": margin.json()}
    assert evaluation_of([]) == {} and parts_of({}) == []
