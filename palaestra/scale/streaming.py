"""The queue of transfers, and the update that learns from groups as they come."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import numpy as np
import torch

from palaestra.context import Context, Learns, LearnsEarly, Training
from palaestra.errors import UserError
from palaestra.types import Batch, Example, Group, Metrics, Objective, State, stage
from palaestra.update import Plain, pack


@runtime_checkable
class HasReduction(Objective, Protocol):
    """An objective that is one mean: over tokens, over rows, or over rows of a constant length."""

    @property
    def reduce(self) -> str: ...


@stage
class Arrivals:
    """Keeps groups until a batch of `size` is there, in the order in which they came."""

    size: int = 16

    async def __call__(
        self, ctx: Context, groups: list[Group], state: State
    ) -> tuple[list[Group] | None, list[Group], State]:
        waiting = [*state.get("waiting", []), *groups]
        if len(waiting) < self.size:
            return None, [], {"waiting": waiting}
        return waiting[: self.size], [], {"waiting": waiting[self.size :]}


class TransferQueue:
    """A table: rows are groups, columns what is known of them. A stage takes rows in order when the
    columns that it needs are there, each row once.
    """

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.taken: dict[str, set[int]] = {}

    def put(self, row: int | None = None, **columns: Any) -> int:
        """Adds columns to a row, or a row; returns its number."""
        if row is None:
            self.rows.append({})
            row = len(self.rows) - 1
        self.rows[row] |= columns
        return row

    def take(self, task: str, *columns: str) -> list[tuple[int, dict[str, Any]]]:
        """The rows that have the columns and that this task has not taken, by number."""
        taken = self.taken.setdefault(task, set())
        ready = [
            (i, row)
            for i, row in enumerate(self.rows)
            if i not in taken and row.keys() >= {*columns}
        ]
        taken |= {i for i, _ in ready}
        return ready


@dataclass
class Stream:
    """What has come of a step's batch so far."""

    step: int
    queue: TransferQueue = field(default_factory=TransferQueue)
    rows: list[tuple[bytes, bytes]] = field(default_factory=list)  # ids and advantages learned from
    metrics: dict[str, torch.Tensor] = field(default_factory=dict)
    examples: int = 0
    counts: tuple[int, int] = (0, 0)  # rows and tokens that the losses of groups are divided by
    early: int = 0  # groups learned from before the last one was finished
    begun: float = 0.0  # seconds of the clock, when the first group was there
    worked: float = 0.0  # seconds that groups took


STREAMS: WeakKeyDictionary[torch.nn.Module, Stream] = WeakKeyDictionary()


