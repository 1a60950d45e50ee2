"""What runners of studies share: the file of cells, the arguments, the pages; and that all studies read and write it alike."""

import json
from importlib import import_module
from pathlib import Path

import pytest
from benchmarks.cells import CellFile, fill_page, parser_of, trial_note

ROOT = Path(__file__).parents[2] / "benchmarks"
STUDIES = sorted(f.parent.name for f in ROOT.glob("*/study.py") if "CellFile(" in f.read_text())


def test_cells_are_added_to_what_another_process_wrote(tmp_path):
    file, cells = tmp_path / "r.json", CellFile(("starts", "cells"))
    assert cells.read(file) == {"starts": {}, "cells": {}} and not cells.has(file, "a/0")
    cells.keep(file, cells=("a/0", 1))
    other = cells.read(file)
    other["cells"]["b/0"] = 2
    cells.write(file, other)
    cells.keep(file, starts=("0", {"x": 0}), cells=("a/1", [3]))
    assert cells.read(file) == {"starts": {"0": {"x": 0}}, "cells": {"a/0": 1, "b/0": 2, "a/1": [3]}}
    assert cells.has(file, "b/0") and cells.has(file, "0", "starts") and not cells.has(file, "0")
    assert not cells.has(file, "0", "tuning") and [f.name for f in tmp_path.iterdir()] == ["r.json"]


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ({}, '{\n "cells": {\n  "a": 1\n }\n}\n'),
        ({"indent": None}, '{"cells": {"a": 1}}\n'),
        ({"indent": None, "separators": (",", ":")}, '{"cells":{"a":1}}\n'),
    ],
)
def test_the_form_of_the_text(form, text, tmp_path):
    CellFile(**form).keep(tmp_path / "r.json", cells=("a", 1))
    assert (tmp_path / "r.json").read_text() == text


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_writes_its_results_in_the_form_that_they_have(name, tmp_path):
    """Written again without a change, the file has the same bytes, so a diff shows the cells that came."""
    results = ROOT / name / "results.json"
    study = import_module(f"benchmarks.{name}.study")
    study.FILE.write(tmp_path / "r.json", study.FILE.read(results))
    assert (tmp_path / "r.json").read_bytes() == results.read_bytes()
    assert set(study.FILE.sections) <= json.loads(results.read_text()).keys()


def test_arguments_of_a_study():
    parser = parser_of("what it is", [0, 1], arms=("a", "b"))
    given = parser.parse_args(["--out", "r.json"])
    assert (given.out, given.seeds, given.arms) == (Path("r.json"), [0, 1], ["a", "b"])
    given = parser.parse_args(["--out", "r.json", "--seeds", "7", "--arms", "b"])
    assert (given.seeds, given.arms) == ([7], ["b"])
    with pytest.raises(SystemExit):
        parser.parse_args([])


def test_a_page_and_its_picture_are_of_the_results(tmp_path):
    (tmp_path / "results.json").write_text('{"cells": {"a": 1}}')
    page, drawn = tmp_path / "p.md", tmp_path / "p.svg"
    page.write_text("x\n\n<!-- arms: made by y -->\n\nold\n\n<!-- end of arms -->\n")
    results = fill_page(tmp_path, page, lambda r: {"arms": f"{r['cells']}"}, drawn, lambda r: f"{len(r)}")
    assert results == {"cells": {"a": 1}} and drawn.read_text() == "1"
    assert "{'a': 1}" in page.read_text() and "old" not in page.read_text()


def test_a_note_stands_where_cells_are_missing():
    assert trial_note(4, 4) == [] and trial_note(3, 4)[0].startswith(
        "- **Not complete: 3 of 4 declared cells are run.**"
    )
