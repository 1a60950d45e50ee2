"""Guides: whoever says in which situation what is good, asked between a learner's iterations.

A situation is a row of K numbers, guidance one of G. The fast loop never waits for a guide: it looks
guidance up in a cache, by the nearest situation that was asked about.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
from pydantic import BaseModel

from palaestra.context import Context
from palaestra.control.simulators import Paths
from palaestra.errors import Fault, UserError
from palaestra.services.chat.base import client_of, question_messages
from palaestra.services.chat.structured import ask
from palaestra.types import ChatRequest, Key, Metrics, need_at_least, rng_of, stage, value_class

if TYPE_CHECKING:
    from palaestra.context import Client, Source

# from the paths of an iteration to the situations [M, K] that a guide may be asked about
Situations: TypeAlias = Callable[[Paths], np.ndarray]


@value_class
class Guidance:
    """What a guide says of N situations. `fallbacks` counts those of which it could not say
    anything, and which have its declared fallback.
    """

    value_NG: np.ndarray
    fallbacks: int = 0


class Guide(Protocol):
    """Says what is good in situations."""

    async def __call__(
        self, ctx: Context | None, situation_NK: np.ndarray, key: Key
    ) -> Guidance: ...


@stage
class ChatGuide:
    """A chat model as a guide: one question for each situation, answered as JSON.

    Args:
        source: who is asked.
        spell: the question about a situation [K].
        reply: what an answer has to fit.
        read: the guidance of an answer, G numbers.
        fallback: guidance where no answer fits; None = the `Fault` is raised, as every other one is.
        asks: how often an answer that does not fit is asked for.
    """

    source: Source
    spell: Callable[[np.ndarray], str]
    reply: type[BaseModel]
    read: Callable[[BaseModel], Sequence[float]]
    fallback: tuple[float, ...] | None = None
    asks: int = 2

    async def __call__(self, ctx: Context | None, situation_NK: np.ndarray, key: Key) -> Guidance:
        client = client_of(ctx, self.source)
        answers = await asyncio.gather(*(self._answer(client, x) for x in situation_NK))
        value_NG = np.array([self.fallback if a is None else a for a in answers], float)
        return Guidance(value_NG=value_NG, fallbacks=sum(a is None for a in answers))

    async def _answer(self, client: Client, situation: np.ndarray) -> Sequence[float] | None:
        """The guidance of a situation; None = no answer fits, and the fallback stands."""
        request = ChatRequest(messages=question_messages(self.spell(situation)))
        try:
            return tuple(self.read(await ask(client, request, self.reply, asks=self.asks)))
        except Fault as fault:
            if self.fallback is None or fault.cause != "chat-format":
                raise
            return None


@stage
class ComputedGuide:
    """A function as a guide: an oracle, or the same guidance everywhere.

    Args:
        compute: [N, K] situations to [N, G].
    """

    compute: Callable[[np.ndarray], np.ndarray]

    async def __call__(self, ctx: Context | None, situation_NK: np.ndarray, key: Key) -> Guidance:
        return Guidance(value_NG=np.asarray(self.compute(situation_NK), float))


@stage
class ShuffledGuide:
    """The standard control of every guide: each situation has the guidance of another one that was
    asked about at the same time. Cost, format and the distribution of guidance stay what they are.

    Raises UserError where there is one situation alone, which has no other.
    """

    guide: Guide

    async def __call__(self, ctx: Context | None, situation_NK: np.ndarray, key: Key) -> Guidance:
        guidance = await self.guide(ctx, situation_NK, key)
        return replace(
            guidance, value_NG=shuffle_rows(guidance.value_NG, rng_of((*key, "shuffled")))
        )


def shuffle_rows(x_NG: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The same rows in another order, in which none is where it was.

    Raises UserError for fewer than two.
    """
    if len(x_NG) < 2:
        raise UserError(f"{len(x_NG)} row has no other to be exchanged with")
    order_N = rng.permutation(len(x_NG))
    shuffled_NG = np.empty_like(x_NG)
    shuffled_NG[order_N] = x_NG[np.roll(order_N, 1)]
    return shuffled_NG


