"""Which tests run when."""

import pytest

from tests import durations
from tests.durations import marks_of, measured

LOG = """
============================= slowest durations ==============================
2.50s call     tests/a.py::test_x[one two]
0.75s setup    tests/a.py::test_x[one two]
0.60s call     tests/a.py::test_y
0.30s teardown tests/a.py::test_y
12.00s call     tests/b.py::test_z
(2 durations < 0.005s hidden.)
"""


def test_fixtures_count_and_what_is_short_is_left_out():
    assert measured(LOG) == {"tests/a.py::test_x[one two]": 3.2, "tests/b.py::test_z": 12.0}


@pytest.mark.parametrize(
    ("seconds", "marks"), [(0.0, ()), (1.5, ()), (1.6, ("slow",)), (5.0, ("slow",)), (5.1, ("slow", "nightly"))]
)
def test_marks_by_seconds(seconds, marks):
    assert marks_of("tests/a.py::test_x", seconds) == marks


def test_what_is_kept_is_never_left_to_the_night():
    for name in durations.KEPT:
        assert marks_of(name, 100.0) == ("slow",)


def test_every_test_that_is_kept_is_in_the_table():
    """A name that no test has keeps nothing."""
    names = durations.read()
    assert [kept for kept in durations.KEPT if not any(n.startswith(kept) for n in names)] == []
