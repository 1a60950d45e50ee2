"""Worlds of a user say by turn whether what was done could be done."""

import asyncio

import palaestra as pl
import pytest
from palaestra.credit.table import Table
from palaestra.credit.turns import Executed
from palaestra.recipes.objectives.spa_rl import Contributions
from palaestra.run.first_step import first_step_notes
from palaestra.types import Act, Ask, Call, Episode, Group, Malformed, Message, Reward, Row, Segment, Task
from palaestra.worlds import tools
from palaestra.worlds.adapters.base import AdaptedWorld, Illegal, Scene

METRICS = {"episodes": 2.0, "groups": 1.0, "grad_norm": 1.0}


class Box:
    """A toolbox of one tool that works where its argument says so."""

    async def schemas(self):
        return ()

    async def answer(self, calls, seconds, chars, broken=()):
        return [
            (Message(role="tool", content="?"), isinstance(c, Malformed) or not c.args["works"], 0.0) for c in calls
        ]


def said(*calls, text="", finish="eos"):
    return (
        Act(
            ask=Ask(seat="policy"), text=text, call=calls[0] if calls else None, finish=finish, n_tokens=1, calls=calls
        ),
    )


def test_a_call_that_works_is_executed_and_an_answer_too(monkeypatch):
    monkeypatch.setattr(tools, "toolbox", lambda names: Box())
    world, task = tools.WithTools(("a",), turns=4), Task(id="0", prompt=())
    works, fails = (Call(name="a", args={"works": x}) for x in (True, False))

    async def play(*turns):
        frame = await world.reset(task, ())
        for turn in turns:
            frame = await world.step(frame.state, turn, ())
        return frame.facts

    facts = asyncio.run(play(said(works), said(works, fails), said(Malformed(kind="json", text="?")), said(text="7")))
    assert facts["executed"] == (True, False, False, True) and facts["answered"]
    assert (facts["tool_calls"], facts["tool_malformed"], facts["tool_errors"]) == (4, 1, 1)
    cut = asyncio.run(play(*[said(works)] * 5))
    assert cut["executed"] == (True,) * 4 + (False,) and not cut["answered"]
    assert asyncio.run(play(said(text="7", finish="length")))["executed"] == (False,)


class Door:
    """Opens at "open"; refuses all but words."""

    def begin(self, *args):
        return Scene(text="a door")

    def read(self, text):
        if not text.isalpha():
            raise Illegal("a word, please")
        return text

    def act(self, action):
        done = action == "open"
        return Scene(text=action, status="finished" if done else "", pay={"policy": 1.0} if done else {})

    def close(self):
        return None


@pl.stage
class Doors(AdaptedWorld):
    max_turns: int = 8
    label: str = "doors"

    def open_live(self):
        return Door()

    def start(self, live, trail):
        return live.begin()

    def describe(self):
        return ""


def test_an_action_that_an_environment_refuses_is_not_executed():
    async def play(*replies):
        world = Doors()
        frame = await world.reset(Task(id="0", prompt=(), meta={"seed": 1, "plays": ""}), ())
        for reply in replies:
            frame = await world.step(frame.state, said(text=reply), ())
        return frame.facts

    facts = asyncio.run(play("wait", "42", "open"))
    assert facts["executed"] == (True, False, True) and facts["illegal"] == 1 and facts["actions"] == 2


def attempt(**facts):
    row = Row(
        segments=(
            Segment(ids=(1,), author="user", turn=0),
            Segment(ids=(2,), author="policy", turn=0, logp=(-1.0,), trained=True),
            Segment(ids=(3,), author="user", turn=1),
            Segment(ids=(4,), author="policy", turn=1, logp=(-1.0,), trained=True),
        )
    )
    return Episode(rows=(row,), reward=Reward(total=1.0), facts=facts)


def test_the_fact_is_what_the_penalty_and_the_grounding_read():
    group = Group(task=Task(id="0", prompt=()), episodes=(attempt(executed=(False, True)), attempt()))
    table = Table([group], [], {})
    start = pl.Values(level="episode", x_N=table.reward_E)
    assert Executed(0.25)(start, table).x_N.tolist() == [0.75, 1.0, 1.0, 1.0]
    grounded = Contributions(alpha=0.0, beta=0.5, by="outcome")
    assert grounded(start, table).x_N.tolist() == [0.0, 0.5, 0.5, 0.5]


@pytest.mark.parametrize(("method", "off"), [("gigpo", {"invalid": 0.0}), ("spa-rl", {"beta": 0.0})])
def test_a_world_without_the_fact_is_said_in_the_first_step(method, off):
    def notes(recipe, *episodes):
        group = Group(task=Task(id="0", prompt=()), episodes=episodes)
        return [n for n in first_step_notes(METRICS, [group], recipe) if "'executed'" in n]

    made = pl.recipe(method)
    recipe = made if not hasattr(made, "parts") else next(iter(made.parts.values())).runnable
    assert len(notes(recipe, attempt(), attempt())) == 1
    assert notes(recipe, attempt(executed=(True, True)), attempt()) == []
    assert notes(pl.recipe(method, **off), attempt(), attempt()) == []
