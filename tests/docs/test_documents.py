"""The commands of docs/documents.md run as they stand there, on its example, at smoke size."""

import re
import shlex
import shutil
from pathlib import Path

import palaestra as pl
import pytest
from palaestra.cli.main import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "documents.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [line for kind, code in BLOCKS if not kind for line in code.splitlines()]


@pytest.mark.slow
def test_the_commands_run_one_after_the_other(tmp_path, monkeypatch, capsys):
    """With the small model in the place of the large one."""
    shutil.copytree(ROOT / "examples" / "documents", tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    assert [c.split()[1] for c in COMMANDS] == ["train", "train", "view", "eval"]
    for command in COMMANDS:
        command = re.sub(r"step-\d+", "step-1", command.replace("--model smollm2", "--model tiny-agent"))
        command = re.sub(r"--steps \d+ prompts=\d+", "--steps 1 --evaluate 2 prompts=2", command)
        assert main(shlex.split(command)[1:]) == 0, capsys.readouterr().err
    shown, rewarded = (pl.open(name).summary for name in ("shown", "rewarded"))
    assert shown["steps"] == rewarded["steps"] == 1
    assert "accuracy_after" in rewarded and "tools" in rewarded


def test_no_machine_of_the_test_is_asked_about_in_training():
    import json

    folder = ROOT / "examples" / "documents"
    questions, test = (
        [json.loads(x)["prompt"] for x in (folder / name).read_text().splitlines()]
        for name in ("questions.jsonl", "test.jsonl")
    )
    notes = "".join(p.read_text() for p in folder.glob("notes/*.md"))
    machines = re.findall(r"The (.+?) stands", notes)
    asked = lambda rows: {m for m in machines if any(f"the {m} " in f"{q[:-1]} " for q in rows)}
    assert (len(questions), len(test), len(machines)) == (36, 18, 18)
    assert asked(questions).isdisjoint(asked(test)) and len(asked(test)) == 6
