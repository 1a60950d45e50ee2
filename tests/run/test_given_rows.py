"""Rows that a program hands over become the run's data, and are there when it goes on."""

import json
from types import SimpleNamespace

import numpy as np
import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.run.given_rows import take_rows
from palaestra.tasks.files import FileTasks, load

ROWS = [{"question": f"{i}+1 mod 10", "answer": (i + 1) % 10, "made": np.int64(i)} for i in range(10)]
SMALL = {"steps": 1, "evaluate": 2, "quiet": True, "set": {"schedule.prompts": 2, "collect.links.0.n": 2}}


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    load.cache_clear()
    monkeypatch.chdir(tmp_path)


def test_a_list_is_trained_on_and_kept(tmp_path, monkeypatch):
    run = pl.train("rloo", data=ROWS, **SMALL)
    assert run.folder.name == "rloo-data-tiny-s0" and run.config["data"] == str(run.folder / "data.jsonl")
    kept = [json.loads(line) for line in (run.folder / "data.jsonl").read_text().splitlines()]
    assert kept == [{**r, "made": int(r["made"])} for r in ROWS]
    assert {p[0] for p in zip(run.episodes()["prompt"].to_pylist())} <= {r["question"] for r in ROWS}
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")  # the path in the settings leads nowhere from here
    again = pl.train(resume=tmp_path / run.folder, steps=2, quiet=True)
    assert again.summary["steps"] == 2
    assert pl.evaluate("tiny", data=ROWS, n=2, k=1)["task"] == "data.jsonl"


def test_data_sets_and_splits(tmp_path):
    datasets = pytest.importorskip("datasets")
    whole = datasets.Dataset.from_list([{"prompt": r["question"], "answer": str(r["answer"])} for r in ROWS])
    run = pl.train("rloo", data=datasets.DatasetDict(train=whole, test=whole.select(range(3))), **SMALL)
    tasks = FileTasks(run.config["data"], test=run.config["test_data"])
    assert (tasks.size, tasks.test_size) == (10, 3)
    run = pl.train("rloo", data=whole, test_data=iter(ROWS[:2]), columns="", out="two", **SMALL)
    assert FileTasks(run.config["data"], test=run.config["test_data"]).test_size == 2


def frames():
    pandas, arrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    rows = [{"prompt": "1+1", "answer": 2.0, "hint": "add"}, {"prompt": "2+1", "answer": 3.0, "hint": None}]
    frame = pandas.DataFrame(rows)
    return {
        "pandas": frame,
        "another index": frame.set_axis([7, 7]),
        "arrow": arrow.Table.from_pylist(rows),
        "polars": SimpleNamespace(to_dicts=lambda: rows, columns=["prompt"], notna=bool, astype=object),
    }


@pytest.mark.parametrize("kind", ["pandas", "another index", "arrow", "polars"])
def test_data_frames_are_rows(kind):
    given = {"data": {"train": frames()[kind], "test": frames()[kind]}}
    taken = take_rows(given)
    assert given == {"data": "data.jsonl", "test_data": "test_data.jsonl"} and taken["data"] == taken["test_data"]
    assert [json.loads(line) for line in taken["data"].splitlines()] == [
        {"prompt": "1+1", "answer": 2.0, "hint": "add"},
        {"prompt": "2+1", "answer": 3.0, "hint": None},
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"data": ["a"]}, "data, row 1: a string, not an object"),
        ({"data": 5}, "data is a number; give a file or rows"),
        ({"data": [{"prompt": object(), "answer": 1}]}, "data, row 1: cannot be kept as JSON"),
        ({"data": {"train": ROWS, "validation": ROWS}}, "data has the splits train, validation; give data="),
        ({"data": ROWS, "test_data": [1]}, "test_data, row 1: a number, not an object"),
        ({"data": ROWS, "test_data": {"prompt": ["1+1"]}}, "test_data is an object; give a file or rows"),
        ({"data": []}, "no records|the file is empty"),
    ],
)
def test_what_is_no_row(tmp_path, given, said):
    with pytest.raises(UserError, match=said):
        pl.train("rloo", **given, **SMALL)
    assert not list((tmp_path / "runs").glob("*")), "nothing is left of a run that never began"
