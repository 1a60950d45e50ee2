"""Commands and programs of the pages on models, rewards, judges, the ledger and the code, at smoke size."""

import asyncio
import importlib
import json
import re
import shlex
import sys
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path

import palaestra as pl
import pytest
from palaestra.cli.main import main

from tests.docs.blocks import ROOT, commands, files, programs

DOCS = ROOT / "docs"
COMMANDS = [(name, c) for name in ("models.md", "rewards.md") for c in commands(DOCS / name)]


def smaller(command):
    """The command at smoke size."""
    argv = ["tiny" if a == "smollm2" else a for a in shlex.split(command)[1:]]
    return [*argv, "--smoke", "--out", "run"] if argv[0] == "train" else argv


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, code in files(DOCS / "examples.md").items():
        (tmp_path / name).write_text(code)
    lines = "".join(f'{{"prompt": "{a}+1 mod 10", "answer": "{(a + 1) % 10}"}}\n' for a in range(20))
    (tmp_path / "problems.jsonl").write_text(lines)


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_command(page, command, place, capsys):
    argv = smaller(command)
    if "--run" in argv:  # that the command before it has made
        made = argv[argv.index("--run") + 1]
        assert main(["train", "grpo", "--data", "problems.jsonl", "--smoke", "--out", made]) == 0
    assert main(argv) == 0, capsys.readouterr().err


def test_the_program_of_rewards():
    made = {}
    exec(programs(DOCS / "rewards.md")[0], made)
    assert isinstance(made["gated"], pl.verifiers.Gate) and isinstance(made["both"], pl.verifiers.Min)


def test_the_judge_of_judges(monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "none")
    made = {}
    exec(programs(DOCS / "judges.md")[0], made)
    assert made["judge"].votes == 3 and len(made["collect"].links) == 2


def test_the_audit_of_judges(monkeypatch, capsys):
    always = pl.Scripted(lambda request: "[[YES]]" if "[[YES]]" in str(request) else "[[A]]")
    made = {
        "judge": pl.Judge(
            client=always, template=pl.judges.GRADE_PROMPT, read=pl.judges.MarkedLabel((("YES", 1.0), ("NO", 0.0)))
        )
    }
    exec(programs(DOCS / "judges.md")[-1], made)
    attacks, order, trust = capsys.readouterr().out.splitlines()
    assert (
        "'gold': 1.0" in attacks
        and "flips=1.0" in order
        and [round(float(x), 3) for x in trust.split()] == [0.4, 0.5, 0.333]
    )


@pytest.fixture
def fakes(tmp_path, monkeypatch):
    """The files of the page on judges, to be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name, code in files(DOCS / "judges.md").items():
        (tmp_path / name).write_text(code)
    yield
    for name in ("fake_judge", "fake_endpoint"):
        sys.modules.pop(name, None)


def test_the_fake_judge_trains(fakes, capsys):
    lines = "".join(f'{{"prompt": "{a}+1 mod 10", "answer": "{(a + 1) % 10}"}}\n' for a in range(20))
    Path("problems.jsonl").write_text(lines)
    (command,) = re.findall(r"^    (palaestra train .*)$", (DOCS / "judges.md").read_text(), re.MULTILINE)
    assert main(smaller(command)) == 0, capsys.readouterr().err


def test_the_fake_endpoint_is_heard_once(fakes, tmp_path):
    """And its reply is kept."""
    fake = importlib.import_module("fake_endpoint")
    server = ThreadingHTTPServer(("localhost", 0), fake.Fake)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    client = pl.Endpoint(
        url=f"http://localhost:{server.server_port}/v1", cache=str(tmp_path / "kept"), retries=0
    ).open()
    text = pl.judges.GRADE_PROMPT.format(question="2+2", reference="4", response="= 4", instruction="")
    asked = pl.ChatRequest(messages=(pl.Message(role="user", content=text),))
    said = [asyncio.run(client.chat(asked)).text for _ in range(2)]
    server.shutdown()
    server.server_close()
    assert said == ["[[YES]]"] * 2 and (client.meter.calls, client.meter.cached) == (1, 1)


@pytest.mark.parametrize("command", [c for c in commands(DOCS / "curricula.md") if c.split()[1] == "train"])
def test_the_ways_of_curricula(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, text in files(DOCS / "curricula.md").items():
        Path(name).write_text(text)
    rows = [
        {
            "prompt": f"{a}+{b} mod 10",
            "answer": str((a + b) % 10),
            "difficulty": a + b,
            "level": a,
            "topic": "ab"[b % 2],
            "solution": f"{a}+{b}={a + b}\n{(a + b) % 10}",
            "help": f"add {b} to {a}",
        }
        for a in range(5)
        for b in range(5)
    ]
    Path("problems.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert main(smaller(command)) == 0, capsys.readouterr().err


def test_the_recipe_of_the_code_is_rloo():
    (code,) = programs(DOCS / "code.md")
    made = {"pl": pl}
    exec(code, made)
    assert made["build"]() == pl.recipe("rloo")


def test_the_experiment_of_the_ledger():
    (code,) = programs(DOCS / "ledger.md")
    plain = pl.recipe("reinforce")
    made = {"pl": pl, "plain": plain, "build": lambda: pl.recipe("rloo"), "batch": plain}
    exec(code, made)
    assert made["EXPERIMENT"].expect.by == 0.02
