"""The notebook as a world: cells, tools, answers, and the session that every episode holds."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from palaestra.errors import Fatal, Fault, UserError
from palaestra.rollout.play import play
from palaestra.rollout.player import Script
from palaestra.services.sandbox import sandbox_kind
from palaestra.services.sandbox.agents import session_pool
from palaestra.tasks.oracle import find_problems, play_oracle
from palaestra.toys.lookup import LookupTasks
from palaestra.types import Act, Ask, Frame, Key, Task
from palaestra.worlds.blind import Blind
from palaestra.worlds.lookup import Lookup
from palaestra.worlds.notebook import Notebook
from palaestra.worlds.question import Question

REFUSAL = sandbox_kind().refusal()
runs = pytest.mark.skipif(bool(REFUSAL) or sandbox_kind().name != "bubblewrap", reason=REFUSAL or "isolation is off")
TASKS = LookupTasks()
WORLD = Lookup(sessions=3)
TOOLS = "def get(key): return {'k': 2}[key]"


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    assert REFUSAL or (session_pool(3).held, session_pool(3).sessions) == (0, {})


def cell(code: str, thought: str = "so") -> str:
    return f"<think>{thought}</think><code>{code}</code>"


def say(frame: Frame, text: str) -> tuple[Act, ...]:
    return (Act(ask=frame.asks[0], text=text, call=None, finish="eos", n_tokens=1),)


async def played(world: Any, task: Task, *texts: str) -> list[Frame]:
    frames = [await world.reset(task, ("k",))]
    try:
        for text in texts:
            frames.append(await world.step(frames[-1].state, say(frames[-1], text), ("k",)))
    finally:
        await world.leave(frames[-1].state)
    return frames


def seen(frame: Frame) -> str:
    return frame.asks[0].say[-1].content


def question(**meta: Any) -> Task:
    return replace(TASKS.task("train", 0), answer="5", meta={"tools": TOOLS, **meta})


@runs
def test_cells_share_names_call_tools_and_answer():
    frames = asyncio.run(played(WORLD, question(), cell("a = get('k')"), cell("a + 1"), cell("answer(a + 3)")))
    assert [seen(f) for f in frames[1:-1]] == ["ok", "3"]
    assert not frames[-1].asks and frames[-1].pay == {("policy", ""): 1.0} and frames[-1].status == "finished"
    assert frames[-1].facts == {
        "turns": 3, "cells": 3, "formed": (True,) * 3, "clean": (1.0,) * 3, "answered": True, "answer": "5",
    }  # fmt: skip


@runs
@pytest.mark.parametrize(
    ("text", "shown", "formed", "clean"),
    [
        ("print(1)", "no code", False, 0.0),
        ("<code>print(1)</code>", "1", False, 1.0),
        (cell("print(1)") + cell("2"), "1", False, 1.0),
        (cell(""), "ok", False, 1.0),
        (cell("x" * 300), "NameError: name 'xxx", False, 0.0),
        (cell("nothing"), "NameError: name 'nothing' is not defined", True, 0.0),
        (cell("print(1)\nnothing"), "1\nNameError: name 'nothing' is not defined", True, 0.5),
        (cell("while True: pass"), "timeout, names are gone", True, 0.0),
        (cell("print('x' * 300)"), "x" * 200, True, 1.0),
        (cell("print('x' * 99999)"), "x" * 200 + "\noutput, names are gone", True, 0.5),
    ],
)  # fmt: skip
def test_what_a_turn_shows_and_what_it_is_worth(text, shown, formed, clean):
    frame = asyncio.run(played(replace(WORLD, seconds=0.4), question(), text))[-1]
    assert seen(frame).startswith(shown) and len(seen(frame)) <= 401
    assert (frame.facts["formed"], frame.facts["clean"]) == ((formed,), (clean,))


@runs
def test_an_answer_counts_though_its_cell_ends_in_an_error():
    """The second trajectory of the hand example: well formed, an error, answered wrongly."""
    (_, frame) = asyncio.run(played(WORLD, question(), cell("answer(7)\n1 / 0")))
    assert frame.facts["clean"] == (0.0,) and frame.facts["formed"] == (True,)
    assert (frame.facts["answer"], frame.pay) == ("7", {("policy", ""): 0.0})


@runs
def test_turns_and_time_are_bounded():
    frames = asyncio.run(played(replace(WORLD, turns=2), question(), "", ""))
    assert frames[-1].status == "truncated:turns" and frames[-1].pay == {("policy", ""): 0.0}
    slow = replace(WORLD, lifetime=1.0, seconds=5.0)
    frames = asyncio.run(played(slow, question(), cell("import time\ntime.sleep(9)"), cell("1")))
    assert frames[-1].status == "truncated:seconds" and frames[-1].facts["clean"] == (0.0, 0.0)


@runs
def test_who_kept_a_state_can_go_on_from_it():
    async def forked():
        a = await WORLD.reset(question(), ("k",))
        b = await WORLD.step(a.state, say(a, cell("n = get('k')")), ("k",))
        c = await WORLD.step(b.state, say(b, cell("n += 1\nn")), ("k",))
        again = await WORLD.step(b.state, say(b, cell("n += 1\nn")), ("k",))  # not 4
        assert seen(c) == seen(again) == "3" and c.state.session != again.state.session
        for frame in (c, again):
            await WORLD.leave(frame.state)

    asyncio.run(forked())


@runs
def test_an_episode_that_waits_for_a_session_gets_one_when_another_ends():
    """Eight episodes in a world of three sessions, all under way at once."""

    async def many():
        each = (play_oracle(WORLD, TASKS.task("test", i), WORLD.oracle) for i in range(8))
        return await asyncio.gather(*each)

    assert asyncio.run(many()) == [(1.0, "finished")] * 8


@runs
def test_the_toy_is_solved_by_its_oracle_and_not_in_fewer_cells():
    assert asyncio.run(find_problems(TASKS, WORLD, 6)) == []
    task = next(t for i in range(9) if len((t := TASKS.task("train", i)).meta["solution"]) == 3)
    a, b, c = (task.prompt[0].content[i : i + 2] for i in (0, 3, 6))
    frames = asyncio.run(played(WORLD, task, cell(f"get('{a}') + get('{b}') + get('{c}')")))
    assert seen(frames[-1]) == "RuntimeError: one get a cell"


class Held:
    """A world that counts who came and who was told to leave; `fails` says where."""

    seats = ("policy",)

    def __init__(self, fails: str = "", error: type[BaseException] = Fault):
        self.fails, self.error, self.came, self.left = fails, error, 0, []

    def reset(self, task: Task, key: Key) -> Frame:
        if self.fails == "reset":
            raise self.error("world", "no room")
        self.came += 1
        return Frame(state=0, asks=(Ask(seat="policy", say=task.prompt),))

    def step(self, state: int, acts: tuple[Act, ...], key: Key) -> Frame:
        if self.fails == "step" and state == 1:
            raise self.error("world", "broken")
        asks = () if state == 2 else (Ask(seat="policy"),)
        return Frame(state=state + 1, asks=asks, pay={} if asks else {("policy", ""): 1.0})

    async def leave(self, state: int) -> None:
        self.left.append(state)


@pytest.mark.parametrize(
    ("fails", "error", "max_turns", "left", "status"),
    [
        ("", Fault, 9, [3], "finished"),
        ("", Fault, 2, [2], "truncated:turns"),
        ("step", Fault, 9, [1], "error:world"),
        ("reset", Fault, 9, [], "error:world"),
        ("step", Fatal, 9, [1], None),
    ],
)
def test_a_world_is_told_of_the_end_of_every_episode(fails, error, max_turns, left, status):
    world = Held(fails, error)
    player = {"policy": Script(fn=lambda heard, rng: "x", name="x")}

    def go():
        return asyncio.run(play(Blind(world), player, TASKS.task("train", 0), ("k",), ("w",), max_turns=max_turns))

    if status is None:
        with pytest.raises(Fatal):
            go()
    else:
        assert go().status == status
    assert world.left == left


def test_an_episode_that_is_called_off_is_told_too():
    world = Held()

    async def called_off():
        class Slow(Script):
            async def act(self, *given: Any) -> Any:
                await asyncio.sleep(99)

        cast = {"policy": Slow(fn=lambda heard, rng: "x", name="x")}
        task = asyncio.create_task(play(world, cast, TASKS.task("train", 0), ("k",), ("w",)))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(called_off())
    assert world.left == [0]


def test_a_world_of_the_users_is_told_too(tmp_path):
    from palaestra.worlds.user import UserWorld

    file = tmp_path / "mine.py"
    file.write_text(
        "from palaestra.types import Ask, Frame\nLEFT = []\nclass World:\n    seats = ('policy',)\n"
        "    def reset(self, task, key): return Frame(state=7, asks=(Ask(seat='policy', say=task.prompt),))\n"
        "    def step(self, state, acts, key): return Frame(state=8, pay={('policy', ''): 1.0})\n"
        "    def leave(self, state): open(__file__ + '.left', 'a').write(str(state))\n"
    )
    player = {"policy": Script(fn=lambda heard, rng: "x", name="x")}
    world = UserWorld(f"{file}:World")
    assert asyncio.run(play(world, player, TASKS.task("train", 0), ("k",), ("w",))).ok
    assert (tmp_path / "mine.py.left").read_text() == "8"


def test_a_blind_world_without_anything_to_leave():
    assert asyncio.run(Blind(Question()).leave(None)) is None


def test_settings_that_cannot_be():
    with pytest.raises(UserError, match="turns must be at least 1"):
        Notebook(turns=0)
    with pytest.raises(UserError, match="memory_mb"):
        Notebook(memory_mb=1)


def test_problems_of_the_toy():
    tasks = [TASKS.task("train", i) for i in range(40)]
    for task in tasks:
        n = len(task.meta["solution"])
        store = eval(task.meta["tools"].splitlines()[1].partition("= ")[2].rpartition(", ")[0])
        assert 2 <= n <= 3 and len(store) == 8 and len({store[k] for k in store}) > 1
        values = {k: store[k] for k in (task.prompt[0].content[i : i + 2] for i in range(0, 3 * n, 3))}
        assert str(eval(task.prompt[0].content, {}, values)) == task.answer
    assert {len(t.meta["solution"]) for t in tasks} == {2, 3} and TASKS.task("train", 3) == TASKS.task("train", 3)
