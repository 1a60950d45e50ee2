"""Who scores a conversation so far: a language model, or a rule that a large model wrote once."""

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, Field

import palaestra as pl
from palaestra.recipes.llm4rl.salesrlagent.states import NEUTRAL
from palaestra.recipes.llm4rl.salesrlagent.talks import SalesTalk, script

QUESTION = """A conversation of a customer with a seller, so far:

{talk}

Score it with numbers from 0 to 1: how engaged the customer is, how effective the seller is, and how likely \
it is that in the end {goal}."""
WARM = ("deliver", "pay", "start soon", "right", "fine", "like", "help us", "return it", "breaks")
OPEN = ("different", "how does", "tell me more", "new?")
COLD = ("only looking", "not today", "one already", "not know", "expensive")


class TalkScores(BaseModel):
    """What a model says of a conversation so far."""

    customer_engagement: float = Field(ge=0.0, le=1.0)
    sales_effectiveness: float = Field(ge=0.0, le=1.0)
    conversion_probability: float = Field(ge=0.0, le=1.0)


DECLARED = TalkScores(
    customer_engagement=NEUTRAL, sales_effectiveness=NEUTRAL, conversion_probability=NEUTRAL
)


@pl.value_class
class JudgedTurns:
    """[N, T, 3] scores of every prefix, the declared 0.5 where there is none; `asked` prefixes, of which
    `fallbacks` had no reply that fits; `left_out` were beyond the budget.
    """

    scores: np.ndarray
    asked: int = 0
    fallbacks: int = 0
    left_out: int = 0


async def judge_talks(
    ctx: pl.Context,
    source: pl.Source,
    talks: Sequence[SalesTalk],
    turns: int,
    goal: str,
    calls: int,
) -> JudgedTurns:
    """Asks about every message's conversation so far; what follows it is not shown. Of one that a model
    refuses, as its context is too short, the later half of the messages is shown, and so on; where not
    even the last message fits, the declared scores stand, and count as a fallback. Raises Fault where the
    model refuses all.

    Args:
        calls: prefixes at most, of conversations in their order; 0 = all.
    """
    places = [(n, t) for n, talk in enumerate(talks) for t in range(len(talk.messages))]
    within = places[:calls] if calls else places
    prefix = lambda n, t: talks[n].messages[: t + 1]
    questions = list(dict.fromkeys(prefix(*place) for place in within))
    raw_scores = await asyncio.gather(*(score_talk(ctx, source, q, goal) for q in questions))
    if questions and all(answer is None for answer in raw_scores):
        raise pl.Fault("chat-refused", "not even one message of any conversation was taken")
    given = [DECLARED if answer is None else answer for answer in raw_scores]
    answers = dict(zip(questions, given, strict=True))
    scores = np.full((len(talks), turns, 3), NEUTRAL)
    for place in within:
        answer = answers[prefix(*place)]
        scores[place] = (
            answer.customer_engagement,
            answer.sales_effectiveness,
            answer.conversion_probability,
        )
    fallbacks = sum(answer is DECLARED for answer in given)
    return JudgedTurns(
        scores=scores,
        asked=len(questions),
        fallbacks=fallbacks,
        left_out=len(places) - len(within),
    )


async def score_talk(
    ctx: pl.Context, source: pl.Source, messages: Sequence[tuple[str, str]], goal: str
) -> TalkScores | None:
    """The scores of a conversation so far, of its last messages that the model takes; None = it takes
    none. Raises Fault where the service fails otherwise.
    """
    while True:
        question = QUESTION.format(talk=script(messages), goal=goal)
        try:
            return await ctx.ask_for(source, question, TalkScores, asks=2, fallback=DECLARED)
        except pl.Fault as fault:
            if fault.cause != "chat-refused":
                raise
        if len(messages) == 1:
            ctx.spend("fallbacks")
            return None
        messages = messages[(len(messages) + 1) // 2 :]


def written_scores(request: pl.ChatRequest) -> dict[str, Any]:
    """Scores by a rule that a large model wrote while this file was written, so it knew the phrases of
    the simulator; it reads the question alone: the last thing that the customer said, and how it
    compares with the one before.
    """
    text = request.messages[0].content
    customer_lines = re.findall(r"^Customer: (.*)$", text, re.MULTILINE)
    heard = [warmth(x) for x in customer_lines]
    last = heard[-1] if heard else 0.3
    moved = last - (heard[-2] if len(heard) > 1 else 0.3)
    return {
        "customer_engagement": last,
        "sales_effectiveness": min(1.0, max(0.0, 0.5 + moved)),
        "conversion_probability": min(1.0, max(0.0, 0.9 * last - 0.1)),
    }


def warmth(line: str) -> float:
    """How a customer's words sound, by phrases."""
    text = line.lower()
    marks = ((WARM, 0.85), (OPEN, 0.45), (COLD, 0.1))
    return next((x for phrases, x in marks if any(p in text for p in phrases)), 0.3)
