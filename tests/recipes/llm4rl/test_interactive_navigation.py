"""Interactive navigation: trees of primitives, their edits, the three roles with their budget, and the arms."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.errors import Fault, UserError
from palaestra.recipes.llm4rl import interactive_navigation as nav
from palaestra.recipes.llm4rl.interactive_navigation.games import (
    NavigationGame,
    NavigationLimits,
    direct_call,
)
from palaestra.recipes.llm4rl.interactive_navigation.guide import read_view, scripted_navigator
from palaestra.recipes.llm4rl.interactive_navigation.program import cheapest_plan, others_advice, world_by_name
from palaestra.recipes.llm4rl.interactive_navigation.roles import (
    AdvisorReply,
    ArboristReply,
    FlatReply,
    NavigationRoles,
    PlannerReply,
    add_planned,
    apply_edits,
)
from palaestra.recipes.llm4rl.interactive_navigation.rooms import (
    SURPRISES,
    BlockedRooms,
    BlockedRoomsState,
    BlockedRoomsView,
    distances,
)
from palaestra.recipes.llm4rl.interactive_navigation.tree import PrimitiveCall, PrimitiveTree

YARD = '''
class Yard:
    """A ledge, which a box or a chair makes a step of; `slippery` ones cannot be climbed."""

    about = "A yard with a ledge. Push something there, climb, walk."
    primitives = {"push": ["thing"], "climb": ["thing"], "walk": []}
    certain = True

    def __init__(self, slippery=()):
        self.slippery = frozenset(slippery)

    def reset(self, rng):
        return ("start", self.slippery)

    def view(self, state):
        return state[0]

    def values(self, view):
        return {"thing": ["box", "chair"]}

    def spell(self, view):
        return f"now: {view}"

    def refuse(self, view, name, arguments):
        wants = {"push": not view.startswith("up"), "climb": view == "at " + "".join(arguments), "walk": view == "up"}
        return "" if wants[name] else f"{name} cannot be done in {view}"

    def predict(self, view, name, arguments):
        return {"push": "at " + "".join(arguments), "climb": "up", "walk": "goal"}[name]

    def execute(self, state, name, arguments, rng):
        view, slippery = state
        if self.refuse(view, name, arguments) or (name == "climb" and arguments[0] in slippery):
            return state, 5.0, False
        return (self.predict(view, name, arguments), slippery), {"push": 4.0, "climb": 2.0, "walk": 3.0}[name], True

    def reached(self, view):
        return view == "goal"
'''
NAMES = {}
exec(YARD, NAMES)  # the same text is a user's file below
Yard = NAMES["Yard"]
ROLES = ("planner", "advisor", "arborist")
BOX = {"do": "push", "arguments": ["box"]}
NODES = [
    {"name": "a", "under": "0", "cost": 4, **BOX},
    {"name": "b", "under": "a", "do": "climb", "arguments": "box", "cost": 2},
    {"name": "c", "under": "b", "do": "walk", "cost": 3},
    {"name": "d", "under": "root", "do": "Push", "arguments": ["Chair"], "cost": 2},
    {"name": "e", "under": "d", "do": "climb", "arguments": ["chair"], "cost": 9},
    {"name": "f", "under": "e", "do": "walk", "cost": 3},
]


def planned(nodes=NODES, world=None):
    tree = PrimitiveTree(world or Yard(), "start")
    added, refused = add_planned(tree, PlannerReply.model_validate({"nodes": nodes}), [0])
    return tree, added, refused


def edited(tree, *edits):
    return apply_edits(tree, ArboristReply.model_validate({"edits": list(edits)}).edits)


def names(nodes):
    return [str(n.call) for n in nodes]


def test_the_catalogues_tree_nine_against_fourteen_then_nineteen_against_fourteen():
    tree, added, refused = planned()
    assert (added, refused) == (6, 0) and [c for c, _ in tree.plans()] == [9, 14]
    assert names(tree.best()) == ["push(box)", "climb(box)", "walk()"]
    assert edited(tree, {"edit": "recost", "node": "2", "cost": 2 + 10}) == (1, 0, False)
    assert [c for c, _ in tree.plans()] == [14, 19] and names(tree.best())[0] == "push(chair)"
    assert edited(tree, {"edit": "prune", "node": "node 1"}) == (1, 0, False)
    assert [c for c, _ in tree.plans()] == [14] and len(tree.nodes) == 3


def test_what_was_done_costs_nothing_more_and_other_branches_stay():
    """With the box pushed, 12 + 3 = 15 are left of its branch, and 14 of the other, which begins from there."""
    tree = planned()[0]
    tree.nodes[1].done = True
    tree.refresh("at box")
    tree.recost(2, 12)
    assert [c for c, _ in tree.plans()] == [14, 15]
    tree.nodes[2].done = True
    tree.refresh("up")  # where nothing can be pushed any more
    assert [c for c, _ in tree.plans()] == [3] and tree.nodes[4].view is None and tree.nodes[6].view is None


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ({"under": "7"}, "no node"),
        ({"do": "fly"}, "no 'fly'"),
        ({"arguments": ["tree"]}, "is no thing"),
        ({"arguments": []}, "takes 1"),
        ({"do": "walk", "arguments": []}, "cannot be done"),
        ({"cost": 0}, "above 0"),
        ({}, "there already"),
    ],
)
def test_nodes_that_are_none_of_a_tree_are_refused(node, why):
    tree = planned(NODES[:1])[0]
    given = {"under": "0", "cost": 4, **BOX, **node}
    with pytest.raises(ValueError, match=why):
        tree.add(int(given["under"]), given["do"], given["arguments"], given["cost"])
    assert edited(tree, {"edit": "add", "node": given["under"], **given}) == (0, 1, False)


def test_calls_that_lead_back_failed_before_or_are_too_many_are_refused():
    tree = planned(NODES[:1])[0]
    with pytest.raises(ValueError, match="leads back"):
        tree.add(1, "push", ["box"], 1)
    tree.failed = {PrimitiveCall(name="push", arguments=("chair",))}
    with pytest.raises(ValueError, match="failed before"):
        tree.add(0, "push", ["chair"], 1)

    class Line(Yard):
        primitives = property(lambda self: {"step": ["way"]})
        values = lambda self, view: {"way": list("abcdefgh")}
        refuse = lambda self, view, name, arguments: ""
        predict = lambda self, view, name, arguments: view + arguments[0]

    tree = PrimitiveTree(Line(), "")
    for way in "abc":
        tree.add(0, "step", way, 1)
    with pytest.raises(ValueError, match="3 children"):
        tree.add(0, "step", "d", 1)
    at = 1
    for _ in range(5):
        at = tree.add(at, "step", "a", 1).number
    with pytest.raises(ValueError, match="at most 6"):
        tree.add(at, "step", "a", 1)


def test_two_invalid_edits_in_a_row_end_the_tree_and_single_ones_are_counted():
    wrong, right = {"edit": "prune", "node": "99"}, {"edit": "recost", "node": "1", "cost": 5}
    assert edited(planned()[0], wrong, right, wrong, right) == (2, 2, False)
    assert edited(planned()[0], right, wrong, wrong, right) == (1, 2, True)
    tree = planned()[0]
    tree.nodes[1].done = True
    assert edited(tree, {"edit": "prune", "node": "1"}, right) == (1, 1, False)


def test_rooms_cost_what_they_say_and_hide_what_they_hide():
    """From (1, 1): 2 + 1 steps to (3, 2)'s west and east over two cells. Walking there and pushing: by hand."""
    walls = BlockedRoomsState(view=BlockedRooms().reset(pl.rng_of(("a",))).view).view.walls
    view = BlockedRoomsView(
        robot=(1, 1), goal=(9, 1), walls=walls - {(5, y) for y in range(1, 8)}, boxes=(("box 1", (3, 1)),)
    )
    world, state = BlockedRooms(), BlockedRoomsState(view=view)
    after, cost, success = world.execute(state, "push", ("box 1", "east"), None)
    assert (cost, success) == (1 + 4, True) and after.view.boxes == (("box 1", (5, 1)),) and after.view.robot == (4, 1)
    stuck, cost, success = world.execute(replace(state, faulty=("box 1",)), "push", ("box 1", "east"), None)
    assert (cost, success) == (1 + 3, False) and stuck.view.boxes == view.boxes and stuck.view.robot == (2, 1)
    # around the box, which lies on the straight way: 8 + 2
    assert world.execute(state, "walk", ("goal",), None)[1] == 10 == distances((1, 1), view.blocked)[9, 1]
    assert world.refuse(view, "push", ("box 1", "north")) and world.execute(state, "push", ("box 1", "north"), None)[
        1:
    ] == (3, False)
    assert world.view(replace(state, faulty=("box 1",))) == view


