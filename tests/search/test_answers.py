"""The verb: exact budgets, answers in order, a folder that a stopped search goes on in, who is called an oracle."""

import json
import subprocess
from pathlib import Path

import palaestra as pl
import pytest
from palaestra.cli.main import main
from palaestra.search.answers import ANSWERS, RECORD

from tests.rows import every

STRATEGY = """
from dataclasses import dataclass

import palaestra as pl


@dataclass(frozen=True)
class Shortest:
    tries: int = 3

    async def __call__(self, problem):
        assert problem.task.answer is None
        answers = await problem.sample(self.tries)
        return problem.result(min(answers, key=lambda e: e.n_sampled), answers)


class Peeks(Shortest):
    oracle = True


async def nothing(problem):
    return "5"


def brevity(prompts, completions):
    return [-float(len(c)) for c in completions]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(STRATEGY)
    rows = [{"prompt": f"{a}+{a}", "answer": str(2 * a)} for a in range(1, 7)]
    Path("sums.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    Path("bare.jsonl").write_text("".join(json.dumps({"prompt": r["prompt"]}) + "\n" for r in rows))
    return tmp_path


@every("strategy", ["best-of-n", "majority", "weighted", "beam", "mcts"])
def test_every_strategy_spends_the_same_budget_to_the_token(strategy):
    for task in ("chain", "hop"):
        if (strategy, task) == ("beam", "hop"):
            continue
        found = pl.search.run(task=task, strategy=strategy, budget=67, n=1)
        assert [line["tokens"] for line in found["answers"]] == [67], (task, found)
        assert found["least_tokens"] == found["most_tokens"] == 67
        assert found["oracle"] == (strategy != "majority")


def test_a_search_that_was_stopped_goes_on_to_the_same_bytes(folder):
    """Whatever the folder holds: nothing, half a line, some lines, all."""
    asked = {"data": "sums.jsonl", "strategy": "weighted", "budget": 60, "max_tokens": 20}
    whole = pl.search.run(**asked, out="whole")
    text = Path("whole", ANSWERS).read_bytes()
    assert text.count(b"\n") == 6
    ends = [i + 1 for i, c in enumerate(text) if c == 10]
    for name, kept in (("begun", 0), ("cut", ends[1] + 17), ("some", ends[3]), ("all", len(text))):
        Path(name).mkdir()
        Path(name, RECORD).write_bytes(Path("whole", RECORD).read_bytes())
        Path(name, ANSWERS).write_bytes(text[:kept])
        told = []
        found = pl.search.run(**asked, out=name, each=told.append)
        assert Path(name, ANSWERS).read_bytes() == text
        assert Path(name, "summary.json").read_bytes() == Path("whole", "summary.json").read_bytes()
        assert found["answers"] == whole["answers"] and len(told) == 6 - text[:kept].count(b"\n")


def test_lines_are_in_the_order_of_the_file_and_come_one_by_one(folder):
    seen = []

    def each(line):
        seen.append((line["id"], Path("out", ANSWERS).read_text().count("\n")))

    pl.search.run(data="sums.jsonl", strategy="majority", budget=30, out="out", each=each)
    assert seen == [(f"sums.jsonl:{i}", i) for i in range(1, 7)]
    held = pl.search.run(data="bare.jsonl", test_data="sums.jsonl", strategy="majority", budget=30, n=2)
    assert [x["id"] for x in held["answers"]] == ["sums.jsonl:1", "sums.jsonl:2"]


def test_a_folder_of_another_search_is_left_alone(folder):
    asked = {"task": "chain", "strategy": "majority", "budget": 30, "n": 1}
    pl.search.run(**asked, out="a")
    for other, why in (
        ({"budget": 31}, "its budget is 30, not 31"),
        ({"strategy": "mcts"}, "its strategy is 'majority', not 'mcts'"),
        ({"seed": 1}, "its seed is 0, not 1"),
    ):
        with pytest.raises(pl.UserError, match=why):
            pl.search.run(**{**asked, **other}, out="a")
    Path("b").mkdir()
    Path("b", "config.toml").write_text("")
    with pytest.raises(pl.UserError, match="holds something else"):
        pl.search.run(**asked, out="b")


def test_changed_data_is_another_search(folder):
    asked = {"data": "sums.jsonl", "strategy": "majority", "budget": 30}
    pl.search.run(**asked, out="a")
    Path("sums.jsonl").write_text(Path("sums.jsonl").read_text().replace("1+1", "1+3"))
    with pytest.raises(pl.UserError, match="holds another search: its files is"):
        pl.search.run(**asked, out="a")


def test_who_is_called_an_oracle(folder):
    asked = {"data": "sums.jsonl", "budget": 30, "n": 2}
    for strategy, model, name in (
        ("best-of-n", "", "best-of-n (oracle)"),
        ("best-of-n", "mine.py:brevity", "best-of-n"),
        ("weighted", "mine.py:brevity", "weighted"),
        ("mcts", "mine.py:brevity", "mcts"),
        ("mcts", "", "mcts (oracle)"),
        ("majority", "", "majority"),
        ("mine.py:Shortest(tries=2)", "", "mine.py:Shortest(tries=2)"),
        ("mine.py:Peeks", "", "mine.py:Peeks (oracle)"),
    ):
        found = pl.search.run(**asked, strategy=strategy, reward_model=model)
        assert (found["strategy"], found["oracle"]) == (name, name.endswith("(oracle)"))
        assert found["accuracy"]["n"] == 2


def test_questions_without_answers_are_answered_and_not_measured(folder):
    found = pl.search.run(data="bare.jsonl", strategy="majority", budget=30)
    assert "accuracy" not in found and len(found["answers"]) == 6
    assert all("solved" not in x for x in found["answers"])
    rows = [{"prompt": "1+1"}, {"prompt": "2+2"}]
    found = pl.search.run(data=rows, strategy="weighted", budget=30, reward_model="mine.py:brevity", out="out")
    assert len(found["answers"]) == 2 and found["n"] == 2
    with pytest.raises(pl.UserError, match="no verifier can choose"):
        pl.search.run(data="bare.jsonl", strategy="best-of-n", budget=30)


def test_a_trained_reward_model_scores(folder):
    """Its scores lead a search that is no oracle."""
    run = pl.train("reward-model", steps=1, evaluate=0, out="rm", quiet=True, set={"schedule.prompts": 2})
    scorer = run.summary["artifacts"]["reward"]
    found = pl.search.run(task="chain", strategy="beam(width=2)", budget=60, n=2, reward_model=scorer)
    assert (found["strategy"], found["oracle"], found["tokens"]) == ("beam(width=2)", False, 60)
    assert all(x["score"] is not None for x in found["answers"])


def test_the_command_streams_a_line_for_each_problem(folder, capsys):
    argv = [
        "search",
        "--data",
        "sums.jsonl",
        "--with",
        "mine.py:Shortest",
        "--budget",
        "200",
        "--n",
        "3",
        "--out",
        "out",
        "--json",
    ]
    assert main(argv) == 0
    *lines, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert [x["problem"] for x in lines] == [0, 1, 2] and last["n"] == 3 and last["folder"] == "out"
    assert lines == [json.loads(x) for x in Path("out", ANSWERS).read_text().splitlines()]
    assert main(argv[:-1]) == 0
    out = capsys.readouterr().out
    assert "mine.py:Shortest, tiny on sums.jsonl, 3 problems" in out and "answers: out/answers.jsonl" in out


@every(
    ("words", "why"),
    [
        ("--with nope", "no strategy 'nope'"),
        ("--with mine.py:nothing --n 1 --out x1", "the strategy function returned str; return problem.result"),
        ("--with mine.py:Shortes", "mine.py: no strategy 'Shortes'; did you mean Shortest"),
        ("--with mine.py:Shortest(trie=2)", "mine.py:Shortest has no setting 'trie'; did you mean tries"),
        ("--engine openai:http://localhost:1/v1 --model m", "counts and limits generated tokens"),
        ("--with beam --task hop --n 1 --out x2", "world of several turns"),
        ("--reward-model nowhere --n 1 --out x3", "no verifier 'nowhere'"),
        ("--reward-model runs/rm/none", "--reward-model runs/rm/none: no such folder"),
    ],
)
def test_mistakes_are_told(folder, capsys, words, why):
    assert main(["search", *words.split()]) == 2
    assert why in capsys.readouterr().err


def test_a_search_is_interrupted_and_goes_on(folder):
    """As a person does: Ctrl-C in the midst, then the same command."""
    command = "palaestra search --task chain --n 40 --with majority --budget 16 --out out"
    python = "import sys; from palaestra.cli.main import program; program()"
    argv = ["python", "-c", python, *command.split()[1:]]
    begun = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert begun.stdout.readline().split()[0] == "1"
    begun.send_signal(2)
    _, err = begun.communicate(timeout=60)
    assert begun.returncode in (0, 130) and (begun.returncode == 0 or f"go on with: {command}" in err)
    before = Path("out", ANSWERS).read_bytes()
    assert main(command.split()[1:]) == 0
    after = Path("out", ANSWERS).read_bytes()
    assert after.startswith(before[: before.rfind(b"\n") + 1]) and after.count(b"\n") == 40
