"""What a rollout process does: it makes a run's parts for itself, takes published weights, and
collects tickets. It is never told which method runs.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from palaestra.attempts import Ticket, Usage
from palaestra.context import Bench, Collects, RewardFn, Runnable
from palaestra.errors import Fault
from palaestra.models.model import Model
from palaestra.rollout.tickets import collect
from palaestra.run.context import RunContext
from palaestra.scale.weights import (
    Publication,
    Sums,
    check_publication,
    check_sums,
    every_weight,
    load_publication,
    sums_of,
)
from palaestra.types import Group, Meter, Player, Result, Reward

C = TypeVar("C", bound=RunContext)


@dataclass(frozen=True, kw_only=True)
class WorkerParts:
    """What a rollout process is made from: values, and models as they were when it was packed."""

    recipe: Collects
    bench: Bench
    seed: int
    models: Mapping[str, Model]
    sums: Mapping[str, Sums]  # of all weights of each model, as they were where it was packed
    players: Mapping[str, Player]
    folder: Any  # of the run, for replies that are kept; None = nothing is
    engine_name: str
    slots: int
    cache_mb: int

    @classmethod
    def of(cls, recipe: Collects, ctx: RunContext) -> WorkerParts:
        return cls(
            recipe=recipe,
            bench=ctx.bench,
            seed=ctx.seed,
            models=ctx.models,
            sums={n: sums_of(every_weight(m)) for n, m in ctx.models.items()},
            players=ctx.players,
            folder=ctx.out,
            engine_name=ctx.engine_name,
            slots=ctx.slots,
            cache_mb=ctx.cache_mb,
        )

    def context(self, kind: type[C] = RunContext) -> C:
        """A context that samples and judges, and trains nothing. Raises WrongWeights."""
        for name, model in self.models.items():
            check_sums(sums_of(every_weight(model)), self.sums[name], f"{name}, at the start")

        async def drive(recipe: Runnable, ctx: RunContext) -> Result:
            raise Fault("worker", "a rollout process runs no recipe")

        return kind(
            bench=self.bench,
            seed=self.seed,
            models=dict(self.models),
            drive=drive,
            out=self.folder,
            players=self.players,
            engine_name=self.engine_name,
            slots=self.slots,
            cache_mb=self.cache_mb,
        )


@dataclass(frozen=True, kw_only=True)
class Brought:
    """What comes back for a ticket. Times are of the wall clock, in seconds since the epoch."""

    groups: list[Group]
    counts: Usage
    begin: float
    loaded: float  # when its weights were there
    end: float
    judge_spans: tuple[tuple[int, float, float], ...] = ()  # by which judge, from when to when


class AsksElsewhere(Protocol):
    """Who has rewards asked in other processes; see `scale.judges`."""

    bench: Bench | None  # the run's
    version: int  # of the weights that a ticket is sampled by
    lent: list[Any]  # these weights, as a reference of the store
    spans: list[tuple[int, float, float]]  # of the ticket: judge, begin, end

    async def __call__(
        self, ctx: RunContext, reward: RewardFn, group: Group
    ) -> Sequence[Reward | Fault]: ...


class Worker:
    """One rollout process. Tickets are collected one at a time, so none shares a forward pass with
    another.

    Args:
        parts: what it is made from.
        place: its number, and how many there are; budgets are divided so.
        judges: where rewards are asked; None = in this process.
        spent: what was counted in its place before it.
    """

    def __init__(
        self,
        parts: WorkerParts,
        place: tuple[int, int] = (0, 1),
        judges: AsksElsewhere | None = None,
        spent: Usage | None = None,
    ):
        self.recipe, self.ctx = parts.recipe, parts.context()
        self.ctx.part = place
        add_usage(self.ctx.carrier.counts, spent or Usage())
        self.judges = self.ctx.ask_elsewhere = judges
        if judges is not None:
            judges.bench = parts.bench
        self.version: int | None = None
        self.failed: Exception | None = None
        self.phase = "ready"
        self.loop = asyncio.new_event_loop()

    def about(self) -> dict[str, Any]:
        """Where it is, and what it does."""
        return {"pid": os.getpid(), "host": socket.gethostname(), "phase": self.phase}

    def collect(
        self, ticket: Ticket, version: int, given: Publication | None, lent: Sequence[Any] = ()
    ) -> Brought:
        """The groups of a ticket. `given`: the weights of the version; None = it has them. `lent`:
        the same as a reference, for the judges.
        """
        begin = time.time()
        if given is not None and not (ticket.renew and self._has(version)):
            self.phase = f"loading weights of step {version}"
            self._load(version, given)
        if self.version != version and not ticket.renew:
            raise Fault(
                "weights", f"a ticket of step {version} came to weights of step {self.version}"
            )
        loaded = time.time()
        self.phase = f"collecting {ticket.name}"
        before = usage_of(self.ctx)
        if self.judges is not None:
            self.judges.version, self.judges.lent = version, list(lent)
        groups = self.loop.run_until_complete(collect(self.recipe, self.ctx, ticket, self.version))
        if self.failed is not None:
            raise self.failed
        counts = difference(usage_of(self.ctx), before)
        judge_spans = tuple(self.judges.spans) if self.judges is not None else ()
        if self.judges is not None:
            self.judges.spans.clear()
        self.phase = "ready"
        return Brought(
            groups=groups,
            counts=counts,
            begin=begin,
            loaded=loaded,
            end=time.time(),
            judge_spans=judge_spans,
        )

    def renew(self, version: int, given: Publication) -> None:
        """Newer weights for what is under way; from another thread, so between two of its tokens."""
        self.loop.call_soon_threadsafe(self._renew, version, given)

    def _renew(self, version: int, given: Publication) -> None:
        if self._has(version):
            return
        try:
            self._load(version, given)
            self.ctx.renew(version)
        except Exception as error:  # a loop's callback has nobody to tell
            self.failed = error

    def _has(self, version: int) -> bool:
        return self.version is not None and self.version >= version

    def _load(self, version: int, given: Publication) -> None:
        """All of a publication, or nothing of it."""
        models = {name: self.ctx.model(name) for name in given.weights}
        check_publication(given, version, models)
        self.version = None  # until all of it is there
        for name, model in models.items():
            load_publication(given, name, model)
        self.version = version


def usage_of(ctx: RunContext) -> Usage:
    """What a context has sampled and asked so far."""
    return Usage(
        sampled_tokens=ctx.sampled_tokens,
        engine_seconds=ctx.engine_seconds,
        drafts=ctx.draft_counts,
        meters=ctx.meters(),
    )


def difference(after: Usage, before: Usage) -> Usage:
    """What was counted in between."""
    return Usage(
        sampled_tokens=after.sampled_tokens - before.sampled_tokens,
        engine_seconds=after.engine_seconds - before.engine_seconds,
        drafts=after.drafts.since(before.drafts),
        meters={n: m.since(before.meters.get(n, Meter())) for n, m in after.meters.items()},
    )


def add_usage(total: Usage, more: Usage) -> None:
    """Adds to a total in place."""
    total.sampled_tokens += more.sampled_tokens
    total.engine_seconds += more.engine_seconds
    total.drafts.add(more.drafts)
    for name, meter in more.meters.items():
        total.meters.setdefault(name, Meter()).add(meter)
