"""Tools that fail on purpose, and what is counted of calls by tool and by turn."""

import asyncio
import json
from dataclasses import replace

import pytest
from palaestra.errors import UserError
from palaestra.run.benches import search_world
from palaestra.run.first_step import first_step_notes
from palaestra.run.world_settings import check_world_settings
from palaestra.services.index import BM25
from palaestra.services.sandbox import sandbox_kind
from palaestra.settings.fields import Settings
from palaestra.types import Act, Ask, Call, Episode, Group, Message, Row, Segment, Task
from palaestra.worlds import toolbox
from palaestra.worlds.interpreter import Interpreter
from palaestra.worlds.outage import OUT, Outage, parse_outage
from palaestra.worlds.search import Search
from palaestra.worlds.tool_log import ClockTimes, log_facts, log_numbers
from palaestra.worlds.tools import WithTools

INDEX = BM25((("a", "boss of bako is tiru"), ("b", "host of tiru is mema"), ("c", "sky is blue")))
TASK = Task(id="t", prompt=(Message(role="user", content="boss of bako?"),), answer="tiru")
CALLED = []


def add(a: int, b: int) -> int:
    """The sum of a and b."""
    CALLED.append((a, b))
    return a + b


def act(text="", *calls, finish="eos"):
    return (Act(ask=Ask(seat="policy"), text=text, call=None, finish=finish, n_tokens=1, calls=calls),)


def episode(log, seconds=(), offered=(), searches=True):
    row = Row(segments=(Segment(ids=(1,), logp=(-1.0,), author="policy", policy="policy", trained=True),))
    return Episode(rows=(row,) if searches else (), status="finished", facts=log_facts(log, seconds, offered))


def test_numbers_by_tool_and_by_turn_in_closed_form():
    one = (
        ((1, "add", "result"), (1, "add", "error"), (2, "find", "result"), (2, "", "malformed")),
        (0.1, 0.3, 1.0, 0.0),
    )
    two = (((1, "", "error"), (9, "add", "error")), (0.0, 0.2))  # a tool that there is not; a late turn
    episodes = [episode(*x, offered=("add", "find", "look")) for x in (one, two)]
    assert log_numbers([*episodes, Episode(status="finished")]) == {
        "tools/calls/add": 1.5, "tools/errors/add": pytest.approx(2 / 3),
        "tools/seconds/add": pytest.approx(0.2),
        "tools/calls/find": 0.5, "tools/errors/find": 0.0, "tools/seconds/find": 1.0,
        "tools/calls/look": 0.0,
        "tools/turn/1/calls": 1.5, "tools/turn/1/errors": pytest.approx(2 / 3),
        "tools/turn/2/calls": 1.0, "tools/turn/2/errors": 0.0,
    }  # fmt: skip
    assert log_numbers([Episode(status="finished")]) == {}


def test_times_are_no_part_of_what_an_episode_is():
    assert ClockTimes(each=(1.0,)) == ClockTimes(each=(2.0, 3.0)) and ClockTimes(each=(1.0,)).tolist() == [1.0]


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("add=0.3", Outage(share=0.3, tool="add")),
        ("my.tool-1=1@20", Outage(share=1.0, since=20, tool="my.tool-1")),
    ],
)
def test_an_outage_is_read(text, made):
    assert parse_outage(text) == made


@pytest.mark.parametrize("text", ["add", "add=", "add=2", "add=0.5@", "add=-1", "=1", "add=0.5@x", "add=1.0.0"])
def test_what_is_no_outage_is_refused(text):
    with pytest.raises(UserError):
        parse_outage(text)


def test_a_share_of_the_calls_fails_from_a_step_on():
    outage, keys = Outage(share=0.3, since=5), [("k", i) for i in range(4000)]
    assert not any(outage.fails(k, 4) for k in keys)
    drawn = [outage.fails(k, 5) for k in keys]
    assert abs(sum(drawn) / 4000 - 0.3) < 4 * (0.21 / 4000) ** 0.5
    assert drawn == [outage.fails(k, 6) for k in keys]
    assert all(Outage(share=1.0).fails(k, 0) for k in keys) and not any(Outage(share=0.0).fails(k, 9) for k in keys)


def test_a_broken_tool_is_not_called_and_the_others_are():
    def sub(a: int, b: int) -> int:
        """The difference."""
        return a - b

    CALLED.clear()
    world = WithTools(toolbox.tool_names((add, sub)), outage=Outage(share=1.0, since=3, tool="add"))
    calls = Call(name="add", args={"a": 1, "b": 2}), Call(name="sub", args={"a": 1, "b": 2})

    async def shown(step):
        there = world.at_step(step)
        frame = await there.reset(TASK, ("k",))
        frame = await there.step(frame.state, act("", *calls), ("k", 1))
        return [m.content for m in frame.asks[0].say], frame.facts

    said, facts = asyncio.run(shown(2))
    assert said == ["3", "-1"] and facts["tool_errors"] == 0 and CALLED == [(1, 2)]
    said, facts = asyncio.run(shown(3))
    assert said == [f"error: {OUT}", "-1"] and CALLED == [(1, 2)]
    assert facts["tool_log"] == ((1, "add", "error"), (1, "sub", "result"))
    assert facts["tools_offered"] == ("add", "sub") and facts["executed"] == (False,)
    assert WithTools(world.tools).at_step(9) == WithTools(world.tools)  # nothing changes there


