"""A run folder that was moved or copied: its models are where it is."""

import json

import pytest
from palaestra.store.folder import SUMMARY, moved_to, read_summary


@pytest.fixture
def moved(tmp_path, monkeypatch):
    """A folder that was called `a` when its summary was written, with a part in it."""
    monkeypatch.chdir(tmp_path)
    for name in ("checkpoints/step-2/policy", "rl/checkpoints/step-2"):
        (tmp_path / "b" / name).mkdir(parents=True)
    return tmp_path / "b"


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ("a/checkpoints/step-2/policy", "checkpoints/step-2/policy"),
        ("/runs/a/rl/checkpoints/step-2", "rl/checkpoints/step-2"),
        ("a/checkpoints/step-3", None),
    ],
)
def test_the_longest_end_that_lies_in_it(moved, told, found):
    (moved / SUMMARY).write_text(json.dumps({"steps": 2, "artifacts": {"policy": told}}))
    assert read_summary(moved)["artifacts"] == {"policy": str(moved / found) if found else told}


def test_a_copy_reads_what_is_still_there(moved):
    there = moved.parent / "a" / "checkpoints" / "step-2" / "policy"
    there.mkdir(parents=True)
    assert moved_to(moved, "a/checkpoints/step-2/policy") == "a/checkpoints/step-2/policy"


def test_what_has_not_ended_is_empty(moved):
    assert read_summary(moved) == {}
    (moved / SUMMARY).write_text('{"steps": 2')
    assert read_summary(moved) == {}
