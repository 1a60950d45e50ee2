"""MUA-RL: who plays the users, what a held-out evaluation counts, and a run on files of one's own."""

import asyncio
import json
import sqlite3
from dataclasses import replace
from types import SimpleNamespace

import palaestra as pl
import pytest
from palaestra.errors import Fault, UserError
from palaestra.recipes.agents import mua_rl
from palaestra.run.checks import check_starts
from palaestra.run.unmet import check_models
from palaestra.settings.fields import Settings
from palaestra.types import Episode, Group, Message, Reward, Task
from palaestra.worlds.question import Question

from tests.recipes.objectives.helpers import near

TASK = Task(id="t", prompt=(Message(role="user", content="hi"),), meta={"user": "Two lions."})


class Asked:
    """A context whose model says `reply`, and keeps what it was asked."""

    def __init__(self, reply="", world=None):
        self.reply, self.requests = reply, []
        self.bench = pl.Bench(name="b", tasks=None, world=world or Question())

    async def ask(self, source, request, seed):
        self.requests.append(request)
        return self.reply


def test_a_model_plays_the_user_with_roles_flipped():
    ctx = Asked("<think>I want lions</think> Two, please.")
    talk = (("user", "hi"), ("assistant", "how many?"))
    said = asyncio.run(mua_rl.ModelUser(ctx, None)(TASK, talk, ("k",)))
    assert said == "Two, please."
    (request,) = ctx.requests
    assert request.temperature == 0
    assert [(m.role, m.content) for m in request.messages[1:]] == [
        ("user", "Hi! How can I help you?"),
        ("assistant", "hi"),
        ("user", "how many?"),
    ]
    rules = request.messages[0].content
    assert request.messages[0].role == "system" and "Two lions." in rules and pl.tasks.STOP in rules


def test_a_user_who_says_nothing_is_a_fault():
    with pytest.raises(Fault, match="said nothing"):
        asyncio.run(mua_rl.ModelUser(Asked("<think>hm</think>"), None)(TASK, (("assistant", "?"),), ("k",)))


def test_who_serves_and_who_is_served(tmp_path):
    sample = mua_rl.build().collect.links[0]
    with pytest.raises(UserError, match="mua-rl needs tools over a database"):
        sample.world(Asked())
    (tmp_path / "t.py").write_text('def f(db) -> str:\n    "Does."\n    return ""\n')
    tools = pl.worlds.WithTools((str(tmp_path / "t.py"),), seconds=3.0)
    with pytest.raises(UserError, match="needs somebody who plays the users"):
        sample.world(Asked(world=tools))
    static = mua_rl.build(static=True, turns=4, policy="Be kind.").collect.links[0].world(Asked(world=tools))
    assert static.static and static.turns == 4 and static.policy == "Be kind." and static.seconds == 3
    (tmp_path / "u.py").write_text("def u(task, messages):\n    return 'x'\n")
    spec = f"{tmp_path / 'u.py'}:u"
    assert mua_rl.build(script=spec).collect.links[0].world(Asked(world=tools)).user.spec == spec
    assert mua_rl.build(script=spec).collect.links[0].world(Asked(world=tools)).turns == 30
    own = pl.worlds.Service(tools.tools, pl.toys.ShopUser(), turns=12)
    assert sample.world(Asked(world=own)) == own  # a problem with a user of its own keeps it
    assert mua_rl.build(turns=3).collect.links[0].world(Asked(world=own)).turns == 3
    with pytest.raises(UserError, match="brings its own database"):
        mua_rl.build(db="x.json").collect.links[0].world(Asked(world=own))
    settings = Settings(recipe="mua-rl", task="shop")
    check_models(settings, {"user": None, "script": "", "static": False})
    with pytest.raises(UserError, match="needs a user"):
        check_models(replace(settings, task="wiki"), {"user": None, "script": "", "static": False})


class Rows:
    """Tasks with these actions and outputs."""

    def __init__(self, *rows):
        self.size = self.test_size = len(rows)
        self.rows = rows

    def task(self, split, index):
        actions, outputs = self.rows[index]
        meta = {**TASK.meta, "actions": actions, "outputs": outputs, "database": {"n": 0}}
        return Task(id=f"{split}:{index}", prompt=TASK.prompt, meta=meta)


def test_actions_are_executed_before_the_first_step(tmp_path):
    """A wrong tool in the last row stops at once; rows in which nothing is to be done are counted."""
    (tmp_path / "t.py").write_text('def add(db, n: int) -> str:\n    "Adds."\n    db["n"] += n\n    return "ok"\n')
    world, said = pl.worlds.WithTools((str(tmp_path / "t.py"),)), []
    recipe = mua_rl.build(static=True)

    def start(*rows):
        bench = pl.Bench(name="b", tasks=Rows(*rows), world=world)
        asyncio.run(check_starts(recipe, SimpleNamespace(bench=bench, say=said.append)))

    add = lambda name: [{"name": name, "arguments": {"n": 1}}]
    start((add("add"), []), ([], ["4"]))
    assert said == []
    start((add("add"), []), ([], []), ([], []))
    assert len(said) == 1 and "4 of 6 tasks have neither actions nor outputs" in said[0]  # both splits, once
    with pytest.raises(UserError, match="task 'train:1': its action 1, sell, gives error: no tool 'sell'"):
        start((add("add"), []), (add("sell"), []))


