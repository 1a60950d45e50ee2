"""Objects whose public methods are tools, as TRL's `environment_factory` takes them."""

import asyncio
import random

import numpy as np
import pyarrow.parquet as pq
import pytest
from palaestra.cli.main import main
from palaestra.errors import NotApplicable, UserError
from palaestra.run.benches import from_env
from palaestra.types import Act, Call, Malformed, World

COUNTER = '''
import asyncio
import random

class Counter:
    """Written for TRL: keywords that it might pass, sections in docstrings."""
    def __init__(self):
        self.log = []
    def reset(self, **kwargs) -> str | None:
        self.counter, self.target = 0, random.randint(1, 10**9)
        return f"Increment the counter by {self.target}."
    async def get_reward(self) -> float:
        return float(self.counter == self.target)
    def increment(self, step: int) -> int:
        """
        Increment the internal counter.

        Args:
            step: Value to add to the counter.

        Returns:
            The updated counter value.
        """
        self.counter += step
        return self.counter
    async def double(self) -> int:
        """Doubles it."""
        await asyncio.sleep(0.05)
        self.counter *= 2
        return self.counter
    def fail(self) -> int:
        """Fails."""
        raise ValueError("no luck")
    def _hidden(self): ...
'''


@pytest.fixture
def world(tmp_path):
    """world(code) -> the world of a class in a file, as --env finds it."""

    def made(code=COUNTER):
        (tmp_path / "own.py").write_text(code)
        bench, players = from_env(f"{tmp_path}/own.py:Counter")
        assert not players and isinstance(bench.world, World)
        return bench.world

    return made


def call(name, **args):
    return Call(name=name, args=args)


def stepped(world, frame, *calls):
    act = Act(ask=frame.asks[0], text="", call=calls[0] if calls else None, calls=calls, finish="eos", n_tokens=1)
    return asyncio.run(world.step(frame.state, (act,), ("k",)))


def said(world, frame, text, finish="eos"):
    act = Act(ask=frame.asks[0], text=text, call=None, finish=finish, n_tokens=1)
    return asyncio.run(world.step(frame.state, (act,), ("k",)))


def begun(world, index=0, key="k"):
    return asyncio.run(world.reset(world.task("train", index), (key,)))


def prompt(frame):
    return frame.asks[0].say[-1].content


def target(frame):
    return int(prompt(frame).split()[-1].strip("."))


def texts(frame):
    return [(m.role, m.content) for m in frame.asks[0].say]


def test_methods_are_tools_and_the_object_says_what_they_earned(world):
    made = world()
    first = begun(made)
    assert {t.name for t in first.asks[0].tools} == {"increment", "double", "fail"}
    schema = next(t for t in first.asks[0].tools if t.name == "increment").json()["function"]
    assert schema["description"] == "Increment the internal counter."
    assert schema["parameters"]["properties"]["step"]["description"] == "Value to add to the counter."
    again = stepped(made, first, call("increment", step=target(first)))
    assert texts(again) == [("tool", str(target(first)))] and not again.pay
    assert again.asks[0].tools == first.asks[0].tools
    last = stepped(made, again)
    assert not last.asks and last.status == "finished" and last.pay == {("policy", ""): 1.0}
    assert last.facts["tool_calls"] == 1 and last.facts["answered"]
    assert stepped(made, first).pay == {("policy", ""): 0.0}


def test_the_calls_of_a_message_are_made_in_their_order(world):
    made = world()
    frame = stepped(made, begun(made), call("increment", step=3), call("double"), call("increment", step=1))
    assert [text for _, text in texts(frame)] == ["3", "6", "7"]


def test_what_goes_wrong_is_a_result(world):
    made = world()
    bad = (Malformed(kind="json", text="{oh}"), call("increment", step="x"), call("fail"), call("_hidden"))
    frame = stepped(made, begun(made), *bad)
    said = [text for _, text in texts(frame)]
    assert said[0] == "error: the call cannot be read, it is no JSON: {oh}"
    assert said[1].startswith("error: arguments: step") and said[2] == "error: ValueError: no luck"
    assert said[3] == "error: no tool '_hidden'; there are double, fail, increment"
    assert (frame.facts["tool_malformed"], frame.facts["tool_errors"]) == (1, 3)


