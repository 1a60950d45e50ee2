"""WALL-E 2.0: coverage and pruning by hand, rules that are the same as code, worlds that are imagined first."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.recipes.inference.wall_e_2 import build, program, recorded
from palaestra.recipes.inference.wall_e_2.program import (
    WorldRules,
    measure_games,
    nearly_all_failed,
    veto_precision,
)
from palaestra.recipes.inference.wall_e_2.recorded import read_transitions
from palaestra.recipes.inference.wall_e_2.rules import (
    LoggedAction,
    VetoRule,
    action_kind,
    greedy_cover,
    induce_rules,
    knowledge_graph,
    prune_rules,
    read_log,
    rules_as_code,
    said_action,
    scene_facts,
    scene_features,
)
from palaestra.recipes.inference.wall_e_2.world import FAILURE, ImaginedFirst, PredictedFrame
from palaestra.recipes.inference.wall_e_2.written import forecast_by_model, run_written, write_rules
from palaestra.services.sandbox import run_program
from palaestra.types import Act, Ask, Episode, Frame, Message, Reward, Task

from tests.chat_server import serving


def done(state, action, success, scene=None, expected=True):
    return LoggedAction(state=state, action=action, success=success, scene=scene or {}, expected=expected)


# ---- coverage and pruning


def test_greedy_cover_of_the_reference():
    """r1 covers 1, 2, 3, then r3 adds 4 and 5 where r2 and r4 add one: r1, r3, and nothing is left."""
    assert greedy_cover([{1, 2, 3}, {3, 4}, {4, 5}, {1, 5}]) == [0, 2]
    assert greedy_cover([{1}, {1, 2}, {2}]) == [1] and greedy_cover([]) == [] == greedy_cover([set()])
    assert greedy_cover([{2}, {1}]) == [0, 1], "of a tie the first"


def test_a_rule_that_vetoes_one_success_is_dropped_whatever_it_catches():
    log = [done("s", "a", False) for _ in range(10)] + [done("s", "a", True), done("s", "a", False, expected=False)]
    ten = [True] * 10
    vetoes = [
        [*ten, True, False],  # ten catches, and one success
        [*[True] * 4, *[False] * 6, False, False],
        [*ten[:9], None, False, False],  # it breaks once
        [*[False] * 12],  # it says nothing
        [*[True] * 2, *[False] * 8, False, False],  # the second covers these
        [*[False] * 11, True],  # a failure that was expected
    ]
    found = prune_rules(vetoes, log)
    assert (found.chosen, found.reserve, found.dropped) == ((1,), (3, 4, 5), (0, 2))


# ---- what is seen of a situation


def test_features_of_a_text_and_a_scene():
    assert scene_facts("At b2, box c1.\nThe cup is on shelf 2; go") == {
        "at": "b2", "box": "c1", "the cup": "shelf 2",
    }  # fmt: skip
    found = scene_features("at c1, box c1", {"goal": "a3", "at": "b2"})
    assert {"at c1", "box c1", "known: goal a3", "at", "box", "at = box"} <= found
    assert "goal a3" not in found and "known: at b2" not in found, "what is shown takes the place of what was"
    assert "box = cup" in scene_features("nothing", {"cup": "c1", "box": "c1"}), "what was shown before counts"


def test_rules_are_induced_from_what_worked_and_what_did_not():
    """Up fails in row 1 only; pick needs the box; what failed once, or as expected, makes no rule."""
    log = [
        done("at a1, box c1", "up", False), done("at a1, box b2", "up", False), done("at a2, box c1", "up", True),
        done("at c3, box c1", "up", True), done("at c2, box c2", "pick", True),
        done("at b1, box b1", "pick", True), done("at b2, box b1", "pick", False), done("at b1, box c1", "pick", False),
        done("at a1, box c1", "left", False),
        done("at c1, box a1", "right", False, expected=False), done("at c1, box a1", "right", False, expected=False),
    ]  # fmt: skip
    rules = induce_rules(log)
    assert VetoRule(kind="up", present=("at a1",)) in rules
    assert VetoRule(kind="pick", absent=("at = box",)) in rules
    assert {r.kind for r in rules} == {"up", "pick"}
    assert not any(r.kind == "up" and r.present == ("at",) for r in rules)
    assert VetoRule(kind="left") in induce_rules(log, least=1), "what never worked is vetoed"
    known = WorldRules(induced=tuple(rules))
    pruned = known.at(prune_rules(known.vetoes(log), log).chosen)
    edges = knowledge_graph(pruned.induced)
    assert ("pick", "requires", "at = box") in edges and ("up", "fails with", "at a1") in edges
    assert len(edges) == 2


def test_two_features_together():
    """Neither alone is always bad: fails where both are."""
    log = [done("red, big", "eat", False)] * 2 + [done("red, small", "eat", True), done("blue, big", "eat", True)]
    assert induce_rules(log) == [VetoRule(kind="eat", present=("big", "red"))]


def test_pruning_over_all_batches_drops_what_one_batch_suggests():
    one = [done("at a1, sun", "up", False)] * 2 + [done("at a2, rain", "up", True)]
    two = [done("at b3, sun", "up", True)]
    proposed = WorldRules(induced=tuple(induce_rules(one)))
    assert VetoRule(kind="up", present=("sun",)) in proposed.induced
    kept = proposed.at(prune_rules(proposed.vetoes([*one, *two]), [*one, *two]).chosen)
    assert not any("sun" in r.present for r in kept.induced) and kept.forecast("at a1", "up", {}).fails
    assert veto_precision(kept, [*one, *two]) == 1.0
    assert veto_precision(proposed, [*one, *two]) == pytest.approx(2 / 3)
    assert veto_precision(WorldRules(), two) is None


def test_rules_as_code_say_the_same_in_a_world_of_their_own():
    rules = [VetoRule(kind="pick", absent=("at = box",)), VetoRule(kind="up", present=("at a1", "it's"))]
    cases = [
        ("at a1, box c1", "pick", {}), ("at c1, box c1", "pick up", {}), ("at c1", "PICK", {"box": "c1"}),
        ("at a1, it's", "up", {}), ("at a1", "up", {}), ("at a1, it's", "down", {}),
    ]  # fmt: skip
    by_hand = [[True, False, False, False, False, False], [False, False, False, True, False, False]]
    code = rules_as_code(rules) + f"\nprint([[not r(*c)[1] for c in {cases!r}] for r in RULES])"
    ran = run_program(code)
    assert ran.status == "ok" and json.loads(ran.stdout.lower()) == by_hand
    log = [done(s, a, False, scene) for s, a, scene in cases]
    assert WorldRules(induced=tuple(rules)).vetoes(log) == by_hand


# ---- rules of a model


WRITTEN = """def rule(state, action, scene):
    if action == "pick" and "lamp" not in scene:
        return ("dark", False, "light the lamp")
    return ("", True, "")
