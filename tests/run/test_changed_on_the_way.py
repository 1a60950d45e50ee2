"""What was measured of one problem is not compared with what was measured of another, and a run that was changed on
the way is not said to be repeated by its settings."""

import json
import sys

import pytest
from palaestra.cli.main import main
from palaestra.store.folder import read_run
from palaestra.tasks import files
from palaestra.view.model_card import model_card
from palaestra.view.report import page
from palaestra.view.verdict import ends

REWARD = "def score(responses, answers, **fields):\n    return [{pay} * (a in r) for r, a in zip(responses, answers)]\n"
TOOLS = 'def add(a: int, b: int) -> int:\n    """{doc}"""\n    return a + b\n'
TINY = ["--evaluate", "3", "--max-tokens", "4", "schedule.prompts=2", "collect.links.0.n=2"]
FOUND = "mean held-out reward"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    sums = [{"prompt": f"{a}+{b} mod 10", "answer": str((a + b) % 10)} for a in range(4) for b in range(5)]
    (tmp_path / "problems.jsonl").write_text("\n".join(map(json.dumps, sums)))
    (tmp_path / "others.jsonl").write_text("\n".join(map(json.dumps, sums[::-1])))
    (tmp_path / "reward.py").write_text(REWARD.format(pay="1.0"))
    (tmp_path / "tool.py").write_text(TOOLS.format(doc="The sum of a and b."))
    yield tmp_path
    forget_modules()


def forget_modules():
    """As in another process."""
    for name in [n for n in sys.modules if n.startswith("palaestra_user_")]:
        del sys.modules[name]
    files.load.cache_clear()


def go_on(capsys, steps, *argv):
    """What a run that goes on says on the screen, notes first."""
    forget_modules()
    capsys.readouterr()
    assert main(["train", "--resume", "run", "--steps", str(steps), *argv]) == 0
    told = capsys.readouterr()
    return told.err, told.out


def begin(*argv):
    given = ["--data", "problems.jsonl", "--reward", "reward.py:score", "--tools", "tool.py:add"]
    assert main(["train", "grpo", *given, *TINY, "--steps", "2", "--out", "run", *argv]) == 0


def edit_reward(place):
    (place / "reward.py").write_text(REWARD.format(pay="0.5"))


def edit_data(place):
    (place / "problems.jsonl").write_text((place / "others.jsonl").read_text())


def edit_tool(place):
    (place / "tool.py").write_text(TOOLS.format(doc="Adds."))


@pytest.mark.parametrize(
    ("edit", "argv", "what"),
    [
        (edit_reward, ["--accept-changes"], "reward.py (reward)"),
        (edit_data, ["--accept-changes"], "problems.jsonl (data)"),
        (edit_tool, ["--accept-changes"], "tool.py (tools)"),
        (None, ["--data", "others.jsonl"], "data"),
    ],
    ids=["reward", "data", "tools", "other data"],
)
def test_an_evaluation_before_of_another_problem_is_left_out(place, capsys, edit, argv, what):
    begin()
    first = capsys.readouterr().out
    assert f"{FOUND} before" in first and "repeat   palaestra train @run/config.toml" in first
    if edit:
        edit(place)
    err, out = go_on(capsys, 3, *argv)
    assert f"after step 2: {what}" in err and f"after step 2: {what}" in out and "left out" in out
    assert f"{FOUND} before" not in out and f"{FOUND} after" in out and "repeat" not in out
    run = read_run(place / "run")
    assert "reward_before" not in run.summary and run.summary["changed"][0]["after"] == "step 2"
    assert [step for step, _ in run.evaluations] == [3] and len(run.steps) == 3
    assert ends(run)[0] is None and "the run was changed on the way (after step 2: " in page(run)["verdict"]["words"]
    assert "Repeat it from the start" not in dict(page(run)["commands"])
    assert "palaestra train grpo" not in model_card(run, 3, "me/model")
    _, out = go_on(capsys, 4)  # the next resumption knows it too
    assert f"{FOUND} before" not in out and f"after step 2: {what}" in out and "repeat" not in out


