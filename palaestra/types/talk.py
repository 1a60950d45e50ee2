"""Messages, calls of tools, and what is asked of a chat model."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import (
    Any,
)

from palaestra.errors import UserError
from palaestra.pictures import (
    PICTURE_MARK,
    Picture,
    name_pictures,
)
from palaestra.types.base import (
    value_class,
)

HALF = re.compile("[\ud800-\udfff]")  # of a surrogate pair


@value_class
class Message:
    """One message of a conversation. `author` says who really wrote it; `trained` lets
    demonstrations be learned from. A tool's result has the tool's `name` and the call's `call_id`.

    A half of a surrogate pair, which no tokenizer takes, becomes U+FFFD: tools and environments give
    such text, e.g. file names. Where it has `pictures`, U+FFFC stands in the content at the place of each, in their order;
    ValueError where their number is another. Without, that is a character like others.
    """

    role: str
    content: str
    author: str = "environment"
    trained: bool = False
    hidden: bool = False  # seen when sampling, absent from the training view
    # of a tool's result alone, and left out of the text of all messages, by which tasks are drawn
    name: str = field(default="", repr=False)
    call_id: str = field(default="", repr=False)
    pictures: tuple[Picture, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.content, str) and not self.content.isascii():
            object.__setattr__(self, "content", HALF.sub("\ufffd", self.content))
        if self.pictures and self.content.count(PICTURE_MARK) != len(self.pictures):
            raise ValueError(
                f"a message has {len(self.pictures)} pictures and "
                f"{self.content.count(PICTURE_MARK)} places for them (U+FFFC) in its content"
            )

    @property
    def text(self) -> str:
        """The content, for who reads text alone. Raises UserError where there are pictures in it."""
        if self.pictures:
            raise UserError(
                f"a message holds a picture, and its text alone is read: {self.shown!r}"
            )
        return self.content

    @property
    def shown(self) -> str:
        """The content for the eye, with what each picture is called at its place."""
        return name_pictures(self.content, self.pictures)

    def __repr__(self) -> str:
        """Of a message without pictures as if there were none: tasks are drawn by it."""
        names = [f.name for f in fields(self) if f.repr] + ["pictures"] * bool(self.pictures)
        return f"Message({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"


@value_class
class Call:
    """A tool call parsed from policy text. `id` is what the policy called it by, where its format
    has such.
    """

    name: str
    args: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""


@value_class
class Malformed:
    """A call that did not parse: the policy's doing, so an outcome, not a fault."""

    kind: str
    text: str = ""


@value_class
class ToolSchema:
    """A tool as a model is told of it. `parameters` is a JSON schema of its arguments, as text."""

    name: str
    description: str = ""
    parameters: str = '{"type": "object", "properties": {}}'

    def json(self) -> dict[str, Any]:
        """As chat templates take it."""
        about = {"name": self.name, "description": self.description}
        return {"type": "function", "function": about | {"parameters": json.loads(self.parameters)}}


@value_class
class ChatRequest:
    """One call. Equal requests with different seeds are different samples.

    `choices` are words whose log-probability as the start of the reply is wanted, e.g. ("Yes",
    "No"). Raises UserError where a message holds a picture: text alone is sent.
    """

    messages: tuple[Message, ...]
    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 512
    stop: tuple[str, ...] = ()
    seed: int = 0
    schema: Mapping[str, Any] | None = None  # JSON schema that the reply is asked to fit
    choices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if any(m.pictures for m in self.messages):
            raise UserError(
                "a message to a chat model holds a picture, and text alone is sent; use a model of "
                "the run in its place"
            )

    def digest(self, *who: str) -> str:
        """sha256 of the request as it is put to `who`."""
        talk = [(m.role, m.content) for m in self.messages]
        rest = (
            self.temperature,
            self.top_p,
            self.max_tokens,
            self.stop,
            self.seed,
            self.schema,
            self.choices,
        )
        return hashlib.sha256(json.dumps([who, talk, rest], sort_keys=True).encode()).hexdigest()


@value_class
class Reply:
    """What was said. `choices` are log-probabilities in nats; None = the model shows none."""

    text: str
    finish: str = "stop"  # "stop" | "length" | what else the endpoint says
    prompt_tokens: int = 0
    reply_tokens: int = 0
    choices: Mapping[str, float] | None = None


@dataclass
class Meter:
    """Counts of one client. `calls` are requests sent, retries included; `faults` ends of requests
    by cause.
    """

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

    def count_fault(self, cause: str) -> None:
        self.faults[cause] = self.faults.get(cause, 0) + 1

    def add(self, other: Meter) -> None:
        """Counts what another one did."""
        for f in fields(self):
            if f.name != "faults":
                setattr(self, f.name, getattr(self, f.name) + getattr(other, f.name))
        for cause, n in other.faults.items():
            self.faults[cause] = self.faults.get(cause, 0) + n

    def since(self, before: Meter) -> Meter:
        """What was counted after an earlier state of it."""
        faults = {k: n - before.faults.get(k, 0) for k, n in self.faults.items()}
        counts = {
            f.name: getattr(self, f.name) - getattr(before, f.name)
            for f in fields(self)
            if f.name != "faults"
        }
        return Meter(**counts, faults={k: n for k, n in faults.items() if n})

    def numbers(self) -> dict[str, float]:
        """All counts; the faults summed, and by cause."""
        counts = {k: v for k, v in asdict(self).items() if k != "faults"}
        return {
            **counts,
            "faults": sum(self.faults.values()),
            **{f"faults/{k}": n for k, n in self.faults.items()},
        }