@pytest.mark.parametrize("kind", ["open", "plain", "stuck", "second door", "slippery"])
def test_every_map_can_be_solved_and_only_open_ones_by_walking(kind):
    world = BlockedRooms(kind=kind)
    for i in range(6):
        state = world.reset(pl.rng_of(("maps", i)))
        plan = cheapest_plan(world, state, NavigationLimits())
        assert plan is not None and world.surprising(state) == (kind in SURPRISES)
        assert (direct_call(world, state.view) is not None) == (kind == "open")
        assert read_view(f"\n{world.spell(state.view)}\n") == state.view


def test_an_oracle_finds_the_cheapest_plan():
    """Box: 4 + 2 + 3 = 9; where it is slippery the chair, of the same cost."""
    first = cheapest_plan(Yard(), ("start", frozenset()), NavigationLimits())[0]
    assert str(first) == "push(box)"
    plan = cheapest_plan(Yard(["box"]), ("start", frozenset(["box"])), NavigationLimits())
    assert [str(c) for c in plan] == ["push(chair)", "climb(chair)", "walk()"]
    assert cheapest_plan(Yard(), ("start", frozenset(["box", "chair"])), NavigationLimits()) is None


def one_reply(**more):
    reply = {"nodes": NODES, "plan": [{k: v for k, v in n.items() if k not in ("name", "under")} for n in NODES[:3]]}
    return {**reply, "advice": "repair", "node": 2, "edits": [{"edit": "recost", "node": 2, "cost": 12}], **more}


