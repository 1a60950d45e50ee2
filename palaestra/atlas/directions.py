"""The atlas: where each method would move the same model, given the same rollouts.

For every recipe the update direction is minus the gradient of its objective through the embedded
model, before the optimiser: what the method says, without how it is followed. Directions are
compared by their cosines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from palaestra import catalogue, values
from palaestra.context import Bench, Runnable
from palaestra.errors import UserError
from palaestra.explanation.given import (
    credit_groups,
    direction,
    judge_groups,
    prepare_context,
    strip_rewards,
)
from palaestra.method import Recipe
from palaestra.models.load import Model, load, trainable_copy
from palaestra.recipes.base import rloo
from palaestra.rollout.collect import Sample, Score, links
from palaestra.run.benches import bench_by_name
from palaestra.run.context import RunContext
from palaestra.run.driver import train
from palaestra.run.parts import Parts
from palaestra.run.plan import Plan
from palaestra.types import Group, value_class

SEED = 0
SAMPLES = 8  # of a group
GROUPS = 8  # of a batch
SEARCH_TASKS = 64  # tasks among which the groups of a kind are found
RIGHT = 4  # answers of a solved group: the small model seldom solves all eight
DRIFT = 6  # updates between the rollouts of the stale batch and the weights that learn from it
# length of a direction, as a share of the longest, below which nothing would move
STILL_NORM = 1e-9


@value_class
class FixedBatch:
    """A fixed batch. `weights` are those that learn from it, None = those it was sampled from."""

    about: str
    bench: Bench
    groups: Sequence[Group]
    weights: Mapping[str, torch.Tensor] | None = None


@value_class
class Chart:
    """Methods on one batch. A method that would move nothing is `still`; its rows are not in the
    arrays.
    """

    methods: Sequence[str]
    norms: Sequence[float]
    cosine: np.ndarray  # [methods, methods]
    still: Sequence[str]
    refused: Mapping[str, str]  # method -> why it cannot run on this batch


# ---- rollouts


def batches(
    start: Model, groups: int = GROUPS, searched: int = SEARCH_TASKS
) -> dict[str, FixedBatch]:
    """The fixed rollouts: sampled from the start weights, with keys of their own."""
    chain, sampled = sample_groups(start, "chain", searched)
    solved = [
        replace(g, episodes=tuple(e for e in g.valid if e.total == 1)[:RIGHT]) for g in sampled
    ]
    of = {
        "mixed": [g for g in sampled if len({e.total for e in g.valid}) > 1],
        "solved": [g for g in solved if len(g.episodes) == RIGHT],
        "failed": [g for g in sampled if not any(e.total for e in g.valid)],
    }
    mixed, rest = of["mixed"][:groups], of["mixed"][groups:]
    grid, walks = sample_groups(start, "grid", groups)
    about = {
        "mixed": "answers some of which are right in every group, sampled from the weights that "
        "learn from them",
        "solved": f"groups of {RIGHT} answers that are all right",
        "failed": f"groups of {SAMPLES} answers that are all wrong",
        "stale": f"the mixed groups, learned from by weights that are {DRIFT} updates (rloo, other "
        "groups) further",
        "turns": "episodes of several turns in a grid world, some of which succeed in every group",
    }
    made = {k: FixedBatch(about=about[k], bench=chain, groups=gs[:groups]) for k, gs in of.items()}
    made["stale"] = FixedBatch(
        about=about["stale"], bench=chain, groups=mixed, weights=drift_weights(start, chain, rest)
    )
    some = [g for g in walks if len({e.total for e in g.valid}) > 1]
    made["turns"] = FixedBatch(about=about["turns"], bench=grid, groups=some[: groups // 2])
    return {k: r for k, r in made.items() if r.groups}


def sample_groups(start: Model, task: str, n: int) -> tuple[Bench, list[Group]]:
    """Scored groups of the first `n` training tasks."""
    bench, _ = bench_by_name(task)
    ctx = context(bench, trainable_copy(start))
    collect = links(Sample(n=SAMPLES), Score())

    async def all_of() -> list[Group]:
        tasks = [bench.tasks.task("train", i) for i in range(n)]
        return list(
            await asyncio.gather(
                *(collect(ctx, (SEED, "atlas", i), Group(task=t)) for i, t in enumerate(tasks))
            )
        )

    return bench, [g for g in asyncio.run(all_of()) if len(g.valid) == SAMPLES]


def drift_weights(start: Model, bench: Bench, groups: Sequence[Group]) -> dict[str, torch.Tensor]:
    """The start weights after a few updates on other groups."""
    ctx, recipe = context(bench, trainable_copy(start)), rloo.build()
    learner, model = recipe.learners["policy"], prepare_context(recipe, ctx).model("policy")
    for i in range(DRIFT):
        part = groups[i::DRIFT] or groups
        credited = credit_groups(recipe, ctx, part)
        if direction(credited, ctx) is None:
            continue
        optimiser = ctx.optimiser("policy", learner)
        torch.nn.utils.clip_grad_norm_(model.trainable(), learner.optimiser.clip_norm)
        for group in optimiser.param_groups:
            group["lr"] = learner.optimiser.lr
        optimiser.step()
    return {n: p.detach().clone() for n, p in model.named_trainable().items()}


def context(bench: Bench, model: Model) -> RunContext:
    return RunContext(
        bench=bench, seed=SEED, models={"policy": model}, drive=train, plan=Plan(evaluate=0)
    )


# ---- directions


def chart(
    rollouts: FixedBatch, start: Model, recipes: Mapping[str, Any], advance: Callable[[], None]
) -> Chart:
    """Every method on one batch; `advance` hears of each that is done."""
    moves: dict[str, np.ndarray] = {}
    refused: dict[str, str] = {}
    for name, recipe in recipes.items():
        try:
            moved = asyncio.run(move(recipe, rollouts, start))
        except Exception as error:  # whatever stops a method on rollouts that are not its own is the reason to tell
            refused[name] = " ".join(f"{type(error).__name__}: {error}".split()).removeprefix(
                "UserError: "
            )
            continue
        finally:
            advance()
        if moved is not None and not np.isfinite(moved).all():
            refused[name] = "its gradient is not finite"
        else:
            moves[name] = np.zeros(1) if moved is None else moved
    norms = {n: float(np.linalg.norm(d)) for n, d in moves.items()}
    least = STILL_NORM * max(norms.values(), default=0.0)
    live = [n for n in moves if norms[n] > least]
    unit_ND = np.stack([moves[n] / norms[n] for n in live]) if live else np.zeros((0, 1))
    cosine = np.clip(unit_ND @ unit_ND.T, -1.0, 1.0)
    return Chart(
        methods=live,
        norms=[norms[n] for n in live],
        cosine=cosine,
        still=[n for n in moves if n not in live],
        refused=refused,
    )


async def move(recipe: Runnable, rollouts: FixedBatch, start: Model) -> np.ndarray | None:
    """The update direction of one method: its references are the start weights, its policy those
    that learn.
    """
    if not isinstance(recipe, Recipe):
        raise UserError("it is no RL recipe")
    if "pool.size" in values.flatten(recipe):
        recipe = values.override(recipe, "pool.size", len(rollouts.groups))
    ctx = prepare_context(recipe, context(rollouts.bench, trainable_copy(start)))
    if rollouts.weights is not None:
        with torch.no_grad():
            for name, p in ctx.model("policy").named_trainable().items():
                p.copy_(rollouts.weights.get(name, p))
    bench = rollouts.bench
    given = [strip_rewards(g) if bench.reward is not None else g for g in rollouts.groups]
    return direction(credit_groups(recipe, ctx, await judge_groups(recipe, ctx, given)), ctx)


# ---- all of it


def survey(
    methods: Sequence[str],
    parts: Parts,
    groups: int = GROUPS,
    searched: int = SEARCH_TASKS,
) -> dict[str, Any]:
    """Charts of all batches as plain data. A chart is kept as a whole; each method on it counts."""
    recipes = build_recipes(methods)
    start = load("tiny")
    parts.headway.note("sampling the fixed rollouts")
    fixed = batches(start, groups, searched)
    parts.expect(len(fixed) * len(recipes))

    def made(name: str) -> dict[str, Any]:
        make = lambda: chart_data(chart(fixed[name], start, recipes, parts.headway.advance))
        return parts.keep(name, make, len(recipes))

    return {
        "model": "tiny",
        "seed": SEED,
        "samples": SAMPLES,
        "families": {e.id: e.family for e in catalogue.all_entries() if e.id in recipes},
        "batches": {
            name: {
                "about": fixed[name].about,
                "task": fixed[name].bench.name,
                "groups": len(fixed[name].groups),
                **made(name),
            }
            for name in fixed
        },
    }


def build_recipes(methods: Sequence[str]) -> dict[str, Any]:
    """Recipes by id, in the catalogue's order; without names all base methods and rows of the
    literature that are built. Losses by name are variants of these.
    """
    names = list(methods) or [
        e.id
        for e in catalogue.all_entries()
        if e.built and e.shape == "recipe" and e.family != catalogue.LOSSES
    ]
    return {m: catalogue.find(m).build() for m in names}


def chart_data(c: Chart) -> dict[str, Any]:
    return {
        "methods": list(c.methods),
        "norms": [float(f"{x:.4g}") for x in c.norms],
        "cosine": np.round(c.cosine, 4).tolist(),
        "still": list(c.still),
        "refused": dict(c.refused),
    }
