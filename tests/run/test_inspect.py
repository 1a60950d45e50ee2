"""Tasks of Inspect: what is asked of it, what its scorers get, and tools that it calls for the model."""

import asyncio
import json
from dataclasses import replace

import pytest
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.run.evaluators import exams_of
from palaestra.run.harness import HarnessExam
from palaestra.run.inspect_exam import InspectExam, inspect_exam, library_exam
from palaestra.run.setup import context
from palaestra.run.trust import Executables
from palaestra.settings.fields import Settings
from palaestra.types import Sampling

FILE = '''
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes, match
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import tool

ASKED = [("3+4=", "7"), ("2+2=", "4"), ("5+1=", "6")]


@task
def sums(extra: int = 0):
    rows = [*ASKED, *[("1+1=", "2")] * extra]
    return Task(dataset=[Sample(input=a, target=b) for a, b in rows], solver=generate(), scorer=includes())


@tool
def add():
    async def execute(a: int, b: int) -> str:
        """Adds.

        Args:
            a: a number
            b: another
        """
        return str(a + b)

    return execute


@task
def with_tool():
    return Task(dataset=[Sample(input="3+4=", target="7")], solver=[use_tools(add()), generate()], scorer=match())
'''


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(FILE)
    return tmp_path


def test_names():
    assert inspect_exam("inspect:own.py@sums(extra=2)", 7) == InspectExam("own.py@sums", 7, (("extra", 2),))
    assert library_exam("chain", 3) is None and isinstance(library_exam("lm-eval:gsm8k", 3), HarnessExam)
    assert exams_of(Settings(exams=("inspect:inspect_evals/gsm8k",), evaluate=4)) == {
        "inspect:inspect_evals/gsm8k": InspectExam("inspect_evals/gsm8k", 4)
    }
    with pytest.raises(UserError, match="name a task"):
        inspect_exam("inspect:", 3)


def test_a_task_that_the_file_has_not_is_known_before_anything_is_measured(place):
    with pytest.raises(UserError, match="no task 'sum'; did you mean sums"):
        exams_of(Settings(exams=("inspect:own.py@sum",), evaluate=4))
    with pytest.raises(UserError, match="no task 'products'; there are sums, with_tool"):
        inspect_exam("inspect:own.py@products", 3)
    assert inspect_exam("inspect:own.py@with_tool", 3) == InspectExam("own.py@with_tool", 3)


def test_a_file_of_tasks_is_code(place):
    """Settings of somebody else that name one are asked about before it runs."""
    assert Executables.of({"exams": ["inspect:own.py@sums"]}).files == ("own.py",)


def test_without_the_package_one_line_says_so(place, monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "inspect_ai", None)
    assert main(["eval", "--task", "inspect:own.py@sums", "--n", "1"]) == 2
    assert "pip install 'palaestra[inspect]'" in capsys.readouterr().err


def test_scores_are_of_what_the_engine_writes(place, capsys):
    pytest.importorskip("inspect_ai")
    assert main(["eval", "--task", "inspect:own.py@sums(extra=2)", "--n", "4", "--out", "kept", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["task"], found["metrics"]["accuracy"]["n"]) == ("inspect:own.py@sums", 4)
    (log,) = (place / "kept" / "inspect").rglob("*.json")
    samples = json.loads(log.read_text())["samples"]
    said = [s["output"]["choices"][0]["message"]["content"] for s in samples]
    assert [s["input"] for s in samples] == ["3+4=", "2+2=", "5+1=", "1+1="]
    right = [s["target"] in text for s, text in zip(samples, said, strict=True)]
    assert sum(right) / 4 == found["metrics"]["accuracy"]["mean"]
    ctx = context(Settings())

    async def greedy(text):
        pieces = ctx.engine().dialect.extend((message(text),), first=True, closed=False)
        prompt = tuple(i for p in pieces for i in p.ids)
        made = await ctx.engine().generate(prompt, Sampling(temperature=0.0, max_tokens=256), ("own",))
        return made.text[: made.cut]

    from palaestra.types import Message

    message = lambda text: Message(role="user", content=text)
    assert said == [asyncio.run(greedy(s["input"])) for s in samples]
    ctx.close()


def test_a_tool_of_the_task_is_called(place, monkeypatch, capsys):
    pytest.importorskip("inspect_ai")
    from palaestra.engines.own import OwnEngine

    real, prompts = OwnEngine.generate, []
    replies = ['<tool_call>{"name": "add", "arguments": {"a": 3, "b": 4}}</tool_call>', "7"]

    async def generate(self, prompt, sampling, key):
        prompts.append(self.dialect.decode(prompt))
        made = await real(self, prompt, replace(sampling, max_tokens=1), key)
        text = replies[len(prompts) - 1]
        return replace(made, text=text, cut=len(text), finish="stop")

    monkeypatch.setattr(OwnEngine, "generate", generate)
    assert main(["eval", "--task", "inspect:own.py@with_tool", "--n", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"]["accuracy"]["mean"] == 1.0
    assert "Adds." in prompts[0] and replies[0] in prompts[1] and len(prompts) == 2


@pytest.mark.parametrize(
    ("task", "says"),
    [
        ("gone.py@sums", "there is no file gone.py"),
        ("own.py@nothing", "own.py@nothing"),
        ("own.py@sums(of=3)", "the task has no setting 'of'"),
    ],
)
def test_mistakes_are_one_line(place, capsys, task, says):
    pytest.importorskip("inspect_ai")
    assert main(["eval", "--task", f"inspect:{task}", "--n", "1"]) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert says in last and "inspect" in last


def test_before_and_after_training(place):
    """An errand: a task of my own, measured by Inspect before and after a run."""
    pytest.importorskip("inspect_ai")
    small = ["schedule.prompts=2", "sample.n=2", "--steps", "1", "--evaluate", "2", "--max-tokens", "8"]
    assert main(["train", "grpo", *small, "--exams", "inspect:own.py@sums", "--out", "run"]) == 0
    from palaestra.api.run import Run

    ends = Run("run").summary["evaluations"]["inspect:own.py@sums"]
    assert ends.keys() == {"before", "after"} and all(x["accuracy"]["n"] == 2 for x in ends.values())
    assert {p.name for p in (place / "run" / "inspect").iterdir()} == {"step-0", "step-1"}
