"""How well the large reranker ranks held-out queries when it reads passages in one order or another."""

import asyncio
from collections.abc import Mapping
from typing import Any

import numpy as np

import palaestra as pl
from palaestra.recipes.domains.coranking import orders

FIRST = ("adjusted", "small", "alone", "calls", "alone calls", "small calls")  # what is told first


class CountedAsks:
    """A run that counts what a reranker is asked: calls, and the characters that it reads and writes."""

    def __init__(self, ctx: Any):
        self.ctx, self.calls, self.characters = ctx, 0, 0

    async def ask(self, source: pl.Source, question: pl.ChatRequest, *, seed: int = 0) -> str:
        """The reply, counted."""
        reply = await self.ctx.ask(source, question, seed=seed)
        self.calls += 1
        self.characters += len(reply) + sum(len(m.content) for m in question.messages)
        return reply


@pl.stage
class OrderExam:
    """Means over held-out queries of NDCG@10, with one call of the large reranker on the first passages,

        "retrieved"    in the order of the first stage (those that it puts first)
        "small"        in the small reranker's order
        "shuffled"     in an order drawn at random
        "adjusted"     in the policy's order, greedily; the small reranker's where it names no passage
        "best of N"    in the best of the small reranker's order and N - 1 drawn ones, which no method can know
        "alone"        by windows over all candidates, without small reranker and policy

    with another large reranker, for which no order was learned: "other, small" and "other, adjusted"; and
    without any: "first stage", "small only", "order only" (the policy's order as
    the ranking). "recall" is the share of relevant passages among those that the large reranker reads.

    What a query costs: "calls" and "characters", read and written, of the large reranker for "adjusted", "alone calls" and
    "alone characters" for "alone"; "small calls" of the small reranker, beside which the policy writes one message.

    Args:
        pre: orders the candidates.
        large: the large reranker.
        n: queries, at most.
        best: N; below 2 none are drawn.
        alone: whether the large reranker ranks alone too, which costs many calls.
        other: another large reranker, which nobody was trained for.
    """

    pre: orders.PreRank
    large: orders.LargeReranker
    n: int = 64
    best: int = 8
    alone: bool = True
    other: orders.LargeReranker | None = None

    async def __call__(self, ctx: Any) -> Mapping[str, Any]:
        n = min(self.n, ctx.plan.evaluate) or self.n  # a run measures on no more
        sample = pl.links(self.pre, pl.Sample(n=1, temperature=0.0))
        groups = await pl.run.attempt_tasks(ctx, n, sample, label="orders")
        rows = [await self.measure(ctx, g.task, e) for g in groups for e in g.valid[:1]]
        if not rows:
            raise pl.UserError("no held-out query has an order; look at the errors in the rollouts")
        return {
            **{name: float(np.mean([r[name] for r in rows])) for name in rows[0]},
            "n": len(rows),
        }

    async def measure(self, ctx: Any, task: pl.Task, e: pl.Episode) -> dict[str, float]:
        """The measures of one query."""
        small = orders.passages_of(task)
        texts = dict(small)
        first = [(name, texts[name]) for name in task.meta["retrieved"]]
        k = min(orders.listwise_of(ctx).k, len(small))
        own, written = tuple(range(1, k + 1)), tuple(map(int, e.facts["order"]))
        key = ("orders", task.id)
        drawn = orders.shuffled_orders(k, max(1, self.best - 1), key)
        asked = {order: CountedAsks(ctx) for order in (own, written or own, *drawn)}
        results = await asyncio.gather(
            self.large.rank(ctx, task, first, own),
            *(self.large.rank(counted, task, small, order) for order, counted in asked.items()),
        )
        retrieved, *others = [orders.ranking_quality(task, names) for names, _ in results]
        worth = dict(zip(asked, others, strict=True))
        ids = [name for name, _ in small]
        rest = ids[k:]
        row = {
            "retrieved": retrieved,
            "small": worth[own],
            "shuffled": worth[drawn[0]],
            "adjusted": worth[written or own],
        }
        if self.best > 1:
            row[f"best of {self.best}"] = max(worth[x] for x in (own, *drawn))
        row |= {
            "first stage": orders.ranking_quality(task, task.meta["retrieved"]),
            "small only": orders.ranking_quality(task, ids),
            "order only": orders.ranking_quality(
                task, [*(ids[n - 1] for n in written or own), *rest]
            ),
            "recall": pl.verifiers.recall(
                pl.verifiers.rank_sources(ids[:k], pl.worlds.grades_of(task)),
                pl.worlds.grades_of(task),
                k,
            ),
            "calls": float(asked[written or own].calls),
            "characters": float(asked[written or own].characters),
            "small calls": float(self._small_calls(len(small))),
            "unnamed": float(not written),
            "unread": float(np.mean([not read for _, read in results])),
        }
        if self.other is not None:
            row |= await self._transferred(ctx, task, small, own, written or own)
        row |= await self._alone(ctx, task, first) if self.alone else {}
        return {name: row[name] for name in dict.fromkeys((*FIRST, *row)) if name in row}

    def _small_calls(self, n: int) -> int:
        """How many windows the small reranker reads of n candidates; one of a single candidate is not asked about."""
        if self.pre.small is None:
            return 0
        spans = pl.judges.window_spans(n, self.pre.window, self.pre.stride)
        return sum(end - start > 1 for start, end in spans)

    async def _transferred(
        self,
        ctx: Any,
        task: pl.Task,
        small: orders.Passages,
        own: tuple[int, ...],
        adjusted: tuple[int, ...],
    ) -> dict[str, float]:
        """The other large reranker on the small one's order and on the policy's."""
        assert self.other is not None
        row = dict[str, float]()
        for name, order in (("other, small", own), ("other, adjusted", adjusted)):
            names, _ = await self.other.rank(ctx, task, small, order)
            row[name] = orders.ranking_quality(task, names)
        return row

    async def _alone(
        self, ctx: Any, task: pl.Task, first: list[tuple[str, str]]
    ) -> dict[str, float]:
        """The large reranker by windows over all candidates, and what it costs."""
        counted: Any = CountedAsks(ctx)  # which asks, and is no whole run
        window, stride = self.pre.window, self.pre.stride
        order, _ = await pl.judges.rank_windows(
            counted,
            self.large.source,
            task.prompt[-1].content,
            [text for _, text in first],
            window=window,
            stride=stride,
            tokens=self.large.tokens,
        )
        names = [first[n - 1][0] for n in order]
        return {
            "alone": orders.ranking_quality(task, names),
            "alone calls": float(counted.calls),
            "alone characters": float(counted.characters),
        }
