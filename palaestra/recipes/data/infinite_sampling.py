"""Infinite Sampling: groups larger than the memory has slots for, with the same samples and the same
gradient.

G answers of a prompt need keys and values for S < G sequences only: `order` says how they share them.

    full         all G at once: the memory of G slots, as a reference
    rounds       micro groups: S at a time, the next S when the longest is done
    fifo         a slot that is free takes the next answer at once
    predicted    first a few tokens of every answer, then the rest, the one first that is predicted to
                 be the longest
    told         the longest first, with lengths that nobody knows beforehand: the ceiling
    shuffled     as predicted, with the predictions mixed up: a placebo

(arXiv 2025, Infinite Sampling; its plan is an FPTAS over slots with shortest-first inside.) Every
answer has a random stream of its own key, so neither S nor the order changes a token: rewards,
advantages and, with micro-batches whose losses add up, the gradient are those of the full group. A
wrong prediction costs steps, never content.

The engine of this project does most of it by itself: its pool is refilled in the order of arrival
(`fifo`), answers of a prompt read it once, and gradients do not depend on how a batch is split. What is
added is the order, by who asks first. Lengths are predicted from the first token by the means of the
answers so far; going on with a begun answer reads its tokens anew where the cache has lost them.

Deviations: longest first instead of the FPTAS, which for a number of slots that grows is no better than
it in reach; a slot holds its own copy of the prompt's keys and values, so that memory counts it S times;
the predictor is a table, where the paper has a learned one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Literal, get_args

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="Infinite Sampling: micro groups, continuous sampling, length-aware scheduling",
    claim="Micro groups halve the memory of a group's sampling; continuous refills by predicted length "
    "take a quarter off the time that rounds need, with the same samples.",
    source="abstract and excerpts; how the scheduler works inside is inferred",
    size=pl.Size(
        setting="Qwen3-1.7B: peak memory 21.55 to 10.64 GB, over 25% more throughput than rounds"
    ),
)
Order = Literal["full", "rounds", "fifo", "predicted", "told", "shuffled"]
ORDERS: tuple[Order, ...] = get_args(Order)


@pl.stage
class Lengths:
    """Mean lengths by the first token, of answers that are over."""

    seen: tuple[tuple[int, int], ...] = ()  # first token and length

    def predict(self, first: int) -> float:
        """The mean of answers that begin so; of all, where none did; 0 before there are any."""
        mine = [n for token, n in self.seen if token == first]
        known = mine or [n for _, n in self.seen]
        return float(np.mean(known)) if known else 0.0

    def add(self, found: Sequence[pl.Completion]) -> "Lengths":
        return replace(self, seen=(*self.seen, *((c.ids[0], len(c.ids)) for c in found)))


@pl.stage
class GroupSampling:
    """A program: samples `batches` times a group of `n` answers through `slots` slots, and counts.

    Its summary has the decoding steps of the engine ("steps"), what rounds would have taken for the
    same lengths ("rounds"), `steps_saved` = 1 - steps / rounds, the least that any plan could
    ("fewest"), the most sequences at a time ("peak_slots") and the memory of keys and values
    ("cache_mb"); "read_steps" are the waves in which prompts were read, which are passes of the model too;
    "samples" is a digest of all tokens, the same for every order.

    Args:
        probe: tokens of an answer before its length is predicted.
        prompts: groups that are sampled at a time, which fill one another's gaps.
    """

    order: Order = "predicted"
    n: int = 32
    slots: int = 8
    batches: int = 4
    prompts: int = 1
    probe: int = 1

    async def run(self, ctx: pl.Context) -> pl.Result:
        known, steps, rounds, fewest, tokens, ids = Lengths(), 0, 0, 0, 0, list[int]()
        most, memory, read, waves = 0, 0.0, 0, 0
        for batch in range(self.batches):
            engine = pl.engines.OwnEngine(
                ctx.model("policy"),
                slots=self.n * self.prompts if self.order == "full" else self.slots,
            )
            found = await self.sample(ctx, engine, batch, known)
            known = known.add(found)
            lengths = [
                max(0, len(c.ids) - 1) for c in found
            ]  # the first token comes with the prompt
            in_groups = [lengths[i : i + self.n] for i in range(0, len(lengths), self.n)]
            steps += engine.decode_steps
            rounds += sum(pl.planning.rounds_steps(g, self.slots) for g in in_groups)
            fewest += pl.planning.fewest_steps(lengths, self.slots)
            tokens, read = tokens + engine.sampled_tokens, read + engine.read_tokens
            waves += engine.read_steps
            most, memory = max(most, engine.most_running), max(memory, engine.cache_bytes / 2**20)
            ids += [i for c in found for i in c.ids]
            ctx.log(
                {
                    "steps": engine.decode_steps,
                    "longest": max(lengths),
                    "mean": float(np.mean(lengths)),
                }
            )
            engine.close()
        return pl.Result(
            metrics={
                "steps": steps,
                "rounds": rounds,
                "fewest": fewest,
                "steps_saved": 1 - steps / max(rounds, 1),
                "peak_slots": most,
                "cache_mb": memory,
                "samples": pl.seed_of(tuple(ids)),
                "read_tokens": read,
                "read_steps": waves,
                "sampled_tokens": tokens,
            }
        )

    async def sample(
        self, ctx: pl.Context, engine: pl.engines.OwnEngine, batch: int, known: Lengths
    ) -> list[pl.Completion]:
        """The answers of all groups of a batch, group by group."""
        asked = [self.prompt(ctx, engine, batch * self.prompts + g) for g in range(self.prompts)]
        keys = [
            ctx.key("infinite", batch, g, i) for g in range(self.prompts) for i in range(self.n)
        ]
        prompts = [p for p in asked for _ in range(self.n)]
        sampling = pl.Sampling(temperature=1.0, max_tokens=ctx.bench.max_tokens)
        every = list(range(len(keys)))
        draw = lambda i: engine.generate(prompts[i], sampling, keys[i])
        if self.order in ("full", "fifo"):
            return list(await asyncio.gather(*map(draw, every)))
        if self.order == "rounds":
            found = list[pl.Completion]()
            for group in range(0, len(every), self.n):
                mine = every[group : group + self.n]
                for i in range(0, self.n, self.slots):
                    found += await asyncio.gather(*map(draw, mine[i : i + self.slots]))
            return found
        if self.order == "told":
            other = pl.engines.OwnEngine(ctx.model("policy"), slots=self.slots)
            told = await asyncio.gather(
                *(other.generate(prompts[i], sampling, keys[i]) for i in every)
            )
            other.close()
            return await in_order(draw, pl.planning.longest_first([len(c.ids) for c in told]))
        short = replace(sampling, max_tokens=self.probe)
        begun = await asyncio.gather(*(engine.generate(prompts[i], short, keys[i]) for i in every))
        guessed = [known.predict(c.ids[0]) for c in begun]
        if self.order == "shuffled":
            pl.rng_of(ctx.key("shuffled", batch)).shuffle(guessed)
        go_on = lambda i: engine.go_on(prompts[i], begun[i], sampling, keys[i])
        return await in_order(go_on, pl.planning.longest_first(guessed))

    def prompt(self, ctx: pl.Context, engine: pl.engines.OwnEngine, index: int) -> tuple[int, ...]:
        task = ctx.bench.tasks.task("train", index)
        pieces = engine.dialect.extend(task.prompt, first=True, closed=False)
        return tuple(i for p in pieces for i in p.ids)


async def in_order(
    draw: Callable[[int], Awaitable[pl.Completion]], order_N: Sequence[int]
) -> list[pl.Completion]:
    """Asks in this order; the answers are by place."""
    found = dict(zip(order_N, await asyncio.gather(*map(draw, order_N)), strict=True))
    return [found[i] for i in range(len(order_N))]


def build(order: Order = "predicted", slots: int = 8, n: int = 32) -> GroupSampling:
    return GroupSampling(order, n=n, slots=slots)
