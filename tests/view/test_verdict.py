"""What a report says of before and after, problem by problem where the run keeps its answers."""

import json

import pyarrow.parquet as pq
import pytest
from palaestra.ends import at_ends
from palaestra.stats import paired_share_difference
from palaestra.store.folder import read_run
from palaestra.values import to_toml
from palaestra.view.verdict import change_by_problem, judge_change, verdict

from tests.kept import keep_answers, mean_of

SAME = [1, 1, 1, 0, 0, 0, 0, 1, 1, 0, 1, 0]


@pytest.fixture
def run(tmp_path):
    """Makes a run folder of what its answers were worth before and after."""

    def make(before, after, of="accuracy", kept=("before", "after"), **summary):
        (tmp_path / "config.toml").write_text(to_toml({"recipe": "grpo"}))
        ends = at_ends(mean_of(before, of), mean_of(after, of))
        (tmp_path / "summary.json").write_text(json.dumps({"recipe": "grpo", "steps": 50, **ends, **summary}))
        for step, end, values in ((0, "before", before), (50, "after", after)):
            if end in kept:
                keep_answers(tmp_path, step, values, of)
        return read_run(tmp_path)

    return make


def test_answers_that_stayed_as_they_were_say_more_than_two_shares(run):
    asked = paired_share_difference(SAME, SAME)
    words = verdict(run(SAME, SAME))["words"]
    assert "the difference lies between −23 and 23 points, problem by problem" in words
    assert round(100 * asked.high) == 23
    found = run(SAME, SAME)
    (found.folder / "evaluations/held-out/step-000050.parquet").unlink()
    assert "between −35 and 35 points, with zero inside" in verdict(read_run(found.folder))["words"]


def test_a_gain_of_few_problems_among_many_is_seen_where_each_is_known(run):
    before, after = [0] * 100 + [1] * 100, [1] * 10 + [0] * 90 + [1] * 100
    words = verdict(run(before, after))["words"]
    assert (
        words.startswith("Better, beyond what chance explains") and "by 5 points (95% interval 2 to 8, problem" in words
    )
    assert verdict(run(after, before))["words"].startswith("Worse, beyond what chance explains")
    found = run(before, after)
    (found.folder / "evaluations/held-out/step-000000.parquet").unlink()
    assert change_by_problem(read_run(found.folder)) is None
    assert verdict(read_run(found.folder))["words"].startswith("No change that can be told from chance")


def test_five_problems_that_rose_are_too_few(run):
    """As by the exact sign test: 2 / 2^5 is above one in twenty, 2 / 2^6 is not."""
    for n in (12, 200):
        assert verdict(run([0] * n, [1] * 5 + [0] * (n - 5)))["words"].startswith("No change that can be told")
        assert verdict(run([0] * n, [1] * 6 + [0] * (n - 6)))["words"].startswith("Better")


def test_a_reward_is_paired_in_its_own_unit(run):
    found = run([0.1, 0.5, 0.9, 0.4], [0.2, 0.6, 1.0, 0.5], of="reward")
    assert change_by_problem(found).mean == pytest.approx(0.1)


@pytest.mark.parametrize("kept", [(), ("before",), ("after",)])
def test_answers_that_are_not_there_are_not_paired(run, kept):
    assert change_by_problem(run(SAME, SAME, kept=kept)) is None


def test_answers_of_other_evaluations_are_not_taken(run):
    found = run(SAME, [1] * 12)
    keep_answers(found.folder, 50, SAME)  # not what the summary says
    assert change_by_problem(found) is None
    assert change_by_problem(run(SAME, SAME, parts={"sft": {}, "rl": {}})) is None


def test_answers_that_could_not_all_be_scored_are_not_paired(run):
    """The numbers beside the sentence are over others than the problems that have a score in both."""
    assert change_by_problem(run([None] * 6 + [0] * 6, [1] * 6 + [0] * 6)) is None
    assert change_by_problem(run([0] * 12, [1] * 6 + [None] * 6)) is None


def test_a_table_that_was_cut_off_or_is_of_before_stops_no_report(run):
    found = run(SAME, SAME)
    file = found.folder / "evaluations/held-out/step-000050.parquet"
    whole = file.read_bytes()
    file.write_bytes(whole[:200])
    assert change_by_problem(found) is None and verdict(found)["words"]
    file.write_bytes(whole)
    rows = pq.read_table(file)
    pq.write_table(rows.drop_columns(["domain"]), file)  # as null
    assert change_by_problem(found) is not None


@pytest.mark.parametrize(("step", "other"), [(0, 7), (50, 49)])
def test_answers_on_the_way_are_not_those_of_an_end(run, step, other):
    found = run(SAME, SAME)
    file = found.folder / f"evaluations/held-out/step-{step:06d}.parquet"
    file.rename(file.with_name(f"step-{other:06d}.parquet"))
    assert change_by_problem(found) is None


def test_a_finding_without_pairs_is_told_as_before():
    assert judge_change(None, None).startswith("There is no evaluation before and after")
