"""When rollouts happen relative to updates: what is handed out ahead of a step, in which order it
is taken, and how old it may be.

Attempts wait in the queue of the run's state. A step hands out new ones until `lag` are ahead of
it, and takes the oldest, or, with a window, what is over among the oldest ones. Ages are in steps.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import ceil, floor
from typing import TYPE_CHECKING, Any, Protocol

from palaestra.attempts import Attempt, Flight, Ticket
from palaestra.context import AsyncDraw, Collect, Draw
from palaestra.errors import NOT_APPLICABLE, Paused, UserError
from palaestra.rollout.play import await_if_needed
from palaestra.rollout.tickets import cut
from palaestra.types import Example, Group, Key, Metrics, State, need_at_least, stage

if TYPE_CHECKING:
    from palaestra.context import Context


@stage
class Schedule:
    """When rollouts happen relative to updates. Ages are in steps."""

    prompts: int = 16  # groups drawn a step
    lag: int = 0  # rollouts of step s use the weights of step s - lag; 0 = on-policy
    # under a cluster: weights of a step reach what is being sampled, between two of its tokens
    in_flight: bool = False
    # under a cluster: share of what is under way within which groups may overtake the oldest; 0 =
    # in the order in which they were handed out
    window: float = 0.0
    # nothing older is trained on; None = lag, and with a window what that allows
    max_age: int | None = None
    rounds: int = 16  # draws a step may take until the pool has a batch
    steps: int = 100  # length of a run, unless the run says otherwise

    def __post_init__(self) -> None:
        need_at_least(self, prompts=1, lag=0, rounds=1, steps=0)
        if not 0 <= self.window <= 1:
            raise UserError(f"schedule.window is a share from 0 to 1, not {self.window}")


class Gathers(Protocol):
    """What of a recipe the queue needs."""

    @property
    def draw(self) -> Draw | AsyncDraw: ...
    @property
    def collect(self) -> Collect: ...
    @property
    def schedule(self) -> Schedule: ...


async def take(recipe: Gathers, ctx: Context, state: State, n: int) -> list[Group]:
    """The groups of an attempt, in round `n` of a step."""
    if recipe.schedule.window:
        return await take_in_window(recipe, ctx, state, n)
    return await take_in_order(recipe, ctx, state, n)


async def take_in_order(recipe: Gathers, ctx: Context, state: State, n: int) -> list[Group]:
    """The oldest attempt, in round `n` of a step."""
    while len(state["queue"]) <= recipe.schedule.lag:
        key: Key = (state["seed"], "step", state["step"], n, len(state["queue"]))
        state["queue"].append(await issue(recipe, ctx, state, key))
    return await land(recipe, ctx, state)


async def take_in_window(recipe: Gathers, ctx: Context, state: State, n: int) -> list[Group]:
    """As many groups as an attempt has, in round `n` of a step: whole tickets, the oldest first of
    those that are over and within the window.

    The window is anchored at the oldest ticket that is not taken, by the places in which they were
    handed out, so none is overtaken for ever: see `window_age`. Nothing is thrown away.
    """
    prompts, lag = recipe.schedule.prompts, recipe.schedule.lag
    queue, places = state["queue"], places_of(state)
    # what was handed out last may have been taken, and its place stays its own
    following = max(
        state.get("places", {}).get("next", 0), places[-1] + groups_in(queue[-1]) if queue else 0
    )
    while (ahead := sum(map(groups_in, queue))) <= lag * prompts:
        key: Key = (state["seed"], "step", state["step"], n, ahead // prompts)
        issued = await issue(recipe, ctx, state, key)
        for part in issued.split() if isinstance(issued, Flight) else (issued,):
            queue.append(part)
            places.append(following)
            following += groups_in(part)
    for i, entry in enumerate(queue):
        if isinstance(entry, tuple):  # what was under way when the run paused
            queue[i] = await hand_out_anew(recipe, ctx, state, entry)
    groups: list[Group] = []
    while len(groups) < prompts:
        end = places[0] + window_groups(recipe.schedule)
        within = [i for i, p in enumerate(places) if i == 0 or p + groups_in(queue[i]) <= end]
        over = [i for i in within if is_over(queue[i])]
        if not over:
            first, *others = [x for i in within if isinstance(x := queue[i], Flight)]
            await first.first_over(others)
            continue
        places.pop(over[0])
        entry = queue.pop(over[0])
        groups += await entry.land() if isinstance(entry, Flight) else entry
    state["places"] = {"next": following, "of": places}
    check_some(groups)
    return groups


def places_of(state: State) -> list[int]:
    """Of each entry of the queue the number of groups that were handed out before it; entries that
    came otherwise, as from a run in order, are numbered in their order.
    """
    places = list(state.get("places", {}).get("of", ()))
    if len(places) == len(state["queue"]):
        return places
    return [sum(map(groups_in, state["queue"][:i])) for i in range(len(state["queue"]))]


def groups_in(entry: Attempt) -> int:
    """How many an entry of the queue has, or will have."""
    if isinstance(entry, list):
        return len(entry)
    return sum(len(t.starts) for t in (entry.tickets if isinstance(entry, Flight) else entry))


def is_over(entry: Attempt) -> bool:
    return not isinstance(entry, Flight) or entry.over


async def issue(recipe: Gathers, ctx: Context, state: State, key: Key) -> list[Group] | Flight:
    """Draw tasks, beside groups the pool sent back, and hand out all of them at once."""
    resumed, state["again"] = state["again"], []
    prompts = recipe.schedule.prompts - len(resumed)
    drawn = recipe.draw(ctx, key, prompts, state["draw"])
    tasks, state["draw"] = await await_if_needed(drawn)
    starts = [*resumed, *(Group(task=task) for task in tasks)]
    tickets = cut(key, starts, ctx.carrier.waves, state["step"], recipe.schedule.in_flight)
    return await submit(recipe, ctx, tickets)


async def submit(
    recipe: Gathers, ctx: Context, tickets: tuple[Ticket, ...]
) -> list[Group] | Flight:
    """Hands out an attempt.

    Raises Paused if all of it failed at once: what failed never waits in the queue, so a resumed
    run draws the same again.
    """
    flight = await ctx.carrier.submit(recipe, ctx, tickets)
    if isinstance(flight, list):
        check_some(flight)
    return flight


async def land(recipe: Gathers, ctx: Context, state: State) -> list[Group]:
    """The oldest attempt of the queue. Raises Paused if all of it failed."""
    head: Attempt = state["queue"].pop(0)
    if isinstance(head, tuple):  # what was under way when the run paused
        head = await hand_out_anew(recipe, ctx, state, head)
    groups = await head.land() if isinstance(head, Flight) else head
    check_some(groups)
    return groups


async def hand_out_anew(
    recipe: Gathers, ctx: Context, state: State, tickets: tuple[Ticket, ...]
) -> list[Group] | Flight:
    """By the weights of now."""
    return await submit(recipe, ctx, tuple(replace(t, step=state["step"]) for t in tickets))


def check_some(groups: list[Group]) -> None:
    """Raises Paused with the causes if there are episodes and all are errors."""
    episodes = [e for group in groups for e in group.episodes]
    if episodes and all(e.unjudged for e in episodes):
        why = str(episodes[0].facts.get("error", "")).removeprefix(f"{NOT_APPLICABLE}: ")
        raise Paused(
            f"the reward says nothing of all {len(episodes)} answers; return numbers for some of "
            f"them: {why}"
        )
    if episodes and not any(e.ok for e in episodes):
        causes = Counter(e.status.removeprefix("error:") for e in episodes).most_common()
        counts = ", ".join(f"{n} by {cause}" for cause, n in causes)
        why = episodes[0].facts.get("error", episodes[0].status)
        raise Paused(f"every one of {len(episodes)} episodes failed, {counts}; the first: {why}")


# ---- ages


def max_age(schedule: Schedule) -> int:
    return window_age(schedule) if schedule.max_age is None else schedule.max_age


def window_groups(schedule: Schedule) -> int:
    """W = floor(window (lag + 1) prompts): groups from the oldest one on of which a step may take."""
    return floor(schedule.window * (schedule.lag + 1) * schedule.prompts + 1e-9)


def window_age(schedule: Schedule) -> int:
    """lag + ceil((W - 1) / prompts): what no group is older than when it is learned from.

    While a group waits, at most the W - 1 after it are taken before it, beside those that were
    handed out before it.
    """
    return schedule.lag + ceil(max(0, window_groups(schedule) - 1) / schedule.prompts)


def drop_old(groups: list[Group], oldest: int) -> list[Group]:
    """Groups with no token older than `oldest`; offline data has no age."""
    ages = [
        [v for e in group.episodes if not e.muted and (v := e.oldest()) is not None]
        for group in groups
    ]
    pairs = zip(groups, ages, strict=True)
    return [group for group, versions in pairs if min(versions, default=oldest) >= oldest]


def drop_old_examples(examples: list[Example], oldest: int) -> list[Example]:
    """Examples with no trained token older than `oldest`; a unit goes as a whole."""
    ages = [e.row.oldest() for e in examples]
    old = [age is not None and age < oldest for age in ages]
    gone = {e.unit for e, is_old in zip(examples, old, strict=True) if is_old and e.unit}
    pairs = zip(examples, old, strict=True)
    return [e for e, is_old in pairs if not is_old and e.unit not in gone]


def age_numbers(examples: list[Example], name: str, step: int) -> Metrics:
    """How many steps the weights that sampled a token were behind those that it trains: the mean
    over the tokens that train learner `name`, and the most. Nothing where none has an age, as in
    offline data.

    mean_t (step - version_t), max_t (step - version_t)
    """
    counts: Counter[int] = Counter()
    for e in examples:
        seen = [x for x in e.row.segments if not x.hidden]
        runs = [x.versions or ((len(x.ids), None),) for x in seen]
        version_T = [v for each in runs for n, v in each for _ in range(n)]
        own_T = e.columns.get("trained", e.row.view(name).trained_T)
        # nothing precedes the first token, so it trains nothing
        own = zip(version_T[1:], own_T[1:], strict=True)
        counts.update(step - v for v, is_own in own if is_own and v is not None)
    if not counts:
        return {}
    return {
        "age_mean": sum(age * n for age, n in counts.items()) / counts.total(),
        "age_max": float(max(counts)),
    }


def drop_old_inside(state: State, oldest: int) -> State:
    """The state of a stage without the groups and examples in it that are too old."""
    kept: State = {}
    for name, part in state.items():
        if holds(part, Group):
            kept[name] = drop_old(part, oldest)
        else:
            kept[name] = drop_old_examples(part, oldest) if holds(part, Example) else part
    return kept


def groups_inside(state: State) -> list[Group]:
    """The groups that wait in the state of a stage."""
    return [group for part in state.values() if holds(part, Group) for group in part]


def holds(part: Any, kind: type) -> bool:
    """Whether a part of a stage's state is a list of groups, or of examples, that wait."""
    return isinstance(part, list) and all(isinstance(x, kind) for x in part)