class GuidanceCache:
    """Guidance by situation. The nearest situation counts, if it is within `radius` (Euclidean).

    Args:
        radius: 0 = the same situation alone.
        capacity: situations; the one that was looked up longest ago goes first.
        refresh: rounds of asking after which guidance is asked for anew; 0 = never. Until it is, the
            old one holds.
        reach: guidance of a situation up to so far away is looked up too, though a situation beyond
            the radius is still one to ask about; 0 = the radius.
    """

    def __init__(
        self, radius: float = 0.0, capacity: int = 1024, refresh: int = 0, reach: float = 0.0
    ):
        self.radius, self.capacity, self.refresh = radius, capacity, refresh
        self.reach = reach or radius
        self.situation_MK = np.zeros((0, 0))
        self.value_MG = np.zeros((0, 0))
        self.asked_M, self.used_M = np.zeros(0, int), np.zeros(0, int)
        self.round = self.clock = 0
        self.hits = self.misses = self.evicted = self.refreshed = 0

    def __len__(self) -> int:
        return len(self.asked_M)

    def nearest(self, situation_NK: np.ndarray, within: float) -> np.ndarray:
        """[N] the entry that counts for each situation; -1 = none is so near."""
        if not len(self):
            return np.full(len(situation_NK), -1)
        # |a - b|^2 without the differences of all pairs
        square = lambda x: np.square(x).sum(1)
        cross_NM = situation_NK @ self.situation_MK.T
        far_NM = square(situation_NK)[:, None] + square(self.situation_MK) - 2 * cross_NM
        at_N = far_NM.argmin(1)
        away_N = np.linalg.norm(situation_NK - self.situation_MK[at_N], axis=1)
        return np.where(away_N <= within, at_N, -1)

    def look_up(self, situation_NK: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Guidance [N, G], and which situations have some [N]; the rows of the others are 0."""
        at_N = self.nearest(situation_NK, self.reach)
        known_N = at_N >= 0
        self.clock += 1
        self.used_M[at_N[known_N]] = self.clock
        self.hits, self.misses = self.hits + int(known_N.sum()), self.misses + int((~known_N).sum())
        value_NG = np.zeros((len(at_N), self.value_MG.shape[1]))
        value_NG[known_N] = self.value_MG[at_N[known_N]]
        return value_NG, known_N

    def wanting(self, situation_NK: np.ndarray) -> np.ndarray:
        """The situations that are to be asked about, in order, none twice: unknown ones, and those
        whose guidance is old.
        """
        at_N = self.nearest(situation_NK, self.radius)
        age_N = np.where(at_N >= 0, self.round - self.asked_M[at_N], 0) if len(self) else 0 * at_N
        old_N = (at_N >= 0) & (age_N >= self.refresh) if self.refresh else np.zeros(len(at_N), bool)
        unknown: list[np.ndarray] = []
        for row in situation_NK[(at_N < 0) | old_N]:
            away = [float(np.linalg.norm(row - other)) for other in unknown]
            if not away or min(away) > self.radius:
                unknown.append(row)
        return np.array(unknown).reshape(len(unknown), situation_NK.shape[1])

    def put(self, situation_NK: np.ndarray, value_NG: np.ndarray) -> None:
        """Keeps guidance; what is known already, within the radius, is replaced."""
        if not len(self):
            self.situation_MK = np.zeros((0, situation_NK.shape[1]))
            self.value_MG = np.zeros((0, value_NG.shape[1]))
        self.clock += 1
        for situation, value in zip(situation_NK, value_NG, strict=True):
            at = int(self.nearest(situation[None], self.radius)[0])
            if at >= 0:
                self.value_MG[at], self.asked_M[at], self.used_M[at] = value, self.round, self.clock
                self.refreshed += 1
                continue
            self.situation_MK = np.vstack([self.situation_MK, situation])
            self.value_MG = np.vstack([self.value_MG, value])
            self.asked_M = np.append(self.asked_M, self.round)
            self.used_M = np.append(self.used_M, self.clock)
            if len(self) > self.capacity:
                self._evict()

    def _evict(self) -> None:
        last = int(self.used_M.argmin())  # of several that were used at once the oldest
        keep = np.arange(len(self)) != last
        self.situation_MK, self.value_MG = self.situation_MK[keep], self.value_MG[keep]
        self.asked_M, self.used_M = self.asked_M[keep], self.used_M[keep]
        self.evicted += 1


@stage
class Asking:
    """How a guide is asked: after every `every`-th iteration, about at most `most` situations of
    its games that the cache wants, and about none where it wants fewer than `fewest`.

    Two at least, so that `ShuffledGuide` has another one to take guidance from, and every arm asks as
    often.
    """

    every: int = 1
    most: int = 32
    fewest: int = 2
    radius: float = 0.0
    capacity: int = 1024
    refresh: int = 0
    calls: int = 0  # situations in the whole run, at most; 0 = unbounded
    reach: float = 0.0

    def __post_init__(self) -> None:
        need_at_least(self, every=1, most=2, fewest=1, radius=0, capacity=1, refresh=0)
        need_at_least(self, calls=0, reach=0)

    def start(
        self,
        guide: Guide,
        width: int,
        key: Key,
        ctx: Context | None = None,
        neutral: float = 0.0,
        situations: Situations | None = None,
    ) -> Advisor:
        """What a learner is given: as `between` to ask the guide, and as a function to look up."""
        return Advisor(self, guide, width, key, ctx, neutral, situations or seen_alive)


def seen_alive(paths: Paths) -> np.ndarray:
    """[M, O] what agents saw in the steps of an iteration."""
    alive = np.broadcast_to(paths["alive"][:, None], paths["obs"].shape[:-1])
    return paths["obs"][alive]


class Advisor:
    """A guide with its cache, in one run: no other run or arm looks into it.

    As a function it says [..., G] what is known of observations [..., O], and `neutral` where
    nothing is. `await advisor.ask(paths, i)` asks the guide; it fits a learner's `between`.
    """

    def __init__(
        self,
        asking: Asking,
        guide: Guide,
        width: int,
        key: Key,
        ctx: Context | None = None,
        neutral: float = 0.0,
        situations: Situations = seen_alive,
    ):
        self.asking, self.guide, self.width, self.key, self.ctx = asking, guide, width, key, ctx
        self.neutral, self.situations = neutral, situations
        self.cache = GuidanceCache(asking.radius, asking.capacity, asking.refresh, asking.reach)
        self.asked = self.fallbacks = self.left_out = 0

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        guidance = np.full((*obs.shape[:-1], self.width), self.neutral)
        if len(self.cache):
            value, known = self.cache.look_up(obs.reshape(-1, obs.shape[-1]))
            guidance.reshape(-1, self.width)[known] = value[known]
        return guidance

    async def ask(self, paths: Paths, i: int) -> Metrics:
        """Asks about situations of an iteration's games, drawn by its key."""
        if i % self.asking.every == 0:
            self.cache.round += 1
            seen = np.unique(self.situations(paths), axis=0)
            order = rng_of((*self.key, i, "ask")).permutation(len(seen))
            rows = self._affordable(self.cache.wanting(seen[order])[: self.asking.most])
            if len(rows) >= self.asking.fewest:
                answer = await self.guide(self.ctx, rows, (*self.key, i))
                self.asked, self.fallbacks = (
                    self.asked + len(rows),
                    self.fallbacks + answer.fallbacks,
                )
                self.cache.put(rows, answer.value_NG)
        return self.numbers()

    def _affordable(self, rows: np.ndarray) -> np.ndarray:
        """The rows that the budget of calls is enough for; the others are counted."""
        if not self.asking.calls:
            return rows
        left = max(0, self.asking.calls - self.asked)
        self.left_out += max(0, len(rows) - left)
        return rows[:left]

    def numbers(self) -> Metrics:
        """Counts since the beginning."""
        return {
            "guide/left_out": self.left_out,
            "guide/asked": self.asked,
            "guide/fallbacks": self.fallbacks,
            "guide/hits": self.cache.hits,
            "guide/misses": self.cache.misses,
            "guide/evicted": self.cache.evicted,
            "guide/refreshed": self.cache.refreshed,
        }
