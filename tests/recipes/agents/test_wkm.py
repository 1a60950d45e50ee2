"""World knowledge: verbs that the agent and similar states choose, and the games that knowledge is written from."""

import asyncio
import json
import math

import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.recipes.agents import wkm
from palaestra.recipes.agents.wkm.knowledge import (
    StateBase,
    StateRecord,
    likeliest,
    mix_verbs,
    verb_as_written,
    verb_of,
)
from palaestra.recipes.agents.wkm.play import WatchedGame, history_text, with_knowledge
from palaestra.recipes.agents.wkm.program import conversation
from palaestra.recipes.agents.wkm.trajectories import GivenTrajectories, read_trajectories
from palaestra.types import Act, Ask, Frame, Message, Task

LOGP = {"go": math.log(0.6) - 3, "take": math.log(0.4) - 3}  # of any mass: only the legal verbs count


def base(*rows):
    return StateBase([StateRecord(before=b, state=s, after=a) for b, s, a in rows])


@pytest.mark.parametrize(("weight", "go", "verb"), [(1.0, 0.6, "go"), (0.7, 0.495, "take"), (0.4, 0.39, "take")])
def test_the_mixture_of_the_catalogue(weight, go, verb):
    known = base(*[("open", "box", a) for a in ("take", "take", "take", "go")]).next_verbs("open", "box", 9)
    assert known == {"take": 0.75, "go": 0.25}
    mixed = mix_verbs(LOGP, known, weight)
    assert mixed == pytest.approx({"go": go, "take": 1 - go}) and likeliest(mixed) == verb


def test_edges_of_the_mixture():
    assert mix_verbs(LOGP, {}, 0.1) == pytest.approx({"go": 0.6, "take": 0.4}), "nothing was retrieved"
    assert mix_verbs(LOGP, {"fly": 1.0}, 0.1) == pytest.approx({"go": 0.6, "take": 0.4}), "what is not legal"
    assert mix_verbs(LOGP, {"fly": 0.5, "take": 0.5}, 0.0) == pytest.approx({"go": 0, "take": 1})
    nan = dict.fromkeys(LOGP, math.nan)
    assert mix_verbs(nan, {"take": 0.5, "go": 0.5}, 0.9) == {"go": 0.5, "take": 0.5}
    assert mix_verbs({"go": math.nan, "take": -1.0}, {}, 1.0) == pytest.approx({"go": 0, "take": 1})
    assert likeliest(mix_verbs(nan, {}, 0.5)) == "" and likeliest({"a": 0.5, "b": 0.5}) == "a"


def test_records_are_found_by_their_rare_words_and_the_verb_before():
    known = base(
        ("open", "the egg is hidden", "open"), ("open", "the egg is found", "take"),
        ("take", "the egg is held", "use"), ("use", "the egg is held", "put"),
    )  # fmt: skip
    assert known.nearest("Found: a cup!", 1)[0].after == "take"
    assert [r.after for r in known.nearest("held", 2)] == ["use", "put"], "the first of equals first"
    assert known.next_verbs("use", "held", 2) == {"put": 1.0} and known.next_verbs("go", "held", 4) == {}
    assert known.next_verbs("take", "found", 1) == {}, "the nearest has another verb before"
    assert base().next_verbs("go", "x", 3) == {} and base().verbs == {}
    assert list(known.verbs) == ["open", "take", "use", "put"]
    assert known.next_verbs("OPEN", "found", 4) == {"open": 0.5, "take": 0.5}


def test_verbs_are_compared_in_small_letters_and_written_as_the_experts_write_them():
    known = base(("TAKE", "held", "OPEN"), ("Take", "held", "open"), ("TAKE", "held", "Open"), ("look", "x", "OPEN"))
    assert known.verbs == {"take": "TAKE", "open": "OPEN", "look": "look"}
    assert known.next_verbs("take", "held", 3) == {"open": 1.0}
    assert verb_as_written("Action: **TAKE** key") == "TAKE" and verb_of("TAKE key") == "take"
    assert mix_verbs({"open": -1.0}, known.next_verbs("tAKE", "held", 3), 0.0) == {"open": 1.0}


def test_a_base_is_a_file(tmp_path):
    file = tmp_path / "states.jsonl"
    base(("open", "dé {x}", "take")).write(file)
    assert StateBase.read(file).records == base(("open", "dé {x}", "take")).records
    file.write_text('{"before": "Open box", "state": "s", "after": "Take egg"}\n\n{"state": 1}\n')
    with pytest.raises(UserError, match=r"states.jsonl:3: no record"):
        StateBase.read(file)


