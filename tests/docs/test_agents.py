"""The programs and commands of docs/agents.md run as they stand there, at smoke size."""

import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import palaestra as pl
import pytest
from palaestra.cli.main import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "agents.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, re.DOTALL)
FILES = {m[1]: code for kind, code in BLOCKS if kind == "python" and (m := re.match(r"# (\S+\.py)\n", code))}
COMMANDS = [line for kind, code in BLOCKS if not kind for line in code.splitlines()]
# stands in the place of the package where it is not installed: the two calls that the page makes
CLIENT = """
import json, os, urllib.request
from types import SimpleNamespace as Some

class OpenAI:
    def __init__(self, base_url=None):
        self.base_url = base_url or os.environ["OPENAI_BASE_URL"]
        self.chat = Some(completions=Some(create=self.create))

    def create(self, model, messages):
        plain = [m if isinstance(m, dict) else vars(m) for m in messages]
        headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
        body = json.dumps({"model": model, "messages": plain}).encode()
        request = urllib.request.Request(self.base_url + "/chat/completions", body, headers)
        said = json.load(urllib.request.urlopen(request))["choices"][0]["message"]
        return Some(choices=[Some(message=Some(**said))])
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, code in FILES.items():
        (tmp_path / name).write_text(code)
    shutil.copy(ROOT / "examples" / "agent" / "problems.jsonl", tmp_path)
    try:
        import openai  # noqa: F401
    except ImportError:
        (tmp_path / "openai.py").write_text(CLIENT)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("palaestra train")])
def test_command_trains(command, place, capsys):
    """Two steps, all of whose tokens the trainer knows as the sampler did."""
    argv = [x.replace("python ", f"{sys.executable} ") for x in shlex.split(command)[1:]]
    small = ["--steps", "2", "--evaluate", "2", "--max-tokens", "8", "--agent-processes", "4", "--out", "run"]
    assert main([*argv, *small, "prompts=2", "n=2"]) == 0, capsys.readouterr().err
    run = pl.open("run")
    assert run.summary["steps"] == 2
    lines = (place / "run" / "metrics.jsonl").read_text().splitlines()
    steps = [s for s in map(json.loads, lines) if "episodes" in s]  # the others are measurements
    assert len(steps) == 2
    assert all(s["errors"] == 0 and abs(s["kl_behaviour"]) < 1e-6 for s in steps)
    assert "PALAESTRA" not in (place / "run" / "config.toml").read_text()


def test_the_example_is_the_program_of_the_page():
    code = (ROOT / "examples" / "agent" / "my_agent.py").read_text()
    assert code.partition("\n\n")[2] == FILES["my_agent.py"].partition("\n")[2]
    assert len(code.splitlines()) <= 30


def test_the_command_that_serves_is_read():
    from palaestra.cli.main import parser_of

    (command,) = [c for c in COMMANDS if c.startswith("palaestra gateway")]
    given = parser_of("gateway").parse_intermixed_args(shlex.split(command)[2:])
    assert (given.model, given.data, given.out) == ("tiny", "problems.jsonl", "episodes.jsonl")
