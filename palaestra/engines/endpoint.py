"""A chat endpoint in a seat that nobody trains: a simulated user, an opponent, a critic, or the
model that is evaluated.
"""

from __future__ import annotations

from dataclasses import replace

from palaestra.context import Client, Context, Source
from palaestra.models.calls import Calls, read_call, read_hermes, text_in_tag, with_rules
from palaestra.types import (
    Ask,
    Call,
    ChatRequest,
    Completion,
    Key,
    Malformed,
    Message,
    Player,
    Row,
    Sampling,
    Segment,
    ToolSchema,
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
    """

    client: Client
    sampling: Sampling = Sampling(max_tokens=512)
    system: str = ""
    name: str = "endpoint"
    policy: str = ""

    @property
    def temperature(self) -> float:
        return self.sampling.temperature

    def hear(self, ask: Ask, *, first: bool, closed: bool, turn: int) -> tuple[Segment, ...]:
        return tuple(Segment(ids=(), author=m.author, turn=turn, text=m.content) for m in ask.say)

    async def act(self, row: Row, messages: tuple[Message, ...], ask: Ask, key: Key) -> Completion:
        opening = (Message(role="system", content=self.system),) if self.system else ()
        if ask.tools:
            messages = tuple(result_as_user(m) for m in messages)
            opening, messages = (), with_rules((*opening, *messages), ask.tools)
        forced = (Message(role="assistant", content=ask.prefix),) if ask.prefix else ()
        request = ChatRequest(
            messages=(*opening, *messages, *forced),
            temperature=self.sampling.temperature,
            max_tokens=ask.max_tokens or self.sampling.max_tokens,
            top_p=self.sampling.top_p,
            stop=ask.stop or self.sampling.stop,
            seed=seed_of(key),
        )
        reply = await self.client.chat(request)
        finish = "length" if reply.finish == "length" else "eos"
        return Completion(ids=(), logp=(), text=reply.text, cut=len(reply.text), finish=finish)

    def parse(self, text: str, finish: str) -> Call | Malformed | None:
        inside = text_in_tag(text, "tool_call", finish)
        return read_call(inside) if isinstance(inside, str) else inside

    def read_calls(self, text: str, finish: str, tools: tuple[ToolSchema, ...]) -> Calls:
        return read_hermes(text, finish, tools)


@stage
class Chatter:
    """A rival in a cast: a chat endpoint, which samples as the policy does.

    Args:
        source: the endpoint, whose client, budget and counts are the run's.
        system: what opens every conversation: the role that it plays.
    """

    source: Source
    system: str = ""

    def __call__(self, ctx: Context, key: Key, sampling: Sampling) -> Player:
        return EndpointPlayer(client=ctx.client(self.source), sampling=sampling, system=self.system)


def result_as_user(message: Message) -> Message:
    """A tool's result as the user says it: endpoints take the role "tool" only after calls of their
    own form.
    """
    if message.role != "tool":
        return message
    return replace(message, role="user", content=f"tool: {message.content}")
