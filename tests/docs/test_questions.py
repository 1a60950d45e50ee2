"""The commands of docs/questions.md run as they stand there, and a run whose loss is NaN does what docs/howto.md says."""

import json
import shlex
from pathlib import Path

import pytest
from palaestra.cli.main import main

from tests.docs.blocks import ROOT, commands, files

PAGE = ROOT / "docs" / "questions.md"
REWARD = """
def reward_func(completions, answer, **kwargs):
    return [float(a in c[0]["content"]) for c, a in zip(completions, answer)]
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sums = [(f"{a}+{b} mod 10", str((a + b) % 10)) for a in range(5) for b in range(8)]
    Path("questions.csv").write_text("question,answer\n" + "".join(f"{q},{a}\n" for q, a in sums))
    rows = [{"prompt": [{"role": "user", "content": q}], "answer": a} for q, a in sums]
    Path("train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    Path("rewards.py").write_text(REWARD)
    Path("guess.py").write_text(files(ROOT / "docs" / "examples.md")["guess.py"])


def test_commands(place, capsys):
    assert len(commands(PAGE)) == 9
    for command in commands(PAGE):
        assert main(shlex.split(command)[1:]) == 0, (command, capsys.readouterr().err)
        shown = capsys.readouterr()
        if "questions.csv" in command and command.startswith("palaestra train"):
            assert "read question as prompt" in shown.out + shown.err
        if "doctor" in command:
            assert all(x in shown.out for x in ("seconds_at_most", "peak_memory_mb", "checkpoint_mb", "rollouts_mb"))
    assert Path("runs/adapted/checkpoints/step-2/adapter").is_dir()


def test_a_loss_that_is_nan(place, capsys):
    argv = "train grpo --data questions.csv --evaluate 0 --max-tokens 8 sample.n=2 schedule.prompts=2 --out nan"
    assert main([*argv.split(), "--steps", "9", "optimiser.lr=1e30"]) == 1  # the first update ruins the model
    assert "5 updates in a row were not finite" in capsys.readouterr().err
    steps = [json.loads(line) for line in Path("nan/metrics.jsonl").read_text().splitlines()]
    assert [s["skipped"] for s in steps if "skipped" in s][-4:] == [1.0] * 4
    case = max(Path("nan/cases").iterdir())
    assert main(["doctor", "--case", str(case)]) == 0
    assert "gradients_not_finite" in capsys.readouterr().out


def test_every_question_has_a_row():
    text = PAGE.read_text()
    asked = text.split("## How the answers")[0].count("\n## ")
    rows = [x for x in text.split("## How the answers")[1].splitlines() if x.startswith("| ")]
    assert asked == 10 and len(rows) == asked + 2
