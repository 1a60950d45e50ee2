"""The README's own files and commands run as they stand there (at smoke size), and its environment is as short as it says."""

import json
import re
import shlex
from pathlib import Path

import pytest
from palaestra.cli.main import main
from palaestra.run.settings import Settings
from palaestra.run.setup import bench_of

from tests.oracle import check_oracle

README = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.DOTALL)
FILES = {m[1]: code for kind, code in BLOCKS if kind == "python" and (m := re.match(r"# (\S+\.py)\n", code))}
COMMANDS = [
    line.split(" #")[0].strip()
    for kind, code in BLOCKS
    if not kind
    for part in code.splitlines()
    for line in part.split(";")
    if line.strip().startswith("palaestra ")
]


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
    marks = [pytest.mark.gym] * ("rg:" in command) + [pytest.mark.slow] * ("--cluster" in command)
    return pytest.param(command, marks=marks)


@pytest.mark.parametrize("command", [marked(c) for c in COMMANDS])
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
        assert main(["train", "--smoke", "--out", shlex.split(command)[-1]]) == 0
    assert main(small(command)) == 0, capsys.readouterr().err


def test_readme_shows_each_verb():
    verbs = {c.split()[1] for c in COMMANDS}
    assert verbs >= {"train", "eval", "compare", "list", "show", "explain", "reproduce", "bench", "doctor"}


def test_own_files_take_at_most_thirty_lines(place):
    assert set(FILES) == {"my_reward.py", "my_tools.py", "guess.py", "brief.py", "script.py"}
    for code in FILES.values():
        assert len([x for x in code.splitlines() if x.strip()]) <= 31  # the first line is the file's name


def test_own_environment_is_solved_by_its_oracle(place):
    bench, _ = bench_of(Settings(env="guess.py:Guess"))
    assert check_oracle(bench.tasks, bench.world) == []


def test_the_two_commands_come_first():
    first = BLOCKS[0][1].splitlines()
    assert first[0].startswith("pip install . && palaestra train") and first[1].startswith(
        "pip install '.[test]' && pytest"
    )
