"""The table of faults that use found, `tests/faults/`: each names a test that is there."""

import ast
import csv
from functools import cache
from pathlib import Path

import pytest

TABLES = sorted((Path(__file__).parent / "faults").glob("*.tsv"))


@cache
def names_in(path):
    return {
        n.name for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
    }


@pytest.mark.parametrize("table", TABLES, ids=lambda path: path.stem)
def test_each_fault_has_a_test(table):
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    assert rows and set(rows[0]) == {"fault", "kind", "test"}
    for row in rows:
        assert all(row.values()), row
        for node in row["test"].split():
            path, _, name = node.partition("::")
            assert name.partition("[")[0] in names_in(Path(path)), f"{table.name}: {node}"
