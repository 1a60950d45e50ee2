"""Rows of data that begin the episodes of an environment: `--data` with `--env`."""

import asyncio
import json

import pytest
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.run.benches import from_env
from palaestra.run.setup import bench_of
from palaestra.settings.fields import Settings
from palaestra.tasks.files import FileTasks, load
from palaestra.types import Act, Call
from palaestra.worlds.adapters.methods import with_text

CODE = '''
import random

import palaestra as pl

class Count:
    def reset(self, target: int, bonus=0):
        self.n, self.target, self.drawn = 0, target + bonus, random.random()
        return f"Count to {target}."
    def get_reward(self): return float(self.n == self.target)
    def add(self, step: int) -> int:
        """Adds step."""
        self.n += step
        return self.n

class All(Count):
    def reset(self, **columns): return "|".join(f"{k}={columns[k]}" for k in sorted(columns))

class Silent(Count):
    def reset(self): self.n, self.target = 0, 1

class Lacks(Count):
    def reset(self, level): return ""

class Guess:
    seats = ("policy",)
    def reset(self, task, key):
        say = (*task.prompt, pl.Message(role="user", content=f"hint {task.meta['hints'].pop()}"))
        return pl.Frame(state=str(task.answer), asks=(pl.Ask(seat="policy", say=say),))
    def step(self, state, acts, key):
        return pl.Frame(state=state, pay={("policy", ""): float(state in acts[0].text)})
    def oracle(self, state): return state

class Own(Guess):
    def task(self, split, index): return pl.Task(id=f"{split}{index}", answer=1)
'''
ROWS = [{"prompt": f"row {i}", "answer": i % 7, "target": i % 5, "hints": ["a", "b"]} for i in range(30)]


@pytest.fixture
def place(tmp_path, monkeypatch):
    load.cache_clear()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "envs.py").write_text(CODE)
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    return tmp_path


def begin(name, index=0):
    bench, _ = from_env(f"envs.py:{name}", FileTasks("rows.jsonl", answers=False))
    task = bench.tasks.task("train", index)
    return bench.world, task, asyncio.run(bench.world.reset(task, ("k",)))


def act(frame, *calls):
    made = tuple(Call(name="add", args={"step": n}, id="") for n in calls)
    return (Act(ask=frame.asks[0], text="", call=made[0] if made else None, calls=made, finish="eos", n_tokens=1),)


def test_reset_gets_the_columns_that_it_names_and_its_text_stands_behind_the_prompt(place):
    world, task, frame = begin("Count", 3)
    assert [m.content for m in frame.asks[0].say] == [f"{task.prompt[0].content}\nCount to {task.meta['target']}."]
    frame = asyncio.run(world.step(frame.state, act(frame, task.meta["target"]), ("k", 1)))
    frame = asyncio.run(world.step(frame.state, act(frame), ("k", 2)))
    assert frame.pay == {("policy", ""): 1.0} and frame.status == "finished"


def test_an_episode_of_a_row_can_be_played_anew(place):
    world, task, frame = begin("Count")
    after = [asyncio.run(world.step(frame.state, act(frame, 1), ("k", 1))) for _ in range(2)]
    assert after[0].state == after[1].state and after[0].asks[0].say == after[1].asks[0].say
    again = asyncio.run(world.reset(task, ("another",)))
    assert again.state == frame.state and begin("Count", 1)[2].state.seed != frame.state.seed


def test_all_columns_are_given_where_reset_takes_any(place):
    _, task, frame = begin("All")
    hints = ["a", "b"]
    row = {"answer": task.answer, "hints": hints, "id": task.id, "prompt": task.prompt[0].content, **task.meta}
    said = "|".join(f"{k}={row[k]}" for k in sorted(row))
    assert frame.asks[0].say[-1].content == f"{task.prompt[0].content}\n{said}"


def test_a_reset_without_a_text_leaves_the_prompt_as_it_is(place):
    _, task, frame = begin("Silent")
    assert frame.asks[0].say == task.prompt


def test_a_world_of_frames_gets_the_row_as_its_task(place):
    for _ in range(3):  # each episode has lists of its own
        _, task, frame = begin("Guess")
        assert [m.content for m in frame.asks[0].say] == [task.prompt[0].content, "hint b"]
        assert frame.state == str(task.answer)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Lacks", r"envs\.py:Lacks\.reset asks for 'level', and the row has target, hints, id, answer, prompt; give"),
        ("Own", r"--env envs\.py:Own makes its own tasks, by its method `task`, and --data gives others"),
    ],
)
def test_an_environment_that_takes_no_rows_is_refused(place, name, told):
    with pytest.raises(UserError, match=told):
        begin(name)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"task": "chain"}, "--task and --data exclude each other"),
        ({"reward": "exact"}, "environments have their own rewards"),
        ({"tools": ("python",)}, "is a world of its own"),
    ],
)
def test_what_else_goes_not_with_both(place, more, told):
    with pytest.raises(UserError, match=told):
        bench_of(Settings(data="rows.jsonl", env="envs.py:Guess", **more))


@pytest.mark.parametrize(("text", "whole"), [("a", "q\na"), ("\n\na", "q\n\na"), (" a", "q a"), ("", "q")])
def test_a_line_of_its_own(text, whole, place):
    _, task, _ = begin("Silent")
    (asked,) = with_text(task.prompt, text)
    assert asked.content == whole.replace("q", task.prompt[0].content)


def test_a_run_on_rows_measures_what_the_world_pays(place, capsys):
    run = ["train", "grpo", "--data", "rows.jsonl", "--env", "envs.py:Guess", "--steps", "1", "--evaluate", "4"]
    assert main([*run, "--max-tokens", "8", "schedule.prompts=2", "sample.n=2", "--out", "run"]) == 0
    told = capsys.readouterr()
    assert "mean held-out reward after" in told.out + told.err and "no answer" not in told.err
