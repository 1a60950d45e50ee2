"""Who plays, by text:

policy                              the model of the run (--model)
model:DIR                           another model: a folder, a built-in name, or an id of the hub
endpoint:URL                        the server there, whatever model it serves
endpoint(url='URL', model='NAME')   the same with more settings
random                              any legal reply, each as often
human                               a person at this terminal
FILE.py:NAME                        a function (messages, rng) -> text
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestra.engines.endpoint import EndpointPlayer
from palaestra.errors import UserError
from palaestra.games.match import Referee, Seat
from palaestra.rollout.player import EnginePlayer, Script
from palaestra.run.context import RunContext
from palaestra.services.chat.named import client_from_text
from palaestra.suggest import suggestion_or_all
from palaestra.tasks.user_code import accepts, load, locate_error
from palaestra.types import Ask, Completion, Key, Message, Player, Row, Sampling, Segment, rng_of

FORMS = ("policy", "model:DIR", "endpoint:URL", "random", "human", "FILE.py:NAME")
MODEL, ENDPOINT = "model:", "endpoint:"


def split_names(text: str) -> list[str]:
    """Names with commas between them; a comma inside brackets or quotes belongs to a name.

    >>> split_names("policy,endpoint(url='a,b', model='m'),random")
    ['policy', "endpoint(url='a,b', model='m')", 'random']
    """
    names, depth, quote = [""], 0, ""
    for c in text:
        if quote or c in "'\"":
            quote = "" if c == quote else quote or c
        else:
            depth += (c in "([") - (c in ")]")
        if c == "," and not quote and depth <= 0:
            names.append("")
        else:
            names[-1] += c
    return [n.strip() for n in names if n.strip()]


@dataclass
class RandomReply:
    """Says any legal reply, each as often. Raises UserError where nobody lists them."""

    referee: Referee
    name: str = "random"
    policy: str = ""
    temperature: float = 1.0

    def hear(self, ask: Ask, *, first: bool, closed: bool, turn: int) -> tuple[Segment, ...]:
        return tuple(Segment(ids=(), author=m.author, turn=turn, text=m.content) for m in ask.say)

    async def act(self, row: Row, messages: tuple[Message, ...], ask: Ask, key: Key) -> Completion:
        legal = self.referee.legal(ask)
        if not legal:
            raise UserError(
                "random needs the legal replies, and this world does not list them; give its class a "
                "method legal(state), or legal_for(state, seat), that returns them, or take a function, "
                "FILE.py:NAME"
            )
        text = legal[int(rng_of((*key, "random")).integers(len(legal)))]
        return Completion(ids=(), logp=(), text=text, cut=len(text), finish="eos")

    def parse(self, text: str, finish: str) -> None:
        return None


@dataclass
class Person(RandomReply):
    """A person at a terminal: is shown what the seat is shown, and types the reply. One that is not
    legal is asked for again, where the world lists the legal ones.
    """

    name: str = "human"

    async def act(self, row: Row, messages: tuple[Message, ...], ask: Ask, key: Key) -> Completion:
        for message in ask.say:
            print(message.content)
        legal = self.referee.legal(ask)
        while True:
            text = self._line(f"{ask.seat}> ")
            if not legal or text in legal:
                return Completion(ids=(), logp=(), text=text, cut=len(text), finish="eos")
            print(f"{text!r} is no legal reply here; legal: {', '.join(legal)}")

    def _line(self, prompt: str) -> str:
        try:
            return input(prompt).strip()
        except EOFError:
            raise UserError(
                "the input ended before the game did; a human plays at a terminal"
            ) from None


def seat_of(ctx: RunContext, name: str, sampling: Sampling) -> Seat:
    """What makes the player of that name for a game; its model is loaded here. Raises UserError for
    a name that cannot be read.
    """
    if name == "random":
        return RandomReply
    if name == "human":
        return Person
    if name == "policy":
        return _engine_player(ctx, "policy", name, sampling)
    if name.startswith(MODEL):
        if name not in ctx.models:
            ctx.models[name] = ctx.load(name.removeprefix(MODEL))
        return _engine_player(ctx, name, name, sampling)
    if name.startswith("endpoint"):
        return _endpoint_player(ctx, name, sampling)
    if ".py:" in name:
        move = load(name, "function")
        if not callable(move) or not accepts(move, "messages", "rng"):
            raise UserError(f"{name} must be a function (messages, rng) -> text")
        return lambda referee: Script(fn=_text_of(name, move), name=name)
    raise UserError(f"no player {name!r}{suggestion_or_all(name, FORMS)}")


def _engine_player(ctx: RunContext, model: str, name: str, sampling: Sampling) -> Seat:
    player = EnginePlayer(
        engine=ctx.engine(model),
        sampling=sampling,
        name=name,
        policy="",
        dialect=ctx.bench.dialect,
    )
    return lambda referee: player


def _endpoint_player(ctx: RunContext, name: str, sampling: Sampling) -> Seat:
    url = name.removeprefix(ENDPOINT)
    text = f"endpoint(url={url!r})" if name.startswith(ENDPOINT) else name
    source, model = client_from_text(text, "seat")
    if model:
        raise UserError(f"no player {name!r}{suggestion_or_all(name, FORMS)}")
    player: Player = EndpointPlayer(
        client=ctx.client(source), sampling=sampling, name=name, dialect=ctx.bench.dialect
    )
    return lambda referee: player


def _text_of(name: str, move: Callable[..., Any]) -> Callable[..., str]:
    def fn(messages: Sequence[Message], rng: np.random.Generator) -> str:
        try:
            text = move(messages, rng)
        except Exception as error:
            where = locate_error(error, name.rpartition(":")[0])
            raise UserError(f"the player {name} failed at {where}") from error
        if not isinstance(text, str):
            raise UserError(f"{name} returned {text!r}; return the reply as text")
        return text

    return fn
