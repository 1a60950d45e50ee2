"""A class in Gymnasium's form, with text and without Gymnasium, is an environment as it is."""

import asyncio
import random
from itertools import count

import pyarrow.parquet as pq
import pytest
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.run.benches import from_env

from tests.worlds.adapters.conftest import stepped

ROOM = """
import random

class Room:
    solved = 1.0
    max_tokens = 8
    closed = 0
    def reset(self, seed=None, options=None):
        self.degrees, self.n = random.Random(seed).choice([16, 18, 22, 24]), 0
        return f"{self.degrees} degrees; warmer or colder?", {"from": seed}
    def step(self, action):
        self.n += 1
        self.degrees += 2 if action == "warmer" else -2
        done = self.degrees == 20
        return f"{self.degrees} degrees", float(done), done, self.n >= 4, {}
    def close(self):
        Room.closed += 1
"""


@pytest.fixture
def bench(tmp_path):
    """bench(code) -> the bench of a class in a file, as --env finds it."""

    number = count()

    def made(code=ROOM):
        file = tmp_path / f"own{next(number)}.py"
        file.write_text(code)
        return from_env(f"{file}:Room")[0]

    return made


def far(world, episode):
    """The number of an episode that takes two steps."""
    begins = lambda i: episode(world, [], index=i)[0].asks[0].say[-1].content
    return next(i for i in range(32) if begins(i)[:2] in ("16", "24"))


def towards(frame):
    return "warmer" if int(frame.asks[0].say[-1].content.split()[0]) < 20 else " colder\n"


def test_an_episode_is_its_seed_and_the_replies(bench, episode):
    made = bench()
    frames = episode(made.world, [towards] * 4)
    again = episode(made.world, [towards] * 4)
    assert [f.asks[0].say[-1].content for f in frames[:-1]] == [f.asks[0].say[-1].content for f in again[:-1]]
    assert frames[-1].status == "finished" and sum(sum(f.pay.values()) for f in frames) == 1.0
    assert made.max_tokens == 8 and made.world.solved == 1.0 and made.world.label == "Room"
    first = {episode(made.world, [], index=i)[0].asks[0].say[-1].content for i in range(12)}
    assert len(first) > 1, "seeds differ"
    away = lambda frame: "colder" if towards(frame) == "warmer" else "warmer"
    cut = episode(made.world, [away] * 6)
    assert cut[-1].status == "truncated:environment" and len(cut) == 5


def test_another_process_goes_on_from_a_state(bench, episode):
    """As after a restart: the episode is played anew to where it was."""
    world, other = bench().world, bench().world
    at = far(world, episode)
    whole = episode(world, [towards, towards], index=at)
    after = asyncio.run(stepped(other, whole[1], towards(whole[1])))
    assert after.status == whole[2].status == "finished" and after.pay == whole[2].pay


def test_the_older_form_and_global_generators(bench, episode):
    code = """
import random
class Room:
    def reset(self):
        self.goal = random.randint(0, 10**9)
        return f"goal {self.goal}"
    def step(self, action):
        return {"said": action, "right": action == str(self.goal)}, 0.5, action == "end", {}
"""
    random.seed(5)
    state = random.getstate()
    world = bench(code).world
    frames = episode(world, ["hello there", "end"])
    assert frames[0].asks[0].say[-1].content == episode(world, [])[0].asks[0].say[-1].content
    assert random.getstate() == state, "the run's own generator is as it was"
    assert "said: hello there" in frames[1].asks[0].say[-1].content and frames[-1].status == "finished"


def test_an_action_space_says_how_a_reply_is_read(bench, episode):
    pytest.importorskip("gymnasium")
    code = """
import gymnasium
class Room(gymnasium.Env):
    action_space = gymnasium.spaces.Discrete(3)
    observation_space = gymnasium.spaces.Discrete(9)
    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return 4, {}
    def step(self, action):
        return int(action), float(action == 2), action == 2, False, {}
"""
    frames = episode(bench(code).world, ["no number", "I take 1", "2"])
    assert frames[0].asks[0].say[-1].content.endswith("Reply with one of: 0, 1, 2")
    assert "no legal action" in frames[1].asks[0].say[-1].content
    assert frames[2].asks[0].say[-1].content == "1" and frames[3].status == "finished"
    assert sum(frames[3].pay.values()) == 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("False, {}\n", "False\n"), r"Room\.step.*what it returns"),
        (("float(done), done", "'much', done"), "the reward"),
        (("self.n += 1", "self.m += 1"), r"own0\.py:12: AttributeError.*Room\.step"),
        (('return f"{self.degrees} degrees; warmer or colder?", {"from": seed}', "pass"), "the observation"),
        (("class Room:", "class Room:\n    def __init__(self, size): ..."), "without arguments"),
    ],
)
def test_what_is_wrong_with_a_class_ends_the_run_with_its_line(bench, episode, change, message):
    assert change[0] in ROOM.replace("self.n >= 4, {}", "False, {}") or change[0] in ROOM
    code = ROOM.replace("self.n >= 4, {}", "False, {}").replace(*change)
    with pytest.raises(UserError, match=message):
        episode(bench(code).world, ["warmer", "warmer"])


def test_it_is_told_from_the_other_forms(bench):
    """With seats, or a step of frames, it is a world of ours; with get_reward an object of tools; rows are refused."""
    with pytest.raises(UserError, match="makes its own episodes"):
        from_env(bench().name, object())
    frames = "class Room:\n    def reset(self, task, key): ...\n    def step(self, state, acts, key): ...\n"
    with pytest.raises(UserError, match="has no seats"):
        bench(frames)
    tools = (
        ROOM.replace("def close(self):", "def get_reward(self):")
        .replace("(self, action):", "(self, action: str):\n        'Acts.'")
        .replace("seed=None, options=None", "self_made=True")
    )
    assert type(bench(tools).world).__name__ == "MethodsWorld"
    assert type(bench().world).__name__ == "SteppedWorld"


def test_a_run_on_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "room.py").write_text(ROOM)
    small = "sample.n=2 schedule.prompts=2 --steps 1 --evaluate 2 --out run"
    assert main(f"train grpo --env room.py:Room {small}".split()) == 0
    rows = pq.read_table(tmp_path / "run/rollouts/step-000001.parquet").to_pylist()
    assert len(rows) == 4 and all(r["task_id"].startswith("Room/train/") for r in rows)
