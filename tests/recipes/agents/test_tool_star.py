"""Tool-Star: its three levels of reward, what the cold start imitates, and a run of its three stages."""

import asyncio
import json
from types import SimpleNamespace

import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.recipes.agents import tool_star
from palaestra.run.checks import check_starts
from palaestra.run.first_step import first_step_notes
from palaestra.toys.store import StoreTasks, add, get, multiply
from palaestra.types import Episode, Group, Reward, Row, Segment, Task
from palaestra.worlds.tools import used_tools


def attempt(text, right, *, used=(), calls=None, malformed=0, errors=0, answered=True, turns=(), status="finished"):
    calls = len(used) if calls is None else calls
    facts = {"tool_calls": calls, "tool_malformed": malformed, "tool_errors": errors, "answered": answered}
    segments = [Segment(ids=(1,), logp=(-1.0,), trained=True, turn=n, text=t) for n, t in enumerate((*turns, text))]
    reward = Reward(total=float(right), solved=right)
    return Episode(
        rows=(Row(segments=tuple(segments)),), reward=reward, facts={**facts, "tools_used": used}, status=status
    )


def paid(e, gold="obama", **options):
    group = Group(task=Task(id="t", answer=gold), episodes=(e,))
    for link in tool_star.build(**options).parts["rl"].runnable.collect.links[2:]:
        group = asyncio.run(link(None, ("k",), group))
    return group.episodes[0].reward


def test_rewards_of_the_catalogue():
    """F1 of "barack obama" and "obama" is 2/3; with both tools 0.1 more; wrong 0; malformed or no answer -1."""
    near = pytest.approx
    assert paid(attempt("barack obama", False, used=("search", "python"))).total == near(0.766667)
    assert paid(attempt("barack obama", False, used=("search",))).total == near(0.666667)
    assert paid(attempt("trump", False, used=("search", "python"))).total == 0
    assert paid(attempt("obama", True, used=("search",), calls=2, malformed=1)).total == -1
    assert paid(attempt("", False, calls=4, answered=False, status="truncated:turns")).total == -1
    assert paid(attempt("obama", True)).total == 1
    assert paid(attempt("obama", True, used=("search", "python"))).total == near(1.1)


def test_what_the_hierarchy_changes_is_a_number_and_nothing_without_it():
    both, broken = attempt("obama", True, used=("a", "b")), attempt("obama", True, calls=1, malformed=1)
    assert paid(both).parts["hierarchy"] == pytest.approx(0.1) and paid(broken).parts["hierarchy"] == 2
    for e in (both, broken):
        off = paid(e, hierarchical=False)
        assert (off.total, off.parts["hierarchy"], off.parts["bonus"]) == (1, 0, 0)
    assert paid(both, bonus=0).total == 1 and paid(both).solved


def test_a_box_can_be_asked_for():
    assert paid(attempt("obama", True), boxed=True).total == -1
    assert paid(attempt("\\boxed{obama}", True), boxed=True).total == 1


def test_tools_that_gave_an_error_are_not_used():
    results = [(SimpleNamespace(name=n), f) for n, f in (("get", False), ("add", True), ("get", False), ("", False))]
    assert used_tools(("add",), results) == ("add", "get") and used_tools((), results) == ("get",)


def kept(text, tool=(), hint=(), **options):
    chosen = list(tool_star.Synthesise(**options).choose(text, tuple(tool), tuple(hint)))
    return [next((k for k in tool_star.KINDS if e.reward.parts[f"kept {k}"]), "") for e in chosen]


RIGHT, WRONG = attempt("42", True), attempt("7", False)
USED = attempt("42", True, used=("a",), turns=("<call>",))


def test_plain_text_that_suffices_stays_plain_and_tools_are_imitated_where_it_does_not():
    assert kept([RIGHT, WRONG], [USED, WRONG]) == ["text", "", "", ""]
    assert kept([WRONG, WRONG], [USED, WRONG]) == ["", "", "tool", ""]
    assert kept([WRONG], [WRONG], [USED, WRONG]) == ["", "", "hint", ""]
    assert kept([WRONG], [WRONG]) == ["", ""]


@pytest.mark.parametrize(
    "bad",
    [
        attempt("42", True, calls=4, used=("a",), turns=("1", "2", "3", "4")),
        attempt("42", True, calls=2, used=("a",), turns=("<call>", "<call>")),
        attempt("42", True, calls=2, used=("a",), errors=1, turns=("1", "2")),
        attempt("42", True, calls=2, used=("a",), malformed=1, turns=("1", "2")),
        attempt("42", True, used=("a",), status="truncated:length"),
    ],
)
def test_solutions_of_low_quality_are_left_out(bad):
    assert kept([WRONG], [bad]) == ["", ""]


