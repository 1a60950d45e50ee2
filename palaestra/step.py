"""One training step. It names no method: a method is what a `Recipe` puts into these fields.

    draw -> collect -> pool        gather: which problems, how attempted and judged, what is kept
    measure -> credit -> update    learn:  what must be known, who gets credit, how weights move
    observe                        feedback to the curriculum

Every stage takes its state and returns it. Schedules become numbers in `ctx.at`, so no stage sees
the clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaestra.abilities import BeginsEarly, draw_numbers
from palaestra.errors import Fault
from palaestra.rollout import queue
from palaestra.rollout.outcomes import outcomes
from palaestra.types import Group, Metrics, State
from palaestra.update import StepsWithoutRows, pack, tracked_means

if TYPE_CHECKING:
    from palaestra.context import Context
    from palaestra.method import Recipe


def start(seed: int) -> State:
    """The state before the first step."""
    return {
        "seed": seed,
        "step": 0,
        "draw": {},
        "pool": {},
        "again": [],
        "queue": [],
        "places": {},  # of the queue, where groups may overtake
        "credit": {},
        "update": {},
    }


async def step(recipe: Recipe, ctx: Context, state: State) -> tuple[State, Metrics]:
    """Gather a batch, learn from it.

    The caller's `state` is left as it was: a failed step changes nothing but the models.
    """
    recipe, state = ctx.at(recipe, state["step"]), copy_state(state)
    ready, seen = await gather_groups(recipe, ctx, state)
    with ctx.learning(state, ready, seen):
        metrics = learn(recipe, ctx, state, ready, seen)
    state["step"] += 1
    return state, metrics


def copy_state(state: State) -> State:
    """Its dictionaries and lists may be written to; what is inside them is only ever replaced."""
    return {k: v.copy() if isinstance(v, dict | list) else v for k, v in state.items()}


async def gather_groups(
    recipe: Recipe, ctx: Context, state: State
) -> tuple[list[Group], list[Group]]:
    """Fill the queue `lag` attempts ahead; the oldest pass the pool until it has a batch.

    Returns what is learned from, and all that was seen.
    """
    oldest = state["step"] - queue.max_age(recipe.schedule)
    state["pool"] = queue.drop_old_inside(state["pool"], oldest)
    seen: list[Group] = []
    for n in range(recipe.schedule.rounds):
        new = await queue.take(recipe, ctx, state, n)
        seen += new
        begin_early(recipe, ctx, state, new)
        ready, state["again"], state["pool"] = await recipe.pool(ctx, new, state["pool"])
        if ready is not None:
            return queue.drop_old(ready, oldest), seen
    raise Fault(
        "starved",
        f"the pool had no batch after {recipe.schedule.rounds} rounds; its gate keeps nothing of "
        "what is drawn",
    )


def begin_early(recipe: Recipe, ctx: Context, state: State, new: list[Group]) -> None:
    """Gives groups to the updates that begin before their batch is whole."""
    for name, learner in recipe.learners.items():
        if isinstance(learner.update, BeginsEarly):
            learner.update.begin(
                ctx, name, learner, new, lambda: [queue.is_over(x) for x in state["queue"]]
            )


def learn(
    recipe: Recipe, ctx: Context, state: State, ready: list[Group], seen: list[Group]
) -> Metrics:
    """Measure and credit for every learner before any weight moves; then update each.

    What credit keeps from step to step ages as groups do.
    """
    examples, metrics = {}, ctx.describe(seen, ready)
    oldest = state["step"] - queue.max_age(recipe.schedule)
    for name, learner in recipe.learners.items():
        signals = ctx.measure(ready, learner.needs, learner.privileged)
        before = queue.drop_old_inside(state["credit"].get(name, {}), oldest)
        credited, state["credit"][name] = learner.credit(ready, signals, before)
        examples[name] = queue.drop_old_examples(credited, oldest)
    for name, learner in recipe.learners.items():
        batch, before = pack(examples[name], name), state["update"].get(name, {})
        if batch is not None:
            moved, state["update"][name] = learner.update(ctx, name, learner, batch, before)
            moved = {**tracked_means(batch), **moved}
        elif isinstance(learner.update, StepsWithoutRows):
            moved, state["update"][name] = learner.update.step_without_rows(
                ctx, name, learner, before
            )
        else:  # nothing to train on: the optimiser's clock stands still
            continue
        if queue.max_age(recipe.schedule) > 0:
            moved = {**moved, **queue.age_numbers(examples[name], name, state["step"])}
        prefix = f"{name}/" if len(recipe.learners) > 1 else ""
        metrics |= {f"{prefix}{k}": v for k, v in moved.items()}
    metrics |= draw_numbers(recipe.draw, state["draw"])
    state["draw"] = recipe.observe(seen, examples, state["draw"])
    # a rank that only follows in learning has no pool, and keeps no record
    later = [*queue.groups_inside(state.get("pool", {})), *state.get("again", ())]
    pool = type(recipe.pool).__name__
    ctx.record(seen, examples, outcomes(seen, ready, later, examples, oldest, pool))
    return metrics
