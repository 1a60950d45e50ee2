"""The table of faults that use found, `tests/faults/`: each names a test that is there."""

import ast
import csv
from functools import cache
from pathlib import Path

from tests.rows import every

TABLES = sorted((Path(__file__).parent / "faults").glob("*.tsv"))


@cache
def by_name(path):
    """Whether it has cases of its own, by the name of each test of a file."""
    tests = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {n.name: any("parametrize" in ast.unparse(d) for d in n.decorator_list) for n in tests}


def is_there(node):
    path, _, name = node.partition("::")
    test, _, case = name.partition("[")
    return Path(path).is_file() and by_name(Path(path)).get(test, None) in ((True,) if case else (True, False))


@every("table", TABLES, ids=lambda path: path.stem)
def test_each_fault_has_a_test(table):
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    assert rows and set(rows[0]) == {"fault", "kind", "test"}
    assert [row for row in rows if not all(row.values())] == []
    assert [node for row in rows for node in row["test"].split() if not is_there(node)] == []


def test_what_is_not_there_is_seen():
    here = "tests/test_durations.py"
    assert is_there(f"{here}::test_marks_by_seconds") and is_there(f"{here}::test_marks_by_seconds[0.0-marks0]")
    assert not is_there(f"{here}::test_nothing") and not is_there("tests/test_no_file.py::test_x")
    assert not is_there(f"{here}::test_fixtures_count_and_what_is_short_is_left_out[case]"), "it has no cases"


def test_each_table_is_named_where_they_are_described():
    page = (TABLES[0].parent / "README.md").read_text()
    assert [table.name for table in TABLES if f"[{table.name}]({table.name})" not in page] == []
