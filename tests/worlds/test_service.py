"""A service desk: who hears what, when a talk ends, and what the database at its end is worth."""

import asyncio
import hashlib
import json
import sqlite3
from dataclasses import replace

import pytest
from palaestra.errors import Fault, UserError
from palaestra.tasks.phrasing import STOP
from palaestra.types import Act, Call, Malformed, Message, Task
from palaestra.worlds.database import as_database, database_digest, open_database, read_database
from palaestra.worlds.service import ScriptUser, Service
from palaestra.worlds.toolbox import close_toolbox, toolbox

TOOLS = '''
def order(db: dict, item: str, amount: int) -> str:
    """Orders an item."""
    db["stock"][item] -= amount
    if db["stock"][item] < 0:
        raise ValueError("too few")
    return f"ordered {amount}"

def stock(db, item: str) -> int:
    """How many there are."""
    return db["stock"][item]

def transfer_to_human_agents(db) -> str:
    """Gives the talk to a person."""
    return "done"

def _private(x): ...
'''
ORDER = {"name": "order", "arguments": {"item": "lion", "amount": 2}}


class Heard:
    """A user who says these texts, and keeps what it was shown."""

    def __init__(self, *texts):
        self.texts, self.talks = list(texts), []

    async def __call__(self, task, talk, key):
        self.talks.append(talk)
        return self.texts.pop(0)


@pytest.fixture
def tools(tmp_path):
    file = tmp_path / "shop.py"
    file.write_text(TOOLS)
    yield (str(file),)
    close_toolbox((str(file),))


def task(actions=(ORDER,), outputs=(), database=None, **more):
    meta = {
        "user": "You want 2 lions.",
        "actions": list(actions),
        "outputs": list(outputs),
        "database": database or {"stock": {"lion": 1200}},
    }
    return Task(id="t", prompt=(Message(role="user", content="hi"),), meta={**meta, **more})


def call(name, **args):
    return Call(name=name, args=args)


def talk(world, given, *acts):
    """The last frame of a talk in which the agent does `acts`: texts, calls, or lists of calls."""

    async def play():
        frame = await world.reset(given, ("k",))
        for n, a in enumerate(acts):
            assert frame.asks, f"it ended before act {n}"
            calls = tuple(a) if isinstance(a, list) else () if isinstance(a, str) else (a,)
            cut = isinstance(a, str) and a.endswith("...")
            act = Act(
                ask=frame.asks[0],
                text=a if isinstance(a, str) else "<tool_call>",
                call=calls[0] if calls else None,
                calls=calls,
                finish="length" if cut else "eos",
                n_tokens=1,
            )
            frame = await world.step(frame.state, (act,), ("k", n))
        return frame

    return asyncio.run(play())


BUY = call("order", item="lion", amount=2)


def paid(frame):
    assert not frame.asks
    return frame.pay["policy", ""]


@pytest.mark.parametrize(
    ("outputs", "said", "actions", "acts", "reward"),
    [
        (("1,200",), "There are 1200.", (ORDER,), (BUY,), 1),
        (("1,200",), "There are some.", (ORDER,), (BUY,), 0),
        (("1200",), "There were 1,200, sir", (), (call("stock", item="lion"),), 1),
        ((), "Done.", (ORDER,), (call("order", item="lion", amount=3),), 0),
        ((), "Done.", (ORDER,), (BUY, BUY), 0),
        ((), "Done.", (ORDER,), (), 0),
        (("ZOO",), "the Zoo is open", (), (), 1),
    ],
)
def test_rewards_of_the_catalogue(tools, outputs, said, actions, acts, reward):
    end = talk(Service(tools, Heard(STOP)), task(actions, outputs), *acts, said)
    assert paid(end) == reward and end.status == "finished"


def test_the_user_sees_neither_calls_nor_results_nor_thoughts(tools):
    user = Heard("two", f"thanks {STOP}")
    end = talk(Service(tools, user), task(), "<think>hm</think> how many?", BUY, "It is done.")
    assert user.talks == [
        (("user", "hi"), ("assistant", "how many?")),
        (("user", "hi"), ("assistant", "how many?"), ("user", "two"), ("assistant", "It is done.")),
    ]
    assert paid(end) == 1
    assert {k: end.facts[k] for k in ("tool_calls", "tool_errors", "replies")} == {
        "tool_calls": 1,
        "tool_errors": 0,
        "replies": 1,
    }


def test_required_texts_count_in_messages_without_a_call_alone(tools):
    """The text "<tool_call>" of a message with a call is no answer to the user."""
    end = talk(Service(tools, Heard(STOP)), task((), ("tool_call",)), call("stock", item="lion"), "Bye.")
    assert paid(end) == 0


