"""Runs whose questions are answered with tools: train, evaluate, resume, and what is refused. The model's words are
forced; all else is a run as users have it."""

import json
import shlex
from pathlib import Path

import palaestra as pl
import pytest
from palaestra.cli.main import main
from palaestra.engines.own import OwnEngine
from palaestra.errors import UserError
from palaestra.ledger.digests import configuration
from palaestra.services.sandbox import sandbox_kind
from palaestra.settings.fields import Settings
from palaestra.tasks import user_code
from palaestra.types import Completion
from palaestra.worlds import toolbox

from tests.services.test_tool_servers import command

FILE = 'def add(a: int, b: int) -> int:\n    """The sum of a and b."""\n    return (a + b) % 10\n'
CALL = '<tool_call>{"name": "%s", "arguments": %s}</tool_call>'
SMALL = ["--steps", "1", "--evaluate", "4", "schedule.prompts=2", "collect.links.0.n=2"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder of data and tools, and a model that says what it is made to; returns its conversations."""
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": f"{a}+{b} mod 10", "answer": str((a + b) % 10)} for a in range(4) for b in range(5)]
    Path("problems.jsonl").write_text("\n".join(map(json.dumps, rows)))
    long = f'def long(a: int) -> int:\n    """{"Long. " * 100}"""\n    return a\n'
    Path("tools.py").write_text(FILE + long)
    return tmp_path


@pytest.fixture
def forced(monkeypatch):
    """What the model says first; then it says the last result as its answer."""
    first, talks = ["add"], []

    def says(text):
        question, _, later = text.partition("<|user|>")[2].partition("<|end|>")
        if "<|tool|>" in later:
            return "= " + later.rpartition("<|tool|>")[2].partition("<|end|>")[0].strip()
        a, _, b = question.partition(" ")[0].partition("+")
        arguments = {"code": f"print(({a} + {b}) % 10)"} if first[0] == "python" else {"a": int(a), "b": int(b)}
        return CALL % (first[0], json.dumps(arguments))

    async def generate(self, prompt, sampling, key):
        talks.append(self.dialect.decode(prompt))
        text = says(talks[-1])
        ids = (*self.dialect.encode_text(text), self.dialect.end)
        return Completion(
            ids=ids, logp=(-1.0,) * len(ids), text=text, cut=len(text), finish="eos", version=self.version
        )

    monkeypatch.setattr(OwnEngine, "generate", generate)
    monkeypatch.setattr(OwnEngine, "exact", False)
    return first, talks


def lines(folder):
    return [json.loads(x) for x in Path(folder, "metrics.jsonl").read_text().splitlines()]


USED = {
    "calls": 1, "malformed": 0, "errors": 0, "useful": 0.5, "used/add": 1,
    "calls/add": 1, "errors/add": 0, "useful/add": 0.5,  # one sum stands in its question
}  # fmt: skip


def test_from_the_command_line_train_evaluate_and_resume(place, forced, capsys):
    assert main(["train", "--data", "problems.jsonl", "--tools", "tools.py:add", "--out", "run", *SMALL]) == 0
    said, told = capsys.readouterr()
    (step,) = [x for x in lines("run") if "tools/calls" in x]
    assert (step["tools/calls"], step["tools/malformed"], step["tools/errors"], step["reward"]) == (1, 0, 0, 1)
    summary = json.loads(Path("run/summary.json").read_text())
    assert summary["accuracy_after"]["mean"] == 1 and summary["tools"] == USED
    assert "\ntools    1.00 calls an answer in the last step, 0% could not be read, 0% of the others gave" in said
    assert "no tool was called" not in told
    assert "add(a: integer, b: integer): The sum of a and b." in forced[1][0]
    (inspect,) = [x.split(None, 1)[1] for x in said.splitlines() if x.startswith("inspect")]
    assert "--tools tools.py:add" in inspect
    assert main([*shlex.split(inspect)[1:], "--json", "--n", "2"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["greedy"]["mean"] == 1 and found["tools/calls"] == 1
    assert main(["train", "--resume", "run", "--steps", "2", "--tool-turns", "3"]) == 0
    assert [x["tools/calls"] for x in lines("run") if "loss" in x] == [1, 1]
    assert "tool_turns = 3" in Path("run/config.toml").read_text()


def test_tools_that_are_never_called_are_told(place, capsys):
    assert main(["train", "--data", "problems.jsonl", "--tools", "tools.py:add", "--out", "run", *SMALL]) == 0
    said, told = capsys.readouterr()
    assert told.count("note: no tool was called in the first step") == 1
    assert "\ntools    0.00 calls an answer in the last step\n" in said
    assert json.loads(Path("run/summary.json").read_text())["tools"] == {"calls": 0, "calls/add": 0}


def test_from_python_with_functions(place, forced):
    def add(a: int, b: int) -> int:
        """The sum of a and b."""
        return (a + b) % 10

    small = {"schedule.prompts": 2, "collect.links.0.n": 2}
    run = pl.train(data="problems.jsonl", tools=[add], steps=1, evaluate=4, set=small, out="run", quiet=True)
    assert run.config["tools"] == ["given:add"] and run.summary["accuracy_after"]["mean"] == 1
    assert pl.evaluate(run, n=2, k=1)["tools/calls"] == 1
    del user_code.VALUES["given:add"]
    toolbox.BOXES.clear()
    with pytest.raises(UserError, match=r"'add' is a function of another program; put it into a file"):
        pl.train(resume="run", steps=2, quiet=True)
    assert len(pl.train(resume="run", tools=[add], steps=2, quiet=True).steps) == 2


@pytest.mark.skipif(bool(sandbox_kind().refusal()), reason="the sandbox does not run here")
def test_with_the_sandbox(place, forced):
    forced[0][0] = "python"
    assert main(["train", "--data", "problems.jsonl", "--tools", "python", "--out", "run", *SMALL]) == 0
    assert [x["reward"] for x in lines("run") if "tools/calls" in x] == [1]


def test_with_a_server(place, forced, monkeypatch):
    pytest.importorskip("mcp")
    closed, close = [], toolbox.Toolbox.close
    monkeypatch.setattr(toolbox.Toolbox, "close", lambda box: (closed.append(box), close(box))[1])
    argv = ["train", "--data", "problems.jsonl", "--tools", f"mcp:{command()}", "--out", "run", *SMALL]
    assert main(argv) == 0  # sums below 10 are the same without the modulus
    assert [x["reward"] for x in lines("run") if "tools/calls" in x] == [1]
    (box,) = [b for b in closed if b.servers]
    assert all(s._session is None for s in box.servers)  # the end of the run ended it
    assert box not in toolbox.BOXES.values()


def test_a_server_that_dies_pays_nothing(place, forced, capsys):
    pytest.importorskip("mcp")
    forced[0][0] = "die"
    argv = ["train", "--data", "problems.jsonl", "--tools", f"mcp:{command()}", "--out", "run", *SMALL[2:]]
    assert main([*argv, "--steps", "1", "--evaluate", "0"]) != 0
    assert "goodbye, cruel world" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--task", "tictactoe", "--tools", "tools.py:add"], "tictactoe is a world of its own"),
        (["--data", "problems.jsonl", "--tools", "tools.py:ad"], "no function 'ad'"),
        (
            ["--data", "problems.jsonl", "--tools", "tools.py:add", "--tool-turns", "0"],
            "--tool-turns must be at least 1",
        ),
        (["--data", "problems.jsonl", "--tools", "add"], "unknown tool 'add'"),
        (["--data", "problems.jsonl", "--tools", "mcp:nowhere-at-all"], "no program 'nowhere-at-all' is installed"),
        (["--data", "problems.jsonl", "--tools", "mcp:http://127.0.0.1:9/mcp"], "All connection attempts failed"),
        (["--data", "problems.jsonl", "--tools", "tools.py:long"], "its prompt with its tools has"),
    ],
)
def test_mistakes_are_named_in_one_line(argv, said, place, capsys):
    if any("mcp:" in a for a in argv):
        pytest.importorskip("mcp")
    assert main(["train", *argv, "--smoke", "--out", "run"]) == 2
    *_, line = capsys.readouterr().err.strip().splitlines()
    assert said in line and line.startswith("palaestra: ") and not Path("run").exists()


def test_tools_of_a_built_in_task(place):
    assert main(["train", "--task", "chain", "--tools", "tools.py:add", "--smoke", "--out", "run"]) == 0


def test_tools_are_part_of_what_a_result_is_of(place):
    def of(**given):
        return configuration(pl.recipe("grpo"), Settings(data="problems.jsonl", **given), 1, 1)

    before = of(tools=("tools.py:add",))
    assert before != of() and "tools" not in of()
    assert before != of(tools=("tools.py:add",), tool_chars=9)
    Path("tools.py").write_text(FILE.replace("10", "11"))
    assert before != of(tools=("tools.py:add",))


def test_settings_without_tools_say_nothing_of_them(place):
    assert main(["train", "--smoke", "--out", "run"]) == 0
    assert "tool" not in Path("run/config.toml").read_text()
    assert not any("tools" in key for line in lines("run") for key in line)
