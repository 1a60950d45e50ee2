"""Who reads the headlines: scores of sentiment and risk by a language model."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, Field

import palaestra as pl
from palaestra.recipes.llm4rl.finrl_dapo.prices import NEUTRAL, PriceTable

ASKS = 3
AT_ONCE = 64
QUESTION = """News of the stock {ticker}.
Headline: "{text}"
How good is it for the price in the next days? sentiment: 1 very bad, 2 bad, 3 neutral or not about it, \
4 good, 5 very good. How risky is it to hold the stock? risk: 1 very low, 2 low, 3 moderate or not \
known, 4 high, 5 very high."""


class NewsScore(BaseModel):
    """What a model says of a headline."""

    sentiment: int = Field(ge=1, le=5)
    risk: int = Field(default=3, ge=1, le=5)


def one_line(text: str, most: int = 500) -> str:
    """A headline as it is asked about: one line, its quotation marks single ones."""
    return " ".join(text.split()).replace('"', "'")[:most]


async def score_headlines(
    ctx: pl.Context, source: pl.Source, table: PriceTable, calls: int
) -> tuple[np.ndarray, Mapping[str, Any]]:
    """Scores [P, T, K, 2] of headlines, the mean of those of a day, NaN where there is none; and counts.
    The same words of the same stock are asked about once, the first `calls` by day. A reply that does
    not fit in three tries scores 3 and 3.
    """
    by_day = sorted(table.headlines, key=lambda h: (h.day, h.path, h.stock))
    cells = [(h, (table.tickers[h.stock], one_line(h.text))) for h in by_day]
    every = list(dict.fromkeys(pair for _, pair in cells))
    wanted, fallbacks = every[:calls], 0
    scores: dict[tuple[str, str], tuple[int, int]] = {}

    async def ask(ticker: str, text: str) -> tuple[int, int] | None:
        request = pl.ChatRequest(
            messages=pl.services.question_messages(QUESTION.format(ticker=ticker, text=text))
        )
        try:
            reply = await ctx.ask_for(source, request, NewsScore, asks=ASKS)
        except pl.Fault as fault:
            if fault.cause != "chat-format":
                raise
            return None
        return (reply.sentiment, reply.risk)

    for i in range(0, len(wanted), AT_ONCE):
        part = wanted[i : i + AT_ONCE]
        for pair, score in zip(part, await asyncio.gather(*(ask(*p) for p in part)), strict=True):
            fallbacks += score is None
            scores[pair] = (3, 3) if score is None else score
    total, count = np.zeros((*table.close_PTK.shape, 2)), np.zeros((*table.close_PTK.shape, 1))
    for headline, pair in cells:
        if pair in scores:
            at = (headline.path, headline.day, headline.stock)
            total[at] += scores[pair]
            count[at] += 1
    mean = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return mean, {
        "asked": len(wanted),
        "fallbacks": fallbacks,
        "left_out": len(every) - len(wanted),
    }


def whole_scores(*sources: np.ndarray) -> np.ndarray:
    """[P, T, K, 2] of each cell the first score that there is, else 3."""
    score = np.full(sources[0].shape, np.nan)
    for source in sources:
        score = np.where(np.isnan(score), source, score)
    return np.where(np.isnan(score), NEUTRAL, score)


def exchanged(score: np.ndarray, parts: Sequence[slice], key: pl.Key) -> np.ndarray:
    """Scores with those of other days and stocks, within each part of the days: the control."""
    mixed = score.copy()
    for i, days in enumerate(parts):
        part = score[:, days]
        has = ~np.isnan(part).any(-1)
        if has.sum() > 1:
            rows = part.copy()
            rows[has] = pl.control.shuffle_rows(part[has], pl.rng_of((*key, "exchanged", i)))
            mixed[:, days] = rows
    return mixed
