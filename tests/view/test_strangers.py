"""Run folders that a stranger made: what cannot be read is left out, what unpacks to gigabytes is refused by its footer."""

import io
import json
import os
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.made_up import write_run
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.store.columns import path
from palaestra.store.folder import read_run, records
from palaestra.store.limits import BYTES, DEPTH, ROWS, check_unpacked, is_shallow, raised, unpacked_size
from palaestra.view.answers import PageAnswers
from palaestra.view.export import export
from palaestra.view.in_text import show
from palaestra.view.pixels import data_address
from palaestra.view.reader import open_runs
from rich.console import Console

OF_RUN = ("metrics", "signs", "judges", "settings", "verdict", "rise")
OF_TABLE = ("index", "problems", "search", "excerpts", "group/1/0")


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return write_run(tmp_path / "run", 2, groups=2, samples=2, problems=5, tokens=6)


def look(run):
    """All that the viewer, `--text` and `--export` read; the episodes of the first group."""
    runs = open_runs([run])
    answers = PageAnswers(runs)
    for what in (*OF_RUN, *(f"table/training/{x}" for x in OF_TABLE)):
        answers.get(["run", "0", *what.split("/")], {"q": "a", "rows": "0,1"})
    show(runs, Console(file=io.StringIO()))
    export(runs)
    return json.loads(answers.get(["run", "0", "table", "training", "group", "1", "0"], {}).data)


def changed(run, name, make):
    """The first file with another column."""
    table = pq.ParquetFile(path(run, 1)).read()
    column = make(table.num_rows)
    pq.write_table(table.set_column(table.schema.get_field_index(name), name, column), path(run, 1))


def deep(n, inner=""):
    return '{"a":' * n + (inner or "1") + "}" * n


COLUMNS = {
    "nested parts": ("reward_parts", lambda n: pa.array([deep(100_000)] * n)),
    "parts nested as far as JSON is read": ("reward_parts", lambda n: pa.array([deep(500)] * n)),
    "numbers of no size": ("reward_parts", lambda n: pa.array(['{"a": 1e999, "b": ' + "9" * 400 + "}"] * n)),
    "parts that are numbers": ("reward_parts", lambda n: pa.array([5] * n)),
    "nested facts": ("facts", lambda n: pa.array([deep(500)] * n)),
    "no steps": ("step", lambda n: pa.nulls(n, pa.int32())),
    "steps below 0": ("step", lambda n: pa.array([-7] * n)),
    "groups that are text": ("group", lambda n: pa.array(["x"] * n)),
    "prompts that are numbers": ("prompt", lambda n: pa.array([5] * n)),
    "text of bytes": ("text", lambda n: pa.array([b"\xff\xfe"] * n)),
    "rows of numbers": ("rows", lambda n: pa.array([[1]] * n)),
    "tokens of numbers": ("rows", lambda n: pa.array([[{"tokens": 5, "ids": ["x"]}]] * n)),
    "pictures of nothing": ("pictures", lambda n: pa.array([[{"height": None, "width": "x"}]] * n)),
    "sounds of nothing": ("sounds", lambda n: pa.array([[{"rate": None, "data": b"x"}]] * n)),
    "rewards that are lists": ("reward", lambda n: pa.array([[1.0]] * n)),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_column_of_another_kind_is_no_end_of_the_page(run, kind):
    changed(run, *COLUMNS[kind])
    look(run)


LINES = {
    "nested": deep(100_000),
    "nested as far as JSON is read": '{"step": 1, "reward": ' + deep(500) + "}",
    "no step": '{"step": null, "reward": 1, "evaluation": {"mean": 0.5}}',
    "a step of text": '{"step": "one", "evaluation": {"mean": 0.5}}',
    "a step of 400 digits": f'{{"step": {"9" * 400}, "reward": 1}}',
    "an evaluation of text": '{"step": 2, "evaluation": {"mean": "x", "low": [], "n": "many"}}',
    "an evaluation that is a list": '{"step": 2, "evaluation": [1], "evaluations": 5, "changed": "x"}',
    "no object": "[1, 2]",
}


@pytest.mark.parametrize("kind", LINES)
def test_a_line_that_is_none_is_left_out(run, kind):
    before = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(f"{LINES[kind]}\n{before}")
    assert [r["step"] for r in records(run / "metrics.jsonl")][-2:] == [1, 2]
    look(run)


@pytest.mark.parametrize("name", ["steps", "parts", "artifacts", "changed", "evaluations", "accuracy_before"])
@pytest.mark.parametrize("given", [[1], "x", {"a": "x"}, {"mean": "x"}, 10**30, [{"what": [1]}]])
def test_a_summary_of_another_kind(run, name, given):
    (run / "summary.json").write_text(json.dumps({"steps": 2, name: given}))
    look(run)


@pytest.mark.parametrize("config", [b"\xff\xfe", b"a = [", b"recipe = 5\ntask = [1]", b"a = " + b"[" * 5000, b""])
def test_settings_that_nobody_can_read_are_empty(run, config):
    (run / "config.toml").write_bytes(config)
    look(run)
    assert read_run(run).steps


def test_a_pipe_is_not_waited_for(run):
    (run / "evaluations" / "held").mkdir(parents=True)
    (run / "metrics.jsonl").unlink()
    for name in (
        "rollouts/step-000000.parquet",
        "evaluations/held/step-000001.parquet",
        "metrics.jsonl",
        "summary.json",
    ):
        os.mkfifo(run / name)
    assert look(run)


def test_a_picture_has_a_size():
    for height, width, channels, data in (
        (-2, -3, 1, b"123456"),
        (None, 1, 1, b"1"),
        ("1", 1, 1, b"1"),
        (1, 1, 1, "1"),
    ):
        assert data_address({"height": height, "width": width, "channels": channels, "data": data}) == ""
    assert data_address({}) == "" and data_address({"height": 1, "width": 1, "channels": 1, "data": b"1"})


# ---- what unpacks to more than it seems


def dictionary(n, size):
    return pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int32()), pa.array(["x" * size]))