def test_verbs_in_any_form():
    for text, verb in (
        ("Go to shelf 1", "go"), ("click[Buy Now]", "click"), ("I think so.\nAction: **Take** egg", "take"),
        ("- open(box)", "open"), ("", ""), ("...\n", ""), ("look", "look"), ("Action 2: heat egg", "heat"),
    ):  # fmt: skip
        assert verb_of(text) == verb, text


class Door:
    """Two actions; what is said first is the task."""

    seats = ("policy",)
    solved = 1.0

    def reset(self, task, key):
        return Frame(state=0, asks=(self.ask("Leave the room."),))

    def step(self, state, acts, key):
        if state:
            return Frame(state=2, pay={("policy", ""): 1.0})
        return Frame(state=1, asks=(self.ask("The door is open. " + "x" * 2000),))

    def oracle(self, state):
        return ("open door", "go out")[state]

    def ask(self, text):
        return Ask(seat="policy", say=(Message(role="user", content=text),))


def act(text):
    return (Act(ask=Ask(seat="policy"), text=text, call=None, finish="eos", n_tokens=1),)


def test_a_game_is_kept_as_it_was_played_without_the_knowledge():
    world = WatchedGame(Door(), "The door opens inwards.")
    frame = asyncio.run(world.reset(Task(id="t"), ("k",)))
    assert frame.asks[0].say[0].content == "Leave the room.\nThe door opens inwards."
    given, task = GivenTrajectories({"Leave the room.": ["open door"]}), Task(id="t")
    assert given.next_action(task, world) == "open door" and world.oracle(frame.state) == "open door"
    asyncio.run(world.step(0, act("<think>hm</think>open door"), ("k", 1)))
    with pytest.raises(pl.Fault, match="goes on after all 1 actions"):
        given.next_action(task, world)
    assert given.remarks(["t"]) == "1 of 1 rows end before their game does, such as that of 'Leave the room.'"
    asyncio.run(world.step(1, act("go out"), ("k", 2)))
    assert [s[0].content[:9] for s in world.says] == ["Leave the", "The door "]
    text = history_text(world.says, world.actions[:1], 5)
    assert text.splitlines()[0] == "> open door" and len(text.splitlines()[1]) == 1000
    assert history_text(world.says, world.actions, 5) == "> open door\nThe d\n> go out"
    assert with_knowledge((), "k")[0].content == "k"
    game = {"says": [[["user", "a"]], [["tool", "b"]]], "actions": ["x", "y"]}
    assert conversation(game, "k")["messages"] == [
        {"role": "user", "content": "a\nk"}, {"role": "assistant", "content": "x"},
        {"role": "tool", "content": "b"}, {"role": "assistant", "content": "y"},
    ]  # fmt: skip
    assert conversation(game)["messages"][0]["content"] == "a" and game["says"][0][0][1] == "a"


def test_trajectories_of_a_file(tmp_path):
    file = tmp_path / "t.jsonl"
    file.write_text('{"task": "heat  egg\\nbox", "actions": ["open box"]}\n')
    assert read_trajectories(str(file)) == {"heat egg box": ["open box"]}
    for bad in ("{}", '{"task": "t", "actions": []}', '{"task": "t", "actions": [1]}', "[1]"):
        file.write_text(bad)
        with pytest.raises(UserError, match=r"t.jsonl:1: no trajectory"):
            read_trajectories(str(file))
    with pytest.raises(UserError, match="there is no file"):
        read_trajectories(str(tmp_path / "none.jsonl"))


def test_rows_are_found_by_the_id_the_prompt_or_the_first_text():
    world, prompt = WatchedGame(Door()), (Message(role="user", content="Go  out."),)
    asyncio.run(world.reset(Task(id="t"), ("k",)))
    rows = {"a/1": ["by id"], "Go out.": ["by prompt"], "Leave the room.": ["by text"], "b": ["x"], "c": ["y"]}
    given = GivenTrajectories(rows)
    assert given.next_action(Task(id="a/1", prompt=prompt), world) == "by id"
    assert given.next_action(Task(id="a/2", prompt=prompt), world) == "by prompt"
    assert given.next_action(Task(id="a/3"), world) == "by text"
    assert given.remarks(["a/1", "a/2"]).startswith(
        "2 of 5 rows match none of the 2 tasks that were played; their ids are like 'a/1'"
    )
    with pytest.raises(pl.Fault, match="no trajectory is of the task 'a/3'"):
        GivenTrajectories({}).next_action(Task(id="a/3"), world)


