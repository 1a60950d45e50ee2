"""The files and commands of docs/howto.md run as they stand there, at smoke size."""

import ast
import functools
import json
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import palaestra as pl
import pyarrow.parquet as pq
import pytest
from palaestra.cli.main import main
from palaestra.services import sandbox

from tests.chat_server import serving
from tests.services.proof.lean_server import SWAP, lean_server

PAGE = (Path(__file__).parents[2] / "docs" / "howto.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, re.DOTALL)
FILES = {m[1]: code for _, code in BLOCKS if (m := re.match(r"# (\S+\.(?:py|toml))\n", code))}
REWARD = "def score(responses, answers, **fields): return [float(a in r) for r, a in zip(responses, answers)]\n"
COMMANDS = [line for kind, code in BLOCKS if not kind for line in code.splitlines()]
SMALL = ["schedule.prompts=2", "collect.links.0.n=2"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JUDGE_KEY", "none")
    sums = [(f"{a}+{b} mod 10", str((a + b) % 10)) for a in range(4) for b in range(5)]
    rows = {
        "problems": [{"prompt": q, "answer": a} for q, a in sums],
        "demos": [{"prompt": q, "demonstration": f"= {a}"} for q, a in sums],
        "theorems": [{"prompt": f"Prove {i}: {SWAP}", "answer": SWAP} for i in range(8)],
        "pairs": [{"prompt": q, "chosen": f"= {a}", "rejected": "= x"} for q, a in sums],
        "labels": [{"prompt": q, "completion": f"= {a}", "label": i % 2 > 0} for i, (q, a) in enumerate(sums)],
    }
    for name, lines in rows.items():
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with serving(lambda body: "Brief. [[7]]") as (_, url), lean_server() as (lean, _):
        for name, code in {**FILES, "my_reward.py": REWARD}.items():
            text = code.replace("http://localhost:8000/v1", url).replace("http://127.0.0.1:8000", lean)
            (tmp_path / name).write_text(text)
        yield tmp_path


def begun(folder):
    return main(["train", "sft", "--data", "demos.jsonl", "--smoke", "--out", folder])


@pytest.mark.parametrize("command", COMMANDS)
def test_command(command, place, capsys):
    if "calc.py" in command and sandbox.sandbox_kind().refusal():
        pytest.skip(sandbox.sandbox_kind().refusal())
    argv = ["tiny" if "/checkpoints/" in a else a for a in shlex.split(command)[1:]]
    if "--resume" in argv:
        assert begun(argv[argv.index("--resume") + 1]) == 0
        argv = [*("3" if a == "30" else a for a in argv), "schedule.prompts=2"]
    elif argv[0] == "eval":
        argv += ["--n", "4"]
    elif argv[0] == "train":
        argv = [*argv, "--smoke"] + ([] if "--out" in argv else ["--out", "run"])
    assert main(argv) == 0, capsys.readouterr().err
    if "judge" in command:
        step = json.loads(Path("run/metrics.jsonl").read_text().splitlines()[1])
        assert step["part/judge"] == pytest.approx(2 / 3) and {"part/form", "part/tags"} & step.keys()
        assert ("part/gold" in step) == ("judged.py" in argv)


def test_what_a_run_writes_is_read_as_shown(place, capsys):
    assert begun("runs/warm") == 0
    capsys.readouterr()
    runpy.run_path("look.py")
    steps, episodes = map(ast.literal_eval, capsys.readouterr().out.splitlines())
    assert len(steps) == 2 and episodes[0].keys() == {"prompt", "text", "reward", "advantage"}


def test_a_trained_model_is_asked(place, capsys):
    assert begun("runs/warm") == 0
    (last,) = (str(p) for p in Path("runs/warm/checkpoints").glob("step-2"))
    code = Path("ask.py").read_text()
    assert "runs/warm/checkpoints/step-20" in code
    Path("ask.py").write_text(code.replace("runs/warm/checkpoints/step-20", last))
    capsys.readouterr()
    runpy.run_path("ask.py")
    assert capsys.readouterr().out.strip()


def test_a_run_is_steered_from_python(place, monkeypatch):
    monkeypatch.setattr(pl, "train", functools.partial(pl.train, smoke=True, out="run", quiet=True))
    runpy.run_path("steered.py")
    steps = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert all(s["reward/doubled"] == 2 * s["reward"] for s in steps if "reward" in s)


def test_lean_pays_a_proof_of_the_row(place):
    proven = runpy.run_path("lean_reward.py")["proven"]
    replies = ["intro h\nexact ⟨h.2, h.1⟩", "theorem x : 1 = 1 := by\n  rfl", "sorry"]
    assert proven(replies, [SWAP] * 3) == [1.0, 0.0, 0.0]


def test_answers_of_a_larger_model_become_demonstrations(place):
    """Of what `eval --out` stores, the right ones alone."""
    argv = ["eval", "--task", "chain", "--n", "16", "--k", "1", "--out", "answers"]
    assert main(argv) == 0
    runpy.run_path("teach.py")
    answers = pq.read_table("answers/evaluations/held-out").to_pylist()
    right = [row for row in answers if row["solved"]]
    rows = [json.loads(line) for line in Path("taught.jsonl").read_text().splitlines()]
    assert 0 < len(right) < 16
    assert [r["demonstration"] for r in rows] == [r["text"] for r in right]


def test_every_metric_of_the_page_is_one(place, capsys):
    """And what a step of GRPO logs is on the page."""
    assert main(["train", "--smoke", "--out", "run"]) == 0
    capsys.readouterr()
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)?)`", PAGE.split("| metric | meaning |")[1]))
    logged = [set(json.loads(line)) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    phases = {k for keys in logged for k in keys if k.startswith("seconds/")}
    assert phases and "`seconds/PHASE`" in PAGE
    assert set().union(*logged) - phases - {"step", "evaluation", "episodes"} <= named


def test_pictures_in_prompts(place):
    (block,) = (code for kind, code in BLOCKS if kind == "python" and "pl.Picture(" in code)
    found = {}
    exec(block, found)
    assert found["message"].pictures == (found["grey"],)
    assert (place / "runs" / "seeing").is_dir() and len(found["run"].steps) == 2


OTHERS = [
    code
    for kind, code in BLOCKS
    if kind == "python" and not re.match(r"# \S+\.py\n", code) and "pl.Picture(" not in code
]


@pytest.mark.parametrize("code", OTHERS, ids=lambda code: re.sub(r"\W+", "-", code)[22:60])
def test_programs_that_are_no_files(code, place, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    Path("other.py").write_text(code)
    ran = subprocess.run([sys.executable, "other.py"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