def test_a_policy_is_a_file_or_a_text(tmp_path):
    (tmp_path / "p.md").write_text("Refunds within 30 days.\n")
    assert mua_rl.policy_text(str(tmp_path / "p.md")) == "Refunds within 30 days."
    assert mua_rl.policy_text("Be kind.") == "Be kind."
    with pytest.raises(UserError, match=r"policy=no.md cannot be read"):
        mua_rl.policy_text("no.md")


def ended(total, replies=0, calls=0, errors=0):
    facts = {"replies": replies, "tool_calls": calls, "tool_errors": errors, "database_right": bool(total)}
    return Episode(reward=Reward(total=total), facts=facts, status="finished")


def test_parts_and_numbers():
    group = Group(task=TASK, episodes=(ended(1.0, 2), ended(1.0), ended(0.0, 1), Episode(status="error:user")))
    parts = [
        e.reward.parts for e in asyncio.run(mua_rl.ServiceParts()(None, ("k",), group)).episodes if e.reward is not None
    ]
    assert [p["asked first"] for p in parts] == [1, 0, 0] and [p["replies"] for p in parts] == [2, 0, 1]
    assert [p["database right"] for p in parts] == [1, 1, 0]
    numbers = mua_rl.service_numbers([ended(1.0, 2, 3, 1), ended(0.0, 0, 1), Episode(status="error:user")])
    assert numbers["success"]["mean"] == near(0.5) and numbers["success"]["n"] == 2
    assert [numbers[k] for k in ("replies", "calls", "call_errors", "user_errors")] == near([1, 2, 0.5, 1])
    assert mua_rl.service_numbers([Episode(status="error:user")]) == {"user_errors": 1.0}


def test_a_database_that_could_not_be_kept_is_said():
    bad = Episode(facts={"tool_unkept": "error: tool weigh: no JSON"}, status="finished")
    note = mua_rl.ServiceParts().first_step_note([Group(task=TASK, episodes=(bad, ended(1.0)))])
    assert note.startswith("in 1 talks") and note.endswith("tool weigh: no JSON")
    assert not mua_rl.ServiceParts().first_step_note([Group(task=TASK, episodes=(ended(1.0),))])


def test_the_shop_hides_how_much():
    """A user says how much of the thing that is spoken of, goes on to the second, and ends."""
    tasks = [pl.toys.ShopTasks().task("train", i) for i in range(60)]
    short = next(t for t in tasks if len(t.meta["outputs"]) == 2)
    assert short.meta["actions"] == [] and short.meta["outputs"] == list(
        map(str, short.meta["database"]["stock"].values())
    )
    first, second = short.meta["wishes"]
    talk = [("user", short.prompt[0].content)]

    def reply(text):
        talk.append(("assistant", text))
        talk.append(("user", asyncio.run(pl.toys.ShopUser()(short, tuple(talk), ("k",)))))
        return talk[-1][1]

    assert reply("How many?") == str(first["amount"])
    assert reply("= 1") == second["first"]
    assert reply("how many?") == str(second["amount"])
    assert reply("= 1") == pl.tasks.STOP
    hidden = [str(w["amount"]) not in w["first"] for t in tasks for w in t.meta["wishes"]]
    assert 0.8 < sum(hidden) / len(hidden) < 1 and {len(t.meta["wishes"]) for t in tasks} == {1, 2}


def test_a_run_on_files_of_ones_own(tmp_path):
    """SQLite, tools and a user of one's own; nothing of what they say is trained on."""
    with sqlite3.connect(tmp_path / "shop.db") as made:
        made.execute("CREATE TABLE stock (item TEXT, amount INTEGER)")
        made.execute("INSERT INTO stock VALUES ('lion', 30)")
    made.close()
    (tmp_path / "shop.py").write_text(
        "def order(db, item: str, amount: int) -> str:\n"
        '    "Orders an item."\n    db.execute("UPDATE stock SET amount = amount - ?", (amount,))\n'
        '    return f"ordered {amount} {item}"\n'
    )
    (tmp_path / "user.py").write_text(
        "def buyer(task, messages):\n"
        "    asks = 'how many' in messages[-1]['content']\n    return str(task.answer) if asks else '###STOP###'\n"
    )
    row = {"user": "You want 4.", "actions": [{"name": "order", "arguments": {"item": "lion", "amount": 4}}]}
    rows = [{"prompt": f"order {w} lion", "answer": 4, **row} for w in ("a", "the", "my", "your", "one", "this")]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    run = pl.train(
        "mua-rl",
        data=str(tmp_path / "tasks.jsonl"),
        tools=str(tmp_path / "shop.py"),
        model="tiny-agent",
        steps=1,
        evaluate=1,
        quiet=True,
        out=tmp_path / "run",
        set={
            "script": f"{tmp_path / 'user.py'}:buyer",
            "db": str(tmp_path / "shop.db"),
            "samples": 4,
            "schedule.prompts": 2,
            "exam": 1,
        },
    )
    episodes = run.episodes(tokens=True).to_pylist()
    rows = [row for e in episodes for row in e["rows"]]
    authors = {a for row in rows for a, t in zip(row["author"], row["trained"], strict=True) if t}
    assert authors == {"policy"} and {e["status"] for e in episodes} == {"finished"}
    facts = [json.loads(e["facts"]) for e in episodes]
    calls, errors = (sum(f[name] for f in facts) for name in ("tool_calls", "tool_errors"))
    assert calls > errors  # some changed the database
    assert run.summary["evaluations"]["service"]["after"]["user_errors"] == 0
