"""SWE-RL: likeness of patches, and replies without files."""

import json

import pytest
from palaestra.context import Bench
from palaestra.recipes.rewards import swe_rl
from palaestra.run.benches import from_data
from palaestra.verifiers.code.patches import difflib_ratio

from tests.rewards.texts import asked, door, exact_reward, totals

OLD = "def add(a, b):\n    return a + b"
WRITTEN = "<think>The types.</think><solution>\n{}\n</solution>"


def edit(path, old, new):
    return f"### {path}\n<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE"


def patched(files, oracle, *edits):
    recipe = swe_rl.build()
    reward = recipe.collect.links[1].reward
    return totals(reward, asked("issue", oracle, files=files), WRITTEN.format("\n".join(edits)))[0]


def test_swe_rl_reference_values():
    oracle = {"add.py": OLD.replace("def add(a, b):", "def add(a: int, b: int) -> int:")}
    predicted = edit("add.py", "def add(a, b):", "def add(a: int, b: int):")
    assert patched({"add.py": OLD}, oracle, predicted) == pytest.approx(0.955414, abs=1e-6)
    assert difflib_ratio("abcd", "bcde") == 0.75
    assert patched({"add.py": OLD}, oracle, edit("add.py", "def sub(a, b):", "x")) == -1
    files = {"a.py": "x = 1\n", "b.py": "y = 1\n"}
    both = {"a.py": "x = 2\n", "b.py": "y = 2\n"}
    right_and_extra = (edit("b.py", "y = 1", "y = 2"), "### c.py\n<<<<<<< SEARCH\n=======\nz = 1\n>>>>>>> REPLACE")
    assert patched(files, both, *right_and_extra) == pytest.approx(1 / 3)
    assert patched(files, {"a.py": "x = 2\n"}, edit("b.py", "y = 1", "y = 2")) == 0


def test_swe_rl_pays_context_of_an_edit_beside_the_place():
    """The floor: a harmless edit near the right line is alike, which the exact part shows."""
    body = "\n".join(f"x{i} = {i}" for i in range(8))
    found = patched({"a.py": body}, {"a.py": body.replace("x3 = 3", "x3 = 30")}, edit("a.py", "x4 = 4", "x4 = 40"))
    assert 0.5 < found < 1


def test_swe_rl_without_files_reads_the_whole_reply():
    from palaestra.toys.chain import ArithmeticChain

    task = ArithmeticChain().task("train", 0)
    ctx = door(exact_reward())
    ctx.bench = Bench(name="chain", tasks=ArithmeticChain(), world=None, reward=exact_reward())
    worked = "\n".join([*ArithmeticChain().steps(task), f"= {task.answer}"])
    recipe, soft = swe_rl.embedded(), swe_rl.embedded(malformed=0.0)
    found = totals(recipe.collect.links[1].reward, task, worked, "= x", "", "no answer", ctx=ctx)
    assert found[0] == 1 and 0 < found[1] < 1 and found[2:] == [-1, -1]
    assert totals(soft.collect.links[1].reward, task, "no answer", ctx=ctx) == [0]


def test_swe_rl_reads_a_users_file_whose_answers_are_files(tmp_path):
    """It was refused, as no reply can be compared with an object."""
    row = {"prompt": "Add types.", "files": {"add.py": OLD}, "answer": {"add.py": OLD.replace("a, b", "a: int, b")}}
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({**row, "prompt": f"Add types ({i})."}) + "\n" for i in range(20)))
    bench = from_data(str(file), "", "", judged=True)
    task = bench.tasks.task("train", 0)
    assert bench.reward is None and task.answer == row["answer"]
    found = totals(
        swe_rl.build().collect.links[1].reward,
        task,
        WRITTEN.format(edit("add.py", "def add(a, b):", "def add(a: int, b):")),
        "",
    )
    assert found == [1, -1]