def test_bad_settings_say_what_to_do():
    with pytest.raises(UserError, match="weight is that of the agent, from 0 to 1, not 2"):
        wkm.build(weight=2)
    with pytest.raises(UserError, match="games, tasks, tries, k and steps are 1 or more"):
        wkm.build(k=0)
    with pytest.raises(UserError, match=r"describe takes \{history\}, \{task\} and nothing else"):
        wkm.build(describe="{expert} {}")
    assert wkm.build(verbs="Go, take,,go").exam.verbs == ("Go", "take")


@pytest.mark.slow
def test_own_trajectories_in_an_own_environment_and_a_writer(tmp_path):
    """Experts are the user's, knowledge is the writer's, and the mixed verb is said."""
    file, rows = tmp_path / "door.py", tmp_path / "rows.jsonl"
    file.write_text(ENVIRONMENT)
    tasks = ("Leave room 1.", "train/2", "Leave  room 3.")
    rows.write_text("".join(json.dumps({"task": t, "actions": ["open door", "go out"]}) + "\n" for t in tasks))
    from tests.chat_server import serving

    with serving(lambda body: "The door is open.") as (_, url):
        words = {
            "trajectories": str(rows), "writer": f"endpoint(url='{url}',model='m')", "games": 4, "tasks": 2,
            "weight": 0.0, "k": 1, "imitate.schedule.steps": 1, "learn.schedule.steps": 1,
            "imitate.schedule.prompts": 1, "learn.schedule.prompts": 1,
        }  # fmt: skip
        run = pl.train(
            "wkm", env=f"{file}:Door", model="tiny-agent", out=tmp_path / "run", evaluate=0, quiet=True,
            max_tokens=4, set=words,
        )  # fmt: skip
    states = StateBase.read(run.folder / "knowledge" / "states.jsonl")
    assert {(r.before, r.after) for r in states.records} == {("open", "go")}
    told = [json.loads(x) for x in (run.folder / "knowledge" / "agent.jsonl").read_text().splitlines()]
    assert told[0]["messages"][0]["content"].endswith("room 1.\nThe door is open.")


@pytest.mark.slow
def test_tasks_that_begin_alike_are_learned_from_and_verbs_keep_their_capitals(tmp_path):
    """Nothing of the experts' games is held out, and a verb that knowledge chose is written as they wrote it."""
    file, said = tmp_path / "key.py", tmp_path / "said.txt"
    file.write_text(ALIKE.replace("SAID", str(said)))
    words = {
        "games": 3, "tasks": 1, "weight": 0.0, "k": 1, "imitate.schedule.steps": 1, "learn.schedule.steps": 1,
        "imitate.schedule.prompts": 1, "learn.schedule.prompts": 1,
    }  # fmt: skip
    pl.train(
        "wkm",
        env=f"{file}:Key",
        model="tiny-agent",
        out=tmp_path / "run",
        evaluate=0,
        quiet=True,
        max_tokens=8,
        set=words,
    )
    assert said.read_text().splitlines()[-1].startswith("OPEN")


ALIKE = '''
from palaestra.types import Ask, Frame, Message


class Key:
    """Every task begins alike."""

    seats = ("policy",)
    solved = 1.0

    def reset(self, task, key):
        return Frame(state=0, asks=(self.ask("A key lies here.", ("TAKE key",)),))

    def step(self, state, acts, key):
        with open("SAID", "a") as file:
            file.write(acts[0].text.replace("\\n", " ") + "\\n")
        if state:
            return Frame(state=2, pay={("policy", ""): float(acts[0].text == "OPEN door")})
        return Frame(state=1, asks=(self.ask("You have it."),))

    def oracle(self, state):
        return ("TAKE key", "OPEN door")[state]

    def ask(self, text, choices=None):
        return Ask(seat="policy", say=(Message(role="user", content=text),), choices=choices)
'''

ENVIRONMENT = '''
from palaestra.types import Ask, Frame, Message, Task


class Door:
    """Leave one of four rooms."""

    seats = ("policy",)
    solved = 1.0

    def task(self, split, index):
        text = f"Leave room {index % 4}."
        return Task(id=f"{split}/{index}", prompt=(Message(role="user", content=text),))

    def reset(self, task, key):
        return Frame(state=0, asks=(Ask(seat="policy", say=task.prompt),))

    def step(self, state, acts, key):
        if state:
            return Frame(state=2, pay={("policy", ""): float(acts[0].text == "go out")})
        say = (Message(role="user", content="What next?"),)
        return Frame(state=1, asks=(Ask(seat="policy", say=say),))
'''
