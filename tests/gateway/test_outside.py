"""Clients that come by themselves: `palaestra gateway`, over HTTP."""

import asyncio
import http.client
import json
import urllib.error
import urllib.request

import pytest
from palaestra.engines.own import OwnEngine
from palaestra.models.load import load
from palaestra.rollout.player import EnginePlayer
from palaestra.types import Message, Reward, Sampling, Task
from palaestra.worlds.gateway.outside import Outside
from palaestra.worlds.gateway.server import LARGEST, Gateway

ASKED = [{"role": "user", "content": "3+4"}]


class TwoTasks:
    name, size = "two", 2

    def task(self, split, index):
        return Task(id=f"{split}/{index}", prompt=(Message(role="user", content=f"{index}+1"),), answer=str(index + 1))


@pytest.fixture(scope="module")
def player():
    return EnginePlayer(engine=OwnEngine(load("tiny")), sampling=Sampling(max_tokens=6, temperature=0.0))


class Client:
    """Asks a gateway as any program does."""

    def __init__(self, server):
        self.server = server

    def __call__(self, path, body=None, method=None, **headers):
        headers = {"Authorization": f"Bearer {self.server.key}", **headers}
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.server.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.read().decode()

    def chat(self, path="/v1", headers=(), **body):
        return json.loads(self(f"{path}/chat/completions", {"messages": ASKED, **body}, **dict(headers)))


def served(player, work, tasks=None, judge=None, seconds=20.0):
    """What `work(client)` returns, in a thread beside the loop that plays; and the records."""
    records = []

    async def main():
        outside = Outside({"policy": player}, records.append, tasks, judge, seconds)
        with Gateway() as server:
            outside.attach(server)
            server.start()
            try:
                out = await asyncio.to_thread(work, Client(server))
                async with asyncio.timeout(30):
                    await asyncio.gather(*outside.under_way)
                return out
            finally:
                await asyncio.to_thread(server.shutdown)

    return asyncio.run(main()), records


def test_a_request_alone_is_an_episode(player):
    said, (record,) = served(player, lambda c: c.chat(logprobs=True))
    heard, reply = record["rows"][0]["segments"]
    content = said["choices"][0]["logprobs"]["content"]
    assert [x["token"] for x in content] == [f"token_id:{i}" for i in reply["ids"]]
    assert [x["logprob"] for x in content] == reply["logp"]
    usage = {"prompt_tokens": len(heard["ids"]), "completion_tokens": len(reply["ids"])}
    assert said["usage"] == {**usage, "total_tokens": sum(usage.values())}
    assert record["reward"] is None and json.loads(json.dumps(record)) == record


def test_a_stream_is_of_the_same_tokens(player):
    def work(client):
        whole = client.chat()["choices"][0]["message"]["content"]
        body = {"messages": ASKED, "stream": True, "stream_options": {"include_usage": True}}
        *events, end = client("/v1/chat/completions", body).split("\n\n")[:-1]
        assert end == "data: [DONE]"
        chunks = [json.loads(e.removeprefix("data: ")) for e in events]
        assert chunks[-1]["usage"]["completion_tokens"] > 0 and chunks[-1]["choices"] == []
        return whole, "".join(c["choices"][0]["delta"].get("content", "") for c in chunks[:-1])

    (whole, streamed), records = served(player, work)
    ids = [r["rows"][0]["segments"][1]["ids"] for r in records]
    assert whole == streamed and ids[0] == ids[1]


def test_calls_of_one_episode_are_joined_by_address_or_header(player):
    def work(client):
        a = client.chat("/episodes/e1/v1", temperature=0.5)["choices"][0]["message"]
        talk = [*ASKED, a, {"role": "user", "content": "5"}]
        client.chat("/v1", {"x-palaestra-episode": "e1"}, messages=talk)
        client("/episodes/e1/v1/reward", {"reward": 0.75})

    _, (record,) = served(player, work)
    (row,) = record["rows"]
    said = [s for s in row["segments"] if s["trained"]]
    assert (record["episode"], record["reward"], [s["temperature"] for s in said]) == ("e1", 0.75, [0.5, 1.0])


def test_tasks_are_given_in_order_and_answers_are_judged(player):
    async def judge(task, episode):
        return Reward(total=float(episode.facts["agent_answer"] == task.answer))

    def work(client):
        for answer in ("1", "7"):
            e = json.loads(client("/episodes", {}))
            client.chat(f"/episodes/{e['id']}/v1", messages=e["task"]["messages"])
            assert json.loads(client(f"/episodes/{e['id']}/task")) == e["task"]
            client(f"/episodes/{e['id']}/reward", {"answer": answer})
        with pytest.raises(urllib.error.HTTPError) as ended:
            client("/episodes", {})
        assert ended.value.code == 404

    _, records = served(player, work, TwoTasks(), judge)
    assert {r["task"]: r["reward"] for r in records} == {"train/0": 1.0, "train/1": 0.0}


def test_silence_ends_an_episode(player):
    _, (record,) = served(player, lambda c: c.chat("/episodes/e/v1"), seconds=0.3)
    assert record["status"] == "truncated:silent" and record["rows"]


