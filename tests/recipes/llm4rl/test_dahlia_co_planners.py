"""DAHLIA's co-planners: what a program asks in words while it runs, answered from the poses of that moment."""

import asyncio
from dataclasses import replace

import palaestra as pl
import pytest
from palaestra.recipes.llm4rl import dahlia
from palaestra.recipes.llm4rl.dahlia.program import TaskArms
from palaestra.recipes.llm4rl.dahlia.roles import CO_PLANNERS, TaskRoles, check_primitives
from palaestra.recipes.llm4rl.dahlia.sandboxed import parameters_of, run_answer
from palaestra.recipes.llm4rl.dahlia.tabletop import Tabletop

TASK = {"instruction": "put the leftmost block in the right zone", "goal": [["in", "red block", "right zone"]]}
LEFTMOST = "answer = min(poses(), key=lambda b: poses()[b]['x'])"
PLAN = """# who is leftmost is for a co-planner to say
block = parse_obj_name("the block at the far left")
pick_place(block, "right zone")
answer = {block}  # a program's own name, and no plain data
if parse_question("is " + block + " in the right zone?"):
    push(parse_obj_name("the block at the far left"), 0.01, 0)"""


def answers(asked):
    def reply(request):
        text = request.messages[-1].content
        asked.append(text)
        if " asks parse_obj_name" in text:
            return {"program": LEFTMOST}
        if " asks parse_question" in text:
            return {"program": "answer = poses()[question.split(' in the')[0].removeprefix('is ')]['x'] > 0.7"}
        return {"program": PLAN}

    return reply


def arms(context, reply, **settings):
    own = replace(dahlia.build(asked=pl.Scripted(reply)), **{"world": Tabletop(fail=0.0), **settings})
    return TaskArms(own, context(), own.sources(), [TASK])


def test_a_program_asks_in_words_and_hears_of_the_poses_at_that_moment(context):
    asked = []
    done = asyncio.run(arms(context, answers(asked)).play("none"))[0]
    trace = done["trace"][0]
    first, moved, question, second, pushed = trace["calls"]
    assert trace["error"] == "" and trace["helpers"] == []  # nobody wrote them as functions
    block = first.rpartition(" = ")[2].strip('"')
    assert first.startswith('parse_obj_name("the block at the far left") = ') and moved.endswith('"right zone")')
    # it lies in the right zone after it was moved, and another one is leftmost then
    assert question.endswith(" = true") and second.rpartition(" = ")[2].strip('"') != block
    assert second.rpartition(" = ")[2] in pushed
    assert done["answers"] == 3 and done["calls"] == 4 and done["helpers"] == 0
    before, after = (f'"{block}": {{"x": {x}' for x in ("0.05", "0.75"))
    assert f"{block} in the right zone?" in asked[2] and before in asked[1] and after in asked[2]


def test_an_answer_is_what_a_program_of_the_poses_sets():
    poses = {"a": {"x": 1.0}, "b": {"x": 3.0}}
    ask = lambda code, **given: asyncio.run(run_answer(poses, "move it", code, given))
    assert ask("answer = [(poses()['a']['x'] + poses()['b']['x']) / 2, 0]", description="between") == [2.0, 0]
    shape = "answer = [[-y, x] for x, y in points] if 'quarter' in description else points"
    assert ask(shape, description="a quarter to the left", points=[[1, 0], [0, 2]]) == [[0, 1], [-2, 0]]
    for code, why in (
        ("answer = {1}", "plain data"),
        ("x = 1", "no answer"),
        ("answer = pick_place('a', 'b')", "pick"),
    ):
        with pytest.raises(ValueError, match=why):
            ask(code)


def test_who_cannot_answer_is_an_error_of_the_program_and_leaves_the_attempt_judged(context):
    def reply(request):
        text = request.messages[-1].content
        if " asks parse_obj_name" in text:
            return {"program": "answer = poses()['green cup']"}
        if "A robot was told" in text:
            return {"judge": "judge = False", "report": ["nothing moved"]}
        return {"program": PLAN}

    done = asyncio.run(arms(context, reply, attempts=1).play("reporter"))[0]
    assert "KeyError" in done["trace"][0]["error"] and done["errors"] == 1 and done["answers"] == 0
    assert done["judged"] == [(False, False)]


def test_without_co_planners_they_are_functions_to_be_written_as_others(context):
    asked = []

    def reply(request):
        text = request.messages[-1].content
        asked.append(text)
        if "which nobody has defined" in text:
            name = text.split(" calls ")[1].split(",")[0]
            return {"function": f"def {name}(words):\n    return 'red block'"}
        return {"program": PLAN}

    done = asyncio.run(arms(context, reply, co_planners=False).play("none"))[0]
    assert done["answers"] == 0 and done["helpers"] == 2 and done["success"] == 1
    assert "parse_position" not in asked[0]


def test_a_world_s_own_primitive_has_its_name(context):
    class Own(Tabletop):
        @property
        def primitives(self):
            return {**super().primitives, "parse_question": "parse_question(about): the world's own"}

    roles = TaskRoles(context(), Own(), {}, "x")
    assert set(roles.co_planners) == set(CO_PLANNERS) - {"parse_question"}
    assert [list(parameters_of(text)) for text in CO_PLANNERS.values()] == [
        ["description"], ["description"], ["question"], ["description", "points"],
    ]  # fmt: skip
    check_primitives(Own())
