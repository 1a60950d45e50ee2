"""A server of AgentGym's protocol over loopback, written without a line of the package."""

import asyncio
import threading

import pytest
from palaestra.errors import Fault, UserError
from palaestra.rollout.play import play
from palaestra.rollout.player import Script
from palaestra.worlds.adapters.agentgym import AgentGymWorld
from palaestra.worlds.adapters.named import world_by_name

from tests.worlds.adapters.agentgym_server import FAULTS, make_server


@pytest.fixture
def server():
    server = make_server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def url(server):
    return f"http://127.0.0.1:{server.server_port}"


def total(frames):
    return sum(sum(frame.pay.values()) for frame in frames)


def once_then_craft(messages):
    return "get" if messages[-1].content.startswith("Goal") else "craft"


def played(world, *indices, reply):
    async def several():
        cast = {"policy": Script(fn=lambda messages, rng: reply(messages))}
        return await asyncio.gather(*(play(world, cast, world.task("train", i), ("k", i), ("w",)) for i in indices))

    return asyncio.run(several())


def test_the_score_is_the_last_reward_and_the_environment_is_closed(server, url, episode):
    world = world_by_name(f"agentgym:{url}(items=16)")
    frames = episode(world, ["get", "Thought: enough.\n\nAction:\nget", "<think>Action: get</think>craft"], index=2)
    shown = [frame.asks[0].say[-1].content for frame in frames[:-1]]
    assert shown == ["Goal: 2 sticks.", "You have 1.", "You have 2."]
    # the server's rewards are 1/8, 2/8 and 1: the last counts, so the pay is 1/8, 1/8 and 6/8
    assert [sum(f.pay.values()) for f in frames[1:]] == [0.125, 0.125, 0.75] and frames[-1].status == "finished"
    assert server.games == {}
    summed = world_by_name(f"agentgym:{url}(items=16,score=sum)")
    assert total(episode(summed, ["get", "get", "craft"], index=2)) == 1.375
    # a last step that pays nothing leaves nothing, whatever was paid before
    assert total(episode(world, ["get", "craft"], index=2)) == 0.0


def test_every_eighth_item_is_held_out(url, episode):
    world = world_by_name(f"agentgym:{url}(items=17)")
    items = {s: [world.task(s, i).meta["seed"] for i in range(n)] for s, n in (("train", 15), ("test", 2))}
    assert (world.size, world.test_size) == (15, 2) and items["test"] == [7, 15]
    assert sorted(items["train"] + items["test"]) == list(range(17))
    assert episode(world, [], index=1, split="test")[0].asks[0].say[-1].content == "Goal: 15 sticks."


def test_a_reply_that_is_no_action_is_asked_again_without_a_call(url, episode):
    frames = episode(world_by_name(f"agentgym:{url}"), ["Action: get\nAction: get", "<think>get", "get"], index=1)
    assert frames[1].asks[0].say[-1].content == "That is no legal action. Write Action: once"
    assert frames[2].facts["illegal"] == 2 and frames[3].asks[0].say[-1].content == "You have 1."


def test_the_same_item_is_the_same_episode_from_every_state(url, repeats):
    repeats(lambda: world_by_name(f"agentgym:{url}"), ["get", "get", "craft"], index=2)


@pytest.mark.parametrize("broken", [*FAULTS, "down", "slow"])
def test_a_server_that_lies_or_is_slow_is_a_fault_or_zero_where_asked(server, url, episode, broken):
    seconds = 0.6 if broken == "slow" else 20.0
    with pytest.raises(Fault, match=f"agentgym:{url}/"):
        episode(world_by_name(f"agentgym:{url}(seconds={seconds})"), ["get", broken], index=1)
    frames = episode(world_by_name(f"agentgym:{url}(seconds={seconds},failure=zero)"), ["get", broken], index=1)
    assert total(frames[:2]) == 0.125 and total(frames) == 0.0
    assert frames[-1].status == "finished" and f"agentgym:{url}/" in frames[-1].facts["failure"]


def test_a_fault_ends_the_episode_by_name_and_without_reward(server, url):
    (lost,) = played(world_by_name(f"agentgym:{url}"), 0, reply=lambda messages: "nan")
    assert lost.status == "error:environment" and "no finite number" in lost.facts["error"]
    assert server.games == {}


def test_other_names_of_fields(server, url, episode):
    world = AgentGymWorld(url, (("bare", 1),), render=lambda seen: seen.upper(), read=lambda text: text.split()[-1])
    frames = episode(world, ["I get"], index=1)
    assert [f.asks[0].say[-1].content for f in frames] == ["GOAL: 1 STICKS.", "YOU HAVE 1."]
    with pytest.raises(Fault, match="score is no finite number: null"):
        episode(AgentGymWorld(url, reward="score"), ["get"])


def test_more_episodes_than_are_kept_lose_nothing(server, url, monkeypatch):
    monkeypatch.setattr("palaestra.worlds.adapters.base.KEPT", 3)
    world = world_by_name(f"agentgym:{url}(items=64)")
    ends = played(world, *range(8), reply=once_then_craft)
    assert [e.status for e in ends] == ["finished"] * 8 and world.lives.running == 0 and server.games == {}
    assert [e.reward.total for e in ends] == [0.0, 1.0] + [0.0] * 6  # item 1 asks for one stick


def test_wrong_settings():
    with pytest.raises(UserError, match=r"no server answers there .* start it, or correct the URL"):
        world_by_name("agentgym:http://127.0.0.1:9")
    with pytest.raises(UserError, match="items"):
        world_by_name("agentgym:http://127.0.0.1:9(items=3)")
    with pytest.raises(UserError, match="must be above 0"):
        world_by_name("agentgym:http://127.0.0.1:9(seconds=0)")