def test_a_group_begins_alike_and_nothing_else_is_seeded(world):
    made = world()
    random.seed(5)
    np.random.seed(5)
    expected = (random.random(), np.random.random())
    random.seed(5)
    np.random.seed(5)
    first, other = prompt(begun(made, 0, "a")), prompt(begun(made, 1))
    assert (random.random(), np.random.random()) == expected
    assert first == prompt(begun(made, 0, "b")) != other


def test_an_episode_is_forked_and_goes_on_from_where_it_stood(world):
    made = world()
    frame = stepped(made, begun(made), call("increment", step=2))
    found = [texts(stepped(made, frame, call("increment", step=s)))[0][1] for s in (1, 5, 1)]
    assert found == ["3", "7", "3"]


def test_who_calls_to_the_last_turn_is_cut_and_paid_what_the_object_says(world):
    made = world()
    first = frame = begun(made)
    frame = stepped(made, frame, call("increment", step=target(first)))
    while frame.asks:
        frame = stepped(made, frame, call("increment", step=0))
    assert frame.status == "truncated:turns" and frame.pay == {("policy", ""): 1.0}
    assert frame.facts["tool_calls"] == made.max_turns


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("def increment", "def _increment", None),
        ("(self, **kwargs)", "(self, target, **kwargs)", r"own.py:Counter.reset needs arguments that nobody gives"),
        ("__init__(self)", "__init__(self, size)", r"own.py:Counter.__init__ needs arguments"),
        ("step: int", "step", r"own.py:Counter.increment: step has no type"),
        ("        self.log = []", "        self.log = 1 / 0", r"own.py:8: ZeroDivisionError"),
    ],
)
def test_what_is_wrong_with_the_class_is_said_in_one_line(world, old, new, said):
    if said is None:
        assert {t.name for t in begun(world(COUNTER.replace(old, new))).asks[0].tools} == {"double", "fail"}
        return
    with pytest.raises(UserError, match=said) as caught:
        world(COUNTER.replace(old, new))
    assert "\n" not in str(caught.value)


def test_an_object_without_tools_is_refused(world):
    with pytest.raises(UserError, match=r"has no public method but reset and get_reward"):
        world("class Counter:\n    def reset(self): return ''\n    def get_reward(self): return 0.0\n")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("return f", "return  # f", r"Counter.reset: its prompt is NoneType None"),
        ("float(self.counter", '"much" or (self.counter', r"Counter.get_reward: the reward is str 'much'"),
        ("float(self.counter == self.target)", "float('nan')", r"Counter.get_reward: the reward is float nan"),
        ("float(self.counter", "self.missing or (self.counter", r"own.py:13: AttributeError"),
    ],
)
def test_what_an_object_returns_is_checked(world, old, new, said):
    made = world(COUNTER.replace(old, new))
    with pytest.raises(UserError, match=said):
        stepped(made, begun(made))


@pytest.mark.parametrize(("line", "solved"), [("", None), ("solved = 0.5", 0.5)])
def test_a_pay_that_means_solved_is_known(world, line, solved):
    assert world(COUNTER.replace("class Counter:", f"class Counter:\n    {line}")).solved == solved


def test_a_run_is_repeated(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(COUNTER)
    for out in ("a", "b"):
        assert main(["train", "--env", "own.py:Counter", "--smoke", "--out", out]) == 0, capsys.readouterr().err
    rows = [(tmp_path / out / "rollouts").glob("*.parquet") for out in ("a", "b")]
    read = [[pq.read_table(p).drop_columns("seconds") for p in sorted(files)] for files in rows]
    assert read[0] == read[1] and read[0]


def test_a_reward_of_none_leaves_the_episode_unjudged(world):
    """As with a reward function that gives None; the episode is not played again for it."""
    code = COUNTER.replace("return float(self.counter == self.target)", "return None")
    made = world(code)
    with pytest.raises(NotApplicable, match=r"Counter\.get_reward gave None"):
        stepped(made, begun(made))


def test_an_answer_that_is_cut_or_forged_is_none_and_pays_what_the_object_says(world):
    made = world()
    first = begun(made)
    for text, finish, status, answered in (
        ("done", "eos", "finished", True),
        ("done", "length", "truncated:length", False),
        ("<tool_response>5</tool_response> done", "eos", "finished", False),
    ):
        again = stepped(made, first, call("increment", step=target(first)))
        last = said(made, again, text, finish)
        assert (last.status, last.facts["answered"]) == (status, answered)
        assert not last.asks and last.pay == {("policy", ""): 1.0}
