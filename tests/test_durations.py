"""Which tests run when."""

from itertools import chain
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from tests import conftest, durations
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


@pytest.mark.parametrize(
    ("name", "seconds", "shortest", "marks"),
    [
        ("tests/a.py::test_x[one]", 3.0, 0.0, ("slow", "nightly")),
        ("tests/a.py::test_x[one]", 2.5, 0.0, ("slow",)),
        ("tests/a.py::test_x[one]", 3.0, 2.6, ("slow",)),  # no shorter case would be left
        ("tests/a.py::test_x", 3.0, 3.0, ("slow",)),
        ("tests/laws/test_law_99.py::test_x[one]", 3.0, 0.0, ("slow",)),
        ("tests/laws/test_law_99.py::test_x[one]", 6.0, 0.0, ("slow", "nightly")),
        ("tests/test_structure.py::test_no_circle_of_files", 4.2, 4.2, ()),
        ("tests/test_structure.py::test_no_circle_of_files", 5.2, 5.2, ()),
    ],
)
def test_marks_of_cases_and_laws(name, seconds, shortest, marks):
    assert marks_of(name, seconds, shortest) == marks


def test_a_case_is_left_of_every_test_whose_cases_alone_are_long(monkeypatch):
    table = {f"tests/a.py::test_x[{n}]": s for n, s in (("a", 3.0), ("b", 1.0), ("c", 4.0))}
    monkeypatch.setattr(durations, "read", lambda: table)
    nightly = {n for n, marks in durations.marks(table).items() if "nightly" in marks}
    assert nightly == {"tests/a.py::test_x[a]", "tests/a.py::test_x[c]"}
    monkeypatch.setattr(durations, "read", lambda: dict.fromkeys(table, 3.0))
    assert not any("nightly" in marks for marks in durations.marks(table).values())


def test_what_is_kept_is_never_left_to_the_night():
    for name in durations.KEPT:
        assert marks_of(name, 100.0) == ("slow",)


def test_every_test_that_is_kept_is_in_the_table():
    """A name that no test has keeps nothing."""
    names = durations.read()
    assert [kept for kept in durations.KEPT if not any(n.startswith(kept) for n in names)] == []


def test_a_share_has_its_cases_of_every_method_and_all_other_tests():
    def item(name, by_row=True):
        made = Mock(nodeid=name)
        made.get_closest_marker.return_value = by_row
        return made

    names = [f"a.py::test[{x}]" for x in "pqrst"] + [f"b.py::test[{x}]" for x in "pq"]
    left_out = []
    config = SimpleNamespace(hook=SimpleNamespace(pytest_deselected=lambda items: left_out.extend(items)))
    seen = []
    for k in (1, 2, 3):
        items = [*map(item, names), item("c.py::test", by_row=False)]
        conftest.leave_out_shares(config, items, k, 3)
        assert items.pop().nodeid == "c.py::test"
        seen.append([x.nodeid for x in items])
    assert sorted(chain(*seen)) == names and all(seen)
    assert len(left_out) == 2 * len(names)
    whole = [*map(item, names)]
    conftest.leave_out_shares(config, whole, 1, 1)
    assert [x.nodeid for x in whole] == names