def test_what_the_prompt_has_of_an_agent_was_not_said_by_the_policy(tools):
    begun = task((), ("1200",))
    talked = tuple(Message(role=r, content=c) for r, c in (("assistant", "We have 1200."), ("user", "How many?")))
    begun = replace(begun, prompt=(*begun.prompt, *talked))
    assert paid(talk(Service(tools, Heard(STOP)), begun, "Bye.")) == 0
    assert paid(talk(Service(tools, Heard(STOP)), begun, "1200, as I said.")) == 1


def test_of_several_calls_the_first_is_made(tools):
    assert paid(talk(Service(tools, Heard(STOP)), task(), [BUY, BUY], "Done.")) == 1


@pytest.mark.parametrize(
    ("last", "status"),
    [
        (Malformed(kind="json", text="{"), "finished"),
        (call("transfer_to_human_agents"), "finished"),
        ("I will ord...", "finished"),
        ("<tool_response>ordered 2</tool_response>", "finished"),
    ],
)
def test_what_ends_a_talk_is_paid_as_the_database_stands(tools, last, status):
    for before, reward in (((BUY,), 1), ((), 0)):
        end = talk(Service(tools, Heard()), task(), *before, last)
        assert paid(end) == reward and end.status == status


def test_calls_and_replies_together_are_turns(tools):
    end = talk(Service(tools, Heard("go on"), turns=2), task(), "hello", BUY, "more?")
    assert end.status == "truncated:turns" and paid(end) == 1
    end = talk(Service(tools, Heard(), turns=1), task(), BUY, BUY)
    assert end.status == "truncated:turns" and end.facts["tool_calls"] == 2


def test_a_call_that_fails_changes_nothing_and_states_are_values(tools):
    world = Service(tools, Heard(STOP))
    given = task(database={"stock": {"lion": 2}})
    end = talk(world, given, call("order", item="lion", amount=5), BUY, "Done.")
    assert paid(end) == 1 and end.facts["tool_errors"] == 1

    async def forked():
        begin = await world.reset(given, ("k",))
        act = Act(ask=begin.asks[0], text="", call=BUY, calls=(BUY,), finish="eos", n_tokens=1)
        return [(await world.step(begin.state, (act,), ("k",))).state.database for _ in "ab"]

    assert asyncio.run(forked()) == ['{"stock": {"lion": 0}}'] * 2


@pytest.mark.parametrize("weight", [float("inf"), "nan", "Infinity"])
def test_a_call_that_leaves_no_database_fails_and_the_talk_goes_on(tmp_path, weight):
    (tmp_path / "scale.py").write_text(
        'def weigh(db: dict, weight: float) -> str:\n    "Notes."\n    db["weight"] = weight\n    return "ok"\n'
    )
    world = Service((str(tmp_path / "scale.py"),), Heard(STOP))
    told = talk(world, task(()), call("weigh", weight=weight))
    assert told.asks[0].say[0].content.startswith("error: the database could not be kept")
    end = talk(world, task(()), call("weigh", weight=weight), "Done.")
    assert paid(end) == 1 and end.facts["tool_errors"] == 1 and "tool weigh" in end.facts["tool_unkept"]


def test_a_tool_that_closes_its_connection_fails(tmp_path):
    with sqlite3.connect(tmp_path / "shop.db") as made:
        made.execute("CREATE TABLE stock (item TEXT)")
    made.close()
    (tmp_path / "shut.py").write_text('def shut(db) -> str:\n    "Shuts."\n    db.close()\n    return "ok"\n')
    world = Service((str(tmp_path / "shut.py"),), Heard(STOP))
    end = talk(world, task((), database=str(tmp_path / "shop.db")), call("shut"), "Done.")
    assert paid(end) == 1 and "closed" in end.facts["tool_unkept"]


def test_a_static_talk_has_the_whole_wish_and_no_user(tools):
    async def first(world):
        return (await world.reset(task(), ("k",))).asks[0].say

    world = Service(tools, Heard(), static=True, policy="Be kind.")
    assert [m.content for m in asyncio.run(first(world))] == ["Be kind.", "You want 2 lions."]
    assert paid(talk(world, task(), BUY, "Done.")) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"actions": None}, "'actions' is a list of calls such as"),
        ({"actions": [{"do": "order"}]}, "'actions' is a list of calls such as"),
        ({"actions": [{"name": "sell", "arguments": {}}]}, "its action 1, sell, gives error: no tool 'sell'"),
        ({"actions": "[{"}, "task 't': 'actions' are no JSON"),
        ({"actions": [{"name": "order", "arguments": "{guest: Ana}"}]}, "the arguments of 'order' are no JSON"),
        ({"database": 7}, "a database is a JSON object"),
    ],
)
def test_tasks_that_cannot_be_served(tools, change, message):
    with pytest.raises(UserError, match=message):
        given = task()
        talk(Service(tools, Heard()), Task(id="t", prompt=given.prompt, meta={**given.meta, **change}), "hi")