def test_a_tool_that_is_broken_must_be_there():
    world = WithTools(toolbox.tool_names((add,)), outage=Outage(share=1.0, tool="nope"))
    with pytest.raises(UserError, match="there is no such tool; there are add"):
        asyncio.run(world.open())


def test_a_broken_search_finds_nothing_and_says_so():
    world = Search(INDEX, k=1, fails=1.0, fails_from=2)

    async def end(step):
        there = world.at_step(step)
        frame = await there.step(there.reset(TASK, ()).state, act("<search>boss of bako</search>"), ("k",))
        return frame.asks[0].say[0].content, frame.facts

    said, facts = asyncio.run(end(1))
    assert said == "boss of bako is tiru" and facts["tool_errors"] == 0
    said, facts = asyncio.run(end(2))
    assert said == OUT and facts["outcomes"] == ("failed",) and facts["found"] == ((),)
    assert (facts["tool_calls"], facts["tool_errors"], facts["calls"]) == (1, 1, 1)
    assert facts["tool_log"] == ((1, "search", "error"),) and facts["executed"] == (False,)


@pytest.mark.skipif(bool(sandbox_kind().refusal()), reason="the sandbox does not run here")
@pytest.mark.parametrize("keep", [False, True])
def test_a_broken_interpreter_shows_an_error_and_runs_nothing(keep):
    world = Interpreter(fails=1.0, fails_from=1, keep=keep, calls=2)
    program = act("```python\nprint(1+1)\n```\n```output", finish="stop")

    async def end(step):
        there = world.at_step(step)
        frame = await there.reset(TASK, ("k",))
        frame = await there.step(frame.state, program, ("k", 1))
        await there.leave(frame.state)
        return frame.asks[0].shown, frame.facts

    shown, facts = asyncio.run(end(0))
    assert "2" in shown and facts["tool_log"] == ((1, "python", "result"),)
    shown, facts = asyncio.run(end(1))
    assert OUT in shown and "2" not in shown.replace("```", "") and facts["failures"] == (True,)
    assert facts["tool_log"] == ((1, "python", "error"),) and facts["tool_calls"] == 1


def test_controls_of_a_search_stand_in_brackets():
    settings = Settings(env="search(shuffle=3,fails=0.3,fails_from=2,k=1)")
    world = search_world(settings, INDEX)
    assert (world.fails, world.fails_from, world.index.shuffle) == (0.3, 2, 3)
    (hit,) = world.index.search("sky blue", 1)
    assert hit[0] != "c" and INDEX.search("sky blue", 1)[0][0] == "c"
    with pytest.raises(UserError, match="shuffle is a number"):
        search_world(replace(settings, env="search(shuffle='x')"), INDEX)
    with pytest.raises(UserError, match="is no setting"):  # a run sets it, and nobody else
        check_world_settings("search(trained=3)", Search, {"trained": 3})
    with pytest.raises(UserError, match="fails in a share"):
        search_world(replace(settings, env="search(fails=2)"), INDEX)


def note_of(searching, of=10):
    log = lambda i: ((1, "search", "result"),) if i < searching else ()
    episodes = tuple(episode(log(i), (0.0,) * (i < searching), ("search",)) for i in range(of))
    metrics = {"tools/calls": searching / of, "episodes": of, "groups": 1, "reward": 0.5, "grad_norm": 1.0}
    notes = first_step_notes(metrics, [Group(task=TASK, episodes=episodes)])
    return [x for x in notes if "episodes of the first step search" in x]


def test_a_start_that_hardly_or_always_searches_is_said():
    assert [len(note_of(n)) for n in (0, 1, 2, 3, 5, 7, 8, 10)] == [0, 1, 1, 0, 0, 0, 1, 1]
    assert note_of(1)[0].startswith("10% of the episodes") and "show it searches first" in note_of(1)[0]
    assert "from memory too" in note_of(10)[0]
    assert not note_of(7, of=7)  # too few to say


def test_facts_are_written_as_json():
    from palaestra.store.checkpoint import jsonable

    facts = log_facts(((1, "add", "result"),), (0.25,), ("add",))
    assert json.loads(json.dumps(jsonable(facts))) == {
        "tool_log": [[1, "add", "result"]], "tool_seconds": [0.25], "tools_offered": ["add"],
    }  # fmt: skip
