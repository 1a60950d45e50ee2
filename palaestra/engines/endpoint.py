"""A chat endpoint in a seat that nobody trains: a simulated user, an opponent, a critic, or the
model that is evaluated.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from palaestra.chat.calls import Calls, read_first, read_hermes, with_rules
from palaestra.context import Client, Judging, Source
from palaestra.errors import UserError
from palaestra.types import (
    Ask,
    Call,
    ChatRequest,
    Completion,
    Dialect,
    Key,
    Malformed,
    Message,
    Player,
    Row,
    Sampling,
    Segment,
    ToolSchema,
    rng_of,
    seed_of,
    stage,
    value_class,
)


@value_class
class EndpointPlayer:
    """Says what `client` answers to the messages of its thread. It has no tokens, so nothing can be
    trained on it.

    `system` opens every conversation: the role that it plays. `policy` names whom it stands for
    where its words are what is scored (an evaluation); a forced start of the reply is said as the
    assistant's last words, which not every endpoint continues.

    An endpoint shows no distribution over whole replies, so it cannot be held to the choices of a
    world. A reply that is none of them stops the run (`illegal="refuse"`), or one is drawn in its
    place with equal odds ("random"), which the client's meter counts as the fault "illegal-reply".
    """

    client: Client
    sampling: Sampling = Sampling(max_tokens=512)
    system: str = ""
    name: str = "endpoint"
    policy: str = ""
    illegal: Literal["refuse", "random"] = "refuse"
    dialect: Dialect | None = None  # of calls; None = that of `read_hermes`

    @property
    def temperature(self) -> float:
        return self.sampling.temperature

    def hear(self, ask: Ask, *, first: bool, closed: bool, turn: int) -> tuple[Segment, ...]:
        return tuple(Segment(ids=(), author=m.author, turn=turn, text=m.content) for m in ask.say)

    async def act(self, row: Row, messages: tuple[Message, ...], ask: Ask, key: Key) -> Completion:
        opening = (Message(role="system", content=self.system),) if self.system else ()
        if ask.tools:
            messages = tuple(result_as_user(m) for m in messages)
            show = self.dialect.show if self.dialect else with_rules
            opening, messages = (), show((*opening, *messages), ask.tools)
        forced = (Message(role="assistant", content=ask.prefix),) if ask.prefix else ()
        request = ChatRequest(
            messages=(*opening, *messages, *forced),
            temperature=self.sampling.temperature,
            max_tokens=ask.max_tokens or self.sampling.max_tokens,
            top_p=self.sampling.top_p,
            stop=self._stop(ask),
            seed=seed_of(key),
        )
        reply = await self.client.chat(request)
        finish = "length" if reply.finish == "length" else "eos"
        text = reply.text
        if ask.choices is not None:
            text, finish = self._legal(text, ask.choices, key), "eos"
        return Completion(ids=(), logp=(), text=text, cut=len(text), finish=finish)

    def _stop(self, ask: Ask) -> tuple[str, ...]:
        more = self.dialect.stops(ask.tools) if self.dialect and ask.tools else ()
        return (*(ask.stop or self.sampling.stop), *more)

    def _legal(self, text: str, choices: tuple[str, ...], key: Key) -> str:
        choice = next((c for c in choices if c.strip() == text.strip()), None)
        if choice is not None:
            return choice
        if self.illegal == "refuse":
            raise UserError(
                f"{self.name} says {text[:60]!r}, which is not one of the world's choices, and an "
                'endpoint cannot be held to them; let a random one stand for it with illegal="random"'
                ", or take a world that judges illegal replies itself"
            )
        self.client.meter.count_fault("illegal-reply")
        return choices[int(rng_of((*key, "illegal")).integers(len(choices)))]

    def parse(self, text: str, finish: str) -> Call | Malformed | None:
        return read_first(text, finish)

    def read_calls(self, text: str, finish: str, tools: tuple[ToolSchema, ...]) -> Calls:
        return (self.dialect.read if self.dialect else read_hermes)(text, finish, tools)


@stage
class Chatter:
    """A rival in a cast: a chat endpoint, which samples as the policy does.

    Args:
        source: the endpoint, whose client, budget and counts are the run's.
        system: what opens every conversation: the role that it plays.
    """

    source: Source
    system: str = ""

    def __call__(self, ctx: Judging, key: Key, sampling: Sampling) -> Player:
        return EndpointPlayer(client=ctx.client(self.source), sampling=sampling, system=self.system)


def result_as_user(message: Message) -> Message:
    """A tool's result as the user says it: endpoints take the role "tool" only after calls of their
    own form.
    """
    if message.role != "tool":
        return message
    return replace(message, role="user", content=f"tool: {message.content}")
