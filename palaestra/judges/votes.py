"""Votes of one judge on one question, and what they say together."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

import numpy as np

from palaestra.context import Client
from palaestra.errors import Fault
from palaestra.judges.reading import Reading
from palaestra.types import ChatRequest, JudgeVote, Meter, Reply, value_class

Combine: TypeAlias = Literal["mean", "majority", "min"]


@value_class
class Tally:
    """`score` of the votes that could be read, `agreement` = the share of these on the commonest,
    `unparsed` = of the others.
    """

    score: float
    agreement: float
    unparsed: float
    votes: tuple[JudgeVote, ...] = ()


LONGEST_SAID = 2000  # characters kept of what a judge said


class Listener:
    """A client that keeps the last thing that was said."""

    def __init__(self, client: Client):
        self.client, self.reply_text = client, ""

    @property
    def name(self) -> str:
        return self.client.name

    @property
    def meter(self) -> Meter:
        return self.client.meter

    async def chat(self, request: ChatRequest) -> Reply:
        reply = await self.client.chat(request)
        self.reply_text = reply.text[:LONGEST_SAID]
        return reply


async def poll(
    client: Client, request: ChatRequest, read: Reading, votes: int, judge: str = ""
) -> list[JudgeVote]:
    """The votes that came, each a sample of its own. Raises the Fault if none did."""

    async def ask(i: int) -> JudgeVote:
        listener = Listener(client)
        score = await read(listener, replace(request, seed=request.seed + i))
        return JudgeVote(judge=judge, score=score, said=listener.reply_text)

    replies = await asyncio.gather(*map(ask, range(votes)), return_exceptions=True)
    came: list[JudgeVote] = []
    for each in replies:
        if isinstance(each, BaseException) and not isinstance(each, Fault):
            raise each
        if not isinstance(each, BaseException):
            came.append(each)
    if not came:
        raise next(e for e in replies if isinstance(e, Fault))
    return came


def tally(
    votes: Sequence[float | None], combine: Combine = "mean", unparsed: float | None = None
) -> Tally | None:
    """A vote that could not be read counts as `unparsed`; None = it does not count. None = no vote
    counts.

    "majority" is the mean of the commonest values: a tie of 0 and 1 is 0.5.
    """
    known = [v if v is not None else unparsed for v in votes]
    counted = [v for v in known if v is not None]
    if not counted:
        return None
    numbers = Counter(round(v, 9) for v in counted)
    most = max(numbers.values())
    if combine == "majority":
        score = float(np.mean([v for v, n in numbers.items() if n == most]))
    else:
        score = min(counted) if combine == "min" else float(np.mean(counted))
    return Tally(
        score=score,
        agreement=most / len(counted),
        unparsed=sum(v is None for v in votes) / len(votes),
    )