def test_64_requests_at_once(player):
    def work(client):
        from concurrent.futures import ThreadPoolExecutor

        def ask(i):
            talk = [{"role": "user", "content": f"{i}+1"}]
            return client.chat(f"/episodes/e{i}/v1", messages=talk)["choices"][0]["message"]["content"]

        with ThreadPoolExecutor(64) as pool:
            said = list(pool.map(ask, range(64)))
        for i in range(64):
            client(f"/episodes/e{i}/reward", {"reward": i})
        return said

    said, records = served(player, work)
    by_name = {r["episode"]: r for r in records}
    for i, text in enumerate(said):
        heard, reply = by_name[f"e{i}"]["rows"][0]["segments"]
        assert f"{i}+1" in heard["text"] and reply["text"] == text and by_name[f"e{i}"]["reward"] == i


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("/v1/chat/completions", {"messages": ASKED}, {"Authorization": "Bearer wrong"}, 401),
        ("/v1/chat/completions", {"messages": ASKED}, {"Authorization": ""}, 401),
        ("/v1/models", None, {"Authorization": "Bearer é"}, 401),
        ("/v1/models", None, {"Host": "evil.example:80"}, 403),
        ("/v1/chat/completions", b"{", {}, 400),
        ("/v1/chat/completions", b"[" * 100_000, {}, 400),
        ("/v1/completions", {"prompt": "x"}, {}, 404),
        ("/v1/responses", {"input": 3}, {}, 400),
        ("/v1/responses", {"input": "x", "previous_response_id": "resp_1"}, {}, 404),
        ("/episodes/../v1/models", None, {}, 400),
        ("/episodes/e/task", None, {}, 200),
        ("/episodes/e/reward", {"reward": True, "x": 1}, {}, 200),
        ("/episodes/e/reward", {"reward": "1"}, {}, 400),
        ("/episodes/e/reward", b'{"reward": NaN}', {}, 400),
        ("/v1/chat/completions", None, {}, 405),
        ("/v1/models", {}, {}, 405),
    ],
)
def test_what_is_refused(player, path, body, headers, status):
    def work(client):
        try:
            client(path, body, **headers)
        except urllib.error.HTTPError as error:
            about = json.load(error)["error"]
            assert set(about) == {"message", "type", "code", "param"} and client.server.key not in about["message"]
            assert error.code != 404 or any(x in about["message"] for x in ("POST chat/completions", "no response"))
            return error.code
        return 200

    assert served(player, work, seconds=0.1)[0] == status


def test_a_request_that_is_too_large_is_not_read(player):
    def work(client):
        link = http.client.HTTPConnection("127.0.0.1", client.server.server_port, timeout=10)
        link.putrequest("POST", "/v1/chat/completions")
        link.putheader("Authorization", f"Bearer {client.server.key}")
        link.putheader("Content-Length", str(LARGEST + 1))
        link.endheaders()
        return link.getresponse().status

    assert served(player, work)[0] == 413


def test_what_has_no_effect_is_said_once(player, capsys):
    served(player, lambda c: [c.chat(top_p=0.5) for _ in range(2)])
    assert capsys.readouterr().err.count("'top_p'") == 1


def test_the_client_of_openai(player):
    openai = pytest.importorskip("openai", reason="the package openai is not installed")

    def work(client):
        own = openai.OpenAI(base_url=f"{client.server.url}/episodes/e/v1", api_key=client.server.key)
        a = own.chat.completions.create(model="policy", messages=ASKED).choices[0].message
        more = [*ASKED, a, {"role": "user", "content": "5"}]
        stream = own.chat.completions.create(model="policy", messages=more, stream=True)
        text = "".join(c.choices[0].delta.content or "" for c in stream)
        with pytest.raises(openai.AuthenticationError):
            own.with_options(api_key="wrong").models.list()
        client("/episodes/e/reward", {"reward": 1})
        return [a.content, text]

    said, (record,) = served(player, work)
    assert [s["text"] for s in record["rows"][0]["segments"] if s["trained"]] == said


def test_the_client_of_openai_with_responses(player):
    openai = pytest.importorskip("openai", reason="the package openai is not installed")

    def work(client):
        own = openai.OpenAI(base_url=f"{client.server.url}/episodes/e/v1", api_key=client.server.key)
        a = own.responses.create(model="policy", input=ASKED)
        b = own.responses.create(model="policy", input=[*ASKED, *a.output, {"role": "user", "content": "5"}])
        with own.responses.stream(model="policy", input="6", previous_response_id=b.id) as stream:
            events = list(stream)
        c = "".join(e.delta for e in events if e.type == "response.output_text.delta")
        assert events[-1].type == f"response.{events[-1].response.status}" and events[-1].response.output_text == c
        client("/episodes/e/reward", {"reward": 1})
        return [a.output_text, b.output_text, c]

    said, (record,) = served(player, work)
    (row,) = record["rows"]
    assert [s["text"] for s in row["segments"] if s["trained"]] == said
