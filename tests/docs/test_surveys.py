"""The commands that stand on the pages of the surveys run as they stand there, and their example reward is one."""

import json
import re
import shlex
from pathlib import Path

import palaestra
import pytest
from palaestra.cli.main import main
from palaestra.ledger import essay

TEMPLATES = Path(palaestra.__file__).parent / "templates"
NAMES = ("choose.md", "essay.md", "survey.md", "taxonomy.md")
ELSEWHERE = ("compare", "doctor")  # whose commands the README has as well, and its test runs
TEXT = "\n".join((TEMPLATES / name).read_text() for name in NAMES)
BLOCKS = [code for kind, code in re.findall(r"```(\w*)\n(.*?)```", TEXT, re.DOTALL) if not kind]
COMMANDS = sorted({line for block in BLOCKS for line in block.splitlines()})


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_reward.py").write_text(essay.essay_facts(())["source"])
    (tmp_path / "problems.jsonl").write_text("\n".join(map(json.dumps, essay.example_problems())))


def test_they_are_commands():
    assert len(COMMANDS) > 8 and all(c.startswith("palaestra ") for c in COMMANDS)


@pytest.mark.slow
@pytest.mark.parametrize("command", [c for c in COMMANDS if c.split()[1] not in ELSEWHERE])
def test_command(command, place, capsys):
    assert main(shlex.split(command, comments=True)[1:]) == 0, capsys.readouterr().err
    out = capsys.readouterr().out
    if "--manner" in command:
        assert re.search(r"^longer +0\.5100 +-0\.4900$", out, re.M), "the table of the page"
