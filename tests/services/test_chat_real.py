"""The chat client, a judge and an evaluation against a real server: llama.cpp's, with SmolLM2."""

import asyncio
import json
from dataclasses import replace

import pytest
from palaestra.cli.main import main
from palaestra.errors import Fault, UserError
from palaestra.judges.audit import order_bias
from palaestra.judges.pairwise import Pairwise
from palaestra.judges.pointwise import Judge
from palaestra.judges.prompt import GRADE_PROMPT
from palaestra.judges.reading import Json, Odds
from palaestra.models.smollm2 import weights
from palaestra.services.chat.base import question_messages
from palaestra.services.chat.endpoint import Endpoint
from palaestra.services.chat.structured import ask
from palaestra.tasks.oracle import episode_saying
from palaestra.types import ChatRequest, Group, Reward, Task
from pydantic import BaseModel

pytestmark = pytest.mark.smollm2

QUESTION = question_messages("What is the capital of France?")
TASK = Task(id="t/0", prompt=QUESTION, answer="Paris")
KEY = "sk-palaestra"


@pytest.fixture(scope="module")
def url():
    """The address of a server on the loopback, which stops when the object goes."""
    llama = pytest.importorskip("xllamacpp")
    settings = llama.CommonParams()
    settings.model.path = str(weights())
    settings.n_ctx = 2048
    settings.cpuparams.n_threads = 1  # on a busy machine several wait for each other, spinning
    settings.api_keys = [KEY]
    server = llama.Server(settings)
    assert server.listening_address.startswith("http://127.0.0.1:")
    yield f"{server.listening_address}/v1"


@pytest.fixture
def endpoint(url, monkeypatch):
    monkeypatch.setenv("CHAT_KEY", KEY)
    return Endpoint(url=url, key_env="CHAT_KEY", cache="")


class City(BaseModel):
    city: str


def test_it_talks_and_gives_odds(endpoint):
    async def run(client):
        plain = await client.chat(ChatRequest(messages=question_messages("Say hello."), max_tokens=16))
        asked = question_messages("Is Paris in France? Yes or No.")
        odds = await client.chat(ChatRequest(messages=asked, choices=("Yes", "No"), max_tokens=1))
        return plain, odds

    plain, odds = asyncio.run(run(endpoint.open()))
    assert plain.text and plain.prompt_tokens > 0 and 0 < plain.reply_tokens <= 16
    assert set(odds.choices) == {"Yes", "No"} and all(v <= 0 for v in odds.choices.values())


@pytest.mark.parametrize("refused", [(), ("json_schema",)])
def test_it_fits_a_schema_in_either_form(endpoint, refused):
    client = endpoint.open()
    client.refused = frozenset(refused)
    city = asyncio.run(ask(client, ChatRequest(messages=QUESTION, max_tokens=64), City))
    assert isinstance(city, City) and client.refused == set(refused)


def test_it_stops_and_repeats_a_seed(endpoint):
    async def run(client):
        whole = await client.chat(ChatRequest(messages=QUESTION, max_tokens=24))
        word = whole.text.split()[3]
        cut = await client.chat(ChatRequest(messages=QUESTION, max_tokens=24, stop=(word,)))
        once = ChatRequest(messages=QUESTION, max_tokens=12, temperature=1.0)
        drawn = [await client.chat(replace(once, seed=s)) for s in (1, 1, 2)]
        return word, whole.text, cut, [r.text for r in drawn]

    word, whole, cut, drawn = asyncio.run(run(endpoint.open()))
    assert cut.text == whole[: whole.index(word)] and cut.finish == "stop"
    assert drawn[0] == drawn[1] != drawn[2]


def test_its_refusals_are_told_apart(endpoint, url):
    request = ChatRequest(messages=question_messages("word " * 4000), max_tokens=8)
    with pytest.raises(Fault, match=r"400.*context size") as fault:
        asyncio.run(endpoint.open().chat(request))
    assert fault.value.cause == "chat-refused"
    with pytest.raises(UserError, match="404"):
        asyncio.run(Endpoint(url=f"{url}/none", key_env="CHAT_KEY", cache="").open().chat(request))
    with pytest.raises(UserError, match=r"401.*wants a key") as unsigned:
        asyncio.run(Endpoint(url=url, cache="").open().chat(request))
    assert KEY not in str(unsigned.value)


def test_it_judges(endpoint):
    group = Group(task=TASK, episodes=(episode_saying("Paris"), episode_saying("London")))
    for read in (Odds(), Json()):
        judge = Judge(client=endpoint, template=GRADE_PROMPT, read=read, max_tokens=128)
        rewards = asyncio.run(judge(None, group))
        assert all(isinstance(r, Reward) and 0 <= r.total <= 1 for r in rewards)
    pairwise = Pairwise(client=endpoint, read=Odds(yes="A", no="B"))
    report = asyncio.run(order_bias(pairwise, [(TASK, "Paris", "London")]))
    assert report.faults == 0 and 0 <= report.first <= 1


def test_it_is_evaluated(endpoint, capsys):
    where = ["--engine", f"openai:{endpoint.url}", "--key-env", "CHAT_KEY"]
    assert main(["eval", *where, "--n", "4", "--k", "1", "--max-tokens", "8", "--json"]) == 0
    result = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert result["errors"] == 0 and result["chat/calls"] == 4