"""


def test_written_rules_run_in_the_sandbox_and_break_alone(tmp_path):
    cases = [("s", "pick", {}), ("s", "pick", {"lamp": "on"}), ("s", "go", {})]
    broken = "def rule(state, action, scene):\n    return 1 / 0\n"
    forger = "import sys\nsys.__stdout__.write('@@rules [[null, null, null]]')\nraise SystemExit\n"
    dark = PredictedFrame(feedback="dark", suggestion="light the lamp")
    said = run_written([WRITTEN, broken, "no python"], cases)
    assert said == [[dark, PredictedFrame(), PredictedFrame()], [None] * 3, [None] * 3]
    assert run_written([WRITTEN, forger], cases)[0] == said[0], "one rule says nothing for another"
    outside = tmp_path / "escape"
    here = f"import os\ndef rule(state, action, scene):\n    os.mkdir({str(outside)!r})\n    return ('', True, '')\n"
    assert run_written([here], cases) == [[None] * 3] and not outside.exists()
    known = WorldRules(written=(WRITTEN,))
    assert known.vetoes([done("s", "pick", False), done("s", "go", True)]) == [[True, False]]
    assert known.forecast("s", "pick", {}) == dark and not known.forecast("s", "go", {}).fails


def test_a_model_writes_rules_and_expects(context):
    """It is asked about kinds that failed unexpectedly, with what worked beside."""
    asked = []

    def reply(body):
        asked.append(body["messages"][-1]["content"])
        return f"So:\n```python\n{WRITTEN}```" if "Write rules" in asked[-1] else "I would say No."

    log = [done("dim", "pick", False), done("bright", "pick", True), done("dim", "go", True)]
    with serving(reply) as (_, url):
        source, _ = pl.services.client_from_text(f"endpoint(url='{url}',model='m')", "miner")
        ctx = context()
        assert asyncio.run(write_rules(ctx, source, log, 0)) == [WRITTEN]
        assert (
            len(asked) == 1 and "'dim'" in asked[0] and "'bright'" in asked[0] and "go" not in asked[0].split("When")[0]
        )
        assert asyncio.run(forecast_by_model(ctx, source, "dim", "pick", {})) is False
    with serving(lambda body: "Perhaps.") as (_, url):
        source, _ = pl.services.client_from_text(f"endpoint(url='{url}',model='m')", "miner")
        assert asyncio.run(forecast_by_model(context(), source, "dim", "pick", {})) is None


# ---- a world that is imagined first


class Doors:
    """Open works once it is unlocked; pays at the end."""

    seats = ("policy",)

    def reset(self, task, key):
        return self.ask(False, "locked")

    def step(self, state, acts, key):
        said = acts[0].text
        if said == "unlock":
            return self.ask(True, "unlocked")
        if said == "open" and state:
            return Frame(state=state, pay={("policy", ""): 1.0})
        return self.ask(state, "It cannot be done" if said == "open" else "locked" if not state else "unlocked")

    def ask(self, state, text):
        choices = ("open", "unlock", "wait")
        return Frame(
            state=state, asks=(Ask(seat="policy", say=(Message(role="user", content=text),), choices=choices),)
        )


def act(frame, text):
    return Act(ask=frame.asks[0], text=text, call=None, finish="eos", n_tokens=1)


def played(acts, rule=True, **settings):
    """What the agent is told after each action, and the last frame."""

    async def predict(state, action, scene):
        fails = rule and action == "open" and state == "locked"
        return PredictedFrame(feedback="It is locked.", suggestion="Unlock.") if fails else PredictedFrame()

    world, said = ImaginedFirst(Doors(), predict, **settings), []

    async def run():
        frame = await world.reset(Task(id="t", prompt=()), (0,))
        for text in acts:
            frame = await world.step(frame.state, (act(frame, text),), (0, 1))
            said.append(frame.asks[0].say[-1].content if frame.asks else "")
        return frame

    return asyncio.run(run()), said


def test_a_vetoed_action_is_not_done_and_the_agent_is_told_why():
    frame, said = played(["open", "unlock", "open"])
    assert said[0] == "Imagined, not done: open\nIt is locked. Unlock.\nlocked" and said[1:] == ["unlocked", ""]
    assert [(t.state, t.action, t.success) for t in frame.facts["logged"]] == [
        ("locked", "unlock", True), ("unlocked", "open", True),
    ]  # fmt: skip
    assert frame.facts["vetoes"] == (True,) and frame.pay == {("policy", ""): 1.0}


def test_a_legal_reply_that_is_vetoed_is_left_out():
    async def predict(state, action, scene):
        return PredictedFrame(feedback="no")

    world = ImaginedFirst(Doors(), predict, tries=2)
    frame = asyncio.run(world.reset(Task(id="t", prompt=()), (0,)))
    frame = asyncio.run(world.step(frame.state, (act(frame, "open"),), (0,)))
    assert frame.asks[0].choices == ("unlock", "wait")
    frame = asyncio.run(world.step(frame.state, (act(frame, "wait"),), (0,)))
    assert frame.asks[0].choices == ("unlock",)
    frame = asyncio.run(world.step(frame.state, (act(frame, "unlock"),), (0,)))
    assert frame.asks[0].say[-1].content == "unlocked", "after two imagined actions one is done"
    assert frame.asks[0].choices == ("open", "unlock", "wait") and frame.facts["vetoes"] == (True, True)
    frame = asyncio.run(world.step(frame.state, (act(frame, "open"),), (0,)))
    assert frame.asks[0].say[-1].content.startswith("Imagined"), "the next action is imagined anew"


def test_without_rules_the_world_is_as_it_was():
    frame, said = played(["open", "wait", "unlock"], rule=False)
    assert said == ["It cannot be done", "locked", "unlocked"]
    assert [t.success for t in frame.facts["logged"]] == [False, True, True] and frame.facts["vetoes"] == ()
    frame, said = played(["wait"], rule=False)
    assert [t.success for t in frame.facts["logged"]] == [False], "nothing has changed"
    frame, _ = played(["open", "open"], tries=1)
    assert [t.success for t in frame.facts["logged"]] == [False], "one is imagined, the next is done"
    frame, _ = played(["open"], look=False)
    assert frame.facts["vetoes"] == (None,)
    frame, _ = played(["open", "wait", "open", "wait"], turns=2)
    assert not frame.asks and frame.status == "truncated:turns" and len(frame.facts["vetoes"]) == 2


class Bag:
    """A standing sentence matches `failure`; its state is a list that `step` changes in place."""

    seats = ("policy",)

    def reset(self, task, key):
        return self.ask([task.meta.get("first", 0)])

    def step(self, state, acts, key):
        said = said_action(acts[0].text)
        if said == "leave":
            return Frame(state=state, pay={("policy", ""): float(state[0] == 2)})
        fails = said == "take" and state[0] == 2
        state[0] += said == "take" and not fails
        return self.ask(state, "It is impossible." if fails else "")

    def ask(self, state, more=""):
        text = f"You cannot carry more than 2 things. You have {state[0]}. {more}"
        return Frame(state=state, asks=(Ask(seat="policy", say=(Message(role="user", content=text),)),))


def bagged(acts, vetoed="", bag=Bag, **settings):
    async def predict(state, action, scene):
        return PredictedFrame(feedback="no" if action == vetoed else "")

    world = ImaginedFirst(bag(), predict, **settings)

    async def run():
        frame = await world.reset(Task(id="t", prompt=()), (0,))
        for text in acts:
            frame = await world.step(frame.state, (act(frame, text),), (0, 1))
        return frame

    return asyncio.run(run()).facts


def test_a_standing_sentence_is_no_failure_and_an_ending_without_pay_is_unknown():
    logged = bagged(["take", "take", "take", "take", "leave"])["logged"]
    assert [t.success for t in logged] == [True, True, False, False, True]
    assert [t.success for t in bagged(["take", "leave"])["logged"]] == [True], "paid 0: nobody knows"


class Hours(Bag):
    """The same, and the hour stands in the text and in the state key."""

    def ask(self, state, more=""):
        state.append(0)
        frame = super().ask(state, f"{more} Hour {len(state)}")
        return replace(frame, state_key=str(len(state)))


def test_a_failure_that_is_said_twice_is_one_although_the_hour_has_changed():
    logged = bagged(["take", "take", "take", "take"], bag=Hours)["logged"]
    assert [t.success for t in logged] == [True, True, False, False]


def test_nearly_all_failures_are_noted():
    rows = [done("s", "a", False)] * 9 + [done("s", "a", True)]
    assert nearly_all_failed([Episode(facts={"logged": tuple(rows)})]) == 0.9
    assert nearly_all_failed([Episode(facts={"logged": tuple(rows[1:])})]) == 0 == nearly_all_failed([])


@pytest.mark.parametrize(
    "text",
    ["<think>hmm, go</think>\nopen door", "**Action:** open door", "- `open door`", "I will.\nAction 2: **open door**\n\n",
     "* open door", "open door\n```"],
)  # fmt: skip
def test_an_action_is_the_last_line_that_says_something(text):
    assert said_action(text) == "open door" and action_kind(said_action(text)) == "open"


def test_what_has_no_action_has_no_kind():
    assert said_action("<think>open") == action_kind("") == "" and said_action("sum 2*3 -1") == "sum 2*3 -1"
    assert [t.action for t in bagged(["<think>well</think>**take**"])["logged"]] == ["take"]


class Lock:
    """What cannot be copied; `open` changes it."""

    def __init__(self):
        self.n = 0

    def __getitem__(self, i):
        return self.n

    def __setitem__(self, i, value):
        self.n = value

    def __repr__(self):
        return f"Lock({self.n})"

    def __deepcopy__(self, memo):
        raise TypeError("cannot pickle")


class LockedBag(Bag):
    def reset(self, task, key):
        return self.ask(Lock())


def test_an_imagined_action_is_not_done_where_a_step_changes_the_state_in_place():
    facts = bagged(["take", "wait"], vetoed="take")
    assert facts["vetoes"] == (False,) and "have 0" in facts["logged"][0].state
    assert bagged(["take", "take", "take"], vetoed="take", tries=1)["logged"][0].state.endswith("You have 0. ")
    with pytest.raises(UserError, match="look=False"):
        bagged(["take"], vetoed="take", bag=LockedBag)
    assert bagged(["take", "wait"], vetoed="take", bag=LockedBag, look=False)["vetoes"] == (None,)
    assert bagged(["wait", "wait"], vetoed="wait", bag=LockedBag)["vetoes"] == (True, True), "it changes nothing"


# ---- the program


def test_games_are_measured_by_hand():
    facts = [
        {"logged": (done("s", "a", True), done("s", "a", False)), "vetoes": (True, False, None)},
        {"logged": (done("s", "a", True),), "vetoes": (True,)},
    ]
    games = [
        Episode(rows=(), status="finished", facts=f, reward=Reward(total=t, solved=bool(t)))
        for f, t in zip(facts, (1.0, 0.0), strict=True)
    ]
    found = measure_games(games)
    assert found["outcome"]["of"] == "accuracy" and found["outcome"]["mean"] == 0.5
    assert (found["actions"], found["failed"], found["vetoes"], found["avoided"]) == (1.5, 0.5, 2.0, 1.0)
    assert found["veto_precision"] == pytest.approx(2 / 3)


DOORS = '''
from palaestra.types import Ask, Frame, Message, Task


class Doors:
    """Doors of a colour; only a red one opens, and a grey one says nothing."""

    seats = ("policy",)
    solved = 1.0

    def task(self, split, index):
        return Task(id=f"{split}/{index}", prompt=(), answer=None, meta={"n": index})

    def reset(self, task, key):
        return self.ask((task.meta["n"], 0))

    def step(self, state, acts, key):
        n, turn = state
        worked = acts[0].text == ("push" if (n + turn) % 2 else "pull")
        if turn == 3:
            return Frame(state=state, pay={("policy", ""): 1.0}, facts={"success": worked})
        return self.ask((n, turn + 1), {"success": worked})

    def ask(self, state, facts={}):
        text = "a red door" if sum(state) % 2 else "a blue door"
        say = (Message(role="user", content=text),)
        return Frame(state=state, asks=(Ask(seat="policy", say=say, choices=("push", "pull")),), facts=facts)
'''


def test_a_users_environment_is_learned(tmp_path, monkeypatch):
    """Whether push or pull works follows from the colour; after the first round no action fails."""
    monkeypatch.chdir(tmp_path)
    Path("doors.py").write_text(DOORS)
    run = pl.train(
        "wall-e-2", env="doors.py:Doors", out="run", quiet=True, evaluate=0, max_tokens=8,
        set={"rounds": 2, "games": 12, "tasks": 4, "temperature": 2.0},
    )  # fmt: skip
    alone, aided = run.summary["alone"], run.summary["world model"]
    assert alone["failed"] > 0 == aided["failed"] and aided["avoided"] > 0 and aided["veto_precision"] == 1.0
    assert run.summary["precision_on_agent_alone"] == 1.0
    assert Path("run", "rules.py").read_text().count("def rule_") == run.summary["rules"] > 0


def test_replies_without_a_rule_or_a_yes_are_counted_and_a_lower_end_is_noted(tmp_path, monkeypatch, capsys):
    """All transitions of the first file failed, so both actions are vetoed, whatever the door."""
    monkeypatch.chdir(tmp_path)
    Path("doors.py").write_text(DOORS)
    ends = iter((1.0, 0.5))
    monkeypatch.setattr(program, "measure_games", lambda games: {**measure_games(games), "outcome": mean(next(ends))})
    rows = [{"state": "a red door", "action": "pull", "success": False}] * 2
    Path("log.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    with serving(lambda body: "Perhaps.") as (_, url):
        model = f"endpoint(url='{url}',model='m')"
        run = pl.train(
            "wall-e-2", env="doors.py:Doors", out="run", evaluate=0, max_tokens=8,
            set={"rounds": 0, "transitions": "log.jsonl", "tasks": 2, "miner": model, "predictor": model},
        )  # fmt: skip
    told = capsys.readouterr()
    assert "the miner gave no rule" in told.out + told.err and run.summary["rules_written"] == 0
    n = run.summary["forecasts"]
    assert n == run.summary["unclear_forecasts"] >= 8
    assert f"neither yes nor no in {n} of {n} replies" in told.out + told.err
    assert "ends at 0.5, below 1 alone" in told.out + told.err


def mean(value):
    return {"of": "reward", **pl.stats.mean_interval([value, value]).json()}


def test_a_log_of_ones_own_is_learned_from(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("doors.py").write_text(DOORS)
    rows = [
        {"state": f"a {c} door", "action": a, "success": (c == "red") == (a == "push")}
        for c in ("red", "blue")
        for a in ("push", "pull")
    ]
    Path("log.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    run = pl.train(
        "wall-e-2", env="doors.py:Doors", out="run", quiet=True, evaluate=0, max_tokens=8,
        set={"rounds": 0, "transitions": "log.jsonl", "least": 1, "tasks": 2},
    )  # fmt: skip
    assert run.summary["transitions"] == 4 and run.summary["world model"]["failed"] == 0
    Path("log.jsonl").write_text('{"state": "s", "action": "a", "success": "yes"}\n')
    with pytest.raises(UserError, match="row 1: success is true or false"):
        read_log("log.jsonl")
    Path("log.jsonl").write_text('{"state": "s", "success": true}\n')
    with pytest.raises(UserError, match="row 1: state and action must be texts"):
        read_log("log.jsonl")


SWITCHES = '''
from palaestra.types import Ask, Frame, Message, Task


class Switches:
    """A lamp is lit or dark; "light" works on a dark one and "dim" on a lit one, else nothing happens."""

    seats = ("policy",)
    solved = 3.0

    def task(self, split, index):
        return Task(id=f"{split}/{index}", prompt=(), answer=None, meta={"n": index})

    def reset(self, task, key):
        return self.ask((task.meta["n"] % 2 == 0, 0, 0), "")

    def step(self, state, acts, key):
        lit, turn, right = state
        worked = (acts[0].text == "dim") == lit
        state = (lit != worked, turn + 1, right + worked)
        if turn == 3:
            return Frame(state=state, pay={("policy", ""): float(state[2])})
        return self.ask(state, "" if worked else "nothing happens, ")

    def ask(self, state, before):
        text = before + ("the lamp is lit" if state[0] else "the lamp is dark")
        say = (Message(role="tool", content=text),)
        return Frame(state=state, asks=(Ask(seat="policy", say=say, choices=("light", "dim")),))
'''


def learned_from(given, monkeypatch, **where):
    """What a run learns from transitions alone, and the log that it read."""
    logs = []
    read = program.read_transitions
    monkeypatch.setattr(program, "read_transitions", lambda *a: logs.append(read(*a)) or logs[-1])
    run = pl.train(
        "wall-e-2", out="learned", quiet=True, evaluate=0, max_tokens=8, **where,
        set={"rounds": 0, "transitions": given, "tasks": 4, "temperature": 2.0},
    )  # fmt: skip
    return run.summary, logs[0]


def test_rollouts_of_a_run_are_learned_from_in_a_users_world(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("switches.py").write_text(SWITCHES)
    where = {"env": "switches.py:Switches"}
    pl.train(
        "grpo", out="run", steps=2, quiet=True, evaluate=0, max_tokens=8, **where,
        set={"schedule.prompts": 4, "sample.n": 3},
    )  # fmt: skip
    summary, log = learned_from("run", monkeypatch, **where)
    for t in log:
        assert t.success == ((t.action == "dim") == t.state.endswith("lit")), t
        assert t.scene["the lamp is"] == t.state.rpartition(" ")[2] and t.action in ("light", "dim")
    assert {t.success for t in log} == {True, False} and len(log) >= 2 * 12 * 3
    assert summary["rules"] > 0 and summary["transitions"] == len(log)
    assert summary["world model"]["failed"] == 0 < summary["alone"]["failed"]


@pytest.mark.parametrize("task", ["grid", "grid-4"])
def test_rollouts_of_a_run_are_learned_from_in_a_world_of_the_package(task, context, tmp_path):
    """Which actions worked is what the world itself says of each: its fact `executed`."""
    run = pl.train(
        "grpo", task=task, out=tmp_path, steps=1, quiet=True, evaluate=0, max_tokens=8,
        set={"schedule.prompts": 4, "sample.n": 4, "sample.temperature": 1.5},
    )  # fmt: skip
    worked = list[bool]()
    for e in run.episodes().to_pylist():
        executed = json.loads(e["facts"])["executed"]
        worked += executed if e["solved"] else executed[:-1]
    log = read_transitions(context(task), str(tmp_path), FAILURE)
    assert [t.success for t in log] == worked[: len(log)] and len(log) > 16
    assert {t.success for t in log} == {True, False}


def test_games_that_were_played_are_learned_from(context, tmp_path, capsys):
    """A person plays at a terminal, where what was asked stands above the record."""
    made = pl.games.play("grid", seats=["policy"], n=3, temperature=2.0, max_tokens=8)
    file = tmp_path / "games.json"
    file.write_text(f"at a1> \n{json.dumps(made)}\n")
    log = read_transitions(context("grid"), str(file), FAILURE)
    said = [x for g in made["games"] for x in g["transcript"]]
    unknown = sum(g["solved"] is not True for g in made["games"])
    assert len(log) == len(said) - unknown and len(said) == sum(g["turns"]["policy"] for g in made["games"])
    known = [x for g in made["games"] for x in (g["transcript"] if g["solved"] else g["transcript"][:-1])]
    assert [(t.state, t.action) for t in log] == [(x["shown"], x["said"]) for x in known]
    after = [x["shown"] for x in known[1:]]
    for t, later in zip(log, after, strict=False):
        if later.startswith("cannot"):
            assert not t.success
    with pytest.raises(UserError, match="legal"):  # grid has a field of the name `legal`
        pl.games.play("grid", seats=["random"], n=1)
    file.write_text("[]")
    with pytest.raises(UserError, match="no record of games"):
        read_transitions(context("grid"), str(file), FAILURE)


def test_rollouts_of_another_template_are_refused(context, tmp_path):
    with pytest.raises(UserError, match="chat template"):
        recorded.message_of("User: at a1", {"<|user|>"}, {"<|end|>"}, tmp_path)
    assert (
        recorded.message_of("a<|user|>b<|tool|>at a1<|end|>", {"<|user|>", "<|tool|>"}, {"<|end|>"}, tmp_path)
        == "at a1"
    )


def test_what_it_cannot_learn_from_is_refused(tmp_path):
    with pytest.raises(UserError, match="environment of one seat"):
        pl.train("wall-e-2", task="tictactoe", out=tmp_path / "run", quiet=True, anyway=True, set={"tasks": 1})
    for given in ({"rounds": 0}, {"games": 0}, {"tries": -1}, {"least": 0}):
        with pytest.raises(UserError):
            build(**given)


def test_what_depends_on_other_words_of_an_action_is_told():
    """ "take X works only where X is": no condition on the state alone parts success from failure, and the card says so."""
    from palaestra.recipes.inference.wall_e_2 import CARD
    from palaestra.recipes.inference.wall_e_2.rules import LoggedAction, induce_rules

    log = [
        LoggedAction(state=f"{a} is on the table", action=f"take {b}", success=a == b, scene={})
        for a in ("box", "cup")
        for b in ("box", "cup")
        for _ in range(8)
    ]
    assert induce_rules(log) == []
    assert any("first word alone" in line for line in CARD.lacks)
