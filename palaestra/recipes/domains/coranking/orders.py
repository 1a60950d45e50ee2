"""The steps of CoRanking: a small reranker orders all candidates, orders of the first ones are proposed, the
large reranker is called on each, and the best order is imitated or preferred.
"""

import asyncio
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

import palaestra as pl

Passages = Sequence[tuple[str, str]]  # (id, text)


def listwise_of(ctx: pl.Context) -> pl.worlds.Listwise:
    """The run's environment. Raises UserError where it ranks no lists."""
    world = ctx.bench.world
    if not isinstance(world, pl.worlds.Listwise):
        raise pl.UserError(
            'coranking orders lists of passages; give --data with the column gold, --env "listwise(k=20)", and '
            "--docs FOLDER, --tools FILE.py:search or a column items"
        )
    return world


def usage_of(world: pl.worlds.Listwise) -> str:
    """What the policy reads below the passages."""
    return world.usage if world.told else ""


def passages_of(task: pl.Task) -> list[tuple[str, str]]:
    """The candidates of a task behind `PreRank`, in the small reranker's order."""
    return [(x["id"], x["text"]) for x in task.meta["items"]]


def ranking_quality(task: pl.Task, names: Sequence[str], places: int = 10) -> float:
    """NDCG of the first `places` of a ranking of passages."""
    grades = pl.worlds.grades_of(task)
    return pl.verifiers.ndcg(pl.verifiers.rank_sources(names, grades), grades, places)


@pl.declare(
    columns=(
        ("items", list, "the candidates, as records with id and text, best first"),
        ("retrieved", tuple, "ids of the candidates in the order of the first stage"),
    )
)
@pl.stage
class PreRank:
    """Puts the candidates of a task's query in the order of a small listwise reranker, as its column `items`.

    Args:
        small: the reranker, which reads windows from the back to the front; None = the order of the
            retriever, or of the row, stays.
        window: passages of a window.
        stride: by how many the next window begins further in front.
        usage: what stands below the passages; None = what the policy reads there.
        tokens: that it may write for each window.
    """

    small: pl.Source | None
    window: int = 20
    stride: int = 10
    usage: str | None = pl.verifiers.ORDER_PASSAGES
    tokens: int = 512

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        world, task = listwise_of(ctx), group.task
        hits = await world.candidates(task)
        order: Sequence[int] = range(1, len(hits) + 1)
        if self.small is not None:
            with fitting(min(self.window, len(hits))):
                order, _ = await pl.judges.rank_windows(
                    ctx,
                    self.small,
                    task.prompt[-1].content,
                    [text for _, text, _ in hits],
                    window=self.window,
                    stride=self.stride,
                    usage=usage_of(world) if self.usage is None else self.usage,
                    tokens=self.tokens,
                )
        items = [{"id": hits[n - 1][0], "text": hits[n - 1][1]} for n in order]
        meta = {**task.meta, "items": items, "retrieved": tuple(name for name, _, _ in hits)}
        return replace(group, task=replace(task, meta=meta))


