"""An endpoint in a seat: opponents and users that nobody trains, and models that are only evaluated."""

import asyncio
import json

from palaestra.cli.main import main
from palaestra.context import Bench
from palaestra.engines.endpoint import EndpointPlayer
from palaestra.recipes.base import grpo
from palaestra.rollout.play import play
from palaestra.rollout.player import Script
from palaestra.run.driver import prepare
from palaestra.services.chat.endpoint import Endpoint
from palaestra.services.chat.scripted import Scripted
from palaestra.step import start, step
from palaestra.toys.chain import ArithmeticChain
from palaestra.types import Ask, Call, Frame, Message, Sampling, Task, stage

from tests.chat_server import serving, sometimes

USER = "You are a customer."


@stage
class Talk:
    """The policy and a user speak in turns; what each says is said to the other."""

    turns: int = 4
    seats: tuple[str, ...] = ("policy", "user")

    def reset(self, task, key):
        return Frame(state=0, asks=(Ask(seat="user", say=task.prompt),))

    def step(self, state, acts, key):
        (act,) = acts
        if state + 1 == self.turns:
            return Frame(state=state + 1, pay={("policy", ""): 1.0})
        other = "policy" if act.ask.seat == "user" else "user"
        said = (Message(role="user", content=act.text),)
        return Frame(state=state + 1, asks=(Ask(seat=other, say=said, max_tokens=4),))


TASK = Task(id="t/0", prompt=(Message(role="user", content="Begin."),))


def test_a_simulated_user_hears_the_conversation():
    heard = []
    user = EndpointPlayer(
        client=Scripted(lambda r: heard.append(r) or f"u{len(heard)}").open(), system=USER, name="user"
    )
    cast = {"policy": Script(fn=lambda m, rng: f"p{len(m)}"), "user": user}
    episode = asyncio.run(play(Talk(), cast, TASK, ("k",), ("w",)))
    assert episode.status == "finished"
    assert [(m.role, m.content) for m in heard[1].messages] == [
        ("system", USER), ("user", "Begin."), ("assistant", "u1"), ("user", "p1"),
    ]  # fmt: skip
    assert not any(s.trained for r in episode.rows for s in r.segments)
    assert heard[0].seed != heard[1].seed and heard[1].max_tokens == 4


def test_training_against_an_endpoint(context, small):
    """The user's words are in the rows of the policy as environment text; only the policy's own are trained."""
    with serving(lambda body: "hello", faulty=sometimes(0.3)) as (server, url):
        user = EndpointPlayer(
            client=Endpoint(url=url, timeout=0.7, retries=6, backoff=0.01, cache="").open(), name="user"
        )
        ctx = context(bench=Bench(name="talk", tasks=ArithmeticChain(), world=Talk(), max_tokens=4))
        ctx.players = {"user": user}
        recipe = small(grpo.build())
        prepare(recipe, ctx)
        _, metrics = asyncio.run(step(recipe, ctx, start(0)))
    assert metrics["errors"] == 0 and len(server.seen) >= 16
    rows = [r for g in ctx.seen for e in g.episodes for r in e.rows]
    assert {s.policy for r in rows for s in r.segments if s.trained} == {"policy"}
    assert any("hello" in s.text for r in rows if r.seat == "policy" for s in r.segments)


def test_a_dead_user_is_an_error_of_the_episode():
    with serving(lambda body: "", faulty=lambda n, body: "500") as (_, url):
        user = EndpointPlayer(client=Endpoint(url=url, retries=0, cache="").open())
        cast = {"policy": Script(fn=lambda m, rng: "p"), "user": user}
        episode = asyncio.run(play(Talk(), cast, TASK, ("k",), ("w",)))
    assert episode.status == "error:chat-500" and episode.reward is None


def test_an_endpoint_may_call_tools():
    player = EndpointPlayer(client=Scripted(lambda r: "").open(), sampling=Sampling(temperature=0.5))
    found = player.parse('<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>', "eos")
    assert found == Call(name="add", args={"a": 1}) and player.temperature == 0.5


def solve(body):
    """Chains, by the rules."""
    chain, modulo = body["messages"][-1]["content"].split(" mod ")
    total, op = 0, "+"
    for c in chain:
        if c.isdigit():
            total = {"+": total + int(c), "-": total - int(c), "*": total * int(c)}[op] % int(modulo)
        else:
            op = c
    return f"= {total}"


def evaluated(url, capsys, *more):
    code = main(["eval", "--engine", f"openai:{url}", "--model", "big", "--n", "12", "--json", *more])
    return code, json.loads(capsys.readouterr().out.strip().splitlines()[-1]) if code == 0 else None


def test_evaluating_what_is_behind_an_endpoint(capsys):
    with serving(solve) as (server, url):
        code, found = evaluated(url, capsys, "--k", "2")
    assert code == 0 and found["greedy"]["mean"] == 1 and found["pass@2"]["mean"] == 1 and found["model"] == "big"
    assert {b["model"] for b in server.seen} == {"big"} and {b["temperature"] for b in server.seen} == {0.0, 1.0}
    assert found["chat/calls"] == len(server.seen) == 36


def test_a_wrong_address_is_the_users_error(capsys):
    assert evaluated("nowhere", capsys)[0] == 2
    assert "no address" in capsys.readouterr().err
    assert main(["train", "--engine", "openai:http://127.0.0.1:9/v1", "--steps", "1"]) == 2
    assert "not trained" in capsys.readouterr().err
