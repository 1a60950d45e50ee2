"""Worlds of ours behind AgentGym's protocol: the same episodes as in process, and failures that are no rewards."""

import asyncio
import http.client
import json
from dataclasses import replace

import pytest
from palaestra.context import Bench
from palaestra.errors import UserError
from palaestra.rollout.play import play
from palaestra.rollout.player import Script
from palaestra.run.benches import bench_by_name
from palaestra.toys.craftmini import ACTIONS
from palaestra.types import Ask, Frame, Message, Task
from palaestra.worlds.world_server import IDLE, WorldServer


class Count:
    """Pays 0.5 for each word; "stop" ends, "boom" fails, "free" ends without pay."""

    seats = ("policy",)
    solved = 1.0
    size, test_size, name = 5, 2, "count"

    def __init__(self):
        self.left = []

    def task(self, split, index):
        return Task(id=f"{split}/{index}", meta={"start": index + 100 * (split == "test")})

    def reset(self, task, key):
        say = (Message(role="system", content="Count."), Message(role="user", content=f"from {task.meta['start']}"))
        return Frame(state=task.meta["start"], asks=(Ask(seat="policy", say=say, stop=(";",), max_tokens=9),))

    def step(self, state, acts, key):
        word = acts[0].text
        if word == "boom":
            raise RuntimeError("the disk is full")
        if word == "free":
            return Frame(state=state)
        if word == "stop":
            return Frame(state=state, pay={("policy", ""): 0.0}, status="truncated:tired")
        ask = Ask(seat="policy", say=(Message(role="tool", content=f"{state + 1}"),))
        return Frame(state=state + 1, asks=(ask,), pay={("policy", ""): 0.5}, facts={"turns": state, "odd": {1}})

    def leave(self, state):
        self.left.append(state)


def serve(bench):
    server = WorldServer(bench)
    server.start()
    return server


@pytest.fixture(scope="module")
def craft():
    bench, _ = bench_by_name("craftgoal")
    server = serve(replace(bench, max_turns=10))
    yield server
    server.stop()


@pytest.fixture
def count():
    world = Count()
    server = serve(Bench(name="count", tasks=world, world=world))
    yield server
    server.stop()


