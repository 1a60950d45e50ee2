"""A run that cannot learn says why: no hint was shown, no answer was right, no group was mixed."""

import json

import pytest
from palaestra.cli.main import main

SMALL = ["--steps", "1", "--evaluate", "4", "--out", "run", "schedule.prompts=2"]
STARVED = """import palaestra as pl


def build():
    few = pl.Schedule(prompts=2, rounds=1)
    return pl.vary(pl.recipe("grpo"), pool=pl.Mixed(2), schedule=few)
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(solution):
    """Problems that the built-in model does not know, with this solution of each."""
    records = [
        {"prompt": f"{i} h in min?", "answer": 60 * i, "demonstration": solution.format(i, 60 * i)}
        for i in range(2, 40)
    ]
    with open("own.jsonl", "w") as file:
        file.writelines(json.dumps(r) + "\n" for r in records)


@pytest.mark.parametrize(("solution", "guided"), [("{0}*60={1}", False), ("an hour has 60\n{0}*60\n={1}", True)])
def test_hints_that_show_nothing_are_told(capsys, solution, guided):
    write(solution)
    assert main(["train", "ghpo", "unit=steps", "--data", "own.jsonl", *SMALL]) == 0
    said, told = capsys.readouterr()
    assert told.count("note: nothing that was learned from in the first step had a hint") == int(not guided)
    assert ("guided 0%" in told) == (not guided)
    assert "note     no held-out answer was right, before or after" in said


@pytest.mark.parametrize(("pays", "told"), [("1.0", True), ("float(i % 2)", False)])
def test_a_reward_that_pays_all_answers_alike_is_told(place, capsys, pays, told):
    write("={1}")
    (place / "own.py").write_text(
        f"def score(completions, **_):\n    return [{pays} for i, _ in enumerate(completions)]\n"
    )
    assert main(["train", "grpo", "--data", "own.jsonl", "--reward", "own.py:score", *SMALL]) == 0
    assert (
        "all answers to a problem had the same reward, whichever problem (on average 1)" in capsys.readouterr().err
    ) == told


def test_a_run_that_starves_says_what_helps(place, capsys):
    write("={1}")
    (place / "mixed.py").write_text(STARVED)
    assert main(["train", "mixed.py", "--data", "own.jsonl", *SMALL]) == 1
    assert "pool.size" in capsys.readouterr().err.splitlines()[-1]
