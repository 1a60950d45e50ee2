"""The claim of infinite-sampling: a quarter fewer steps than rounds, with a quarter of the slots."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Literal, get_args

import numpy as np

import palaestra as pl
from palaestra.recipes.data.infinite_sampling import Lengths

# How G answers share S slots:
#
# full         all G at once: the memory of G slots, as a reference
# rounds       micro groups: S at a time, the next S when the longest is done
# fifo         a slot that is free takes the next answer at once
# predicted    first a few tokens of every answer, then the rest, the one first that is predicted to
#              be the longest
# told         the longest first, with lengths that nobody knows beforehand: the ceiling
# shuffled     as predicted, with the predictions mixed up: a placebo
Order = Literal["full", "rounds", "fifo", "predicted", "told", "shuffled"]
ORDERS: tuple[Order, ...] = get_args(Order)


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
            completions = await self.sample(ctx, engine, batch, known)
            known = known.add(completions)
            lengths = [
                max(0, len(c.ids) - 1) for c in completions
            ]  # the first token comes with the prompt
            in_groups = [lengths[i : i + self.n] for i in range(0, len(lengths), self.n)]
            steps += engine.decode_steps
            rounds += sum(pl.planning.rounds_steps(g, self.slots) for g in in_groups)
            fewest += pl.planning.fewest_steps(lengths, self.slots)
            tokens, read = tokens + engine.sampled_tokens, read + engine.read_tokens
            waves += engine.read_steps
            most, memory = max(most, engine.most_running), max(memory, engine.cache_bytes / 2**20)
            ids += [i for c in completions for i in c.ids]
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
            completions = list[pl.Completion]()
            for group in range(0, len(every), self.n):
                mine = every[group : group + self.n]
                for i in range(0, self.n, self.slots):
                    completions += await asyncio.gather(*map(draw, mine[i : i + self.slots]))
            return completions
        if self.order == "told":
            other = pl.engines.OwnEngine(ctx.model("policy"), slots=self.slots)
            same_answers = await asyncio.gather(
                *(other.generate(prompts[i], sampling, keys[i]) for i in every)
            )
            other.close()
            return await in_order(
                draw, pl.planning.longest_first([len(c.ids) for c in same_answers])
            )
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
    completions = dict(zip(order_N, await asyncio.gather(*map(draw, order_N)), strict=True))
    return [completions[i] for i in range(len(order_N))]


def sampled(order: Order) -> GroupSampling:
    """Groups of 32 answers through 8 slots."""
    return GroupSampling(order, n=32, slots=8)


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "start": sampled("full"),
        "rounds": sampled("rounds"),
        "fifo": sampled("fifo"),
        "predicted": sampled("predicted"),
        "told": sampled("told"),
        "shuffled": sampled("shuffled"),
    },
    start=None,
    expect=pl.ledger.Greater("predicted", "rounds", by=0.25, why="the least that the paper gains"),
    reasons=(
        pl.ledger.Needs("fifo", "an order by length, beyond refills"),
        pl.ledger.Needs("shuffled", "predictions of the answer's own length"),
    ),
    vetoes={
        "memory": pl.ledger.Veto(
            pl.ledger.Less(pl.ledger.Final("cache_mb")), falls=0.0, against="rounds"
        )
    },
    measure=pl.ledger.Final("steps_saved"),
    metric="share of the decoding steps of rounds that is saved",
    constants={arm: {"probe": (1, 4, 8)} for arm in ("predicted", "shuffled")},
    task="chain",
    tokens=1,
    evaluate=0,
    seconds=10,
    controls={
        "decoding steps": pl.ledger.Final("steps"),
        "fewest steps of any plan": pl.ledger.Final("fewest"),
        "waves of prompts read": pl.ledger.Final("read_steps"),
        "sequences at a time": pl.ledger.Final("peak_slots"),
        "memory of keys and values, MB": pl.ledger.Final("cache_mb"),
        "digest of all samples": pl.ledger.Final("samples"),
    },
)

SMALL = replace(
    EXPERIMENT,
    words=__file__ + "#small",
    model="smollm2",
    blocks=(range(0, 5),),
    tuning_seeds=(1000,),
    constants={arm: {"probe": (1, 4)} for arm in ("predicted", "shuffled")},
    task="constraints",
    seconds=100.0,
)
