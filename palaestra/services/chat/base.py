"""What is asked of a chat model and what it says: the nouns of every client, and the counts of one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from palaestra.types import Message, value

if TYPE_CHECKING:
    from palaestra.run.context import Context


@value
class ChatRequest:
    """One call. Equal requests with different seeds are different samples.

    `choices` are words whose log-probability as the start of the reply is wanted, e.g. ("Yes", "No").
    """

    messages: tuple[Message, ...]
    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 512
    stop: tuple[str, ...] = ()
    seed: int = 0
    schema: Mapping[str, Any] | None = None  # JSON schema that the reply is asked to fit
    choices: tuple[str, ...] = ()

    def digest(self, *who: str) -> str:
        """sha256 of the request as it is put to `who`."""
        talk = [(m.role, m.content) for m in self.messages]
        rest = (self.temperature, self.top_p, self.max_tokens, self.stop, self.seed, self.schema, self.choices)
        return hashlib.sha256(json.dumps([who, talk, rest], sort_keys=True).encode()).hexdigest()


@value
class Reply:
    """What was said. `choices` are log-probabilities in nats; None = the model shows none."""

    text: str
    finish: str = "stop"  # "stop" | "length" | what else the endpoint says
    prompt_tokens: int = 0
    reply_tokens: int = 0
    choices: Mapping[str, float] | None = None


class Client(Protocol):
    """Whoever answers. A failure of infrastructure is a `Fault`, never an empty reply."""

    @property
    def name(self) -> str: ...
    @property
    def meter(self) -> Meter: ...

    async def chat(self, request: ChatRequest) -> Reply: ...


class Source(Protocol):
    """A client as a setting of a recipe: frozen, printable; `open` gives the client of a run."""

    def open(self, ctx: Context | None = None) -> Client: ...


@dataclass
class Meter:
    """Counts of one client. `calls` are requests sent, retries included; `faults` ends of requests by cause."""

    calls: int = 0
    retries: int = 0
    cached: int = 0
    tokens: int = 0  # of prompts and replies, as the endpoint counts them
    cost: float = 0.0
    faults: dict[str, int] = field(default_factory=dict)

    def spend(self, reply: Reply, prices: tuple[float, float] = (0.0, 0.0)) -> None:
        """Counts a reply; `prices` are of a million tokens of prompts and of replies."""
        self.tokens += reply.prompt_tokens + reply.reply_tokens
        self.cost += (reply.prompt_tokens * prices[0] + reply.reply_tokens * prices[1]) / 1e6

    def failed(self, cause: str) -> None:
        self.faults[cause] = self.faults.get(cause, 0) + 1

    def numbers(self) -> dict[str, float]:
        """All counts; the faults summed, and by cause."""
        counts = {k: v for k, v in asdict(self).items() if k != "faults"}
        return {**counts, "faults": sum(self.faults.values()), **{f"faults/{k}": n for k, n in self.faults.items()}}


def question(text: str, system: str = "") -> tuple[Message, ...]:
    """The messages of one question."""
    first = (Message(role="system", content=system),) if system else ()
    return (*first, Message(role="user", content=text))


def client_of(ctx: Context | None, source: Source) -> Client:
    """The run's client of a source; outside of a run one of its own."""
    return source.open() if ctx is None else ctx.client(source)
