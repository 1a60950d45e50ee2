"""Before the first step: gold answers must score 1, and empty ones less. What is wrong is said task
by task.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from palaestra.abilities import PaysGold, PutsAnswers, Solves, solves
from palaestra.context import RewardFn
from palaestra.errors import Fault
from palaestra.toys.base import demonstration
from palaestra.types import (
    SOLVED_TOTAL,
    Act,
    Call,
    Episode,
    Frame,
    Group,
    Reward,
    Row,
    Segment,
    Task,
    Tasks,
    World,
    rng_of,
    seed_of,
)

Payer: TypeAlias = RewardFn | World  # whoever says what an episode is worth
Adviser: TypeAlias = Callable[[Any], Any]  # what to say, by a world's state

FORMS = (  # of an answer in a response, for rewards that do not say theirs
    "{}",
    "The answer is {}.",
    "\\boxed{{{}}}",
    "<answer>{}</answer>",
    "<think>Hm.</think>\n<answer>{}</answer>",
)
TURNS = 256  # of a scripted game
EXCERPT = 60  # characters of an answer in a message


async def problems(tasks: Tasks, judge: Payer, n: int = 16, *, ctx: Any = None) -> list[str]:
    """What is wrong with the first `n` training tasks under `judge`, a reward or a world; nothing =
    all is well.
    """
    first = [tasks.task("train", i) for i in range(n if tasks.size is None else min(n, tasks.size))]
    if isinstance(judge, World):
        return await _of_world(first, judge)
    return await _of_reward(tasks, first, judge, ctx)


async def _of_reward(source: Tasks, tasks: Sequence[Task], judge: RewardFn, ctx: Any) -> list[str]:
    """A gold answer is worth `judge.gold` where a judge has it, else no less than any other answer
    that is tried. A judge that says neither this nor how answers are written may want any of the
    common forms.
    """
    found, seen = await _of_form(source, tasks, judge, ctx)
    if found and worth(judge) is None and not isinstance(judge, PutsAnswers):
        for form in FORMS[1:]:
            if (await _of_form(source, tasks[:1], judge, ctx, form))[0]:
                continue  # a call may cost money
            other, paid = await _of_form(source, tasks, judge, ctx, form)
            found, seen = min((found, seen), (other, paid), key=lambda tried: len(tried[0]))
    if found and len(seen) == 1:
        return [
            f"each gold, wrong or empty answer to {len(tasks)} tasks scores {seen.pop():g}: "
            "nothing can be learned"
        ]
    return found


async def _of_form(
    source: Tasks, tasks: Sequence[Task], judge: RewardFn, ctx: Any, form: str = "{}"
) -> tuple[list[str], set[float]]:
    """What is wrong where all answers are written in one form, and all scores."""
    exact, found, seen = worth(judge), list[str](), set[float]()
    plain = {t.id: put(source, t, judge) for t in tasks if t.answer is not None}
    written = {identity: text and form.format(text) for identity, text in plain.items()}
    golds = {identity: text for identity, text in written.items() if text is not None}
    for task in tasks:
        gold_said = golds.get(task.id)
        wrong = next((g for g in golds.values() if g != gold_said), "")
        texts = ["", wrong, *([] if gold_said is None else [gold_said])]
        rewards = await judge(
            ctx, Group(task=task, episodes=tuple(episode_saying(t) for t in texts))
        )
        scores = [total(r) for r in rewards]
        seen |= set(scores)
        if gold_said is None:
            continue
        best, empty, gold = max(scores), scores[0], scores[-1]
        start = f"task {task.id!r}: the gold answer {gold_said[:EXCERPT]!r} scores {gold:g}"
        if exact is not None and gold != exact:
            found.append(f"{start}, not {exact:g}")
        elif exact is None and gold < best:
            found.append(
                f"{start}, less than {texts[scores.index(best)][:EXCERPT]!r} with {best:g}"
            )
        elif empty >= gold:
            found.append(f"{start}, an empty answer {empty:g}; it must score less")
    return found, seen


def worth(judge: RewardFn) -> float | None:
    """What a gold answer is worth, where the judge says so."""
    return judge.gold if isinstance(judge, PaysGold) else None


def total(found: Reward | Fault) -> float:
    if isinstance(found, Fault):
        raise found
    return found.total


def put(source: Tasks, task: Task, judge: RewardFn) -> str | None:
    """The task's answer as a response, as the judge writes it or as its source demonstrates it."""
    if isinstance(judge, PutsAnswers):
        return judge.put(task)
    return demonstration(source, task, rng_of(("oracle", task.id)), "guess")


def episode_saying(text: str) -> Episode:
    """A finished episode in which the policy said `text`."""
    said = Segment(
        ids=(), logp=(), author="policy", policy="policy", trained=True, text=text, finish="eos"
    )
    return Episode(rows=(Row(segments=(said,)),), status="finished")


async def _of_world(tasks: Sequence[Task], world: World) -> list[str]:
    """Plays every task as the world's oracle says, and in silence. A world without an oracle is not
    checked.
    """
    if not (isinstance(world, Solves) and solves(world)):
        return []
    return [line for task in tasks for line in await _of_game(task, world, world.oracle)]


async def _of_game(task: Task, world: World, oracle: Adviser) -> list[str]:
    paid, end = await play_oracle(world, task, oracle)
    if end != "finished":
        return [f"task {task.id!r}: the oracle's game is {end}; it must come to an end"]
    if len(world.seats) > 1:
        return []  # the oracle played all sides
    if paid < SOLVED_TOTAL:
        return [f"task {task.id!r}: the oracle is paid {paid:g}; a solved task pays 1"]
    silent, _ = await play_oracle(world, task, None)
    if silent >= paid:
        return [
            f"task {task.id!r}: saying nothing is paid {silent:g}, the oracle {paid:g}; it must be "
            "paid less"
        ]
    return []


async def play_oracle(world: World, task: Task, oracle: Adviser | None) -> tuple[float, str]:
    """What the first seat is paid in a game that `oracle(state)` (or silence) plays for all seats,
    and how it ended.
    """
    key = ("oracle", seed_of((task.id,)))
    frame: Frame = await _await(world.reset(task, key))
    paid, turn = _first_pay(frame, world), 0
    while frame.asks and turn < TURNS:
        said = await _await(oracle(frame.state)) if oracle else ""
        text, call = ("", said) if isinstance(said, Call) else (str(said), None)
        acts = tuple(Act(ask=a, text=text, call=call, finish="eos", n_tokens=0) for a in frame.asks)
        turn += 1
        frame = await _await(world.step(frame.state, acts, (*key, turn)))
        paid += _first_pay(frame, world)
    return paid, f"not over after {TURNS} turns" if frame.asks else frame.status


def _first_pay(frame: Frame, world: World) -> float:
    return sum(float(x) for (seat, _), x in frame.pay.items() if seat == world.seats[0])


async def _await(found: Any) -> Any:
    return await found if inspect.isawaitable(found) else found
