"""That the published numbers keep the laws, and that numbers which break one are named."""

import json
from copy import deepcopy
from pathlib import Path

import pytest

pytest.importorskip("ray")
from tests.nightly import broken
from tests.rows import every

FOLDER = Path(__file__).parents[2] / "benchmarks"
CLUSTER, SHARDS = (json.loads((FOLDER / f"{name}.json").read_text()) for name in ("cluster", "shards"))


def test_what_was_measured_keeps_the_laws():
    assert broken(CLUSTER, SHARDS) == []


@every(
    ("path", "value", "law"),
    [
        (("kills", "kills"), 199, "exactly_once"),
        (("kills", "runs", 3, "equal"), False, "exactly_once"),
        (("kills", "rows taken more than once"), 1, "exactly_once"),
        (("ages", "samples"), 99_999, "age_bound"),
        (("ages", "cells", 5, "oldest"), 6, "age_bound"),
        (("ages", "cells", 0, "youngest"), -1, "age_bound"),
        (("ages", "cells", 0, "tokens without one version"), 1, "age_bound"),
        (("ages", "cells", 0, "lost"), 1, "drawn_is_trained"),
        (("ages", "cells", 9, "taken more than once"), 1, "drawn_is_trained"),
        (("ages", "cells", 9, "slowest tenth"), 0.085, "drawn_is_trained"),
        (("sim", "cells", 11, "error"), -0.11, "sim_true"),
        (("sim", "cells"), [], "sim_true"),
        (("sim", "cells", 0, "error"), float("nan"), "sim_true"),
    ],
)
def test_what_breaks_a_law_is_named(path, value, law):
    found = deepcopy(CLUSTER)
    at = found
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    (line,) = broken(found, SHARDS)
    assert line.startswith(law)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("largest relative error of a gradient", 1e-9),
        ("largest relative error of a gradient", float("nan")),
        ("smallest norm of a gradient", 0.0),
    ],
)
def test_a_gradient_of_ranks_is_that_of_one_process(name, value):
    found = deepcopy(SHARDS)
    found["ranks"]["3"][name] = value
    (line,) = broken(CLUSTER, found)
    assert line.startswith("shard_equal on 3 ranks")
