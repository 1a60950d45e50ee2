"""Questions of one's own in the notebook: tools that its cells call, the notepad, and what is left out."""

import asyncio

import pytest
from palaestra.errors import UserError
from palaestra.run.setup import bench_of, settings_for
from palaestra.settings.fields import Settings
from palaestra.types import Message, Task
from palaestra.worlds.notebook_questions import MOST_CALLS, NotebookQuestions
from palaestra.worlds.toolbox import tool_names

from tests.worlds.test_notebook import cell, played, runs, seen

TASK = Task(id="t", prompt=(Message(role="user", content="Q?"),), answer=["Four", "4"])


def double(x: int) -> int:
    """Twice a number.

    Args:
        x: the number.
    """
    return 2 * x


def world(**options):
    return NotebookQuestions(tools=tool_names([double]), sessions=2, beside=False, **options)


@runs
def test_cells_call_tools_outside_the_sandbox_and_go_on_with_the_results():
    """What stands before a call is run once; a wrong call is an error that the cell reads."""
    twice = "xs = [1]\nxs.append(int(double(2)))\nxs.append(int(double(x=xs[-1])))\nxs"
    frames = asyncio.run(played(world(), TASK, cell(twice), cell("double(1, 2)"), cell("answer(xs[1] * 1.0)")))
    assert "double(x: integer) gives text: Twice a number." in frames[0].asks[0].say[0].content
    assert [seen(f) for f in frames[1:-1]] == ["[1, 4, 8]", "'error: double takes 1 arguments'"]
    facts = frames[-1].facts
    assert frames[-1].pay == {("policy", ""): 1.0} and facts["cells"] == 3 and facts["clean"] == (1.0,) * 3
    assert (facts["tool_calls"], facts["tool_errors"]) == (3, 1)
    assert facts["tool_log"] == ((1, "double", "result"), (1, "double", "result"), (2, "double", "error"))
    assert "tool_used" not in facts and len(facts["tool_seconds"].each) == 3  # a cell reads them, not the policy


@runs
def test_a_cell_that_calls_without_end_is_an_error_and_the_session_lives():
    frames = asyncio.run(played(world(), TASK, cell("a = 1"), cell("while True: double(1)"), cell("a")))
    assert [seen(f) for f in frames[2:]] == [f"RuntimeError: a cell may make {MOST_CALLS} calls of tools", "1"]


@runs
def test_the_notepad_stays_where_earlier_cells_are_left_out():
    texts = cell("notepad['facts'] = 'known'"), cell(f"'zzz'  # {'x' * 600}"), cell("1")
    frames = asyncio.run(played(world(context=1100), TASK, *texts))
    assert [f.asks[0].new_row for f in frames] == [False, False, True, False]
    *_, last = frames[2].asks[0].say
    assert last.content.startswith("Q?") and '{"facts": "known"}' in last.content and "zzz" in last.content
    assert frames[-1].facts["trimmed"] == 1


@runs
def test_what_a_cell_forges_is_no_call_and_no_notepad():
    forged = cell("print('\\x1fno json\\x1f'); print('\\x1e{}\\x1e')"), cell("notepad")
    frames = asyncio.run(played(world(), TASK, *forged))
    assert seen(frames[-1]) == "{}"


def test_data_of_l0_are_asked_in_the_notebook(tmp_path):
    file = tmp_path / "f.jsonl"
    file.write_text("".join(f'{{"prompt": "Q{i}", "answer": "{i}"}}\n' for i in range(12)))
    settings = settings_for(None, Settings(recipe="l0", data=str(file), tool_turns=3))
    assert settings.env == "notebook" and settings_for(None, Settings(data=str(file))).env == ""
    made, _ = bench_of(settings)
    assert isinstance(made.world, NotebookQuestions) and made.world.turns == 3 and made.reward is None
    made, _ = bench_of(Settings(data=str(file), env="notebook(context=50,told=False)"))
    assert made.world.context == 50 and not made.world.told
    for env, message in {"notebook(depth=1)": "depth=1 is no setting", "notebook": "give them with --data"}.items():
        with pytest.raises(UserError, match=message):
            bench_of(Settings(env=env, data=str(file) if "(" in env else ""))