def test_another_rate_keeps_the_evaluation_before_but_not_the_repetition(place, capsys):
    begin()
    _, out = go_on(capsys, 3, "optimiser.lr=3e-5")
    assert f"{FOUND} before" in out and "repeat" not in out and "left out" not in out
    assert "the run was changed on the way (after step 2: learners.policy.optimiser.lr)" in out
    assert any("no command repeats it" in line for line in page(read_run(place / "run"))["remarks"])


def test_more_steps_are_no_change(place, capsys):
    begin()
    _, out = go_on(capsys, 3)
    assert f"{FOUND} before" in out and "repeat   palaestra train @run/config.toml" in out and "changed" not in out


PIPELINE = """import palaestra as pl


def build():
    short = pl.vary(pl.recipe("grpo"), schedule=pl.Schedule(prompts=2, steps=1), collect=pl.links(pl.Sample(n=2), pl.Score()))
    return pl.Pipeline(parts={"a": pl.Part(short), "b": pl.Part(short, model=pl.Output("a"))})
"""


def test_a_problem_that_changed_between_the_parts_of_a_pipeline(place, capsys):
    """The first part began on another reward than the last one ended on."""
    (place / "two.py").write_text(PIPELINE)
    given = ["--data", "problems.jsonl", "--reward", "reward.py:score", "--evaluate", "3", "--max-tokens", "4"]
    assert main(["train", "two.py", *given, "--out", "run"]) == 0
    assert f"{FOUND} before" in capsys.readouterr().out
    for left in ("b", "summary.json"):  # as if it had been stopped after the first part
        path = place / "run" / left
        path.rename(place / left)
    edit_reward(place)
    forget_modules()
    assert main(["train", "--resume", "run", "--accept-changes"]) == 0
    out = capsys.readouterr().out
    assert f"\n{FOUND} before" not in out and f"\n{FOUND} after" in out and "repeat" not in out
    assert f"part a: {FOUND} before" in out and "the run was changed on the way (after part a: the problem)" in out
    assert "; a run in a new folder measures one setting from end to end" in out


PROGRAM_FIRST = """import palaestra as pl


@pl.stage
class Prepare:
    async def run(self, ctx):
        return pl.Result(metrics={"prepared": 1})


def build():
    short = pl.vary(pl.recipe("grpo"), schedule=pl.Schedule(prompts=2, steps=1), collect=pl.links(pl.Sample(n=2), pl.Score()))
    parts = {"first": pl.Part(Prepare()), "a": pl.Part(short), "between": pl.Part(Prepare())}
    return pl.Pipeline(parts={**parts, "b": pl.Part(short, model=pl.Output("a"))})
"""


@pytest.mark.parametrize("edited", [False, True])
def test_a_program_that_says_nothing_of_its_settings_is_no_change(place, capsys, edited):
    """Before the first part that says something, and between two, which are compared with each other."""
    (place / "two.py").write_text(PROGRAM_FIRST)
    given = ["--data", "problems.jsonl", "--reward", "reward.py:score", "--evaluate", "3", "--max-tokens", "4"]
    assert main(["train", "two.py", *given, "--out", "run"]) == 0
    out = capsys.readouterr().out
    assert f"{FOUND} before" in out and "repeat   palaestra train @run/config.toml" in out
    assert "changed on the way" not in out and "reward_before" in read_run(place / "run").summary
    if not edited:
        return
    for left in ("b", "summary.json"):  # as if it had been stopped after the program
        path = place / "run" / left
        path.rename(place / left)
    edit_reward(place)
    forget_modules()
    assert main(["train", "--resume", "run", "--accept-changes"]) == 0
    out = capsys.readouterr().out
    assert "the run was changed on the way (after part a: the problem)" in out and f"\n{FOUND} before" not in out
