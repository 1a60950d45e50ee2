"""How one vote is asked for and read: a mark in double brackets, JSON, the probability of a word,
or a function of the text.

A reading gives a number, or None for a reply that says nothing: no verdict, several, one that is no
label, a cut reply.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from pydantic import BaseModel, Field, create_model

from palaestra.context import Client
from palaestra.errors import Fault, UserError
from palaestra.judges.prompt import reply_after_thinking
from palaestra.services.chat.structured import ask
from palaestra.types import ChatRequest, rng_of, stage
from palaestra.verifiers.answers.final import verdict_mark


class Reading(Protocol):
    @property
    def instruction(self) -> str:
        """The end of the prompt: how the verdict is to be written."""
        ...

    async def __call__(self, client: Client, request: ChatRequest) -> float | None: ...


async def request_text(client: Client, request: ChatRequest) -> str | None:
    """The reply behind its thinking; None for one that was cut."""
    reply = await client.chat(request)
    return None if reply.finish == "length" else reply_after_thinking(reply.text)


@stage
class MarkedLabel:
    """[[LABEL]], exactly one of the given ones, and what each is worth."""

    values: tuple[tuple[str, float], ...] = (("A", 1.0), ("B", 0.0))

    @property
    def instruction(self) -> str:
        labels = [f"[[{name}]]" for name, _ in self.values]
        return f"Think first. End with your verdict, one of {', '.join(labels)}."

    async def __call__(self, client: Client, request: ChatRequest) -> float | None:
        text = await request_text(client, request)
        return None if text is None else dict(self.values).get(verdict_mark(text) or "")


@stage
class Rating:
    """[[x]] between `low` and `high`, as a share of the way from one to the other."""

    low: float = 1.0
    high: float = 10.0
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    @property
    def instruction(self) -> str:
        return (
            f"Think first. End with a rating from {self.low:g} (worst) to {self.high:g} (best), "
            "written as [[RATING]]."
        )

    async def __call__(self, client: Client, request: ChatRequest) -> float | None:
        text = await request_text(client, request)
        try:
            return self.share(float(verdict_mark(text or "") or ""))
        except ValueError:
            return None

    def share(self, x: float) -> float | None:
        return (x - self.low) / (self.high - self.low) if self.low <= x <= self.high else None


@stage
class Json:
    """{"reason": ..., "score": x} by the endpoint's JSON mode where it has one, with one request
    for repair.
    """

    low: float = 0.0
    high: float = 10.0
    asks: int = 2
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    @property
    def instruction(self) -> str:
        return f"Give a score from {self.low:g} (worst) to {self.high:g} (best)."

    def model(self) -> type[BaseModel]:
        """The reason is asked for before the score, so that the score can follow from it."""
        return create_model(
            "Verdict", reason=(str, ...), score=(float, Field(ge=self.low, le=self.high))
        )

    async def __call__(self, client: Client, request: ChatRequest) -> float | None:
        try:
            value: Any = await ask(client, request, self.model(), asks=self.asks)
        except Fault as fault:
            if fault.cause != "chat-format":
                raise
            return None
        return Rating(self.low, self.high).share(value.score)


@stage
class Odds:
    """What the judge's probabilities of two words say, without sampling a reply.

    "probability": p(yes) / (p(yes) + p(no)); "log-odds": log p(yes) - log p(no), within `bound`
    (RLBFF, arXiv:2509.21319); "sampled": one word is drawn, and paid with the judge's own p of what
    it means: p(yes), else 1 - p(no), the raw form of arXiv:2503.23829, in which probability that
    leaks to other words is paid too.
    """

    yes: str = "Yes"
    no: str = "No"
    form: Literal["probability", "log-odds", "sampled"] = "probability"
    bound: float = 10.0

    @property
    def instruction(self) -> str:
        return f"Answer with one word, {self.yes} or {self.no}."

    async def __call__(self, client: Client, request: ChatRequest) -> float | None:
        reply = await client.chat(replace(request, choices=(self.yes, self.no)))
        if reply.choices is None:
            raise UserError(
                f"{client.name} shows no log-probabilities, which Odds needs; use MarkedLabel"
            )
        return self.value(reply.choices[self.yes], reply.choices[self.no], request)

    def value(self, yes: float, no: float, request: ChatRequest | None = None) -> float | None:
        """From log p of both words. None: a word was drawn that is neither."""
        if self.form == "log-odds":
            return max(-self.bound, min(self.bound, yes - no))
        if self.form == "probability":
            return math.exp(yes - np.logaddexp(yes, no))
        u = rng_of(("odds", request.digest() if request else "")).random()
        if u < math.exp(yes):
            return math.exp(yes)
        return 1 - math.exp(no) if u < math.exp(yes) + math.exp(no) else None


@stage
class Text:
    """`parse(text)` of the reply behind its thinking; None = it says nothing."""

    parse: Callable[[str], float | None]
    instruction: str = ""

    async def __call__(self, client: Client, request: ChatRequest) -> float | None:
        text = await request_text(client, request)
        return None if text is None else self.parse(text)
