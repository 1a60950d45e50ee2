"""DAHLIA: the table, programs in the sandbox, the roles, judgments by closed form, and the arms."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.errors import Fault, UserError
from palaestra.recipes.llm4rl import dahlia
from palaestra.recipes.llm4rl.dahlia.program import (
    TaskArms,
    judge_numbers,
    read_tasks,
    reports_of_others,
    retried_success,
    world_by_name,
)
from palaestra.recipes.llm4rl.dahlia.roles import TaskRoles
from palaestra.recipes.llm4rl.dahlia.sandboxed import (
    parameters_of,
    plain_code,
    run_judge,
    run_plan,
    undefined_calls,
)
from palaestra.recipes.llm4rl.dahlia.script import from_below, goal_of, scripted_arm
from palaestra.recipes.llm4rl.dahlia.tabletop import BLOCKS, TEMPLATES, TableState, Tabletop

SURE = Tabletop(fail=0.0)
RED_LEFT = {"instruction": "put the red block in the left zone", "goal": [["in", "red block", "left zone"]]}
COUNTER = '''
class Counter:
    """A number that primitives raise; the task is done at its "target"."""

    about = "A counter. Raise it to the target."
    primitives = {"add": "add(n): adds n, of 1 to 3, and returns the sum"}

    def reset(self, task, rng):
        return 0

    def poses(self, state):
        return {"count": state}

    def act(self, state, name, arguments, rng):
        if not 1 <= arguments[0] <= 3:
            raise ValueError("n is 1 to 3")
        return state + arguments[0], state + arguments[0]

    def success(self, state, task):
        return state == task["target"]
'''


def rng(*path):
    return pl.rng_of(("test", *path))


def start(task=RED_LEFT, world=SURE):
    return world.reset(task, rng("start"))


def ran(code, state=None, world=SURE, key=0, instruction="x", helpers=()):
    state = start() if state is None else state
    return asyncio.run(run_plan(world, state, instruction, plain_code(code), rng(key), helpers))


def test_judgments_of_the_catalogue():
    """20 tasks, 12 done: "done" is said of 10 of these and of 2 failures. 10 / 12 both; 6 of 8 failures noticed."""
    pairs = [(True, True)] * 10 + [(False, True)] * 2 + [(True, False)] * 2 + [(False, False)] * 6
    found = judge_numbers(pairs)
    assert found["precision"] == pytest.approx(0.833333, abs=1e-6) == found["recall"]
    assert (found["noticed"], found["alarmed"]) == pytest.approx((6 / 8, 2 / 12))
    assert set(judge_numbers([]).values()) == {0.0}
    assert judge_numbers([(True, True)])["noticed"] == 0 and judge_numbers([(False, False)])["precision"] == 0


def test_success_of_retries_of_the_catalogue():
    assert retried_success(0.6, 1.0, 0.0, 2) == pytest.approx(1 - 0.4**2)
    assert retried_success(0.6, 0.8, 0.0, 2) == pytest.approx(0.792)
    assert retried_success(0.6, 1.0, 0.0, 3) == pytest.approx(1 - 0.4**3)
    # every success is taken for a failure: 0.6 * 0.6 + 0.4 * 0.6
    assert retried_success(0.6, 1.0, 1.0, 2) == pytest.approx(0.6)
    assert retried_success(0.6, 1.0, 0.0, 1) == 0.6


def test_the_table_moves_what_is_free_and_misses_as_often_as_it_says():
    state = start()
    moved, _ = SURE.act(state, "pick_place", ["red block", "left zone"], rng())
    assert moved.xy_B2[0].tolist() == pytest.approx([0.05, 0.55]) and SURE.success(moved, RED_LEFT)
    on, _ = SURE.act(moved, "stack", ["green block", "red block"], rng())
    assert on.on_B[1] == 0 and on.xy_B2[1].tolist() == on.xy_B2[0].tolist()
    with pytest.raises(ValueError, match="green block lies on it"):
        SURE.act(on, "pick_place", ["red block", "table"], rng())
    with pytest.raises(ValueError, match="nothing can be put on red block"):
        SURE.act(on, "stack", ["blue block", "red block"], rng())
    pushed, _ = SURE.act(on, "push", ["green block", 0.1, 0], rng())
    assert pushed.on_B[1] == -1 and pushed.xy_B2[1].tolist() == pytest.approx([0.15, 0.55])
    assert SURE.act(pushed, "bounding_box", [["red block", "green block"]], rng())[1] == [0.05, 0.55, 0.15, 0.55]
    luck, clumsy = rng("luck"), Tabletop(fail=0.15)
    hits = [clumsy.act(state, "pick_place", ["red block", "left zone"], luck)[0] is not state for _ in range(2000)]
    assert np.mean(hits) == pytest.approx(0.85, abs=0.03)
    for name, arguments, why in (
        ("pick_place", ["pink block", "table"], "no 'pink block'"),
        ("pick_place", ["red block", "attic"], "no place"),
        ("pick_place", ["red block", [2, 0]], "not on the table"),
        ("bounding_box", [[]], "no blocks"),
    ):
        with pytest.raises(ValueError, match=why):
            SURE.act(state, name, arguments, rng())
    full = TableState(xy_B2=np.zeros((6, 2)) + 0.1, on_B=np.full(6, -1))
    with pytest.raises(ValueError, match="no free position"):
        SURE._free(full, (0.0, 0.0, 0.12, 0.12))


def test_no_task_is_done_at_its_start_and_careful_programs_do_all():
    for task in SURE.tasks(rng("tasks"), len(TEMPLATES)):
        state = start(task)
        assert not SURE.success(state, task)
        assert sorted(goal_of(task["instruction"])) == sorted(tuple(c) for c in task["goal"])
        order = from_below(goal_of(task["instruction"]))
        for what, block, place in order:
            for name in (block, place):
                for top in [b for b, p in SURE.poses(state).items() if p["on"] == name and b != block]:
                    state = SURE.act(state, "pick_place", [top, "table"], rng())[0]
            state = SURE.act(state, "pick_place" if what == "in" else "stack", [block, place], rng())[0]
        assert SURE.success(state, task), task["instruction"]


def test_programs_see_the_poses_after_each_call_and_their_errors_end_them():
    code = """
