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
from palaestra.types import ChatRequest, value_class

Combine: TypeAlias = Literal["mean", "majority", "min"]


@value_class
class Tally:
    """`score` of the votes that could be read, `agreement` = the share of these on the commonest,
    `unparsed` = of the others.
    """

    score: float
    agreement: float
    unparsed: float


async def poll(
    client: Client, request: ChatRequest, read: Reading, votes: int
) -> list[float | None]:
    """The votes that came, each a sample of its own. Raises the Fault if none did."""
    asked = (read(client, replace(request, seed=request.seed + i)) for i in range(votes))
    found = await asyncio.gather(*asked, return_exceptions=True)
    came: list[float | None] = []
    for each in found:
        if isinstance(each, BaseException) and not isinstance(each, Fault):
            raise each
        if not isinstance(each, BaseException):
            came.append(each)
    if not came:
        raise next(e for e in found if isinstance(e, Fault))
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