def game(context, planning="arborist", world=None, calls=20, replies=None, **reply):
    source = pl.Scripted(lambda request: one_reply(**reply))
    roles = NavigationRoles(context(), world or Yard(["box"]), dict.fromkeys(ROLES, source), calls, replies)
    made = NavigationGame(world or Yard(["box"]), roles, planning, NavigationLimits(calls=calls), ("game",))
    return made, asyncio.run(made.play())


def test_one_edit_changes_the_branch_without_a_new_plan(context):
    """push 4, climb fails 5, then chair 4, climb 2, walk 3: 18, with three questions."""
    made, found = game(context)
    assert (found["success"], found["cost"], found["rescued"]) == (1, 18, 1)
    assert (found["calls"], found["plans"], found["edits"], found["replans"]) == (3, 1, 1, 0)
    # a script counts no tokens, so words stand for them
    assert found["tokens"] > 100 and made.roles.records[0]["calls"] == 2


def test_edits_that_leave_the_plan_as_it_is_rescue_nothing(context):
    """The other branch costs more, so the one that fails is tried until nobody answers and it is taken out."""
    _, found = game(context, edits=[{"edit": "recost", "node": 5, "cost": 40}])
    assert found["edits"] > 1 and (found["success"], found["switches"], found["rescued"]) == (1, 0, 0)


def test_without_an_arborist_the_tree_is_written_anew(context):
    _, found = game(context, "advisor")
    assert (found["success"], found["plans"], found["replans"], found["rescued"], found["edits"]) == (1, 2, 1, 0, 0)


def test_a_flat_plan_that_is_written_again_is_refused_where_it_failed(context):
    """The same plan for ever: climb(box) failed before, so nothing of it reaches the goal."""
    _, found = game(context, "flat")
    assert (found["success"], found["failures"], found["calls"], found["refused"]) == (0, 1, 1 + 6, 6 * 3)


def test_continue_tries_again_until_no_call_is_left(context):
    """push, then climb 20 times, 19 of which are asked about, then the chair's three: 4 + 20 * 5 + 9."""
    _, found = game(context, advice="continue")
    assert (found["success"], found["acts"], found["cost"], found["edits"]) == (1, 24, 113, 0)


def test_the_budget_of_calls_holds_and_who_is_silent_loses_what_failed(context):
    made, found = game(context, calls=1)
    assert found["calls"] == 1 and found["success"] == 1 and found["edits"] == 0
    assert 2 not in made.tree.nodes


def test_a_reply_that_does_not_fit_is_counted_and_a_dead_endpoint_ends_the_run(context):
    _, found = game(context, advice="perhaps")
    assert found["fallbacks"] >= 1 and found["success"] == 1
    _, none = game(context, nodes="no")
    assert (none["success"], none["acts"]) == (0, 0) and none["calls"] <= 20

    def down(request):
        raise Fault("chat-500", "down")

    roles = NavigationRoles(context(), Yard(), dict.fromkeys(ROLES, pl.Scripted(down)), 20)
    with pytest.raises(Fault, match="down"):
        asyncio.run(NavigationGame(Yard(), roles, "arborist", NavigationLimits(), ("game",)).play())


