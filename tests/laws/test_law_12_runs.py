"""Law 12, of whole runs: `train grpo` ends in the same weights however many answers are sampled at the same time, and
whichever process samples them.
"""

import json
from functools import cache

import pytest
from palaestra.cli.main import main
from palaestra.engines import rows
from palaestra.engines.own import OwnEngine
from palaestra.models.load import load

from tests.laws.processors import OTHERS, check_under

SLOTS = (6, 3, 1)  # beside 256, the default, which 128 answers of a step do not fill


def weights(folder, steps, *more):
    """The digest of what a run of so many steps ends in."""
    out = folder / "run"
    words = ["train", "grpo", "--steps", str(steps), "--seed", "3", "--evaluate", "0", "--out", str(out)]
    assert main([*words, *more]) == 0
    return json.loads((out / "summary.json").read_text())["weights_sha256"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The same by steps, of the command as it is."""
    return cache(lambda steps: weights(tmp_path_factory.mktemp("plain"), steps))


@pytest.mark.parametrize("slots", SLOTS)
def test_slots_change_no_weight(plain, tmp_path, slots):
    assert weights(tmp_path, 2, "--slots", str(slots)) == plain(2)


def test_rollout_processes_change_no_weight(plain, tmp_path, request):
    request.addfinalizer(pytest.importorskip("ray").shutdown)
    assert weights(tmp_path, 4, "--cluster", "2") == plain(4)


def test_without_the_rows_that_were_measured_slots_change_weights(plain, tmp_path):
    """Unless any number of rows is what was measured."""
    compact = OwnEngine(load("tiny")).decoder
    free = {compact.compact.rows(), compact.outputs()} == {rows.ANY}
    with rows.force(rows.ANY):
        assert (weights(tmp_path, 2, "--slots", "1") == plain(2)) == free


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", [name for name in OTHERS if name != "two threads"])
def test_the_law_holds_on_other_processors(name, tmp_path):
    """The tests above, where this processor looks like another one. With two threads the same command may end in other
    weights (docs/engines.md)."""
    check_under(name, [f"{__file__}::{test}" for test in INSIDE], tmp_path)


INSIDE = [
    "test_slots_change_no_weight",
    "test_rollout_processes_change_no_weight",
    "test_without_the_rows_that_were_measured_slots_change_weights",
]