def test_actions_can_be_a_text_of_json(tools):
    given = task()
    written = Task(id="t", prompt=given.prompt, meta={**given.meta, "actions": json.dumps([ORDER])})
    assert paid(talk(Service(tools, Heard(STOP)), written, BUY, "Done.")) == 1


def test_a_static_task_needs_a_wish(tools):
    with pytest.raises(UserError, match="has no 'user'"):
        talk(Service(tools, Heard(), static=True), task(user=" "), "hi")


def test_an_sqlite_file(tmp_path):
    file, tool = tmp_path / "shop.db", tmp_path / "sql.py"
    with sqlite3.connect(file) as made:
        made.execute("CREATE TABLE stock (item TEXT, amount INTEGER)")
        made.executemany("INSERT INTO stock VALUES (?, ?)", [("lion", 3), ("bear", 1)])
    made.close()
    tool.write_text(
        "import sqlite3\n\ndef order(db: sqlite3.Connection, item: str, amount: int) -> str:\n"
        '    "Orders."\n    db.execute("UPDATE stock SET amount = amount - ? WHERE item = ?", (amount, item))\n'
        '    return "ok"\n'
    )
    given = task()
    given = Task(id="t", prompt=given.prompt, meta={k: v for k, v in given.meta.items() if k != "database"})
    world = Service((str(tool),), Heard(STOP, STOP), db=str(file))
    assert paid(talk(world, given, BUY, "Done.")) == 1
    assert paid(talk(world, given, BUY, BUY, "Done.")) == 0
    named = task(database=str(file))
    assert paid(talk(Service((str(tool),), Heard(STOP)), named, BUY, "Done.")) == 1
    assert open_database(read_database(str(file))).execute("SELECT amount FROM stock").fetchall() == [(3,), (1,)]


def test_digests_do_not_depend_on_order():
    by_hand = hashlib.sha256(b'{"a":1,"b":[2,{"c":3,"d":4}]}').hexdigest()
    for text in ('{"a": 1, "b": [2, {"c": 3, "d": 4}]}', '{"b": [2, {"d": 4, "c": 3}], "a": 1}'):
        assert database_digest(text) == by_hand
    assert database_digest('{"a": 1, "b": [{"c": 3, "d": 4}, 2]}') != by_hand  # a list has an order

    def table(*rows):
        made = sqlite3.connect(":memory:")
        made.execute("CREATE TABLE t (x)")
        made.executemany("INSERT INTO t VALUES (?)", [(r,) for r in rows])
        made.commit()
        return made.serialize()

    assert database_digest(table(1, 2)) == database_digest(table(2, 1)) != database_digest(table(1, 3))


def test_databases_that_are_none(tmp_path):
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(UserError, match="no SQLite file and no JSON"):
        read_database(str(tmp_path / "x.json"))
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read_database(str(tmp_path / "y.json"))
    with pytest.raises(UserError, match="the database is no JSON"):
        as_database({"a": {1}}, "tool order")


def test_a_file_is_all_its_functions_and_the_database_is_not_shown(tools, tmp_path):
    schemas = {s.name: s.parameters for s in asyncio.run(toolbox(tools).schemas())}
    assert list(schemas) == ["order", "stock", "transfer_to_human_agents"]
    assert "db" not in schemas["order"] and '"item"' in schemas["order"]
    with pytest.raises(UserError, match="takes the database of an episode, db"):
        asyncio.run(toolbox(tools).answer([BUY], 5, 100))
    (tmp_path / "other.py").write_text('def ask(db: str) -> str:\n    "Asks."\n    return db\n')
    (asked,) = asyncio.run(toolbox((str(tmp_path / "other.py"),)).schemas())
    assert '"db"' in asked.parameters
    (tmp_path / "empty.py").write_text("x = 1\n")
    with pytest.raises(UserError, match="defines no function that could be a tool"):
        toolbox((str(tmp_path / "empty.py"),))


def test_a_user_who_is_a_function(tmp_path):
    file = tmp_path / "user.py"
    file.write_text(
        "def asks(task, messages):\n    return task.meta['user'] if 'how' in messages[-1]['content'] else ''\n"
        "def bad():\n    pass\ndef seven(task, messages):\n    return 7\n"
    )
    user = ScriptUser(f"{file}:asks")
    say = lambda text: asyncio.run(user(task(), (("assistant", text),), ("k",)))
    assert say("how many?") == "You want 2 lions."
    with pytest.raises(Fault, match="said nothing; a user says text, or '###STOP###'") as silent:
        say("done")
    assert silent.value.cause == "user"
    with pytest.raises(UserError, match="returned 7; a user says text"):
        asyncio.run(ScriptUser(f"{file}:seven")(task(), (), ("k",)))
    with pytest.raises(UserError, match=r"def NAME\(task, messages\)"):
        ScriptUser(f"{file}:bad")
