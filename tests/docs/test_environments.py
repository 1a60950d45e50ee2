"""The files and commands of docs/environments.md run as they stand there, at smoke size, and its table is right."""

import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest
from palaestra.cli.main import main
from palaestra.worlds.adapters.named import ADAPTERS, IN_PROGRAMS

PAGE = (Path(__file__).parents[2] / "docs" / "environments.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, re.DOTALL)
FILES = {m[1]: code for kind, code in BLOCKS if kind == "python" and (m := re.match(r"# (\S+\.py)\n", code))}
COMMANDS = [line for kind, code in BLOCKS if not kind for line in code.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_command(command, tmp_path, monkeypatch, capsys):
    for needed in ("gymnasium", "pyspiel", *(["scipy"] if "mcts" in command else [])):
        pytest.importorskip(needed)
    monkeypatch.chdir(tmp_path)
    for name, code in FILES.items():
        (tmp_path / name).write_text(code)
    argv = shlex.split(command)[1:]
    small = ["--n", "4"] if argv[0] == "eval" else ["--smoke"]
    assert main([*argv, *small]) == 0, capsys.readouterr().err


def test_every_setting_of_an_adapter_is_in_the_table():
    table = PAGE.split("| setting | for |")[1].split("## ")[0]
    said_elsewhere = {*IN_PROGRAMS, "make", "game", "url"}
    known = {f.name for kind in ADAPTERS.values() for f in fields(kind) if f.init} - said_elsewhere
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == known


def test_every_prefix_is_on_the_page():
    assert set(re.findall(r"^\| `(\w+):", PAGE, re.MULTILINE)) == {*ADAPTERS, "rg"}