@stage
class Streamed(Plain):
    """One optimiser step on a batch of `size` groups, whose gradients are added as they come.

    The loss of a group is divided by what the batch is expected to have (rows or tokens); when all
    is there the gradient is brought to what it has. The batch decides: if its rows and advantages
    are not those that were learned from on the way, as where credit compares groups, the gradient
    is computed anew.
    """

    size: int = 16
    one_process: bool = True

    def begin(
        self, ctx: Context, name: str, learner: LearnsEarly, groups: list[Group],
        over: Callable[[], Sequence[bool]],
    ) -> None:  # fmt: skip
        """Learns from groups of a batch that is not whole yet. `over` says of each attempt that is
        under way, in order, whether it is finished.
        """
        module, begin = ctx.model(name).module, time.perf_counter()
        stream = STREAMS.get(module)
        if stream is None or stream.step != ctx.step:
            ctx.optimiser(name, learner).zero_grad(set_to_none=True)
            stream = STREAMS[module] = Stream(ctx.step, begun=begin)
        queue = stream.queue
        for group in groups:
            queue.put(group=group)
        for row, known in queue.take("measure", "group"):
            signals = ctx.measure([known["group"]], learner.needs, learner.privileged)
            queue.put(row, signals=signals)
        for row, known in queue.take("credit", "group", "signals"):
            examples, _ = learner.credit([known["group"]], known["signals"], {})
            queue.put(row, examples=examples)
        for row, known in queue.take("gradient", "examples"):
            self.add(ctx, name, learner, stream, known["examples"])
            queue.put(row, gradient=True)
        missing, finished = self.size - len(queue.rows), over()
        if missing > 0 and not (len(finished) >= missing and all(finished[:missing])):
            stream.early += len(groups)
        stream.worked += time.perf_counter() - begin

    def add(
        self, ctx: Context, name: str, learner: LearnsEarly, stream: Stream,
        examples: list[Example],
    ) -> None:  # fmt: skip
        """Adds the gradient of a group's examples to that of the batch."""
        places = enumerate(examples, stream.examples)  # among those of the batch
        placed = [replace(e, columns={**e.columns, "place": float(i)}) for i, e in places]
        stream.examples += len(examples)
        batch = pack(placed, name)
        if batch is None:
            return
        stream.rows += rows_of(batch)
        if not stream.counts[0]:
            stream.counts = batch.n_rows * self.size, batch.n_tokens * self.size
        rows, tokens = stream.counts
        whole = replace(batch, n_rows=rows, n_tokens=tokens)
        with ctx.phase("backward"):
            more = ctx.backward(name, learner.objective, whole, self.room(ctx.model(name)))
        for k, v in more.items():
            stream.metrics[k] = (
                stream.metrics[k] + v.detach() if k in stream.metrics else v.detach()
            )

    def __call__(
        self, ctx: Training, name: str, learner: Learns, batch: Batch, state: State
    ) -> tuple[Metrics, State]:
        share = reduction_of(learner.objective)  # refuses what is no one sum
        stream = STREAMS.pop(ctx.model(name).module, None)
        if stream is None or stream.step != ctx.step or stream.rows != rows_of(batch):
            ctx.optimiser(name, learner).zero_grad(set_to_none=True)
            metrics, state = super().__call__(ctx, name, learner, batch, state)
            return {**metrics, "streamed": 0.0}, state
        took = time.perf_counter() - stream.begun
        rows, tokens = stream.counts[0] / batch.n_rows, stream.counts[1] / batch.n_tokens
        factor = tokens if share == "tokens" else rows
        landed: Any = Landed(ctx, stream.metrics, factor, tokens)
        metrics, state = super().__call__(landed, name, learner, batch, state)
        idle = max(0.0, 1 - stream.worked / took) if took > 0 else 0.0
        return {**metrics, "streamed": stream.early / self.size, "idle": idle}, state


class Landed:
    """A run's context whose backward pass is over: the gradient is there, but for its factor."""

    def __init__(
        self, ctx: Any, metrics: dict[str, torch.Tensor], factor: float, tokens: float
    ) -> None:
        self.ctx, self.metrics, self.factor, self.tokens = ctx, metrics, factor, tokens

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ctx, name)

    def backward(
        self, name: str, objective: Objective, batch: Batch, budget: int
    ) -> dict[str, torch.Tensor]:
        if self.factor != 1.0:
            for p in self.ctx.model(name).trainable():
                if p.grad is not None:
                    p.grad.mul_(self.factor)
        scales = {k: self.factor if k == "loss" else self.tokens for k in self.metrics}
        return {k: v * scales[k] for k, v in self.metrics.items()}


def reduction_of(objective: Objective) -> str:
    """What the loss is a mean over. Raises UserError for a loss that is no one sum over a batch."""
    if not isinstance(objective, HasReduction) or objective.couples != "row":
        raise UserError(
            f"a gradient that is summed as groups come needs one loss by row with one reduction, such "
            f"as Clipped or Reinforce, not {type(objective).__name__}; set streaming=false"
        )
    return objective.reduce


def rows_of(batch: Batch) -> list[tuple[bytes, bytes]]:
    """Tokens and advantages of each row, without padding."""
    lengths, names = batch["length"].tolist(), ("ids", "advantage")
    ids_BT, advantage_BT = (np.asarray(batch[k].cpu()) for k in names)
    return [
        (i[:n].tobytes(), a[:n].tobytes())
        for i, a, n in zip(ids_BT, advantage_BT, lengths, strict=True)
    ]
