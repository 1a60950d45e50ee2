"""The commands and the program of docs/games.md run as they stand there."""

import shlex
from pathlib import Path

import pytest
from palaestra.cli.main import main

from tests.docs.blocks import ROOT, commands, files

PAGE = ROOT / "docs" / "games.md"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    pytest.importorskip("pyspiel")
    monkeypatch.chdir(tmp_path)


def test_the_commands_run(capsys):
    for command in commands(PAGE):
        small = command.replace("--n 16", "--n 2").replace("human,", "policy,")  # nobody sits at this terminal
        assert main(shlex.split(small)[1:]) == 0, (command, capsys.readouterr().err)
    assert Path("kuhn-cup/cross-play.png").is_file()
    out = capsys.readouterr().out
    assert "game 3: policy (p0)" in out and "kuhn: 4 games" in out and "exploitable" in out


def test_the_program_runs(capsys):
    exec(compile(files(PAGE)["cup.py"], "cup.py", "exec"), {})
    assert "1.0" in capsys.readouterr().out.splitlines()[0]
