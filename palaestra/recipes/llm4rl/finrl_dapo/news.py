"""Who reads the headlines: scores of sentiment and risk by a language model."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, Field

import palaestra as pl
from palaestra.recipes.llm4rl.finrl_dapo.prices import NEUTRAL, PriceHeadline, PriceTable

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


def unscored(table: PriceTable) -> list[PriceHeadline]:
    """The headlines of days and stocks that the file has no score of."""
    nothing_PTK = np.isnan(table.given_PTK2[..., 0])
    return [h for h in table.headlines if nothing_PTK[h.path, h.day, h.stock]]


def order_of_asking(table: PriceTable) -> list[PriceHeadline]:
    """What the file has no score of, by day; within a day the first headline of each path and stock
    before any second one, and the stocks in an order of the day's own, so that none is favoured.
    """
    K, seen = len(table.tickers), Counter[tuple[int, int, int]]()
    stocks = [pl.rng_of(("news", t)).permutation(K) for t in range(len(table.days))]
    keyed: list[tuple[tuple[int, ...], PriceHeadline]] = []
    for h in unscored(table):
        cell = (h.path, h.day, h.stock)
        keyed.append(((h.day, seen[cell], h.path, int(stocks[h.day][h.stock])), h))
        seen[cell] += 1
    return [h for _, h in sorted(keyed, key=lambda pair: pair[0])]


def spread_evenly(day_N: Sequence[int], most: int) -> list[int]:
    """At most `most` of N items: each day has one before any day has two, and so on; where a round is
    not whole, its items are evenly spaced in the order that they are given in.
    """
    seen: Counter[int] = Counter()
    rounds: list[list[int]] = []
    for i, day in enumerate(day_N):
        if seen[day] == len(rounds):
            rounds.append([])
        rounds[seen[day]].append(i)
        seen[day] += 1
    taken: list[int] = []
    for items in rounds:
        n = min(most - len(taken), len(items))
        taken += [items[int((k + 0.5) * len(items) / n)] for k in range(n)]
    return taken


async def score_headlines(
    ctx: pl.Context, source: pl.Source, table: PriceTable, calls: int
) -> tuple[np.ndarray, Mapping[str, Any]]:
    """Scores [P, T, K, 2] of headlines, the mean of those of a day, NaN where there is none; and counts.
    The same words of the same stock are asked about once, at most `calls` of them, spread evenly over
    the days, and nobody is asked about a stock's day that the file has a score of. A reply that does
    not fit in three tries scores 3 and 3.
    """
    cells = [(h, (table.tickers[h.stock], one_line(h.text))) for h in order_of_asking(table)]
    first_day: dict[tuple[str, str], int] = {}
    for headline, pair in cells:
        first_day.setdefault(pair, headline.day)
    every = list(first_day)
    wanted = [every[i] for i in spread_evenly(list(first_day.values()), calls)]
    fallbacks = 0
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
