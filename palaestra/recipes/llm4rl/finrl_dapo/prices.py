"""Closing prices and news by day: of a file, or of a made-up market.

P paths, T days, K stocks. A score is (sentiment, risk), each from 1 to 5; NaN where there is none.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np

import palaestra as pl
from palaestra.recipes.llm4rl.finrl_dapo.headlines import BANK

NEUTRAL = 3.0
LEAST_DAYS = 60
COLUMNS: Mapping[str, tuple[str, ...]] = {  # a column, and other names that it has in files
    "date": ("date", "day", "datetime"),
    "ticker": ("ticker", "tic", "symbol", "stock"),
    "close": ("close", "adj close", "adj_close", "price"),
    "headline": ("headline", "news", "title", "headline_text"),
    "sentiment": ("sentiment", "llm_sentiment"),
    "risk": ("risk", "llm_risk"),
}
SCORES = ("sentiment", "risk")
EMPTY = ("", "nan", "none")  # what an empty cell may be written as


@pl.value_class
class PriceHeadline:
    """A headline of one stock on one day of one path."""

    path: int
    day: int
    stock: int
    text: str


@pl.value_class
class PriceTable:
    """Prices and news; `given` are scores that the file has, `latent` those of who knows the market."""

    tickers: tuple[str, ...]
    days: tuple[str, ...]
    close_PTK: np.ndarray
    given_PTK2: np.ndarray
    latent_PTK2: np.ndarray
    headlines: tuple[PriceHeadline, ...]
    notes: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, int, int]:
        P, T, K = self.close_PTK.shape
        return P, T, K


# ---- of a file


def read_prices(file: str) -> PriceTable:
    """The table of a CSV, JSONL or Parquet file: date, ticker and close, and if there are some
    headline, or sentiment and risk from 1 to 5. Several rows of one day and ticker are several news,
    whose scores are averaged. A ticker without a row on a day keeps its price.

    Raises UserError for a column that is missing, a cell that cannot be read, two prices of one day
    and ticker, and fewer than 60 days.
    """
    splits = pl.tasks.open_records(file)
    rows = list(splits.get("train", next(iter(splits.values()))))
    if not rows:
        raise pl.UserError(f"{file} has no rows; it needs one for each date and ticker")
    names = columns_in(file, list(rows[0]))
    prices: dict[tuple[str, str], float] = {}
    scores: dict[tuple[str, str], list[tuple[float, float]]] = {}
    texts: list[tuple[str, str, str]] = []
    for i, row in enumerate(rows, 1):
        where = f"{file}, row {i}"
        at = (read_date(where, row.get(names["date"])), str(row.get(names["ticker"]) or "").strip())
        if not at[1]:
            raise pl.UserError(f"{where}: it has no {names['ticker']}")
        price = read_number(where, names["close"], row.get(names["close"]))
        if price is None or price <= 0:
            raise pl.UserError(
                f"{where}: {names['close']} is {row.get(names['close'])!r}, and a price is above 0; "
                "leave the row out where nothing was traded"
            )
        if prices.setdefault(at, price) != price:
            raise pl.UserError(f"{where}: {at[1]} has another price on {at[0]} in a row before")
        given = [read_score(where, names.get(s), row) for s in SCORES]
        if any(x is not None for x in given):
            pair = [NEUTRAL if x is None else x for x in given]
            scores.setdefault(at, []).append((pair[0], pair[1]))
        if text := read_headline(names.get("headline"), row):
            texts.append((*at, text))
    return table_of(file, prices, scores, texts)


def columns_in(file: str, names: Sequence[str]) -> dict[str, str]:
    """Which column of a file is which. Raises UserError for a missing one."""
    lower = {n.strip().lower(): n for n in names}
    match = {k: lower[a] for k, also in COLUMNS.items() for a in reversed(also) if a in lower}
    missing = [n for n in ("date", "ticker", "close") if n not in match]
    if missing:
        raise pl.UserError(
            f"{file} has no column {missing[0]!r}; it has {', '.join(names)}, and prices are rows of "
            "date,ticker,close with headline or sentiment,risk beside them"
        )
    return match


def read_date(where: str, cell: Any) -> str:
    """A day as 2024-01-31; what follows a day is left out."""
    text = str(cell or "").strip()
    try:
        return date.fromisoformat(text[:10]).isoformat()
    except ValueError:
        raise pl.UserError(f"{where}: the date {text!r} is not written as 2024-01-31") from None


def read_number(where: str, name: str, cell: Any) -> float | None:
    """A finite number; None for an empty cell. Raises UserError for anything else."""
    if cell is None or str(cell).strip().lower() in EMPTY:
        return None
    try:
        number = float(cell)
    except (TypeError, ValueError):
        raise pl.UserError(f"{where}: {name} is {cell!r} and no number") from None
    if not math.isfinite(number):
        raise pl.UserError(f"{where}: {name} is {cell!r} and no finite number")
    return number


def read_score(where: str, name: str | None, row: Mapping[str, Any]) -> float | None:
    """A score from 1 to 5; None = there is none. 0 is what FinRL's files write for no news."""
    score = None if name is None else read_number(where, name, row.get(name))
    if score is None or score == 0:
        return None
    if not 1 <= score <= 5:
        raise pl.UserError(
            f"{where}: {name} is {score:g}, and scores are from 1 to 5 (empty = none)"
        )
    return score


def read_headline(name: str | None, row: Mapping[str, Any]) -> str:
    """The words of a headline; "" where the file has no such column or the cell is empty."""
    cell = None if name is None else row.get(name)
    text = "" if cell is None else str(cell).strip()
    return "" if text.lower() in EMPTY else text


