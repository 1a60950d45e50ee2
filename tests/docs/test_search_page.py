"""The commands and programs of docs/search.md run as they stand there."""

import json
import shlex
from pathlib import Path

import pytest
from palaestra.cli.main import main

from tests.docs.blocks import ROOT, commands, files, programs

PAGE = ROOT / "docs" / "search.md"


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in files(PAGE).items():
        Path(name).write_text(text)
    rows = [{"prompt": "3+4", "answer": "7"}, {"prompt": "2+2", "answer": "4"}]
    Path("sums.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))


def test_the_commands_run(place, capsys):
    for command in commands(PAGE):
        small = command.replace("--n 16", "--n 2").replace("--n 8", "--n 2").replace("budget 128", "budget 32")
        assert main(shlex.split(small)[1:]) == 0, (command, capsys.readouterr().err)
    assert Path("curve/curve.png").is_file() and Path("runs/search-majority-sums-tiny-s0/summary.json").is_file()
    out = capsys.readouterr().out
    assert "weighted, tiny on chain, 2 problems" in out and "mine.py:Shortest(tries=3), tiny on chain" in out


def test_the_program_runs(place, capsys):
    (code,) = [c for c in programs(PAGE) if not c.startswith("# ")]
    exec(compile(code, "search.md", "exec"), {})
    assert "'n': 4" in capsys.readouterr().out
