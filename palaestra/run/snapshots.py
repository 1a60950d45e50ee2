"""Snapshots of a run's learners: taken between steps, kept in the state, and so in checkpoints.

Each has a place, a frozen model of the run; a new one goes where the oldest was. What is saved is
all that moves in the learner's model; the rest is that of the model that a resumed run starts with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from palaestra.errors import UserError
from palaestra.models.load import Model, trainable_copy
from palaestra.models.threads import use_threads
from palaestra.rollout.cast import Snapshots
from palaestra.rollout.tickets import InProcess
from palaestra.types import State

if TYPE_CHECKING:
    from palaestra.method import Recipe
    from palaestra.run.context import RunContext

Weights = dict[str, Tensor]  # by parameter


def follow_learners(recipe: Recipe, ctx: RunContext, state: State) -> None:
    """Takes the snapshots that are due before the state's next step; of a state that was saved, puts
    those that it holds into their places.

    Raises UserError where rollouts happen in other processes, or a model lies in several: there is
    nobody to tell them.
    """
    moving = {n: s for n, s in recipe.references.items() if isinstance(s, Snapshots)}
    for name, source in moving.items():
        if not isinstance(ctx.carrier, InProcess) or ctx.whole(source.model) is not ctx.model(
            source.model
        ):
            raise UserError(
                f"the snapshots {name!r} are of runs in one process; leave --cluster out"
            )
        taken: dict[int, Weights] = dict(state.get("snapshots", {}).get(name, {}))
        if name not in ctx.held and taken:
            for step, weights in taken.items():
                hold(ctx, name, source, step, weights)
        if state["step"] % source.every == 0 and state["step"] not in taken:
            taken[state["step"]] = weights = weights_now(ctx.model(source.model))
            hold(ctx, name, source, state["step"], weights)
        kept = {s: taken[s] for s in sorted(taken)[-source.keep :]}
        state["snapshots"] = {**state.get("snapshots", {}), name: kept}


def weights_now(model: Model) -> Weights:
    """Copies of what moves in a model, but for its heads."""
    named = model.named_trainable().items()
    return {n: p.detach().to("cpu", copy=True) for n, p in named if not n.startswith("head.")}


@torch.no_grad()
def hold(ctx: RunContext, name: str, source: Snapshots, step: int, weights: Weights) -> None:
    """Puts a snapshot into its place, which is made from the learner's model where there is none."""
    place = name if source.keep == 1 else f"{name}@{step // source.every % source.keep}"
    if place not in ctx.models:
        # not a frozen copy: that of adapters which change nothing yet would share them
        ctx.models[place] = trainable_copy(ctx.model(source.model))
        ctx.models[place].module.requires_grad_(False)
        use_threads(ctx.models.values())
    ctx.moving(place)
    own = dict(ctx.models[place].module.named_parameters())
    for n, value in weights.items():
        own[n].copy_(value)
    held = {p: s for p, s in ctx.held.get(name, {}).items() if p != place} | {place: step}
    ctx.held[name] = dict(sorted(held.items(), key=lambda pair: pair[1]))