def post(server, path, body, method="POST", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request(method, path, body if isinstance(body, str) else json.dumps(body), headers)
    answer = connection.getresponse()
    read = answer.status, json.loads(answer.read())
    connection.close()
    return read


def episodes(bench, split, reply, indices=range(4)):
    cast, world = {"policy": Script(fn=reply)}, bench.world

    async def all_of():
        tasks = [(i, bench.tasks.task(split, i)) for i in indices]
        return await asyncio.gather(
            *(play(world, cast, t, ("k", i), ("agentgym", split, i), max_turns=bench.max_turns) for i, t in tasks)
        )

    return asyncio.run(all_of())


def words(e):
    return [(s.author, s.text) for row in e.rows for s in row.segments]


def over_http(server):
    return bench_by_name(f"agentgym:{server.url}")[0]


@pytest.mark.parametrize("split", ["train", "test"])
def test_episodes_are_those_of_the_world_in_process(craft, split):
    """With random and with planned actions: words, legal replies, pay, facts and status."""
    inside, outside = craft.bench, over_http(craft)
    at_random = lambda messages, rng: ACTIONS[int(rng.integers(len(ACTIONS)))]
    there = dict(zip(range(6), episodes(outside, split, at_random, range(6)), strict=True))
    here = dict(zip(range(6), episodes(inside, split, at_random, range(6)), strict=True))
    assert len({str(words(e)) for e in here.values()}) == 6
    for i, e in here.items():
        assert words(there[i]) == words(e) and there[i].status == e.status
        assert there[i].total == (e.total if e.reward else 0.0)
        assert all(there[i].facts[k] == e.facts[k] for k in ("turns", "invalid", "achievements"))
    assert (outside.max_turns, outside.max_tokens, outside.world.solved) == (10, 64, 1.0)
    assert outside.tasks.size is None and craft.episodes == {}


def test_a_plan_earns_the_reward_over_http_too(craft):
    bench = craft.bench
    task = next(t for i in range(20) if (t := bench.tasks.task("train", i)).meta["goal"] == "collect wood")
    index, state, plan = int(task.id.rpartition("/")[2]), task.meta["start"], []
    while not state.reached:
        plan.append(bench.world.oracle(state))
        acts = (type("A", (), {"text": plan[-1]}),)
        state = bench.world.step(state, acts, ("k",)).state
    left = iter(plan)
    (e,) = episodes(over_http(craft), "train", lambda messages, rng: next(left), [index])
    assert e.total == 1.0 and e.status == "finished" and e.facts["actions"] == len(plan)


def test_roles_limits_and_pay_of_several_steps_arrive(count, episode):
    world = over_http(count).world
    frames = episode(world, ["a", "b", "stop"], index=1, split="test")
    (first,) = frames[0].asks
    assert [(m.role, m.content) for m in first.say] == [("system", "Count."), ("user", "from 101")]
    assert (first.stop, first.max_tokens) == ((";",), 9)
    assert [(m.role, m.content) for m in frames[2].asks[0].say] == [("tool", "103")]
    # the running total is sent, so what each step pays is its difference
    assert [sum(f.pay.values()) for f in frames[1:]] == [0.5, 0.5, 0.0] and frames[-1].status == "truncated:tired"
    assert frames[-1].facts["turns"] == 102 and "odd" not in frames[-1].facts
    assert (world.size, world.test_size) == (5, 2) and count.bench.world.left == [103]


@pytest.mark.parametrize("word, why", [("boom", "the disk is full"), ("free", "ended the episode and paid nothing")])
def test_a_world_that_fails_is_a_fault_and_no_reward(count, word, why, capsys):
    (e,) = episodes(over_http(count), "train", lambda messages, rng: word, [0])
    assert e.status == "error:environment" and why in e.facts["error"] and e.reward is None


def test_other_clients_read_the_protocol_alone(count):
    status, made = post(count, "/create", {})
    assert status == 200 and list(made) == ["id"]
    _, shown = post(count, "/reset", {"id": made["id"], "data_idx": 3})
    assert shown["observation"] == "Count.\n\nfrom 3" and shown["done"] is False
    _, seen = post(count, f"/observation?id={made['id']}", "", "GET")
    assert seen == shown["observation"]
    rewards = [post(count, "/step", {"id": made["id"], "action": a})[1]["reward"] for a in ("x", "y", "stop")]
    assert rewards == [0.5, 1.0, 1.0]  # the last one is the score
    assert post(count, "/step", {"id": made["id"], "action": "x"})[0] == 400
    assert post(count, "/close", {"id": made["id"]}) == (200, True) and count.episodes == {}


@pytest.mark.parametrize(
    "path, body, status, why",
    [
        ("/step", {"id": 77, "action": "x"}, 404, "no environment 77"),
        ("/create", {"split": "all"}, 400, "'train' or 'test'"),
        ("/create", "[1]", 400, "no JSON object"),
        ("/create", "{", 400, "no JSON"),
        ("/nothing", {}, 404, "no POST /nothing"),
        ("/about", {}, 404, "no POST /about"),
        ("/reset", {"id": "first", "data_idx": 5}, 400, "train has 5 items"),
        ("/reset", {"id": "first", "data_idx": -1}, 400, "whole number from 0"),
        ("/step", {"id": "first", "action": 3}, 400, "it is text"),
        ("/step", {"id": "first", "action": "x"}, 400, "POST /reset first"),
    ],
)
def test_wrong_requests_say_what_is_wrong(count, path, body, status, why):
    if isinstance(body, dict) and body.get("id") == "first":
        body = body | {"id": post(count, "/create", {})[1]["id"]}
    code, answer = post(count, path, body)
    assert code == status and why in answer["error"]


def test_a_page_of_the_web_is_refused_and_idle_environments_are_dropped(count):
    assert post(count, "/create", {}, Host="evil.example:80")[0] == 403
    first = post(count, "/create", {})[1]["id"]
    count.episodes[first].used -= IDLE + 1
    post(count, "/create", {})
    assert first not in count.episodes


def test_what_cannot_be_served():
    with pytest.raises(UserError, match="a reward judges"):
        WorldServer(bench_by_name("chain")[0])
    with pytest.raises(UserError, match="one player"):
        WorldServer(bench_by_name("mnk")[0])