def narrower(window: int) -> str:
    """How to make the small reranker's prompts shorter; "" where its windows hold two passages."""
    if window <= 2:
        return ""
    less = max(2, window // 4)
    return (
        f"window={less} stride={max(1, less // 2)} shows the small reranker fewer passages at once than {window}; "
        f'--env "listwise(k={less},told=0)" does so with the adjuster, and leaves the instruction out'
    )


@contextmanager
def fitting(window: int) -> Generator[None]:
    """Where a window does not fit into a reranker's context, a UserError that says how to make it shorter."""
    try:
        yield
    except pl.Fault as fault:
        advice = narrower(window)
        if fault.cause != "context" or not advice:
            raise
        raise pl.UserError(f"a reranker of {window} passages: {fault}; {advice}") from fault


@pl.stage
class WrittenOrder(pl.worlds.Listwise):
    """Whose oracle writes the order `numbers`: by numbers, or with `words` by the candidates' texts. `windowed`: the
    candidates are a window of the small reranker.
    """

    numbers: tuple[int, ...] = ()
    words: bool = False
    windowed: bool = False

    @property
    def shorter(self) -> str:
        """How to make prompts shorter."""
        return narrower(len(self.numbers)) if self.windowed else super().shorter

    def oracle(self, state: Any) -> str:
        """What is demonstrated."""
        texts = [text for _, text, _ in state.hits] if self.words else ()
        return pl.verifiers.write_order(self.numbers, texts)


async def demonstrate_order(
    ctx: pl.Context,
    key: pl.Key,
    group: pl.Group,
    numbers: tuple[int, ...],
    words: bool,
    windowed: bool = False,
) -> pl.Group:
    """The group with one more episode, which writes this order."""
    world = listwise_of(ctx)
    own = {f.name: getattr(world, f.name) for f in fields(pl.worlds.Listwise)}
    own["k"] = max(world.k, len(numbers))  # a window may have more passages than the policy reads
    bench = replace(
        ctx.bench, world=WrittenOrder(**own, numbers=numbers, words=words, windowed=windowed)
    )
    return await pl.Demonstrate()(ctx.with_bench(bench), key, group)


@pl.stage
class ShowRankings:
    """Demonstrates the ranking of a window of candidates, drawn at random: the large reranker's order of
    it, with the relevant ones put first by their grades; without `large` the order of the first stage.
    """

    large: pl.Source | None
    window: int = 20
    tokens: int = 512
    words: bool = False

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        world, task = listwise_of(ctx), group.task
        hits, rng = await world.candidates(task), pl.rng_of((*key, "window"))
        places = rng.permutation(len(hits))[: self.window].tolist()
        texts = [hits[i][1] for i in places]
        order = tuple(n + 1 for n in sorted(range(len(places)), key=lambda n: places[n]))
        if self.large is not None and len(places) > 1:
            with fitting(len(texts)):
                ranked = await pl.judges.rank_once(
                    ctx, self.large, task.prompt[-1].content, texts, tokens=self.tokens
                )
            order = ranked or order
        grades = pl.worlds.grades_of(task)
        worth = [pl.worlds.grade_of(hits[i][0], grades) for i in places]
        best = tuple(
            sorted(order, key=lambda n: -worth[n - 1])
        )  # the sort keeps the order of equals
        items = [{"id": hits[i][0], "text": hits[i][1]} for i in places]
        mixed_task = replace(task, meta={**task.meta, "items": items})
        seen = replace(group, task=mixed_task)
        made = await demonstrate_order(ctx, key, seen, best, self.words, windowed=True)
        return replace(made, task=task)


@pl.stage
class ProposeOrders:
    """Orders of the passages that are shown: `samples` of the policy, the small reranker's own, and
    `shuffles` drawn at random.
    """

    samples: int = 8
    shuffles: int = 7
    temperature: float = 1.0
    words: bool = False

    def __post_init__(self) -> None:
        pl.check_bounds("coranking: samples", self.samples, least=0)
        pl.check_bounds("coranking: shuffles", self.shuffles, least=0)
        pl.check_bounds("coranking: samples + shuffles", self.samples + self.shuffles, least=1)

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        if self.samples:
            sample = pl.Sample(n=self.samples, temperature=self.temperature)
            group = await sample(ctx, (*key, "sampled"), group)
        n = min(listwise_of(ctx).k, len(group.task.meta["items"]))
        orders = [tuple(range(1, n + 1)), *shuffled_orders(n, self.shuffles, (*key, "shuffled"))]
        for i, order in enumerate(orders):
            group = await demonstrate_order(ctx, (*key, i), group, order, self.words)
        return group


def shuffled_orders(n: int, count: int, key: pl.Key) -> list[tuple[int, ...]]:
    """`count` orders of the numbers from 1 to `n`, drawn at random."""
    rng = pl.rng_of(key)
    return [tuple(int(x) + 1 for x in rng.permutation(n)) for _ in range(count)]


@pl.stage
class LargeReranker:
    """A large listwise reranker, which is called once on passages in some order.

    Args:
        source: the model; it stays as it is.
        tokens: that it may write; one that thinks needs more.
    """

    source: pl.Source
    tokens: int = 512

    async def rank(
        self, ctx: Any, task: pl.Task, passages: Passages, order: Sequence[int]
    ) -> tuple[list[str], bool]:
        """The ids of all passages, those of `order` as the reranker puts them and the others behind them, and
        whether its reply was read; the order stays where it was not.

        Args:
            order: numbers of the first passages, from 1, as the reranker reads them.
        """
        inside = [passages[n - 1] for n in order]
        ranked = await pl.judges.rank_once(
            ctx,
            self.source,
            task.prompt[-1].content,
            [text for _, text in inside],
            tokens=self.tokens,
        )
        names = [inside[n - 1][0] for n in ranked or range(1, len(inside) + 1)]
        return [*names, *(name for name, _ in passages[len(order) :])], ranked is not None


def is_reachable(task: pl.Task) -> bool:
    """Whether a relevant passage is among the candidates."""
    grades = pl.worlds.grades_of(task)
    return any(pl.worlds.grade_of(name, grades) > 0 for name, _ in passages_of(task))


def without_relevant(task: pl.Task) -> str:
    """What a query names as relevant, which is no candidate of it."""
    named = ", ".join(map(repr, list(pl.worlds.grades_of(task))[:3]))
    return (
        f"gold names no candidate, so that every order is worth 0 (task {task.id!r} names {named}; gold has ids "
        "of records or names of files, and a relevant one has a grade above 0)"
    )


def lost_orders(groups: pl.Groups) -> str:
    """What most episodes of a step failed of; "" where half of them or more did not."""
    episodes = [e for g in groups for e in g.episodes]
    causes = [e.status.removeprefix("error:") for e in episodes if not e.ok]
    if len(causes) * 2 <= len(episodes):
        return ""
    cause = max(dict.fromkeys(causes), key=causes.count)
    return (
        f"{len(causes)} of {len(episodes)} orders of the first step were lost, {causes.count(cause)} of them to "
        f"{cause!r}, so next to nothing was learned; mend what the models are asked by first (chat-budget: the "
        "endpoint's max_tokens or calls are those of a whole run)"
    )


@pl.declare(reads=("order",))
@pl.stage
class OrderReward:
    """A link after `Score`: u, NDCG@10 of what the large reranker makes of an order. A message that names no
    passage has 0, and the large reranker is not asked. Equal orders of a group are asked about once. An order to which
    the large reranker's reply names no passage has 0 and is muted: else what makes the reranker fail would earn what the
    order does as a ranking.

    Parts: "large", u; "order_gain", u less that of the small reranker's order; "spread", the highest u of the group's
    orders that were read less the lowest; "order_ndcg", of the order itself as a ranking; "unread", 1 where the large
    reranker's reply named no passage; "relevant", 1 where a candidate of the query is relevant.

    Args:
        weight: of u in the reward and in "spread"; 0 prefers no order to another.
    """

    large: LargeReranker
    weight: float = 1.0

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        task = group.task
        passages = passages_of(task)
        n_shown = min(listwise_of(ctx).k, len(passages))
        own = tuple(range(1, n_shown + 1))
        able = [e for e in group.episodes if e.ok and e.reward is not None]
        written = [tuple(map(int, e.facts["order"])) for e in able]
        orders = list(dict.fromkeys([own, *(x for x in written if x)]))
        try:
            with ctx.judging():
                ranked = await asyncio.gather(
                    *(self.large.rank(ctx, task, passages, order) for order in orders)
                )
        except pl.Fault as fault:
            status = f"error:{fault.cause}"
            failed = tuple(replace(e, status=status) if e.ok else e for e in group.episodes)
            return replace(group, episodes=failed)
        results = {
            order: (ranking_quality(task, names), read)
            for order, (names, read) in zip(orders, ranked, strict=True)
        }
        values = [results[x][0] for x in written if x and results[x][1]]
        spread = max(values, default=0.0) - min(values, default=0.0)
        paid = iter(
            [
                self._pay(e, x, own, results, spread, is_reachable(task))
                for e, x in zip(able, written, strict=True)
            ]
        )
        episodes = tuple(next(paid) if e.ok and e.reward is not None else e for e in group.episodes)
        return replace(group, episodes=episodes)

    def first_step_note(self, groups: pl.Groups) -> str:
        """Says it where little can be learned from the large reranker, and why."""
        if lost := lost_orders(groups):
            return lost
        parts = [e.reward.parts for g in groups for e in g.valid if e.reward is not None]
        if not parts or not self.weight:
            return ""
        without = [g.task for g in groups if not is_reachable(g.task)]
        lines = list[str]()
        if without:
            share = f"in {len(without)} of {len(groups)} queries of the first step"
            lines.append(f"{share} {without_relevant(without[0])}")
        unread = sum(bool(p.get("unread")) for p in parts)
        if unread:
            lines.append(
                f"{unread} of {len(parts)} orders of the first step were left out, as the large reranker's reply named no "
                "passage, as [2] > [1]; tokens=2000 gives it room to think"
            )
        elif len(without) < len(groups) and not any(p.get("spread") for p in parts):
            lines.append(
                "the large reranker ranked the passages of the first step alike in every order, so there was nothing to "
                "adjust"
            )
        return "; ".join(lines)

    def _pay(
        self,
        e: pl.Episode,
        order: tuple[int, ...],
        own: tuple[int, ...],
        results: Mapping[tuple[int, ...], tuple[float, bool]],
        spread: float,
        relevant: bool,
    ) -> pl.Episode:
        assert e.reward is not None
        value, read = results[order] if order else (0.0, True)
        named = bool(order) and read
        value = value if named else 0.0
        parts = {
            **e.reward.parts,
            "large": value,
            "order_gain": value - results[own][0] if named else 0.0,
            "spread": self.weight * spread,
            "order_ndcg": float(e.facts["ndcg"]),
            "unread": float(not read),
            "relevant": float(relevant),
        }
        paid = replace(e.reward, total=self.weight * value, parts=parts, solved=e.solved)
        return replace(e, reward=paid, muted=e.muted or not read)


@pl.stage
class KeepChosen:
    """Mutes all orders of a group but the best one, drawn at random among equals, and all of them where the best
    is less than `delta` above the worst. Messages that name no passage, and orders whose reply of the large reranker
    was not read, are neither.

    Args:
        delta: the least difference.
        worst: keeps the worst order too, drawn at random among equals, for a pair.
    """

    delta: float = 0.05
    worst: bool = False

    async def __call__(self, ctx: pl.Context | None, key: pl.Key, group: pl.Group) -> pl.Group:
        totals = {
            i: e.total
            for i, e in enumerate(group.episodes)
            if e.ok and not e.muted and e.reward is not None and e.facts.get("order")
        }
        high, low = max(totals.values(), default=0.0), min(totals.values(), default=0.0)
        kept = set[int]()
        if high - low >= self.delta > 0:
            ends = {"chosen": high, "rejected": low} if self.worst else {"chosen": high}
            for name, value in ends.items():
                equal = [i for i, x in totals.items() if x == value]
                kept.add(equal[int(pl.rng_of((*key, name)).integers(len(equal)))])
        episodes = tuple(
            e if i in kept else replace(e, muted=True) for i, e in enumerate(group.episodes)
        )
        return replace(group, episodes=episodes)