def test_shuffled_advice_is_another_games_and_costs_as_much(context):
    said = {"advice": {"advice": "repair", "node": "1"}, "edits": {"edits": [{"edit": "prune", "node": "77"}] * 2}}
    _, found = game(context, replies=[{**said, "calls": 2, "tokens": 50}])
    assert found["invalid"] == 2 and found["replans"] >= 1 and found["edits"] == 0
    games = [{"advice": [1]}, {"advice": []}, {"advice": [2]}, {"advice": [3]}]
    assert others_advice(games) == [[2], [2], [3], [1]]


def test_exploring_reveals_the_second_key(context):
    world, guide = BlockedRooms(kind="second door"), pl.Scripted(scripted_navigator)
    for i in range(8):
        key = ("second", i)
        roles = NavigationRoles(context(), world, dict.fromkeys(ROLES, guide), 20)
        played = NavigationGame(world, roles, "arborist", NavigationLimits(), key)
        found = asyncio.run(played.play())
        assert found["success"] == 1, found["trace"]
        if any(x.startswith("explore") for x in found["trace"]):
            break
    assert any("key 2" in x and "seen first" in x for x in found["trace"])


def test_the_arms_stand_beside_each_other_and_a_killed_run_ends_the_same(context, tmp_path):
    asked = []

    def answer(request):
        asked.append(request.messages[0].content)
        return scripted_navigator(request)

    made = replace(nav.build(asked=pl.Scripted(answer)), tasks=12)
    run = lambda: asyncio.run(made.run(context(out=tmp_path, seed=0))).metrics
    first, calls = run(), len(asked)
    for name in ("arm-guide", "guided-games", "arm-flat"):
        (tmp_path / "kept" / f"{name}.json").unlink()
    assert run() == first and len(asked) == calls
    arms = first["arms"]
    assert list(arms) == ["none", "flat", "advisor", "guide", "shuffled", "oracle"]
    assert arms["oracle"]["return"] >= arms["guide"]["return"] > arms["none"]["return"]
    assert arms["oracle"]["cost"] <= arms["guide"]["cost"] and arms["none"]["calls"] == 0
    assert arms["guide"]["rescued"] > 0 == arms["advisor"]["rescued"] == arms["flat"]["rescued"]
    assert first["tokens_saved"] == pytest.approx(
        1 - arms["guide"]["tokens_surprise"] / arms["flat"]["tokens_surprise"]
    )
    lines = (tmp_path / "games" / "guide.jsonl").read_text().splitlines()
    assert len(lines) == 12 and all(json.loads(line)["trace"] for line in lines)


def test_a_planner_hears_why_its_calls_were_refused(context):
    heard = []

    def answer(request):
        heard.append(request.messages[0].content)
        return {"nodes": [{"do": "fly", "cost": 1}] if len(heard) == 1 else NODES}

    roles = NavigationRoles(context(), Yard(), dict.fromkeys(ROLES, pl.Scripted(answer)), 20)
    found = asyncio.run(NavigationGame(Yard(), roles, "arborist", NavigationLimits(), ("game",)).play())
    assert (found["success"], found["refused"], len(heard)) == (1, 1, 2)
    assert "Refused in the last reply: there is no 'fly'; there are push, climb, walk" in heard[1]
    assert "Refused" not in heard[0]


class Chancy(Yard):
    """Half of the pushes fail, by chance."""

    certain = False

    def execute(self, state, name, arguments, rng):
        if name == "push" and rng.random() < 0.5:
            return state, 5.0, False
        return super().execute(state, name, arguments, rng)


def played(context, planning, world, key, heard=None):
    def answer(request):
        if heard is not None:
            heard.append(request.messages[0].content)
        return one_reply(nodes=NODES[:3], edits=[{"edit": "recost", "node": 1, "cost": 5}])

    roles = NavigationRoles(context(), world, dict.fromkeys(ROLES, pl.Scripted(answer)), 20)
    return asyncio.run(NavigationGame(world, roles, planning, NavigationLimits(), key).play())


@pytest.mark.parametrize("planning", ["flat", "advisor", "arborist"])
def test_a_failure_by_chance_bans_no_call(context, planning):
    """There is one way; where a push may fail it is planned again, and where it fails for ever it is not."""
    heard = []
    games = [played(context, planning, Chancy(), ("chance", i), heard) for i in range(6)]
    assert {g["success"] for g in games} == {1.0} and sum(g["failures"] for g in games) > 0
    told = [x for x in heard if "Failed before" in x]
    assert all("push(box)\n" in x and "may succeed when it is tried again: push" in x for x in told)
    assert told


