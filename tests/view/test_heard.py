"""Searching what tools said, groups whose tools failed, and the answers of a group on the terminal."""

import io
import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.made_up import write_run
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.store.columns import path
from palaestra.view.in_text import show
from palaestra.view.reader import open_runs
from rich.console import Console

ROW = [
    *(("environment", False, t) for t in ("What is", " 2+3?")),
    *(("policy", True, t) for t in ("add(2,", "x)")),
    *(("environment", False, t) for t in ("error: x is", " no number")),
    ("policy", True, "It is 5."),
]
FAILED = {"tool_calls": 2, "tool_malformed": 0, "tool_errors": 1, "answered": True}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Step 1, group 1: sample 0 called a tool that failed, sample 1 ended in a fault, a judge spoke of it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = write_run(tmp_path / "run", 2, groups=2, samples=2, problems=5, tokens=6)
    table = pq.ParquetFile(path(folder, 1)).read()
    lines = table.to_pylist()
    author, trained, tokens = zip(*ROW, strict=True)
    old = lines[2]["rows"][0]
    blank = {k: [None] * len(ROW) for k, v in old.items() if isinstance(v, list)}
    new = {**old, **blank, "said": [], "ids": [1] * len(ROW), "hidden": [False] * len(ROW), "turn": [0] * len(ROW)}
    lines[2]["rows"] = [old, {**new, "author": list(author), "trained": list(trained), "tokens": list(tokens)}]
    lines[2] |= {"facts": json.dumps(FAILED), "text": "add(2,x)\nIt is 5."}
    lines[3] |= {"facts": json.dumps({"error": "chat-500: zebra"}), "status": "error:chat-500"}
    lines[3]["verdicts"] = [{"judge": "j", "score": None, "said": "Ostrich."}]
    pq.write_table(pa.Table.from_pylist(lines, schema=table.schema), path(folder, 1))
    return folder


@pytest.mark.parametrize(
    "words,rows", [("X IS NO NUMBER", [2]), ("/is .. number/", [2]), ("zebra", [3]), ("ostrich", [3]), ("2+3?", [])]
)
def test_a_search_finds_what_was_heard(run, words, rows):
    """Of an answer's second context the prompt is no news: it was asked."""
    assert open_runs([run])[0].main.search(words) == rows


def test_what_was_said_is_still_found(run):
    table = open_runs([run])[0].main
    assert 2 in table.search("It is 5.") and table.search(table.texts["prompt"][0].as_py())


def test_failed_tools_have_a_column(run):
    assert open_runs([run])[0].main.index["tool_failed"].to_pylist() == [0, 0, 1, 0, 0, 0, 0, 0]


def test_a_file_without_tokens_has_heard_nothing(run):
    table = pq.ParquetFile(path(run, 1)).read().drop_columns(["rows", "facts", "verdicts"])
    pq.write_table(table, path(run, 1))
    main = open_runs([run])[0].main
    assert main.texts["heard"].null_count == 8 and not main.search("zebra")


def text_of(run, **place):
    show(open_runs([run]), Console(file=(out := io.StringIO()), width=200), **place)
    return out.getvalue()


def test_a_group_is_printed_with_its_answers(run):
    text = text_of(run, step=1, group=1)
    first, second = text.split("sample 1: ")
    assert "[policy] add(2,x)\n[environment] error: x is no number\n[policy] It is 5.\n" in first
    assert "reward" in first and ", error:chat-500\n" in second and "error: chat-500: zebra\n" in second
    assert "step 2, group 0" in text_of(run, step=2) and "step 2, group 1" in text_of(run, group=1)
    with pytest.raises(UserError, match="run has no group 7; step 1 has 0 to 1; it has the steps 1 to 2"):
        text_of(run, step=1, group=7)
    with pytest.raises(UserError, match="run has no step 9; it has the steps 1 to 2"):
        text_of(run, step=9)


def test_control_characters_of_answers_are_drawn(run, capsys):
    lines = pq.ParquetFile(path(run, 1)).read().to_pylist()
    schema = pq.ParquetFile(path(run, 1)).schema_arrow
    lines[0] |= {"prompt": "\x1b[2J?", "rows": [], "text": "\x1b]0;x\x07"}
    pq.write_table(pa.Table.from_pylist(lines, schema=schema), path(run, 1))
    assert main(["view", str(run), "--text", "--step", "1", "--group", "0"]) == 0
    out = capsys.readouterr().out
    assert "␛[2J?" in out and "␛]0;x␇" in out and "\x1b" not in out
    shutil.rmtree(run / "rollouts")
    assert main(["view", str(run), "--text", "--step", "1"]) == 2
    assert main(["view", str(run), "--step", "1"]) == 2
