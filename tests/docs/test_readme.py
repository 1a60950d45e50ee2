"""The files and commands of the README, the first run and the eight examples run as they stand there (at smoke size),
and the example of an environment is as short as it says.
"""

import functools
import json
import runpy
import shlex
from pathlib import Path

import palaestra as pl
import pytest
from palaestra import catalogue
from palaestra.cli.main import main
from palaestra.run.setup import bench_of
from palaestra.settings.fields import Settings

from tests.docs.blocks import ROOT, commands, fenced, files, programs
from tests.oracle import check_oracle

README, FIRST, EXAMPLES = (ROOT / "README.md", ROOT / "docs" / "first-run.md", ROOT / "docs" / "examples.md")
FILES = files(EXAMPLES)
COMMANDS = [c for page in (README, FIRST, EXAMPLES) for c in commands(page) if c.startswith("palaestra ")]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, code in FILES.items():
        (tmp_path / name).write_text(code)
    lines = [json.dumps({"prompt": f"{a}+{b} mod 10", "answer": str((a + b) % 10)}) for a in range(4) for b in range(5)]
    (tmp_path / "problems.jsonl").write_text("\n".join(lines))
    return tmp_path


def small(command):
    """The command at smoke size, on the embedded model, in folders of the test."""
    argv = shlex.split(command)[1:]
    argv = ["tiny" if a == "smollm2" or (a.startswith("runs/") and "checkpoints" in a) else a for a in argv]
    if argv[0] == "train":
        return [*argv, "--smoke"] if "--resume" in argv else [*argv, "--smoke", "--out", "run"]
    if argv[0] == "eval":
        return ["4" if a == "8" else a for a in argv] + ["--n", "2"]
    if argv[0] == "compare":
        seeds, tokens = argv.index("--seeds") + 1, argv.index("--tokens") + 1
        argv[seeds], argv[tokens] = "2", "500"
        return [*argv, "--evaluate", "4", "--out", "compare", "schedule.prompts=2", "collect.links.0.n=2"]
    if argv[0] == "reproduce":
        return [*argv, "--seeds", "2", "--tokens", "200"]
    if argv[0] == "bench":
        return [*argv, "--repeats", "1", "--prompts", "2", "--group", "2", "--max-tokens", "8"]
    if argv[0] == "view":
        return [*argv, "--text"]
    return [*argv, "schedule.prompts=2", "collect.links.0.n=2"] if argv[0] == "doctor" else argv


def marked(command):
    """A command as a case of a test."""
    marks = [pytest.mark.gym] * ("rg:" in command)
    return pytest.param(command, marks=marks)


@pytest.mark.parametrize("command", [marked(c) for c in dict.fromkeys(COMMANDS)])
def test_command(command, place, capsys, request):
    if "--cluster" in command:
        request.addfinalizer(pytest.importorskip("ray").shutdown)
    if "--resume" in command:
        folder = shlex.split(command)[-1]
        assert main(["train", "--smoke", "--out", folder]) == 0
    if command.startswith("palaestra plan"):
        pytest.importorskip("simpy")
        sizes = ["schedule.prompts=8", "collect.links.0.n=2", "--steps", "4", "--evaluate", "2"]
        assert main(["train", *sizes, "--out", shlex.split(command)[-1]]) == 0
    if command.startswith("palaestra view"):
        assert main(["train", "--smoke", "--out", shlex.split(command)[2]]) == 0
    assert main(small(command)) == 0, capsys.readouterr().err


def test_readme_shows_each_verb():
    verbs = {c.split()[1] for c in COMMANDS}
    assert verbs >= {"train", "eval", "compare", "list", "show", "explain", "reproduce", "bench", "doctor"}


def test_own_files_take_at_most_thirty_lines(place):
    assert set(FILES) == {"my_reward.py", "my_tools.py", "guess.py", "brief.py", "test_brief.py", "script.py"}
    for code in FILES.values():
        assert len([x for x in code.splitlines() if x.strip()]) <= 31  # the first line is the file's name


def test_own_environment_is_solved_by_its_oracle(place):
    bench, _ = bench_of(Settings(env="guess.py:Guess"))
    assert check_oracle(bench.tasks, bench.world) == []


def test_the_test_of_an_own_rule_passes(place):
    runpy.run_path("test_brief.py")["test_the_shorter_of_two_right_answers_is_better"]()


def test_the_two_commands_come_first():
    first = fenced(README)[0][1].splitlines()
    assert first[0].startswith("pip install . && palaestra train") and first[1].startswith(
        "pip install '.[test]' && pytest"
    )


def test_the_readme_is_one_screen():
    text = README.read_text()
    assert text.count("\n") <= 45 and len(programs(README)) == 1
    code = [x for x in programs(README)[0].splitlines() if x.strip()]
    assert len(code) <= 5


def test_the_readme_counts_as_the_catalogue_does():
    families = [e.family for e in catalogue.all_entries()]
    base, losses = families.count(catalogue.BASE), families.count(catalogue.LOSSES)
    assert f"the {len(catalogue.rows())} methods of the literature" in README.read_text() and base == 9
    assert f"nine base methods and {losses} losses by name" in README.read_text()
    assert base + losses + len(catalogue.rows()) == len(families)


def test_the_five_lines_of_python(place, monkeypatch, capsys):
    monkeypatch.setattr(pl, "train", functools.partial(pl.train, smoke=True, out="run"))
    (code,) = programs(README)
    Path("five.py").write_text(code.replace(", steps=30", ""))
    runpy.run_path("five.py")
    assert capsys.readouterr().out.splitlines()[-1].startswith("[[1.0, -0.33")


def test_the_first_run_shows_what_explain_prints(capsys):
    (shown,) = (code for kind, code in fenced(FIRST) if kind == "text")
    (command,) = (c for c in commands(FIRST) if c.startswith("palaestra explain grpo"))
    assert main(shlex.split(command)[1:]) == 0
    assert capsys.readouterr().out == shown
