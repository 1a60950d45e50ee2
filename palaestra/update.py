"""From credited rows to moved weights: pack, split, accumulate, step.

Law 2: the gradient does not depend on how a batch is split. Denominators belong to the whole
optimiser batch; a loss that couples rows across micro-batches pays one extra forward pass (its
gradient is taken to the outputs first). Law 3: masked values are replaced once, in `pack`; any
other NaN stops the update and leaves the weights alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from palaestra.context import Update
from palaestra.errors import UserError
from palaestra.models.choices import COLUMN, choices_of, read_beside, stack
from palaestra.models.eyes import picture_columns, shown_pictures
from palaestra.models.layout import prompts_and_tails
from palaestra.models.master import MasterWeights, Optimizer, with_masters
from palaestra.models.quantised import functional
from palaestra.models.routing import expert_columns
from palaestra.models.tower import rate_share
from palaestra.pictures import FIRST_PLACE, Picture
from palaestra.schedule import Scheduled
from palaestra.types import (
    EXACT,
    MARK_PREFIX,
    TRACK_PREFIX,
    Batch,
    Example,
    Metrics,
    Objective,
    Outputs,
    Row,
    State,
    need_at_least,
    rng_of,
    stage,
)

if TYPE_CHECKING:
    from palaestra.context import Context, Learns, Situation, Training
    from palaestra.models.model import Model

Forward = Callable[[Batch], Outputs]
MEASURE_BUDGET = 4096  # tokens that a forward pass without a gradient may hold


@stage
class AdamW:
    """Decoupled weight decay (arXiv:1711.05101). `clip_norm` bounds the global gradient norm; 0 =
    unbounded.

    `narrow_moments` keeps both moments in bfloat16, rounded at random so that their means are right:
    4 bytes a weight less. The noise is the run's, so that a resumed run has the same.
    """

    lr: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    warmup: int = 0  # optimiser steps of linear warm-up
    narrow_moments: bool = False

    def __post_init__(self) -> None:
        need_at_least(self, lr=0, eps=0, weight_decay=0, clip_norm=0, warmup=0)
        if any(isinstance(x, Scheduled) for x in (self.eps, *self.betas)):
            raise UserError(
                "the optimiser's eps and betas stay as they are for a whole run; schedule lr or "
                "weight_decay"
            )

    def build(self, parameters: Sequence[torch.nn.Parameter]) -> Optimizer:
        """The rate is set before every step, so the optimiser starts without one. Below float32
        there are master weights; `master.MasterWeights` keeps narrow moments, too.
        """

        shares = [rate_share(p) for p in parameters]

        def adamw(parameters: Sequence[torch.nn.Parameter]) -> torch.optim.Optimizer:
            pairs = list(zip(parameters, shares, strict=True))
            groups = [
                {"params": [p for p, own in pairs if own == share], "share": share}
                for share in dict.fromkeys(shares)
            ]
            return self.inner(groups if len(groups) > 1 else list(parameters))

        return with_masters(parameters, adamw, self.narrow_moments)

    def inner(self, parameters: list[Any]) -> torch.optim.Optimizer:
        """The optimiser of parameters, or of groups of them, in float32."""
        return torch.optim.AdamW(
            parameters,
            lr=0.0,
            betas=self.betas,
            eps=self.eps,
            weight_decay=self.weight_decay,
            fused=True,
        )

    def set(self, optimiser: Optimizer, clock: int) -> None:
        """Before a step: what may follow a schedule."""
        for group in optimiser.param_groups:
            lr = self.rate(clock) * group.get("share", 1.0)
            group.update(lr=lr, weight_decay=self.weight_decay)

    def rate(self, clock: int) -> float:
        """Of learning, after `clock` optimiser steps."""
        return self.lr * min(1.0, (clock + 1) / self.warmup) if self.warmup else self.lr


@stage
class AdamW8bit(AdamW):
    """AdamW whose two moments take 8 bits each, in blocks with a float32 magnitude (arXiv:2110.02861),
    through bitsandbytes: 2 bytes a weight in place of 8. Master weights stay in float32.

    Args:
        smallest: tensors with fewer numbers keep float32 moments.
        paged: moments lie in memory that CUDA moves to the machine's where the GPU has no room. On a
            processor they lie where they are.
    """

    smallest: int = 4096
    paged: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.narrow_moments:
            raise UserError(
                "moments are kept in 8 bits or in bfloat16, not both; leave off --optim, or "
                "narrow_moments=true"
            )

    def inner(self, parameters: list[Any]) -> torch.optim.Optimizer:
        """Raises UserError where bitsandbytes is not installed."""
        functional()
        return import_module("bitsandbytes.optim").AdamW8bit(
            parameters,
            lr=0.0,
            betas=self.betas,
            eps=self.eps,
            weight_decay=self.weight_decay,
            min_8bit_size=self.smallest,
            is_paged=self.paged,
        )


def pack(
    examples: Sequence[Example], policy: str | None = None, dtype: torch.dtype = torch.float32
) -> Batch | None:
    """Rows as one right-padded batch; rows without a trained token are left out. None = nothing to
    train on.
    """
    rows, units, pictures, choices = [], [], list[tuple[Picture, ...]](), list[list[int]]()
    kept = list[Row]()
    for i, e in enumerate(examples):
        view = e.row.view(policy)
        columns: dict[str, Any] = {
            "ids": view.ids_T,
            "trained": view.trained_T,
            "behaviour_logp": view.logp_T,
            "temperature": view.temperature_T,
            "turn": view.turn_T,
        }
        columns |= e.columns
        columns.setdefault("place", float(i))  # among the examples, whose rows have names
        columns["trained"] = np.array(columns["trained"], bool)
        columns["trained"][:1] = False  # nothing precedes the first token, so it has no log-prob
        row_pictures = shown_pictures(e.row, view.ids_T)
        if row_pictures:  # nobody chose their places
            columns["trained"] &= view.ids_T < FIRST_PLACE
        if columns["trained"].any():
            rows.append(columns)
            units.append(e.unit or f"\0{i}")
            pictures.append(row_pictures)
            choices.append(choices_of(e.row, policy))
            kept.append(e.row)
    if not rows:
        return None
    batch = _stack(rows, units, dtype)
    more = picture_columns(pictures)
    if any(choices):
        more[COLUMN] = stack(choices)
    more |= expert_columns(kept, batch["ids"].shape[1])
    return replace(batch, columns={**batch.columns, **more}) if more else batch


def _stack(rows: list[dict[str, Any]], units: list[str], dtype: torch.dtype) -> Batch:
    names = set(rows[0])
    for r in rows:
        if set(r) != names:
            raise ValueError(f"rows of one batch have different columns: {sorted(names ^ set(r))}")
    length_B = np.array([len(r["ids"]) for r in rows])
    T = int(length_B.max())
    columns: dict[str, Tensor] = {"length": torch.from_numpy(length_B)}
    for name in sorted(names):
        first = np.asarray(rows[0][name])
        if first.ndim == 0:
            columns[name] = torch.tensor([float(r[name]) for r in rows], dtype=dtype)
            continue
        if first.ndim == 2 and len(first) == 1:  # [1, D], a feature of the row
            columns[name] = torch.from_numpy(np.stack([r[name] for r in rows])).to(dtype)
            continue
        integer = name in ("ids", "turn")
        padded = np.zeros((len(rows), T, *first.shape[1:]), np.int64 if integer else np.float64)
        for i, r in enumerate(rows):
            values = np.asarray(r[name])
            if len(values) != length_B[i]:
                raise ValueError(
                    f"column {name!r} has {len(values)} values for a row of {length_B[i]} tokens"
                )
            padded[i, : len(values)] = values
        columns[name] = torch.from_numpy(padded).to(torch.int64 if integer else dtype)
    number = {u: i for i, u in enumerate(dict.fromkeys(units))}
    unit_B = torch.tensor([number[u] for u in units])
    batch = Batch(columns=columns, unit_B=unit_B, n_tokens=0, n_rows=0, n_units=0)
    return recount(batch.only(batch.mask > 0))


def recount(batch: Batch) -> Batch:
    """The batch as an optimiser batch of its own: its counts are its denominators."""
    totals: dict[str, tuple[int, int, int]] = {}
    for column, v in batch.columns.items():
        if column.startswith(MARK_PREFIX):
            name, on_BT = column.removeprefix(MARK_PREFIX), batch.mask > 0
            totals[f"is:{name}"] = _count(batch, on_BT & (v > 0))
            totals[f"not:{name}"] = _count(batch, on_BT & (v == 0))
    return replace(
        batch,
        n_tokens=int(batch.mask.sum()),
        n_rows=len(batch.unit_B),
        n_units=len(batch.unit_B.unique()),
        totals=totals,
    )


def tracked_means(batch: Batch) -> Metrics:
    """What credit tracks of a batch: means over its trained tokens, by name."""
    return {
        column.removeprefix(TRACK_PREFIX): float((v * batch.mask).sum() / batch.n_tokens)
        for column, v in batch.columns.items()
        if column.startswith(TRACK_PREFIX)
    }


def _count(batch: Batch, on_BT: Tensor) -> tuple[int, int, int]:
    """Tokens, rows and units."""
    row_B = on_BT.any(1)
    return int(on_BT.sum()), int(row_B.sum()), len(batch.unit_B[row_B].unique())


def split(batch: Batch, budget: int, whole_units: bool, packed: bool = False) -> list[Tensor]:
    """Row indices of micro-batches of at most `budget` positions (one row or unit may exceed it).

    Positions are padded ones, and long rows come first. `packed`: without padding, prompts once, in
    the order of the rows, so that those of a group stay together.
    """
    units = batch.unit_B.tolist() if whole_units else range(len(batch.unit_B))
    atoms: dict[int, list[int]] = {}
    for row, unit in enumerate(units):
        atoms.setdefault(unit, []).append(row)
    if packed:
        return _split_packed(batch, list(atoms.values()), budget)
    length = batch["length"].tolist()
    beside = [1 + rows for rows, _ in read_beside(batch)]  # the row, and those of its replies
    parts: list[list[int]] = [[]]
    longest = held = 0
    for atom in sorted(atoms.values(), key=lambda a: (-max(length[r] for r in a), a)):
        more = sum(beside[r] for r in atom)
        longest = max(longest, *(length[r] for r in atom))
        if parts[-1] and (held + more) * longest > budget:
            parts.append([])
            longest, held = max(length[r] for r in atom), 0
        parts[-1] += atom
        held += more
    return [torch.tensor(p) for p in parts]


def _split_packed(batch: Batch, atoms: list[list[int]], budget: int) -> list[Tensor]:
    prompts, owner, tails = prompts_and_tails(batch)
    parts: list[list[int]] = [[]]
    held: set[int] = set()  # prompts of the last part
    positions, replies = 0, [n for _, n in read_beside(batch)]
    for atom in atoms:
        tail, own = sum(len(tails[r]) + replies[r] for r in atom), {owner[r] for r in atom}
        more = tail + sum(len(prompts[p]) for p in own - held)
        if parts[-1] and positions + more > budget:
            parts.append([])
            held, positions = set(), 0
            more = tail + sum(len(prompts[p]) for p in own)
        parts[-1] += atom
        held |= own
        positions += more
    return [torch.tensor(p) for p in parts]


def backward(
    forward: Forward, objective: Objective, batch: Batch, budget: int, packed: bool = False
) -> dict[str, Tensor]:
    """Accumulates d loss / d theta, the same for every split. Returns the metrics of the whole
    batch, the loss among them.
    """
    parts = split(batch, budget, objective.couples == "unit", packed)
    total: dict[str, Tensor] = {}
    if objective.couples != "batch" or len(parts) == 1:
        for rows in parts:
            part = batch.part(rows)
            loss, metrics = loss_of(objective, forward(part), part)
            loss.backward()
            add_metrics(total, metrics | {"loss": loss})
        return total
    rows = torch.cat(parts)
    leaves = {k: v.requires_grad_() for k, v in _outputs(forward, batch, parts).items()}
    order = torch.argsort(rows)
    leaves_in_order = {k: v[order] for k, v in leaves.items()}
    loss, metrics = loss_of(objective, leaves_in_order, batch)
    loss.backward()
    add_metrics(total, metrics | {"loss": loss})
    start = 0
    for p in parts:
        out = forward(batch.part(p))
        used = [k for k in out if leaves[k].grad is not None]
        grads = [
            cut_to(g[start : start + len(p)], out[k])
            for k in used
            if (g := leaves[k].grad) is not None
        ]
        torch.autograd.backward([out[k] for k in used], grads)
        start += len(p)
    return total


def loss_of(objective: Objective, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    """What an objective makes of a forward pass. Raises UserError for one that reads what it does
    not ask for, or returns something else.
    """
    name = type(objective).__name__
    try:
        result: Any = objective(out, batch)
    except KeyError as error:
        if error.args and error.args[0] not in {*out, *batch.columns}:
            raise UserError(
                f"objective {name} reads {error.args[0]!r}; of what it needs there are "
                f"{', '.join(sorted(out))}, of the batch {', '.join(sorted(batch.columns))}"
            ) from error
        raise
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], Tensor)):
        raise UserError(
            f"objective {name} returned {type(result).__name__}; it returns (loss, metrics), the "
            "loss a number with a gradient"
        )
    return result


@torch.no_grad()
def _outputs(forward: Forward, batch: Batch, parts: list[Tensor]) -> dict[str, Tensor]:
    """Outputs of all micro-batches in the order of `parts`, padded to the batch's length."""
    T = batch["ids"].shape[1]
    outs = [forward(batch.part(p)) for p in parts]
    return {k: torch.cat([pad_to(o[k], T) for o in outs]).detach() for k in outs[0]}


