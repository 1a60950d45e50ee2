"""One training step. It names no method: a method is what a `Recipe` puts into these fields.

    draw -> collect -> pool        gather: which problems, how they are attempted and judged, what is kept
    measure -> credit -> update    learn:  what else must be known, who gets the credit, how the weights move
    observe                        feedback to the curriculum

Every stage takes its state and returns it. Schedules become numbers in `ctx.at`, so no stage sees the clock.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from palaestra.context import Collect, Credit, Draw, Pool, drops_equal, keeps_equal
from palaestra.context import Observe as ObserveStage
from palaestra.context import Update as UpdateStage
from palaestra.curriculum.pool import Everything
from palaestra.errors import Fault, Paused, UserError
from palaestra.types import Group, Key, Metrics, Need, Objective, State, stage
from palaestra.update import AdamW, Plain, pack

if TYPE_CHECKING:
    from palaestra.context import Context
    from palaestra.types import Result


@stage
class Schedule:
    """When rollouts happen relative to updates. Ages are in steps."""

    prompts: int = 16  # groups drawn a step
    lag: int = 0  # rollouts of step s use the weights of step s - lag; 0 = on-policy
    max_age: int | None = None  # nothing older is trained on; None = lag
    rounds: int = 16  # draws a step may take until the pool has a batch
    steps: int = 100  # length of a run, unless the run says otherwise


@stage
class Unchanged:
    """No feedback: the curriculum keeps its state."""

    def __call__(self, seen: Any, examples: Any, state: State) -> State:
        return state


@dataclass(frozen=True, kw_only=True)
class Learner:
    """One trainable model: how it is credited, what it minimises, how it moves."""

    credit: Credit
    objective: Objective
    update: UpdateStage = Plain()
    optimiser: AdamW = AdamW()
    needs: tuple[Need, ...] = ()
    heads: tuple[str, ...] = ()  # extra outputs of the model, e.g. "value"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A method as a value. `references` are frozen models by name: "policy" = a copy of the start, else a name or folder."""

    draw: Draw
    collect: Collect
    learners: Mapping[str, Learner]
    pool: Pool = Everything()
    observe: ObserveStage = Unchanged()
    references: Mapping[str, str] = field(default_factory=dict)
    schedule: Schedule = Schedule()

    def __post_init__(self) -> None:
        keeps = [name for name, l in self.learners.items() if keeps_equal(l.credit)]
        if keeps and drops_equal(self.pool):
            raise UserError(
                f"learner {keeps[0]!r} learns from groups whose rewards are all equal, which the pool "
                f"{type(self.pool).__name__} drops; use pool=Everything()"
            )

    async def run(self, ctx: Context) -> Result:
        return await ctx.train(self)


def start(seed: int) -> State:
    """The state before the first step."""
    return {"seed": seed, "step": 0, "draw": {}, "pool": {}, "again": [], "queue": [], "credit": {}, "update": {}}


async def step(recipe: Recipe, ctx: Context, state: State) -> tuple[State, Metrics]:
    """Gather a batch, learn from it. `state` is left as it was: a failed step changes nothing but the models."""
    r, s = ctx.at(recipe, state["step"]), copied(state)
    ready, seen = await gather_groups(r, ctx, s)
    metrics = learn(r, ctx, s, ready, seen)
    s["step"] += 1
    return s, metrics


def copied(state: State) -> State:
    """Its dictionaries and lists may be written to; what is inside them is only ever replaced."""
    return {k: v.copy() if isinstance(v, dict | list) else v for k, v in state.items()}


async def gather_groups(r: Recipe, ctx: Context, s: State) -> tuple[list[Group], list[Group]]:
    """Fill the queue `lag` tickets ahead, pass the oldest through the pool, until the pool has a batch."""
    ready, seen, oldest = None, [], s["step"] - max_age(r.schedule)
    s["pool"] = {k: young(v, oldest) if groups(v) else v for k, v in s["pool"].items()}
    for n in range(r.schedule.rounds):
        while len(s["queue"]) <= r.schedule.lag:
            key: Key = (s["seed"], "step", s["step"], n, len(s["queue"]))
            s["queue"].append(await attempt(r, ctx, s, key))
        new = s["queue"].pop(0)
        seen += new
        ready, s["again"], s["pool"] = await r.pool(ctx, new, s["pool"])
        if ready is not None:
            return young(ready, oldest), seen
    raise Fault(
        "starved", f"the pool had no batch after {r.schedule.rounds} rounds; its gate keeps nothing of what is drawn"
    )


async def attempt(r: Recipe, ctx: Context, s: State, key: Key) -> list[Group]:
    """Draw tasks, beside groups the pool sent back, and collect all of them at once.

    Raises Paused if all fail: what failed never waits in the queue, so a resumed run draws the same again.
    """
    resumed, s["again"] = s["again"], []
    tasks, s["draw"] = r.draw(ctx, key, r.schedule.prompts - len(resumed), s["draw"])
    starts = [*resumed, *(Group(task=t) for t in tasks)]
    found = list(await asyncio.gather(*(r.collect(ctx, (*key, i), g) for i, g in enumerate(starts))))
    check_some(found)
    return found


def check_some(found: list[Group]) -> None:
    """Raises Paused with the causes if there are episodes and all are errors."""
    episodes = [e for g in found for e in g.episodes]
    if episodes and not any(e.ok for e in episodes):
        causes = Counter(e.status.removeprefix("error:") for e in episodes).most_common()
        told = ", ".join(f"{n} by {cause}" for cause, n in causes)
        why = episodes[0].facts.get("error", episodes[0].status)
        raise Paused(f"every one of {len(episodes)} episodes failed, {told}; the first: {why}")


def max_age(schedule: Schedule) -> int:
    return schedule.lag if schedule.max_age is None else schedule.max_age


def young(found: list[Group], oldest: int) -> list[Group]:
    """Groups with no token older than `oldest`; offline data has no age."""
    ages = [[v for e in g.episodes if not e.muted and (v := e.oldest()) is not None] for g in found]
    return [g for g, versions in zip(found, ages, strict=True) if min(versions, default=oldest) >= oldest]


def groups(part: Any) -> bool:
    """Whether a part of the pool's state holds groups that wait for a batch."""
    return isinstance(part, list) and all(isinstance(g, Group) for g in part)


def learn(r: Recipe, ctx: Context, s: State, ready: list[Group], seen: list[Group]) -> Metrics:
    """Measure and credit for every learner before any weight moves; then update each."""
    examples, metrics = {}, ctx.describe(seen, ready)
    for name, l in r.learners.items():
        signals = ctx.measure(ready, l.needs)
        examples[name], s["credit"][name] = l.credit(ready, signals, s["credit"].get(name, {}))
    for name, l in r.learners.items():
        batch = pack(examples[name], name)
        if batch is not None:  # nothing to train on: the optimiser's clock stands still
            found, s["update"][name] = l.update(ctx, name, l, batch, s["update"].get(name, {}))
            metrics |= {f"{name}/{k}" if len(r.learners) > 1 else k: v for k, v in found.items()}
    s["draw"] = r.observe(seen, examples, s["draw"])
    ctx.record(seen, examples)
    return metrics
