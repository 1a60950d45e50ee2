"""What a run keeps on the disk: when a checkpoint is due, what of the models it holds, and how much
all of it will take.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from palaestra.attempts import Flight
from palaestra.errors import Fault, Paused
from palaestra.method import Recipe
from palaestra.models.optimiser_files import FOLDER, DueTensor, without_tensors, write_state
from palaestra.models.quantised import unpacked_more_bytes
from palaestra.rollout.queue import check_some
from palaestra.step import copy_state
from palaestra.store import checkpoint, columns, rollouts
from palaestra.types import Group, State, rng_of

if TYPE_CHECKING:
    from palaestra.models.model import Model
    from palaestra.run.context import RunContext

SHARE = 20  # a checkpoint is due once this many times what writing the last one took has passed
LONGEST = 900.0  # seconds, after which it is due in any case


class Saves:
    """The checkpoints of a run as it goes on.

    Without a number of steps the first one of a process comes after its first step: it shows that
    the disk takes it, and how long that takes.
    """

    def __init__(self, ctx: RunContext, clock: Callable[[], float] = time.monotonic):
        self.ctx, self.clock = ctx, clock
        self._cost: float | None = None  # seconds of the last one
        self._end = 0.0
        self._draft: Draft | None = None

    def due(self, step: int) -> bool:
        """Whether one is to be written after this step; not while another waits for its flights."""
        if self._draft is not None:
            return False
        if self.ctx.plan.checkpoint_every:
            return step % self.ctx.plan.checkpoint_every == 0
        if self._cost is None:
            return True
        return self.clock() - self._end >= min(SHARE * self._cost, LONGEST)

    async def after_step(self, state: State, *, last: bool, now: bool) -> None:
        """Writes one where it is due, or at an end; else sees whether the one that waits is whole."""
        if now or self.due(state["step"]):
            await self.keep(state, last=last, now=now)
        else:
            self.seal()

    async def keep(self, state: State, *, last: bool = False, now: bool = False) -> None:
        """Writes one, or begins to: it is whole once the attempts under way have landed, for
        `now` at the end of this call. The `last` of a run holds the whole model, also of adapters.
        """
        begin = self.clock()
        self._leave_draft()
        whole = last or self.ctx.plan.merged
        if now:
            await asyncio.gather(*map(settle, flights(state)))
        if flights(state) and not now:
            self._draft = Draft.of(self.ctx, state, whole=whole)
            self.seal()
        else:
            save_checkpoint(self.ctx, landed(state), whole=whole)
        self._end = self.clock()
        self._cost = self._end - begin

    def seal(self) -> None:
        """Makes the one that was begun whole, if it can be."""
        if self._draft is not None and all(f.over for f in flights(self._draft.state)):
            self._draft.seal(self.ctx)
            self._draft = None

    def give_up(self, state: State) -> None:
        """Writes one without waiting: what is under way will be handed out anew."""
        self._leave_draft()
        save_checkpoint(self.ctx, landed(state), whole=self.ctx.plan.merged)

    def _leave_draft(self) -> None:
        """Forgets the one that waits, of which a later one takes the place."""
        if self._draft is not None:
            checkpoint.remove_drafts(self.ctx.folder)
        self._draft = None

    async def finish(self, state: State) -> None:
        """Sees to it that the run's models are there as a whole."""
        ctx = self.ctx
        if ctx.out is None:
            return
        at = ctx.out / "checkpoints" / f"{checkpoint.STEP}{state['step']}"
        names = list(ctx.optimisers)
        if not all((at / folder(names, n) / "config.json").is_file() for n in names):
            await self.keep(state, last=True, now=True)


def flights(state: State) -> list[Flight]:
    """Attempts of a state that are collected elsewhere."""
    return [x for x in state["queue"] if isinstance(x, Flight)]


async def settle(flight: Flight) -> None:
    """Waits until it is over, well or not."""
    with suppress(Paused, Fault):
        await flight.land()


def landed(state: State) -> State:
    """The state as one process would have it, with the groups of flights in their places, and what
    these took in its counters. A flight that is not over, or failed, is its tickets.
    """
    over = {id(f): groups for f in flights(state) if (groups := groups_of(f)) is not None}
    sampled = sum(f.sampled_tokens for f in flights(state) if id(f) in over)
    run = dict(state["run"])
    if sampled:
        run["sampled_tokens"] = run.get("sampled_tokens", 0) + sampled
    queue = [over.get(id(x), x.tickets) if isinstance(x, Flight) else x for x in state["queue"]]
    return {**state, "queue": queue, "run": run}


def groups_of(flight: Flight) -> list[Group] | None:
    """What a flight has brought; None = nothing that can be learned from."""
    try:
        groups = flight.groups if flight.over else None
        check_some(groups or [])
    except (Paused, Fault):
        return None
    return groups


@dataclass
class Draft:
    """A checkpoint whose attempts are still under way: its models and its optimisers' tensors lie on the
    disk, and its state waits in memory, as it was.
    """

    state: State
    optimisers: dict[str, Any]
    models: Path

    @classmethod
    def of(cls, ctx: RunContext, state: State, *, whole: bool) -> Draft | None:
        if ctx.out is None:
            return None
        models = checkpoint.write_draft(ctx.out, state["step"], writers_of(ctx, whole=whole))
        return cls(copy_state(state), on_host(small_states(ctx)), models)

    def seal(self, ctx: RunContext) -> None:
        """Makes it a checkpoint."""
        whole = {"state": landed(self.state), "optimisers": self.optimisers}
        step, move = self.state["step"], {".": lambda to: checkpoint.move_draft(self.models, to)}
        checkpoint.save(ctx.folder, step, whole, move, keep=ctx.plan.keep)