def test_names_are_met_exactly_first_and_are_not_too_much_alike(context):
    values = lambda names: type("Own", (Yard,), {"values": lambda self, view: {"thing": names}})()
    alike = values(["box 1", "Box_1"])
    tree = PrimitiveTree(alike, "start")
    assert tree.add(0, "push", ["Box_1"], 1).call.arguments == ("Box_1",)
    assert PrimitiveTree(values(["box"]), "start").add(0, "push", ["BOX"], 1).call.arguments == ("box",)
    for world, why in ((alike, "'box 1' and 'Box_1'"), (values([3]), "has 3 for 'thing', which is no text")):
        with pytest.raises(UserError, match=why):
            asyncio.run(replace(nav.build(asked=pl.Scripted(lambda r: "x")), world=world).run(context()))


def test_odd_words_lose_no_reply():
    nodes = [
        {"name": "0", "cost": "4 m", **BOX},  # no name that hides the root
        {"name": "b", "parent": "0", "do": "push", "arguments": ["chair"], "cost": 2.5},
        {"name": "b", "under": "b", "do": "climb", "arguments": ["chair"], "cost": "about 2.5 m"},
        {"under": "b", "do": "walk", "cost": None},
        {"do": ["push"]},
        "no node",
    ]
    tree, added, refused = planned(nodes)
    assert (added, refused) == (3, 3) and [(n.parent, n.cost) for n in tree.nodes.values()] == [
        (0, 4), (0, 2.5), (2, 2.5),
    ]  # fmt: skip
    assert "above 0" in tree.refusals[0] and "an item is no node" in tree.refusals[2]
    reply = {"edits": [
        {"edit": "Re-cost", "node": 1, "cost": "7 m"},
        {"edit": "PRUNE", "node": "3", "cost": None},
        "no edit",
        {"edit": "add", "node": "c", "parent": 2, "do": "climb", "arguments": "chair", "cost": 1},
        {"edit": "add", "under": "c", "do": "walk", "cost": 1},
    ]}  # fmt: skip
    assert edited(tree, *reply["edits"]) == (4, 1, False)
    assert [(n.parent, n.cost) for n in tree.nodes.values()] == [(0, 7), (0, 2.5), (2, 1), (4, 1)]
    assert AdvisorReply.model_validate({"advice": "Re-plan."}).advice == "replan"
    assert [n.do for n in FlatReply.model_validate({"plan": [{"do": "walk", "cost": 1}, 3]}).plan] == ["walk", ""]


def test_an_error_of_a_world_is_told_and_rooms_are_of_no_other_world(context):
    class Broken(Yard):
        predict = lambda self, view, name, arguments: {}[name]

    with pytest.raises(UserError, match=r"predict\(view, 'push', \('box',\)\) of the world ended in KeyError"):
        PrimitiveTree(Broken(), "start").add(0, "push", ["box"], 1)
    with pytest.raises(UserError, match="kind='stuck' is of the built-in rooms"):
        nav.build(sim="x.py:y", kind="stuck")


def test_worlds_that_cannot_be_planned_in_are_refused(context):
    class Arrays(Yard):
        view = lambda self, state: np.zeros(2)

    class Unhashed(Yard):
        reset = lambda self, rng: [super().reset(rng)]
        view = lambda self, state: "start"

    for world, why in ((Arrays(), "== does not"), (Unhashed(), "with a hash")):
        with pytest.raises(UserError, match=why):
            asyncio.run(replace(nav.build(asked=pl.Scripted(lambda r: "x")), world=world).run(context()))


def test_ones_own_world_and_what_is_no_world(context, tmp_path):
    file = tmp_path / "yard.py"
    file.write_text(YARD + "\ndef slippery():\n    return Yard(['box'])\n\nclass Half:\n    about = 'x'\n")
    made = nav.build(asked=pl.Scripted(lambda r: one_reply()), sim=f"{file}:slippery", tasks=3)
    found = asyncio.run(made.run(context(steps=2))).metrics
    assert found["arms"]["guide"]["rescued"] == 1 and found["arms"]["guide"]["cost"] == 18
    assert found["arms"]["oracle"]["cost"] == 9 and found["arms"]["none"]["return"] == 0
    with pytest.raises(UserError, match=r"no primitives, no reset"):
        world_by_name(f"{file}:Half")
    with pytest.raises(UserError, match="tasks, acts and calls are 1 or more"):
        nav.build(tasks=0)
    with pytest.raises(UserError, match="--llm endpoint"):
        asyncio.run(nav.build().run(context()))
    with pytest.raises(UserError, match="the default's rooms alone"):
        scripted_navigator(pl.ChatRequest(messages=pl.services.question_messages("Another world")))