def pad_to(x: Tensor, T: int) -> Tensor:
    """Outputs [B, t] or [B, t, V] padded to T tokens. Features of rows, [B, 1, D], stay as they
    are.
    """
    if x.dim() == 3 and x.shape[1] > 1:
        return torch.nn.functional.pad(x, (0, 0, 0, T - x.shape[1]))
    return torch.nn.functional.pad(x, (0, T - x.shape[1])) if x.dim() == 2 else x


def cut_to(grad: Tensor, like: Tensor) -> Tensor:
    """The gradient of padded outputs as that of the outputs of one micro-batch."""
    return grad[:, : like.shape[1]] if like.dim() > 1 else grad


def add_metrics(total: dict[str, Tensor], more: dict[str, Tensor]) -> None:
    """Adds the metrics of a micro-batch to those of the batch so far, without their history."""
    for k, v in more.items():
        total[k] = total[k] + v.detach() if k in total else v.detach()


def free_bytes(device: torch.device) -> int:
    """Of a GPU's memory: what nobody has, and what this process has and does not use."""
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + kept


@stage
class Plain:
    """Epochs of shuffled minibatches, each one optimiser step. Rows of a unit stay together.

    `fresh` forgets the optimiser's moments before the batch: every batch is a problem of its own
    (arXiv:2501.12599, 2.3.2).
    """

    epochs: int = 1
    minibatches: int = 1
    # tokens a forward pass may hold; small ones stay in the cache and pad less
    budget: int = field(default=4096, metadata=EXACT)
    # what a forward pass may take, about: fewer tokens of a larger model. On a GPU at least half of
    # what is free there
    memory_mb: int = field(default=1024, metadata=EXACT)
    fresh: bool = False

    def __post_init__(self) -> None:
        need_at_least(self, epochs=1, minibatches=1, budget=1, memory_mb=1)

    def __call__(
        self, ctx: Training, name: str, learner: Learns, batch: Batch, state: State
    ) -> tuple[Metrics, State]:
        if self.fresh:
            ctx.optimiser(name, learner).state.clear()
        clock, seen = state.get("clock", 0), []
        for epoch in range(self.epochs):
            for mini in self._minibatches(ctx, name, batch, clock, epoch):
                step_metrics = step_optimiser(
                    ctx, name, learner, mini, clock, self.room(ctx.model(name))
                )
                clock += not step_metrics["skipped"]
                seen.append(step_metrics)
        metrics = {k: float(np.mean([m[k] for m in seen])) for k in seen[0]}
        # of the last update: those before it may have been warm-up
        rate = learner.optimiser.rate(max(0, clock - 1))
        return metrics | {"updates": len(seen), "lr": rate}, {"clock": clock}

    def room(self, model: Model) -> int:
        """Tokens that a forward pass of a model may hold."""
        memory = self.memory_mb << 20
        if model.device.type == "cuda":
            memory = max(memory, free_bytes(model.device) // 2)
        return max(1, min(self.budget, memory // max(1, model.position_bytes)))

    def _minibatches(
        self, ctx: Situation, name: str, batch: Batch, clock: int, epoch: int
    ) -> Iterator[Batch]:
        if self.minibatches == 1:
            yield batch
            return
        units = rng_of((ctx.seed, "minibatches", name, clock, epoch)).permutation(batch.n_units)
        for chosen in np.array_split(units, self.minibatches):
            rows = torch.isin(batch.unit_B, torch.from_numpy(chosen)).nonzero()[:, 0]
            if len(rows):
                yield recount(batch.part(rows))


def step_optimiser(
    ctx: Training, name: str, learner: Learns, batch: Batch, clock: int, budget: int
) -> dict[str, float]:
    """One optimiser step. A loss or gradient that is not finite leaves the weights alone and dumps
    the case.
    """
    ctx.moving(name)
    optimiser = ctx.optimiser(name, learner)
    try:
        with ctx.phase("backward"):
            loss_metrics = ctx.backward(name, learner.objective, batch, budget)
        with ctx.phase("optimiser"):
            moved = [p for group in optimiser.param_groups for p in group["params"]]
            norm = torch.nn.utils.clip_grad_norm_(
                moved, learner.optimiser.clip_norm or float("inf")
            )
            metrics = {k: float(v) for k, v in loss_metrics.items()} | {
                "grad_norm": float(norm),
                "skipped": 0.0,
            }
            if not np.isfinite([metrics["loss"], metrics["grad_norm"]]).all():
                ctx.dump(name, learner, batch, metrics)
                return metrics | {"skipped": 1.0}
            learner.optimiser.set(optimiser, clock)
            if isinstance(optimiser, MasterWeights):
                optimiser.key = (ctx.seed, "moments", name, clock)
            optimiser.step()
        return metrics
    finally:
        # gradients take as much memory as weights, and sampling needs none
        optimiser.zero_grad(set_to_none=True)


@runtime_checkable
class StepsWithoutRows(Protocol):
    """An update that also acts in a step with nothing to train on. Without it weights stay then."""

    def step_without_rows(
        self, ctx: Context, name: str, learner: Learns, state: State
    ) -> tuple[Metrics, State]: ...


@stage
class Cycle:
    """`update` in the steps `on` of every `period`, for learners that take turns; in the others
    nothing moves.

    Periods are counted from the end of a warm-up, which moves the learners that have `warms`.
    """

    update: Update
    period: int = 4
    on: tuple[int, ...] = (0, 1, 2)
    warmup: int = 0
    warms: bool = False
    clock: ClassVar[str] = "warmup"

    def __call__(
        self, ctx: Context, name: str, learner: Learns, batch: Batch, state: State
    ) -> tuple[Metrics, State]:
        step = ctx.step - self.warmup
        mine = self.warms if step < 0 else step % self.period in self.on
        return self.update(ctx, name, learner, batch, state) if mine else ({}, state)
