"""The commands that stand on the pages of the surveys run as they stand there, and their example reward is one."""

import itertools
import json
import re
import shlex
from pathlib import Path

import palaestra as pl
import pytest
from palaestra.cli.main import main
from tools.pages import essay

from tests.docs.blocks import ROOT, files, programs

TEMPLATES = ROOT / "tools" / "pages" / "templates"
NAMES = ("choose.md", "essay.md", "survey.md", "taxonomy.md")
ELSEWHERE = ("compare", "doctor")  # whose commands the README has as well, and its test runs
TEXT = "\n".join((TEMPLATES / name).read_text() for name in NAMES)
BLOCKS = [code for kind, code in re.findall(r"```(\w*)\n(.*?)```", TEXT, re.DOTALL) if not kind]
COMMANDS = sorted({line for block in BLOCKS for line in block.splitlines()})


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_reward.py").write_text(essay.essay_facts(())["source"])
    for name, code in files(ROOT / "docs" / "surveys" / "choose.md").items():
        (tmp_path / name).write_text(code)
    (tmp_path / "problems.jsonl").write_text("\n".join(map(json.dumps, essay.example_problems())))


def test_they_are_commands():
    assert len(COMMANDS) > 8 and all(c.startswith("palaestra ") for c in COMMANDS)


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.split()[1] not in ELSEWHERE])
def test_command(command, place, capsys):
    argv = shlex.split(command, comments=True)[1:]
    if argv[0] == "train":
        argv += ["--smoke", "--out", "run"]
        longer = itertools.product(range(2, 9), repeat=4)  # which some answers solve, and not all
        sums = [{"prompt": f"{a}+{b}+{c}+{d} mod 10", "answer": str((a + b + c + d) % 10)} for a, b, c, d in longer]
        Path("problems.jsonl").write_text("\n".join(map(json.dumps, sums)))
    assert main(argv) == 0, capsys.readouterr().err
    out = capsys.readouterr().out
    if "--manner" in command:
        assert re.search(r"^longer +0\.5100 +-0\.4900$", out, re.M), "the table of the page"


def parts_of_the_page():
    (code,) = (c for c in programs(ROOT / "docs" / "surveys" / "choose.md") if not c.startswith("#"))
    made = {}
    exec(code, made)
    return {name: x for name, x in made.items() if isinstance(x, pl.Recipe)}


@pytest.mark.parametrize("name", ["bonus", "bounded", "pulled", "unsolved"])
def test_a_recipe_against_a_symptom(name, place):
    recipes = parts_of_the_page()
    assert len(recipes) == 4
    assert pl.train(recipes[name], smoke=True, quiet=True, out="run").summary


def test_dapo_punishes_what_is_too_long(place):
    made = {}
    exec(Path("dapo.py").read_text(), made)
    paid = made["overlong"](None, [[0] * n for n in (10, 192, 224, 256, 300)])
    assert paid == [0, 0, -0.5, -1, -1]
