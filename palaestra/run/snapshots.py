"""Snapshots and averages of a run's learners: taken between steps, kept in the state, and so in
checkpoints.

Each has a place, a frozen model of the run; a new snapshot goes where the oldest was. What is saved
is all that moves in the learner's model; the rest is that of the model that a resumed run starts with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from palaestra.errors import UserError
from palaestra.models.load import Model, trainable_copy
from palaestra.models.threads import use_threads
from palaestra.rollout.cast import Moving, MovingAverage, Snapshots
from palaestra.rollout.tickets import InProcess
from palaestra.schedule import resolve
from palaestra.types import State

if TYPE_CHECKING:
    from palaestra.method import Recipe
    from palaestra.run.context import RunContext

Weights = dict[str, Tensor]  # by parameter


def follow_learners(recipe: Recipe, ctx: RunContext, state: State) -> None:
    """Takes the snapshots that are due before the state's next step, and moves the averages; of a
    state that was saved, puts what it holds into its places.

    Raises UserError where rollouts happen in other processes, or a model lies in several: there is
    nobody to tell them.
    """
    moving = {n: s for n, s in recipe.references.items() if isinstance(s, Moving)}
    for name, source in moving.items():
        if not isinstance(ctx.carrier, InProcess) or ctx.whole(source.model) is not ctx.model(
            source.model
        ):
            raise UserError(
                f"the snapshots {name!r} are of runs in one process; leave --cluster out"
            )
        if isinstance(source, MovingAverage):
            follow_average(ctx, name, source, state)
            continue
        taken: dict[int, Weights] = dict(state.get("snapshots", {}).get(name, {}))
        if name not in ctx.held and taken:
            for step, weights in taken.items():
                hold(ctx, name, place_of(name, source, step), source.model, step, weights)
        if state["step"] % source.every == 0 and state["step"] not in taken:
            taken[state["step"]] = weights = weights_now(ctx.model(source.model))
            place = place_of(name, source, state["step"])
            hold(ctx, name, place, source.model, state["step"], weights)
        kept = {s: taken[s] for s in sorted(taken)[-source.keep :]}
        state["snapshots"] = {**state.get("snapshots", {}), name: kept}


@torch.no_grad()
def follow_average(ctx: RunContext, name: str, source: MovingAverage, state: State) -> None:
    """Moves an average towards its learner, once for each step, and puts it into its place."""
    step, kept = state["step"], state.get("averages", {}).get(name)
    if kept is not None and kept["step"] == step and name in ctx.held:
        return
    if kept is None:
        average = {n: at_least_float(w) for n, w in weights_now(ctx.model(source.model)).items()}
    elif kept["step"] == step:  # a run that goes on
        average = kept["weights"]
    else:
        now, rate = weights_now(ctx.model(source.model)), resolve(source, step).rate
        average = {n: w.lerp(at_least_float(now[n]), rate) for n, w in kept["weights"].items()}
    hold(ctx, name, name, source.model, step, average)
    state["averages"] = {
        **state.get("averages", {}),
        name: {"step": step, "weights": average},
    }


def at_least_float(w: Tensor) -> Tensor:
    """In float32, where it has fewer bits: a small rate would change nothing in bfloat16."""
    return w.to(torch.promote_types(w.dtype, torch.float32))


def weights_now(model: Model) -> Weights:
    """Copies of what moves in a model, but for its heads."""
    named = model.named_trainable().items()
    return {n: p.detach().to("cpu", copy=True) for n, p in named if not n.startswith("head.")}


def place_of(name: str, source: Snapshots, step: int) -> str:
    """The model that holds the snapshot of a step."""
    return name if source.keep == 1 else f"{name}@{step // source.every % source.keep}"


@torch.no_grad()
def hold(ctx: RunContext, name: str, place: str, learner: str, step: int, weights: Weights) -> None:
    """Puts weights into their place, which is made from the learner's model where there is none."""
    if place not in ctx.models:
        # not a frozen copy: that of adapters which change nothing yet would share them
        ctx.models[place] = trainable_copy(ctx.model(learner))
        ctx.models[place].module.requires_grad_(False)
        use_threads(ctx.models.values())
    ctx.moving(place)
    own = dict(ctx.models[place].module.named_parameters())
    for n, value in weights.items():
        own[n].copy_(value)
    held = {p: s for p, s in ctx.held.get(name, {}).items() if p != place} | {place: step}
    ctx.held[name] = dict(sorted(held.items(), key=lambda pair: pair[1]))