def table_of(
    file: str,
    prices: Mapping[tuple[str, str], float],
    scores: Mapping[tuple[str, str], Sequence[tuple[float, float]]],
    texts: Sequence[tuple[str, str, str]],
) -> PriceTable:
    """Days in order, from the first on which every ticker has had a price."""
    tickers = sorted({t for _, t in prices})
    begun = max(min(d for d, t in prices if t == ticker) for ticker in tickers)
    every = sorted({d for d, _ in prices})
    days = [d for d in every if d >= begun]
    if len(days) < LEAST_DAYS:
        raise pl.UserError(
            f"{file}: {len(days)} days with prices of all {len(tickers)} tickers (from {begun} on), and "
            f"{LEAST_DAYS} are needed; give longer prices, or leave out tickers that begin late"
        )
    day_of, stock_of = ({x: i for i, x in enumerate(names)} for names in (days, tickers))
    close = np.full((1, len(days), len(tickers)), np.nan)
    before = np.full(len(tickers), np.nan)  # the last price before the first day
    for (day, ticker), price in sorted(prices.items()):
        if day in day_of:
            close[0, day_of[day], stock_of[ticker]] = price
        else:
            before[stock_of[ticker]] = price
    missing = int(np.isnan(close).sum())
    for t in range(len(days)):
        last = close[0, t - 1] if t else before
        close[0, t] = np.where(np.isnan(close[0, t]), last, close[0, t])
    given = np.full((*close.shape, 2), np.nan)
    for (day, ticker), pairs in scores.items():
        if day in day_of:
            given[0, day_of[day], stock_of[ticker]] = np.mean(pairs, 0)
    notes = [
        text
        for count, text in (
            (len(every) - len(days), "{} days are left out: some ticker has no price before them"),
            (missing, "{} missing prices are those of the day before"),
        )
        if count
        for text in [text.format(count)]
    ]
    return PriceTable(
        tickers=tuple(tickers),
        days=tuple(days),
        close_PTK=close,
        given_PTK2=given,
        latent_PTK2=hindsight(close),
        headlines=tuple(
            PriceHeadline(path=0, day=day_of[d], stock=stock_of[k], text=x)
            for d, k, x in texts
            if d in day_of
        ),
        notes=tuple(notes),
    )


def hindsight(close_PTK: np.ndarray) -> np.ndarray:
    """[P, T, K, 2] sentiment 5 before a day on which a price rises, 1 before one on which it falls,
    risk 3: what nobody can know, for the oracle's arm.
    """
    rises = np.diff(close_PTK, axis=1, append=close_PTK[:, -1:])
    return np.stack([NEUTRAL + 2 * np.sign(rises), np.full(rises.shape, NEUTRAL)], -1)


# ---- of a made-up market

STAYS = 0.95  # probability that a stock's regime, or its turbulence, stays another day
DRIFT, NOISE, COMMON = 0.006, 0.012, 0.004  # of a daily log-return
WILD = 2.0  # the noise of a turbulent stock, in that of a calm one
NEWS, TRUE = 0.7, 0.7  # share of days with a headline, and of headlines that are right


def made_up_prices(key: pl.Key, paths: int = 32, days: int = 180, stocks: int = 5) -> PriceTable:
    """A market whose stocks drift by a hidden regime, -1, 0 or 1 times 0.6% a day, with noise of 1.2%,
    twice that where they are turbulent. On 70% of the days there is a headline, and 70% of them are
    of the regime, or of the turbulence that is; the others are of any kind.
    """
    rng = pl.rng_of((*key, "prices"))
    regime = np.zeros((paths, days, stocks))
    wild = np.zeros((paths, days, stocks), bool)
    now, rough = rng.integers(-1, 2, (paths, stocks)), rng.random((paths, stocks)) < 0.2
    for t in range(days):
        changes = rng.random((2, paths, stocks)) > STAYS
        now = np.where(changes[0], rng.integers(-1, 2, (paths, stocks)), now)
        rough = np.where(changes[1], rng.random((paths, stocks)) < 0.2, rough)
        regime[:, t], wild[:, t] = now, rough
    noise = NOISE * np.where(wild, WILD, 1.0) * rng.normal(size=wild.shape)
    common = COMMON * rng.normal(size=(paths, days, 1))
    change = DRIFT * regime + noise + common  # from a day to the next one
    close = 100 * np.exp(np.cumsum(change, 1) - change)
    kind = np.where(wild & (rng.random(wild.shape) < 0.4), 3, regime.astype(int) + 1)
    kind = np.where(rng.random(wild.shape) < TRUE, kind, rng.integers(0, 4, wild.shape))
    number, has_news = rng.integers(0, 1 << 30, wild.shape), rng.random(wild.shape) < NEWS
    kinds = list(BANK.values())  # bad, plain, good, wild
    return PriceTable(
        tickers=tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"[:stocks]),
        days=tuple(f"day {t + 1}" for t in range(days)),
        close_PTK=close,
        given_PTK2=np.full((*close.shape, 2), np.nan),
        latent_PTK2=np.stack([NEUTRAL + 2 * regime, np.where(wild, 5.0, NEUTRAL)], -1),
        headlines=tuple(
            PriceHeadline(
                path=int(p),
                day=int(t),
                stock=int(k),
                text=pick(kinds[int(kind[p, t, k])], int(number[p, t, k])),
            )
            for p, t, k in np.argwhere(has_news)
        ),
    )


def pick(texts: Sequence[str], number: int) -> str:
    return texts[number % len(texts)]
