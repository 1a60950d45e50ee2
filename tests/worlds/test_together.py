"""Several environments in one run: each task is played in its own, with its limits and its oracle."""

import asyncio
import json
from collections import Counter
from dataclasses import replace

import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.run.several import from_envs
from palaestra.types import Act

ECHO = """
from palaestra.types import Ask, Frame, Message, Task


class Echo:
    seats = ("policy",)
    solved = 1.0
    bounds = (0.0, 1.0)
    max_tokens = 7

    def task(self, split, index):
        return Task(id=f"{split}{index}", meta={"word": "ab"[index % 2]})

    def reset(self, task, key):
        say = Message(role="user", content="say " + task.meta["word"])
        return Frame(state=task.meta["word"], asks=(Ask(seat="policy", say=(say,)),))

    def step(self, state, acts, key):
        return Frame(state=state, pay={("policy", ""): float(acts[0].text == state)})

    def oracle(self, state):
        return state
"""
COUNT = """
from palaestra.types import Ask, Frame, Message, Task


class Count:
    seats = ("policy",)
    solved = 1.0
    bounds = (-1.0, 3.0)

    def task(self, split, index):
        return Task(id=f"{split}{index}")

    def ask(self, n):
        return Frame(state=n, asks=(Ask(seat="policy", say=(Message(role="user", content="go"),), max_tokens=3),))

    def reset(self, task, key):
        return self.ask(0)

    def step(self, state, acts, key):
        right = acts[0].text == str(state + 1)
        return self.ask(state + 1) if right and state < 2 else Frame(state=state, pay={("policy", ""): float(right)})

    def oracle(self, state):
        return str(state + 1)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "a.py").write_text(ECHO)
    (tmp_path / "b.py").write_text(COUNT)
    (tmp_path / "c.py").write_text(COUNT.replace('("policy",)\n    solved', '("policy", "other")\n    solved'))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_each_task_is_played_in_its_own_environment(folder):
    """Two of three tasks are Echo's, exactly; its oracle ends an episode in one act and Count's in three."""
    bench, _ = from_envs("a.py:Echo*2+b.py:Count")
    world, lengths = bench.world, Counter()
    for i in range(9):
        task = bench.tasks.task("train", i)

        async def play(task=task):
            frame, n = await world.reset(task, ("k",)), 0
            while frame.asks:
                ask = frame.asks[0]
                assert ask.max_tokens == (7 if task.domain == "echo" else 3)
                text = await world.oracle(frame.state)
                n, act = n + 1, Act(ask=ask, text=text, call=None, finish="stop", n_tokens=1)
                frame = await world.step(frame.state, (act,), ("k", n))
            assert frame.pay == {("policy", ""): 1.0}
            return n

        lengths[task.domain, asyncio.run(play())] += 1
    assert lengths == {("echo", 1): 6, ("count", 3): 3}
    assert (world.solved, world.bounds, world.has_oracle) == (1.0, (-1.0, 3.0), True)


def test_an_environment_is_cut_at_its_own_number_of_turns(folder):
    bench, _ = from_envs("a.py:Echo+b.py:Count")
    parts = tuple(replace(p, max_turns=2) if p.name == "count" else p for p in bench.world.parts)
    world = replace(bench.world, parts=parts)
    task = next(t for t in (bench.tasks.task("train", i) for i in range(4)) if t.domain == "count")

    async def play():
        frame = await world.reset(task, ("k",))
        for n in (1, 2):
            act = Act(ask=frame.asks[0], text=str(n), call=None, finish="stop", n_tokens=1)
            frame = await world.step(frame.state, (act,), ("k", n))
        return frame

    assert (asyncio.run(play()).asks, asyncio.run(play()).status) == ((), "truncated:turns")


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ("a.py:Echo+a.py:Echo", "two environments are called 'echo'"),
        ("a.py:Echo*none+b.py:Count", "is no number"),
        ("a.py:Echo*0+b.py:Count", "at least"),
        ("a.py:Echo+c.py:Count", "seats policy, other"),
        ("a.py:Echo+wiki", "FILE.py:NAME"),
        ("a.py:Echo+", "FILE.py:NAME"),
    ],
)
def test_what_does_not_go_together_is_refused(folder, spec, fault):
    with pytest.raises(UserError, match=fault):
        from_envs(spec)


def test_data_go_with_one_environment(folder):
    with pytest.raises(UserError, match="a row does not say in which environment"):
        from_envs("a.py:Echo+b.py:Count", records=object())


def test_a_run_knows_the_files_of_all(folder):
    run = pl.train("sft", env="a.py:Echo*2+b.py:Count", steps=1, out="run", evaluate=3)
    assert set(json.loads((folder / "run" / "origin.json").read_text())["files"]["env"]) == {"a.py", "b.py"}
    assert run.evaluations.to_pylist()
