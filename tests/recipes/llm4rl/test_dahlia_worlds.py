"""DAHLIA in worlds of a user: states that change in place, files of tasks, signatures, and errors of a world."""

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace

import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.recipes.llm4rl import dahlia
from palaestra.recipes.llm4rl.dahlia.program import TaskArms
from palaestra.recipes.llm4rl.dahlia.roles import TaskRoles, check_primitives
from palaestra.recipes.llm4rl.dahlia.sandboxed import parameters_of, plain_code, run_plan


class OwnCounter:
    """A world that keeps its count itself and hands out a record that it changes in place."""

    about = "A counter. Raise it to the target."

    @property
    def primitives(self):
        return {"add": "add(n: int, times=1): adds n so often", "shout": "shout(text='a, b)'): says it"}

    def reset(self, task, rng):
        self.seen = {"count": 0}
        return self.seen

    def poses(self, state):
        return self.seen

    def act(self, state, name, arguments, rng):
        if name == "shout":
            self.seen["word"] = arguments[0].strip()
            return self.seen, None
        self.seen["count"] += arguments[0] * arguments[1]
        return self.seen, None

    def success(self, state, task):
        return self.seen["count"] == task["target"]


def rows_of(n):
    return [{"instruction": f"to {k}", "target": k} for k in range(1, n + 1)]


def counts(request):
    """Programs that are always right, and a judge that is."""
    first = request.messages[0].content
    if "A robot was told" in first:
        return {"judge": "judge = poses()['count'] == int(instruction.split()[1])", "report": ["a"]}
    target = int(first.split("Task: to ")[1].split("\n")[0])
    return {"program": f"for i in range({target}):\n    add(1)"}


def arms_of(context, answer=counts, n=4, world=None, said=None, **settings):
    ctx = context()
    if said is not None:
        ctx.say = said.append
    own = replace(dahlia.build(asked=pl.Scripted(answer)), **{"world": world or OwnCounter(), **settings})
    return TaskArms(own, ctx, own.sources(), rows_of(n))


def ran(code, world=None, helpers=()):
    world = world or OwnCounter()
    state = world.reset({}, None)
    return asyncio.run(run_plan(world, state, "x", plain_code(code), None, helpers))


def test_a_world_that_keeps_its_own_state_has_one_task_at_a_time(context):
    done = asyncio.run(arms_of(context).play("none"))
    assert [row["success"] for row in done] == [1, 1, 1, 1]


def test_poses_of_past_calls_are_not_those_of_now():
    found = ran("if poses()['count'] == 0:\n    add(1)\nadd(1)")
    assert found.error == "" and found.calls == ("add(1, 1)", "add(1, 1)") and found.state == {"count": 2}


def test_signatures_have_annotations_and_defaults_and_odd_texts():
    assert parameters_of("add(n: int, times=1): adds") == {"n": (), "times": (1,)}
    assert parameters_of("put(what, to=(0, 0)): puts f(x) there") == {"what": (), "to": ([0, 0],)}
    assert parameters_of("shout(text='a, b)'): says it") == {"text": ("a, b)",)} and parameters_of("go(): x") == {}
    found = ran("add(n=1, times=3)\nadd(2)\nadd(times=1, n=1)\nadd(1, 2, 3)")
    assert found.state["count"] == 6 and "add takes n, times" in found.error
    for text, why in (("add(*n): x", "add"), ("add(n=[)", "add"), ("add(n=other): x", "add"), ("add(n, /): x", "add")):
        with pytest.raises(UserError, match=why):
            check_primitives(SimpleNamespace(primitives={"add": text}))


def test_an_argument_that_breaks_a_world_is_an_error_of_the_program():
    found = ran("try:\n    shout(5)\nexcept ValueError as e:\n    add(1)\nshout(7)")
    assert found.state["count"] == 1 and "AttributeError" in found.error and "strip" in found.calls[0]

    class Huge(OwnCounter):
        def act(self, state, name, arguments, rng):
            if name == "shout":
                raise UserError("the world has no voice")
            return super().act(state, name, [int(float(arguments[0])), 1], rng)

    assert "OverflowError" in ran("add(1e999)", Huge()).error
    with pytest.raises(UserError, match="no voice"):
        ran("shout()", Huge())


def test_all_tasks_of_a_file_are_done_and_a_cut_is_said(context, tmp_path):
    file = tmp_path / "tasks.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows_of(25)))
    own = dahlia.build(asked=pl.Scripted(counts), instructions=str(file))
    ctx, said = context(), []
    ctx.say = said.append
    assert len(own.rows(ctx)) == 25 and not said
    assert len(replace(own, tasks=20).rows(ctx)) == 20 and "20 of 25" in said[0]
    assert len(dahlia.build().rows(ctx)) == 20 == dahlia.embedded().tasks


def test_thoughts_and_line_numbers_are_the_planners(context):
    code = "# think first\nadd(1)\ntwice(1)\n\n# now it fails\nadd('a' + 1)"
    assert plain_code(f"Here it is:\n```python\n{code}\n```") == code

    def answer(request):
        if "which nobody" in request.messages[-1].content:
            return {"function": "def twice(n):\n    # both\n    add(n)\n    add(n)"}
        return {"program": code}

    arms = arms_of(context, answer)
    done = asyncio.run(arms.play("none"))[0]["trace"][0]
    assert done["program"] == code and done["helpers"] == ["def twice(n):\n    # both\n    add(n)\n    add(n)"]
    assert "TypeError in line 6" in done["error"] and len(done["calls"]) == 3


def test_an_import_is_refused_so_that_the_model_hears_of_it(context):
    heard = []

    def answer(request):
        heard.append(request.messages[-1].content)
        return {"program": "import math\nadd(math.floor(1.5))" if len(heard) == 1 else "add(1)"}

    roles = TaskRoles(context(), OwnCounter(), dict.fromkeys(("planner", "helper"), pl.Scripted(answer)), "x")
    assert asyncio.run(roles.plan({})).code == "add(1)" and "import" in heard[1]
    for code in ("from os import path", "def f():\n    import sys"):
        with pytest.raises(ValueError, match="no imports"):
            plain_code(code)


def test_the_reporter_sees_where_things_began(context):
    asked = []

    def answer(request):
        asked.append(request.messages[0].content)
        return counts(request)

    asyncio.run(arms_of(context, answer, n=1).play("reporter"))
    report = next(text for text in asked if "A robot was told" in text)
    assert 'before: {"count": 0}' in report and 'poses: {"count": 1}' in report


def test_a_judge_that_breaks_is_said(context):
    said = []

    def answer(request):
        broken = {"judge": "a = 1\njudge = a and 1", "report": []}
        return broken if "A robot was told" in request.messages[0].content else counts(request)

    arms = arms_of(context, answer, n=2, said=said)
    result = asyncio.run(arms.arm("guide", lambda: arms.play("reporter"))())
    assert result["unjudged"] == 1 and "2 of 2" in said[0] and "did not set judge" in said[0]


def test_kinds_of_a_world_that_has_none_are_refused(context):
    class Plain(OwnCounter):
        def tasks(self, rng, n):
            return rows_of(n)

    own = replace(dahlia.build(), world=Plain(), kind="one in")
    with pytest.raises(UserError, match="no kind"):
        own.rows(context())
