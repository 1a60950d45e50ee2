"""Where a method stands, read off its recipe: what is optimised, how, by which signal, and when.

A sign is a part that a recipe is made of, known by the room in which its class lies, so that a part
that is added to a room is read like its neighbours. What is no single part (a value head, a lag, a
collection that samples nothing) is a function below. A value that no sign gives is not read off.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import palaestra
from palaestra import catalogue
from palaestra.abilities import ReplaysRecords
from palaestra.ledger.experiment import experiment_of
from palaestra.method import Learner, Recipe
from palaestra.names import names_in
from palaestra.rollout.collect import Score
from palaestra.rollout.queue import Schedule
from palaestra.run.benches import bench_by_name
from palaestra.schedule import Scheduled
from palaestra.types import value_class
from palaestra.values import walk

Read = dict[str, set[str]]  # values by column
GRADERS = ("reward", "verifier", "judge")  # what learners are called that grade answers


@value_class
class Sign:
    """Parts that say something: where their classes lie, and what they say in which column."""

    rooms: tuple[str, ...]
    says: tuple[tuple[str, str], ...]  # (column, value)


def says(rooms: str, **values: str) -> Sign:
    """A sign, as its rooms and values with blanks between them."""
    pairs = ((column, value) for column, text in values.items() for value in text.split())
    return Sign(rooms=tuple(rooms.split()), says=tuple(pairs))


CHECKED = (
    "rewards.verify rewards.verified rewards.answer_f1 rewards.rules "
    "rewards.weighted.AccuracyAndFormat verifiers"
)
SIGNS = (
    says("objective.reward_model judges.train", target="grader", optimiser="fit"),
    says("credit.preferences.Compare credit.preferences.Rate", phase="preference"),
    says("control", target="controller", phase="rl"),
    says("control.q", optimiser="q-learning"),
    says("control.actor_critic", optimiser="critic"),
    says("curriculum.written", target="data"),
    says("curriculum.memory", target="memory"),
    says("curriculum.replay credit.again.Rehearse", optimiser="off-policy"),
    says("models.arithmetic run.merging", target="policy", optimiser="merge", phase="merging"),
    says("objective.preference", optimiser="pairs", phase="preference", reward="implicit"),
    says("objective.residual", optimiser="residual"),
    says("rewards.learned rewards.bridging rewards.critique", reward="learned"),
    says("judges", reward="judge", feedback="ai"),
    says("rewards.intrinsic", reward="intrinsic", feedback="self"),
    says("rewards.critic credit.steps credit.turns rollout.branch", reward="process"),
    says(CHECKED, reward="verifiable", feedback="environment"),
    says("rewards.labels rollout.recorded", feedback="data"),
    says("rollout.recorded.Offline", optimiser="offline"),
)
# Losses that raise what is paid more; other losses are signs of their own, or of no optimiser.
GRADIENTS = (
    "objective.policy.Clipped",
    "objective.policy.Reinforce",
    "objective.policy.Trust",
    "objective.tokens",
    "objective.shaped",
    "objective.mismatch",
)
IMITATIONS = ("objective.policy.Imitation", "objective.preference.ImitatePreferred")


def read_off(built: Any, task: str = "") -> Mapping[str, tuple[str, ...]]:
    """What a recipe, pipeline or program says of itself, by column; a column of which it says
    nothing is left out.

    Args:
        task: the problem that it is measured on, for rewards that are the problem's own.
    """
    readings: Read = {}
    parts = [built, *(part for _, part in walk(built))]
    for column, value in (sign for part in parts for sign in signs_of(part)):
        readings.setdefault(column, set()).add(value)
    for recipe in (part for part in parts if isinstance(part, Recipe)):
        for column, value in said_by_recipe(recipe, task):
            readings.setdefault(column, set()).add(value)
    return {column: tuple(sorted(values)) for column, values in readings.items()}


def read_row(method: str) -> Mapping[str, tuple[str, ...]]:
    """The same of a built method, on the problem of its claim, or else of its card."""
    entry, module = catalogue.entry_of(method), catalogue.find(method)
    tasks = experiment_of(method).task if entry.claim else module.CARD.task
    task = tasks if isinstance(tasks, str) else next(iter(tasks), "")
    return read_off(module.build(), task)


def get(name: str) -> Any:
    """What a public name stands for."""
    return attrgetter(name)(palaestra)


def lies_in(part: Any, rooms: Sequence[str]) -> bool:
    """Whether the class of a part, or the function that a name stands for, is one of these, or lies
    in one of these rooms.
    """
    known = part if hasattr(part, "__qualname__") else type(part)
    name = f"{known.__module__}.{known.__qualname__}.".removeprefix("palaestra.")
    return any(name.startswith(f"{room}.") for room in rooms)


def signs_of(part: Any) -> Iterator[tuple[str, str]]:
    """What a part says by where its class lies."""
    for sign in SIGNS:
        if hasattr(part, "__module__") and lies_in(part, sign.rooms):
            yield from sign.says


def said_by_recipe(recipe: Recipe, task: str) -> Iterator[tuple[str, str]]:
    """What a recipe says that is no single part."""
    recorded = isinstance(recipe.collect, ReplaysRecords) and recipe.collect.recorded
    scores = [part for _, part in walk(recipe.collect) if isinstance(part, Score)]
    for name, learner in recipe.learners.items():
        yield "target", "grader" if grades(name, learner) else "policy"
        if not grades(name, learner):
            yield from said_by_learner(learner, recorded)
    if any(late(recipe.schedule, name) for name in ("lag", "max_age")):
        yield "optimiser", "off-policy"
    for score in scores:
        yield from said_by_score(score, task)
    if recorded:
        yield "feedback", "data"
    if recorded and all(has(losses(x), IMITATIONS) for x in recipe.learners.values()):
        yield "reward", "none"


def grades(name: str, learner: Learner) -> bool:
    """Whether a learner judges answers and writes none."""
    return name in GRADERS or has(losses(learner), ("objective.reward_model",))


def losses(learner: Learner) -> list[Any]:
    return [learner.objective, *(part for _, part in walk(learner.objective))]


def has(parts: Iterable[Any], rooms: Sequence[str]) -> bool:
    return any(lies_in(part, rooms) for part in parts)


def said_by_learner(learner: Learner, recorded: bool) -> Iterator[tuple[str, str]]:
    """How one learner that writes answers is optimised, and when."""
    loss_values = losses(learner)
    gradient, imitates = has(loss_values, GRADIENTS), has(loss_values, IMITATIONS)
    if imitates:
        yield "optimiser", "imitation"
    if imitates and recorded:
        yield "phase", "supervised"
    if gradient or has(loss_values, ("objective.residual",)):
        yield "phase", "rl"
        if recorded:
            yield "optimiser", "offline"
    if "value" in learner.heads:
        yield "optimiser", "critic"
    elif gradient and not recorded:
        yield "optimiser", "critic-free"


def is_own(reward: Any) -> bool:
    """Whether a reward lies in a recipe, or in a file of the user's."""
    room = type(reward).__module__
    return not room.startswith("palaestra.") or room.startswith("palaestra.recipes.")


def late(schedule: Schedule, name: str) -> bool:
    """Whether what is trained on may be older than the weights; an age that moves says so too."""
    age: Any = getattr(schedule, name)
    return isinstance(age, Scheduled) or bool(age)


def said_by_score(score: Score, task: str) -> Iterator[tuple[str, str]]:
    """What judges the answers: the problem itself, or a reward of the recipe's own, whose code says
    which public parts it asks.
    """
    if score.reward is None:
        paid = bench_by_name(task or "chain")[0].reward
        yield "reward", "world" if paid is None else "verifiable"
        yield "feedback", "environment"
    elif is_own(score.reward):
        source = inspect.getsource(type(score.reward))
        asked = (get(name) for name in names_in(source))
        signs = {sign for part in asked for sign in signs_of(part)}
        yield from sorted(sign for sign in signs if sign[0] in ("reward", "feedback"))