def on_host(tree: Any) -> Any:
    """Nested plain data with copies of its tensors, in the processor's memory."""
    if isinstance(tree, Tensor):
        return tree.detach().to("cpu", copy=True)
    if isinstance(tree, dict):
        return {k: on_host(v) for k, v in tree.items()}
    return type(tree)(map(on_host, tree)) if isinstance(tree, list | tuple) else tree


def folder(recipe_or_names: Any, name: str) -> str:
    """Where a learner's model lies in a checkpoint: the checkpoint itself, if there is but one."""
    names = recipe_or_names.learners if isinstance(recipe_or_names, Recipe) else recipe_or_names
    return "." if len(names) == 1 else name


def save_checkpoint(ctx: RunContext, state: State, *, whole: bool) -> None:
    """The models that are trained, and what resuming needs. Of a model with adapters only these,
    unless it is to be `whole`.
    """
    if ctx.out is None:
        return
    whole_state = {"state": state, "optimisers": small_states(ctx)}
    writers = writers_of(ctx, whole=whole)
    checkpoint.save(ctx.out, state["step"], whole_state, writers, keep=ctx.plan.keep)


def writers_of(ctx: RunContext, *, whole: bool) -> Mapping[str, Callable[[Path], object]]:
    """What writes the models and the tensors of the optimisers, by the folder of each in a checkpoint."""
    names = list(ctx.optimisers)
    models = lambda n: lambda directory: ctx.save(n, directory, whole=whole)
    states = lambda n: lambda directory: write_state(ctx.optimiser_state(n), directory)
    return {folder(names, n): models(n) for n in names} | {
        f"{FOLDER}/{n}": states(n) for n in names
    }


def small_states(ctx: RunContext) -> dict[str, Any]:
    """The optimisers' states, which name the tensors that `writers_of` write."""
    return {n: without_tensors(ctx.optimiser_state(n)) for n in ctx.optimisers}


def save_rollouts(ctx: RunContext, step: int) -> None:
    """The step's episodes, or those of them that the run keeps, and tells the trackers."""
    n = rollouts.kept(ctx.plan.rollouts)
    if n == 0:
        return
    file = columns.path(ctx.folder, step)
    rng = rng_of((ctx.seed, "rollouts that are kept", step))
    rollouts.write(file, step, ctx.seen, ctx.trace, ctx.decode, keep=n, rng=rng)
    ctx.trackers.episodes(step, file)


# ---- sizes


def checkpoint_mb(ctx: RunContext) -> tuple[float, float]:
    """Megabytes of a checkpoint in between, and of the last one, once optimisers have stepped."""
    names = list(ctx.optimisers)
    state = sum(_bytes(ctx.optimiser_state(n)) for n in names)
    between = last = state
    for n in names:
        model = ctx.whole(n)
        adapters = _bytes(model.named_trainable()) if model.adapted else 0
        whole = adapters + _whole_bytes(model)
        last += whole
        between += adapters if model.adapted and not ctx.plan.merged else whole
    return between / 1e6, last / 1e6


def _whole_bytes(model: Model) -> int:
    """Of the model with its adapters merged, and its heads; 4-bit weights are saved in its dtype."""
    merged = {n: p for n, p in model.module.named_parameters() if "lora_" not in n}
    heads = {f"{h}.{n}": p for h, head in model.heads.items() for n, p in head.named_parameters()}
    return _bytes(merged) + _bytes(heads) + unpacked_more_bytes(model.module)


def _bytes(tree: Any) -> int:
    """Of all tensors in nested plain data, each counted once."""
    sizes: dict[int, int] = {}

    def visit(x: Any) -> None:
        if isinstance(x, DueTensor):
            sizes[id(x)] = x.nbytes
        elif isinstance(x, Tensor):
            sizes[x.data_ptr()] = x.numel() * x.element_size()
        elif isinstance(x, dict):
            for v in x.values():
                visit(v)
        elif isinstance(x, list | tuple):
            for v in x:
                visit(v)

    with torch.no_grad():
        visit(tree)
    return sum(sizes.values())


def rollouts_mb(ctx: RunContext, steps: int) -> float:
    """Megabytes of the rollouts of so many steps like the last one."""
    n = rollouts.kept(ctx.plan.rollouts)
    if n == 0:
        return 0.0
    rng = rng_of((ctx.seed, "rollouts that are kept", ctx.step))
    data = rollouts.encode(ctx.step, ctx.seen, ctx.trace, ctx.decode, keep=n, rng=rng)
    return steps * len(data) / 1e6


def describe_sizes(ctx: RunContext, steps: int | None) -> str:
    """One line on what the run will take. `steps` is its length; None = nobody knows."""
    between, last = checkpoint_mb(ctx)
    kept = f"the last {ctx.plan.keep} are kept" if ctx.plan.keep > 1 else "the last is kept"
    also = "" if between == last else f", the last one {size(last)}"
    each = rollouts_mb(ctx, 1)
    written = f"rollouts {size(each)} a step" if each else "no rollouts"
    if each and steps is not None:
        written = f"rollouts about {size(each * steps)} in {steps} steps"
    return f"on the disk: checkpoints about {size(between)} each{also}, {kept}; {written}"


def size(mb: float) -> str:
    """For people: "0.4 MB", "289 MB", "3.1 GB"."""
    if mb >= 1000:
        return f"{mb / 1000:.1f} GB"
    return f"{mb:.0f} MB" if mb >= 10 else f"{mb:.1f} MB"
