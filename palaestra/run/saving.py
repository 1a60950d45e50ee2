"""What a run keeps on the disk: when a checkpoint is due, what of the models it holds, and how much
all of it will take.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from palaestra.models.load import save, save_adapters
from palaestra.step import Recipe
from palaestra.store import checkpoint, rollouts
from palaestra.types import State, rng_of

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

    def due(self, step: int) -> bool:
        """Whether one is to be written after this step."""
        if self.ctx.plan.checkpoint_every:
            return step % self.ctx.plan.checkpoint_every == 0
        if self._cost is None:
            return True
        return self.clock() - self._end >= min(SHARE * self._cost, LONGEST)

    def write(self, state: State, *, last: bool = False) -> None:
        """Writes one; the `last` of a run holds the whole model, also of adapters."""
        begin = self.clock()
        save_checkpoint(self.ctx, state, whole=last or self.ctx.plan.merged)
        self._end = self.clock()
        self._cost = self._end - begin

    def finish(self, state: State) -> None:
        """Sees to it that the run's models are there as a whole."""
        ctx = self.ctx
        if ctx.out is None:
            return
        at = ctx.out / "checkpoints" / f"{checkpoint.STEP}{state['step']}"
        names = list(ctx.optimisers)
        if not all((at / folder(names, n) / "config.json").is_file() for n in names):
            self.write(state, last=True)


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
    names = list(ctx.optimisers)
    kind = {n: save if whole or not ctx.model(n).adapted else save_adapters for n in names}
    writers = {
        folder(names, n): (lambda directory, n=n: kind[n](ctx.model(n), directory)) for n in names
    }
    optimisers = {n: ctx.optimisers[n].state_dict() for n in names}
    checkpoint.save(
        ctx.out,
        state["step"],
        {"state": state, "optimisers": optimisers},
        writers,
        keep=ctx.plan.keep,
    )


def save_rollouts(ctx: RunContext, step: int) -> None:
    """The step's episodes, or those of them that the run keeps, and tells the trackers."""
    n = rollouts.kept(ctx.plan.rollouts)
    if n == 0:
        return
    file = rollouts.path(ctx.folder, step)
    rng = rng_of((ctx.seed, "rollouts that are kept", step))
    rollouts.write(file, step, ctx.seen, ctx.advantages, ctx.decode, keep=n, rng=rng)
    ctx.trackers.episodes(step, file)


# ---- sizes


def checkpoint_mb(ctx: RunContext) -> tuple[float, float]:
    """Megabytes of a checkpoint in between, and of the last one, once optimisers have stepped."""
    names = list(ctx.optimisers)
    state = sum(_bytes(ctx.optimisers[n].state_dict()) for n in names)
    between = last = state
    for n in names:
        model = ctx.model(n)
        adapters = _bytes(model.named_trainable()) if model.adapted else 0
        whole = adapters + _whole_bytes(model)
        last += whole
        between += adapters if model.adapted and not ctx.plan.merged else whole
    return between / 1e6, last / 1e6


def _whole_bytes(model: Model) -> int:
    """Of the model with its adapters merged, and its heads."""
    merged = {n: p for n, p in model.module.named_parameters() if "lora_" not in n}
    heads = {f"{h}.{n}": p for h, head in model.heads.items() for n, p in head.named_parameters()}
    return _bytes(merged) + _bytes(heads)


def _bytes(tree: Any) -> int:
    """Of all tensors in nested plain data, each counted once."""
    found: dict[int, int] = {}

    def visit(x: Any) -> None:
        if isinstance(x, Tensor):
            found[x.data_ptr()] = x.numel() * x.element_size()
        elif isinstance(x, dict):
            for v in x.values():
                visit(v)
        elif isinstance(x, list | tuple):
            for v in x:
                visit(v)

    with torch.no_grad():
        visit(tree)
    return sum(found.values())


def rollouts_mb(ctx: RunContext, steps: int) -> float:
    """Megabytes of the rollouts of so many steps like the last one."""
    n = rollouts.kept(ctx.plan.rollouts)
    if n == 0:
        return 0.0
    rng = rng_of((ctx.seed, "rollouts that are kept", ctx.step))
    data = rollouts.encode(ctx.step, ctx.seen, ctx.advantages, ctx.decode, keep=n, rng=rng)
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
