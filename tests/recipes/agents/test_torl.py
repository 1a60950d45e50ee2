"""ToRL: its reward by answer and last program, and its runs with programs in fences and in calls."""

import asyncio
import json

import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.recipes.agents import torl
from palaestra.types import Episode, Group, Reward, Task

from tests.recipes.objectives.helpers import advantages, near, scored


def paid(*, right, executed=(), calls=0, malformed=0, errors=0, status="finished", **options):
    facts = {"tool_calls": calls, "tool_malformed": malformed, "tool_errors": errors, "executed": (*executed, True)}
    e = Episode(reward=Reward(total=float(right), solved=right), facts=facts, status=status)
    group = Group(task=Task(id="t", answer="1"), episodes=(e,))
    for link in torl.build(**options).collect.links[2:]:
        group = asyncio.run(link(None, ("k",), group))
    return group.episodes[0].reward


def test_rewards_of_the_catalogue():
    """Two of eight right, ddof 1; a right and a wrong answer whose last program failed, 0.5 taken."""
    assert advantages(torl.build(), *scored(1, 1, -1, -1, -1, -1, -1, -1)) == near(
        [1.620183] * 2 + [-0.540061] * 6, 1e-4
    )
    failed = {"executed": (True, False), "calls": 2, "errors": 1, "penalty": 0.5}
    assert paid(right=True, **failed).total == 0.5 and paid(right=False, **failed).total == -1.5
    assert paid(right=True, **failed).solved and paid(right=True, **failed).parts["unexecutable"] == 0.5


def test_no_penalty_by_default_nor_without_a_program_nor_for_one_that_was_mended():
    failed = {"executed": (False,), "calls": 1, "errors": 1}
    assert paid(right=True, **failed).total == 1 and paid(right=False, **failed).total == -1
    assert paid(right=True, penalty=0.5).total == 1 and paid(right=False, penalty=0.5).total == -1
    assert paid(right=True, executed=(False, True), calls=2, errors=1, penalty=0.5).total == 1


def test_a_call_that_cannot_be_read_is_no_program_that_ran():
    unread = paid(right=True, executed=(False,), calls=1, malformed=1, penalty=0.5)
    assert unread.total == 0.5 and unread.parts["tool"] == 0 and unread.parts["by_tool"] == 0


def test_what_the_tool_did_is_counted():
    ran = {"executed": (True,), "calls": 1}
    assert paid(right=True, **ran).parts["by_tool"] == 1 and paid(right=True).parts["by_tool"] == 0
    wrong = paid(right=False, **ran).parts
    assert (wrong["by_tool"], wrong["tool"], wrong["interactions"], wrong["right"]) == (0, 1, 1, 0)


def test_infrastructure_is_not_a_wrong_answer():
    assert paid(right=False, status="error:sandbox").total == 0


def test_a_penalty_is_no_bonus():
    with pytest.raises(UserError, match="torl: penalty"):
        torl.build(penalty=-0.5)


def steps_of(run):
    return [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]


def test_a_users_problems_are_asked_where_programs_stand_in_the_reply(tmp_path):
    """Without --tools; what the small model says has no fence, so no program runs and the run says so."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"prompt": f"{i}+{i}", "answer": str(2 * i)}) + "\n" for i in range(12)))
    run = pl.train(
        "torl", data=str(rows), model="tiny-agent", max_tokens=8, steps=1, evaluate=0, quiet=True,
        out=tmp_path / "run", set={"samples": 2, "schedule.prompts": 2},
    )  # fmt: skip
    assert 'env = "interpreter"' in (run.folder / "config.toml").read_text()
    step = next(s for s in steps_of(run) if s.get("step") == 1)
    assert step["tools/calls"] == 0 and step["part/by_tool"] == 0


def test_a_run_whose_programs_all_fail_goes_on_and_says_so(tmp_path, monkeypatch, capsys):
    from palaestra.services.sandbox.values import Ran
    from palaestra.services.tools import sandboxed

    monkeypatch.setattr(sandboxed, "run_program", lambda *_, **__: Ran(status="error", stderr="OSError: broken"))
    run = pl.train(
        "torl", task="add(d=4)", tools=("python",), model="tiny-agent", max_tokens=40, steps=1, evaluate=0,
        out=tmp_path / "run", set={"samples": 3, "schedule.prompts": 3},
    )  # fmt: skip
    step = next(s for s in steps_of(run) if s.get("step") == 1)
    assert step["tools/errors"] == 1 and step["errors"] == 0 and step["part/by_tool"] == 0
    assert "every tool call of the first step gave an error" in "".join(capsys.readouterr())
