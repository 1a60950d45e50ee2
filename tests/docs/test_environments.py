"""The files and commands of docs/environments.md run as they stand there, at smoke size, and its table is right."""

import re
import shlex
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
from palaestra.cli.doctor import EXTRAS
from palaestra.cli.main import main
from palaestra.run.benches import GUESSABLE, QUESTIONS, WORLDS
from palaestra.worlds.adapters.named import ADAPTERS, IN_PROGRAMS

PAGE = (Path(__file__).parents[2] / "docs" / "environments.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, re.DOTALL)
FILES = {m[1]: code for kind, code in BLOCKS if kind == "python" and (m := re.match(r"# (\S+\.py)\n", code))}
# those with a model of the user are the own tests of their methods: tests/test_own.py; those that serve, and do
# not end, are tests/worlds/adapters/test_world_server.py
LINES = [line for kind, code in BLOCKS if not kind for line in code.splitlines()]
COMMANDS = [line for line in LINES if "--model DIR" not in line and not line.startswith("palaestra serve ")]


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


def test_every_task_is_in_the_tables_with_its_settings():
    tables = PAGE.split("## Built in\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in tables.splitlines() if re.match(r"\| `[a-z]", line)]
    questions = {**QUESTIONS, **GUESSABLE}
    named = {name: row for row in rows for name in re.findall(r"`([\w-]+)`", row[0])}
    assert set(named) == {*questions, *WORLDS}
    for name, make in questions.items():
        own = [
            f for f in fields(make()) if f.name not in ("name", "size", "max_tokens") and not is_dataclass(f.default)
        ]
        said = re.findall(r"`(\w+=[^`]+)`", named[name][2] if len(named[name]) > 2 else "")
        assert said == [f"{f.name}={f.default!r}" for f in own], name
    assert {row[2].strip("`") for row in rows if not {row[0].strip("`")} & {*questions} and row[2:]} <= {*EXTRAS, ""}


def test_every_prefix_is_on_the_page():
    assert set(re.findall(r"^\| `(\w+):", PAGE, re.MULTILINE)) == {*ADAPTERS, "rg"}