tries = 0
while poses()["red block"]["y"] < 0.5 and tries < 30:
    tries += 1
    pick_place(place="left zone", block="red block")
stack("red block", "red block")
"""
    for key in range(2):
        found = ran(code, world=Tabletop(fail=0.5), key=key)
        assert SURE.success(found.state, RED_LEFT) and "nothing can be put on red block" in found.error
        assert found.calls[-1].startswith("stack") and 2 <= len(found.calls) < 16
    assert "TypeError" in ran('stack("red block")').error
    caught = ran('try:\n    stack("red block", "red block")\nexcept ValueError as e:\n    push("red block", 0, 0.01)')
    assert caught.error == "" and len(caught.calls) == 2
    assert "more than 40" in ran('while True:\n    push("red block", 0, 0)').error
    drawn = 'f = open("/dev/urandom", "rb")\npush("red block", 0, int.from_bytes(f.read(6), "big") / 2**52)\n'
    assert "must not draw random numbers" in ran(drawn + 'push("red block", 0, 0)').error


def test_programs_have_walls(tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("gold")
    assert "FileNotFoundError" in ran(f"open({str(secret)!r}).read()").error
    for bad, why in (("().__class__", "__class__"), ("__import__('os')", "__import__"), ("1 +", "no Python")):
        with pytest.raises(ValueError, match=why):
            plain_code(bad)
    assert plain_code("```python\npush(1)\n```") == "push(1)"


def test_a_judge_reads_poses_alone():
    poses = SURE.poses(start())
    judge = lambda code: asyncio.run(run_judge(poses, "put the red block", plain_code(code)))
    assert judge("judge = 'red block' in poses()") is True and judge("judge = poses()['red block']['y'] > 0.5") is False
    assert "NameError" in judge("judge = push('red block', 0, 0)") and "did not set" in judge("judge = 1")


def test_names_that_nobody_defines_are_found():
    code = "def f(a):\n    return a(g(1))\nfor h in [f]:\n    h(2)\nput_all(len([]))\nlist(poses())"
    assert undefined_calls(code, ["poses"]) == ["put_all", "g"]
    assert list(parameters_of("stack(block, below): puts")) == ["block", "below"] and not parameters_of("go(): x")


def test_missing_functions_are_written_and_their_own_missing_ones_too(context):
    asked = []

    def answer(request):
        text = request.messages[-1].content
        asked.append(text)
        if "which nobody" not in text:
            return {"program": "put_all(['red block'])"}
        if "calls put_all" in text:
            return {"function": "def put_all(blocks):\n    for b in blocks:\n        put(b)"}
        return {"function": "```python\ndef put(b):\n    pick_place(b, 'left zone')\n```"}

    roles = TaskRoles(context(), SURE, dict.fromkeys(("planner", "helper", "reporter"), pl.Scripted(answer)), "x")
    plan = asyncio.run(roles.plan(SURE.poses(start())))
    assert roles.helpers == 2 == len(plan.helpers) and len(asked) == 3
    assert SURE.success(ran(plan.code, helpers=plan.helpers).state, RED_LEFT)


def test_a_program_that_is_no_python_is_asked_for_again_with_the_reason(context):
    said = []

    def answer(request):
        said.append(request.messages[-1].content)
        return {"program": "1 +" if len(said) == 1 else "push('red block', 0, 0)"}

    roles = TaskRoles(context(), SURE, dict.fromkeys(("planner", "helper", "reporter"), pl.Scripted(answer)), "x")
    assert asyncio.run(roles.plan({})).code == "push('red block', 0, 0)" and "no Python" in said[1]


def made(answer=scripted_arm, **settings):
    return replace(dahlia.build(asked=pl.Scripted(answer)), **{"tasks": 4, **settings})


def play(context, out=None, **settings):
    return asyncio.run(made(**settings).run(context(out=out))).metrics


def test_the_arms_stand_beside_each_other_and_a_killed_run_ends_the_same(context, tmp_path):
    asked = []

    def answer(request):
        asked.append(request)
        return scripted_arm(request)

    run = lambda: play(context, tmp_path, answer=answer, kind="covered on and in", world=SURE, tasks=3)
    first, calls = run(), len(asked)
    for name in ("arm-guide", "guided-tasks", "arm-none"):
        (tmp_path / "kept" / f"{name}.json").unlink()
    assert run() == first and len(asked) == calls
    arms = first["arms"]
    assert list(arms) == ["none", "guide", "verdict", "shuffled", "random", "oracle"]
    # without luck: the covered block stops the first program, and only a report helps; the script looks at its poses
    # after any report, so one of another task helps as well
    assert [arms[a]["return"] for a in arms] == [0, 1, 0, 1, 0, 1]
    assert arms["random"]["attempts"] == arms["guide"]["attempts"] == 2 and first["recovered"] == 1
    assert (arms["guide"]["precision"], arms["guide"]["recall"], arms["guide"]["errors"]) == (1, 1, 1)
    rows = [json.loads(x) for x in (tmp_path / "tasks" / "guide.jsonl").read_text().splitlines()]
    assert (
        len(rows) == 3
        and "lies on it" in rows[0]["trace"][0]["error"]
        and "What differs" in rows[0]["trace"][0]["report"]
    )


def test_in_the_shuffled_arm_the_lines_are_of_another_task(context, tmp_path):
    """The planner adds what its report names: right with its own, wrong with that of the other task. The judge is
    the same; where one task alone has a report there is nobody to exchange it with.
    """
    heard = []

    def answer(request):
        text = request.messages[-1].content
        target = 2 if "to two" in request.messages[0].content + text else 3
        if "A robot was told" in text:
            return {"judge": f"judge = poses()['count'] == {target}", "report": [f"add {target} in all"]}
        heard.append(text)
        return {"program": f"add({text.split(' in all')[0][-1]})" if " in all" in text else "x = 1"}

    rows = [{"instruction": "to two", "target": 2}, {"instruction": "to three", "target": 3}]
    file = tmp_path / "tasks.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    own = made(answer, world=world_by_name_of(COUNTER), instructions=str(file), tasks=0)
    found = asyncio.run(own.run(context(out=tmp_path / "run"))).metrics["arms"]
    assert (found["guide"]["return"], found["shuffled"]["return"], found["verdict"]["return"]) == (1, 0, 0)
    told = [json.loads(x) for x in (tmp_path / "run" / "tasks" / "shuffled.jsonl").read_text().splitlines()]
    assert [t["trace"][0]["report"].splitlines()[-1] for t in told] == ["add 3 in all", "add 2 in all"]
    assert reports_of_others([{"trace": [{"report": "a"}, {"report": "b"}]}, {"trace": [{"report": "c"}]}], KEY) is None


KEY = ("test",)


def test_one_attempt_recovers_nothing_and_judgments_can_be_turned(context):
    assert play(context, attempts=1)["recovered"] == 0
    # done at once, and taken for a failure every time: all attempts are used
    turned = play(context, kind="one in", world=SURE, flip=1.0, tasks=2)
    assert (turned["attempts"], turned["recall"], turned["arms"]["guide"]["alarmed"]) == (2, 0, 1)
    assert turned["return"] == 1


def test_resetting_puts_things_back(context):
    def answer(request):
        text = request.messages[-1].content
        if "A robot was told" in text:
            return {"judge": "judge = poses()['count'] == 4", "report": []}
        return {"program": "add(2)"}

    world = world_by_name_of(COUNTER)
    rows = [{"instruction": "to four", "target": 4}]
    for retry, success in (("continue", 1), ("reset", 0)):
        own = made(answer, world=world, retry=retry)
        assert play_rows(context, own, rows) == success


def world_by_name_of(text):
    names = {}
    exec(text, names)
    return names["Counter"]()


def play_rows(context, own, rows):
    arms = TaskArms(own, context(), own.sources(), rows)
    return asyncio.run(arms.play("reporter"))[0]["success"]


def test_a_judge_that_breaks_is_counted_and_a_dead_endpoint_ends_the_run(context):
    def answer(request):
        broken = {"judge": "judge = 1 / 0", "report": []}
        return broken if "A robot was told" in request.messages[-1].content else {"program": "x = 1"}

    found = play(context, answer=answer, tasks=1)
    assert found["arms"]["guide"]["unjudged"] == 1 and found["attempts"] == 1

    def down(request):
        raise Fault("chat-500", "down")

    with pytest.raises(Fault, match="down"):
        play(context, answer=down, tasks=1)
    none = play(context, answer=lambda r: "no idea", tasks=1)
    assert none["return"] == 0 and none["arms"]["guide"]["fallbacks"] >= 1


def test_ones_own_world_and_tasks(context, tmp_path):
    (tmp_path / "own.py").write_text(COUNTER)
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"instruction": "to four", "target": 4}\n\n{"instruction": "to two", "target": 2}\n')
    reply = {"program": "add(n=2)", "judge": "judge = poses()['count'] == {'to four': 4, 'to two': 2}[instruction]"}
    own = dahlia.build(asked=pl.Scripted(lambda r: reply), sim=f"{tmp_path}/own.py:Counter", instructions=str(tasks))
    found = asyncio.run(own.run(context())).metrics
    assert (found["arms"]["none"]["return"], found["return"], found["recovered"]) == (0.5, 1, 0.5)
    assert len(read_tasks(str(tasks))) == 2
    with pytest.raises(UserError, match="no tasks"):
        asyncio.run(replace(own, instructions="").run(context()))
    for text, why in (("", "has no tasks"), ("{", "own2.jsonl:1 is no JSON"), ('{"a": 1}', '"instruction"')):
        (tmp_path / "own2.jsonl").write_text(text)
        with pytest.raises(UserError, match=why):
            read_tasks(str(tmp_path / "own2.jsonl"))
    (tmp_path / "bare.py").write_text("class Bare:\n    about = 'x'\n")
    with pytest.raises(UserError, match="no primitives, no reset"):
        world_by_name(f"{tmp_path}/bare.py:Bare")


def test_mistakes_are_said():
    with pytest.raises(UserError, match="attempts are 1 or more"):
        dahlia.build(attempts=0)
    with pytest.raises(UserError, match="fail is from 0 to 1"):
        dahlia.build(fail=2)
    with pytest.raises(UserError, match="--llm endpoint"):
        dahlia.build().sources()
    with pytest.raises(UserError, match="no kind='x'"):
        SURE.tasks(rng(), 1, "x")
    with pytest.raises(UserError, match="needs a goal"):
        start({"instruction": "x", "goal": [["in", "red block", "attic"]]})
    with pytest.raises(UserError, match="default's table alone"):
        scripted_arm(pl.ChatRequest(messages=pl.services.question_messages("Another world")))
    assert len(TEMPLATES) == 20 and len(BLOCKS) == 6
