"""Questions to chat models, and the client that a run has of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaestra.types import Message

if TYPE_CHECKING:
    from palaestra.context import Client, Judging, Source


def question_messages(text: str, system: str = "") -> tuple[Message, ...]:
    """The messages of one question."""
    first = (Message(role="system", content=system),) if system else ()
    return (*first, Message(role="user", content=text))


def client_of(ctx: Judging | None, source: Source) -> Client:
    """The run's client of a source; outside of a run one of its own."""
    return source.open() if ctx is None else ctx.client(source)