def test_a_first_step_that_imitates_nothing_is_said():
    """In words of its own: there are no pairs of answers in this stage."""
    note = lambda *kept: list(
        first_step_notes(
            {"episodes": 2.0, "groups": 1.0},
            [Group(task=Task(id="t"), episodes=tuple(tool_star.shown(e, "tool", k) for e, k in kept))],
            tool_star.build().parts["cold"].runnable,
        )
    )
    nothing = note((WRONG, False), (RIGHT, False))
    assert any("no attempt of the first step was imitated: 1 of 2 are right" in n for n in nothing)
    assert any("the method left out all 2 answers" in n for n in nothing) and "chosen" not in str(nothing)
    assert "imitated" not in str(note((WRONG, False), (RIGHT, True)))


def test_one_tool_alone_earns_no_bonus_and_that_is_said(tmp_path):
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(f'def {name}(x: str) -> str:\n    "Says it."\n    return x\n')
    one, two = (f"{tmp_path / name}.py:{name}" for name in ("one", "two"))

    def said(*tools, **options):
        lines, bench = [], pl.Bench(name="b", tasks=None, world=pl.worlds.WithTools(tools))
        recipe = tool_star.build(**options).parts["rl"].runnable
        asyncio.run(check_starts(recipe, SimpleNamespace(bench=bench, say=lines.append)))
        return lines

    assert len(said(one)) == 1 and "one is the only tool" in said(one)[0]
    assert not said(one, two) and not said(one, bonus=0.0) and not said(one, hierarchical=False)


def test_the_problems_that_are_sorted_are_bounded():
    for steps, tasks in ((12, 144), (3, 36), (100, 512)):  # a run ends at the hardest problem, if it draws so many
        rl = tool_star.build(rl_steps=steps).parts["rl"].runnable
        assert (rl.draw.tasks, rl.schedule.steps, rl.schedule.prompts) == (tasks, steps, 12)


def test_a_hinted_solution_is_taught_with_its_chain_and_hint():
    begun = Segment(ids=(2, 3), author="forced", text=f"I think 7{tool_star.HINT}")
    own = Segment(ids=(4,), logp=(-1.0,), trained=True, policy="policy", text="42")
    header = Segment(ids=(5,), author="forced", text="<think>")
    e = Episode(rows=(Row(segments=(header, begun, own)),), reward=Reward(total=1.0), status="finished")
    made = tool_star.shown(e, "hint", True)
    assert [s.trained for s in made.rows[0].segments] == [False, True, True] and not made.muted
    assert not tool_star.shown(e, "tool", True).rows[0].segments[1].trained
    assert tool_star.shown(e, "hint", False).muted


def test_a_hint_stands_behind_a_plain_chain_without_its_answer():
    chain = tool_star.HintedChain(hint="!")
    group = Group(task=Task(id="t"), episodes=(attempt("", False), attempt("a\nb\n= 7\n", False)))
    assert chain(None, group, None) == "a\nb!"
    assert chain(None, Group(task=Task(id="t"), episodes=(attempt("7", False),)), None) == "7!"
    assert chain(None, Group(task=Task(id="t")), None) == ""


def test_numbers_that_mean_nothing_are_refused():
    with pytest.raises(UserError, match="bonus"):
        tool_star.build(bonus=-1)
    with pytest.raises(UserError, match="tries"):
        tool_star.build(tries=0)


def test_the_store_is_answered_with_two_tools():
    task = StoreTasks().task("train", 0)
    first, sign, second = task.prompt[0].content[:2], task.prompt[0].content[2], task.prompt[0].content[3:]
    joined = {"*": multiply, "+": add}[sign]
    assert task.answer == str(joined(get(first), get(second))) and 2 <= get("k7") < 100
    with pytest.raises(KeyError):
        get("77")


def steps_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_three_stages_run_on_own_problems_with_tools_that_all_fail(tmp_path):
    """No solution with tools is there to imitate, nothing crashes, and the run says that every call gave an error."""
    (tmp_path / "broken.py").write_text(
        'def search(query: str) -> str:\n    """The pages that share words."""\n    raise OSError("gone")\n'
    )
    rows = [{"prompt": f"boss of bako{i}?", "answer": "tiru"} for i in range(12)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    run = pl.train(
        "tool-star", data=str(tmp_path / "rows.jsonl"), tools=(f"{tmp_path}/broken.py:search",), model="tiny-agent",
        max_tokens=40, steps=1, evaluate=0, quiet=True, out=tmp_path / "run",
        set={"tries": 1, "samples": 3, "cold.schedule.prompts": 2, "rl.schedule.prompts": 3,
             "critic.schedule.prompts": 2},
    )  # fmt: skip
    step = next(s for s in steps_of(run.folder / "rl") if s.get("step") == 1)
    assert step["tools/errors"] == 1 and step["errors"] == 0 and step["part/several"] == 0
    cold = next(s for s in steps_of(run.folder / "cold") if s.get("step") == 1)
    assert cold["part/kept tool"] == 0
    assert (run.folder / "critic").is_dir()