def bomb(run):
    """A file of 2.5 GB as text in some kilobytes."""
    table = pq.ParquetFile(path(run, 1)).read()
    table = table.take(pa.array([0] * 2500))
    columns = {f.name: table[f.name] for f in table.schema} | {"text": dictionary(2500, 1 << 20)}
    pq.write_table(pa.table(columns), path(run, 1), compression="zstd")
    assert path(run, 1).stat().st_size < 1 << 20


def token_bomb(run):
    t = dictionary(2500, 1 << 20)
    row = pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, 2500], t)], ["tokens"])
    table = pq.ParquetFile(path(run, 1)).read().slice(0, 1)
    columns = {f.name: table[f.name] for f in table.schema} | {"rows": pa.ListArray.from_arrays([0, 1], row)}
    pq.write_table(pa.table(columns), path(run, 1), compression="zstd")


def many_rows(run):
    pq.write_table(pa.table({"step": pa.nulls(ROWS + 1, pa.int32())}), path(run, 1), compression="zstd")


@pytest.mark.parametrize("make,unit", [(bomb, "bytes unpacked"), (token_bomb, "bytes unpacked"), (many_rows, "rows")])
def test_what_unpacks_to_gigabytes_is_refused_soon(run, make, unit):
    make(run)
    start = time.monotonic()
    with pytest.raises(UserError, match=rf"step-000001.parquet: [\d,]+ {unit}, and no more than .* --limits \d"):
        look(run)
    assert time.monotonic() - start < 10
    read_run(run)  # which shows single answers, and has none of these


def test_more_is_read_where_the_user_says_so(run, capsys):
    many_rows(run)
    assert main(["view", str(run), "--text"]) == 2
    assert f"{ROWS + 1:,} rows, and no more than {ROWS:,} are read" in capsys.readouterr().err
    assert main(["view", str(run), "--text", "--limits", "2"]) == 0


def test_what_is_unpacked_is_counted():
    text = dictionary(10, 100)
    struct = pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, 4, 10], text), pa.array([1, 2])], ["a", "b"])
    assert unpacked_size(text) == 1000 and unpacked_size(pa.chunked_array([text, text])) == 2000
    assert unpacked_size(struct) == 1016 and unpacked_size(struct.slice(1)) == 608
    with pytest.raises(UserError, match="--limits 2"):
        check_unpacked("f", pa.table({"a": dictionary(1025, 1 << 20)}))
    with raised(2):
        assert check_unpacked("f", pa.table({"a": dictionary(1025, 1 << 20)})).num_rows * (1 << 20) > BYTES


def test_how_deep_is_too_deep():
    assert is_shallow(json.loads(deep(DEPTH))) and not is_shallow(json.loads(deep(DEPTH + 1)))
    assert is_shallow([[], {}, 5]) and is_shallow(5)
