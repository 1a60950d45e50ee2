"""A real OpenEnv server, reached over loopback by the library's own client."""

import asyncio
import random
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest
from palaestra.errors import UserError
from palaestra.rollout.play import play
from palaestra.rollout.player import Script
from palaestra.worlds.adapters import base
from palaestra.worlds.adapters.named import world_by_name
from palaestra.worlds.adapters.openenv import OpenEnvWorld

pytest.importorskip("openenv.core")
SERVER = Path(__file__).with_name("openenv_server.py")


@pytest.fixture(scope="module")
def url():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([sys.executable, str(SERVER), str(port)])
    where = f"http://127.0.0.1:{port}"
    for _ in range(600):
        try:
            httpx2.get(f"{where}/schema")
            break
        except httpx2.HTTPError:
            assert server.poll() is None, "the server died"
            time.sleep(0.1)
    yield where
    server.kill()
    server.wait()


def text(frame):
    return frame.asks[0].say[-1].content


def answer(world, index):
    return random.Random(world.task("train", index).meta["seed"]).randint(1, 8)


def test_actions_pay_and_end(url, episode):
    world = world_by_name(f"openenv:{url}(most=9,sessions=2)")
    right = answer(world, 0)
    frames = episode(world, ["I say", '{"number": 0}', "9", '{"n": 3}', str(right)])
    assert text(frames[0]) == "Reply with the number (integer)\n\nhint: guess 1-9"
    assert text(frames[1]) == "That is no legal action. Reply with the number (integer)"
    assert text(frames[2]) == "hint: higher" and text(frames[3]) == "hint: lower"
    assert frames[5].pay == {("policy", ""): 1.0} and frames[5].status == "finished" and frames[5].facts["illegal"] == 2


def test_the_same_seed_is_the_same_episode_from_every_state(url, repeats):
    repeats(lambda: world_by_name(f"openenv:{url}(sessions=2)"), ["9", "8", "9", "9"])


def test_own_renderer_and_reader(url, episode):
    world = OpenEnvWorld(
        url, sessions=2, render=lambda seen: seen["hint"].upper(), read=lambda said: {"number": int(said, 2)}
    )
    frames = episode(world, ["ten", "1111"])
    assert text(frames[0]) == "GUESS 1-8" and text(frames[1]).startswith("That is no legal action: invalid literal")
    assert text(frames[2]) == "LOWER"


def test_what_breaks_there_is_a_status_and_the_session_is_given_back(url):
    world = world_by_name(f"openenv:{url}(sessions=2)")

    async def several():
        cast = {"policy": Script(fn=lambda messages, rng: "2000")}
        return [await play(world, cast, world.task("train", i), ("k",), ("w",)) for i in range(4)]

    for played in asyncio.run(several()):
        assert played.status == "error:environment" and "the machine is on fire" in played.facts["error"]


def test_more_episodes_than_sessions_wait_and_who_goes_away_holds_nobody_up(url, monkeypatch):
    monkeypatch.setattr(base, "PATIENCE", 0.2)
    world = world_by_name(f"openenv:{url}(sessions=2)")

    async def several():
        for i in range(2):
            await world.reset(world.task("test", i), ())  # nobody comes back to these
        cast = {"policy": Script(fn=lambda messages, rng: "9")}
        return await asyncio.gather(*(play(world, cast, world.task("train", i), ("k",), ("w",)) for i in range(5)))

    played = asyncio.run(several())
    assert [e.status for e in played] == ["finished"] * 5 and world.lives.running == 0


def test_a_server_that_is_not_there():
    with pytest.raises(UserError, match="no OpenEnv server answers there"):
        world_by_name("openenv:http://127.0.0.1:9")
