"""Agents as small programs, and what plays with them."""

import asyncio
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from palaestra.chat.dialect import Chat
from palaestra.rollout.play import play
from palaestra.rollout.player import EnginePlayer
from palaestra.types import Completion, Message, Sampling, Task
from palaestra.worlds.gateway.agent import AgentWorld

HEAD = """
import json, os, sys, threading, time, urllib.error, urllib.request
base, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
def post(url, body, **headers):
    headers = {"Authorization": "Bearer " + key, **headers}
    return urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers))
def chat(messages, headers={}, **more):
    body = {"model": "policy", "messages": messages, **more}
    return json.load(post(base + "/chat/completions", body, **headers))["choices"][0]["message"]
def user(text): return {"role": "user", "content": text}
task = json.load(sys.stdin)
"""
TASK = Task(id="t", prompt=(Message(role="user", content="3+4"),), answer="7", meta={"level": 2})


@dataclass
class Scripted:
    """An engine that says what `fn` makes of the text before it."""

    dialect: Chat
    fn: Callable[[str], str]

    async def generate(self, prompt, sampling, key):
        text = self.fn(self.dialect.decode(prompt))
        ids = (*self.dialect.encode_text(text), self.dialect.end)
        return Completion(ids=ids, logp=(-0.5,) * len(ids), text=text, cut=len(text), finish="eos", version=3)


def scripted(engine, fn) -> EnginePlayer:
    made: Any = Scripted(engine.dialect, fn)
    return EnginePlayer(engine=made, sampling=Sampling(max_tokens=8))


def world(folder, code, **settings) -> AgentWorld:
    """A world whose agent is this program."""
    file = folder / "agent.py"
    file.write_text(HEAD + code)
    return AgentWorld(shlex.join([sys.executable, "-S", str(file)]), **settings)


def episode(made, player, task=TASK, key=(0,)):
    return asyncio.run(play(made, {"policy": player}, task, key, key))
