"""The user's own environment, from a file:

    class Guess:
        seats = ("policy",)
        def task(self, split, index):             # optional: else tasks have no prompt, the key makes them differ
            return Task(id=f"{split}/{index}", answer=index % 10)
        def reset(self, task, key):
            return Frame(state=task.answer, asks=(Ask(seat="policy", say=(Message(role="user", content="0 to 9?"),)),))
        def step(self, state, acts, key):
            return Frame(state=state, pay={("policy", ""): float(acts[0].text.strip() == str(state))})
        def oracle(self, state):                  # optional: what to say, for the check before the first step
            return str(state)

With `--data` the rows are the tasks in place of the class's own: `task.prompt`, `task.answer`, and in
`task.meta` the other columns.

A seat may have a player of its own, who is not trained: `players = {"second": function}`, a
function `(messages, rng) -> text`.

A world that the file has made, `lake = GymnasiumWorld(make)`, may be named in place of a class, and
so may an object whose methods are tools: see `palaestra.worlds.adapters.methods`.

Methods may be plain or async. An error in one stops the run and names the user's own line; a
`Fault` ends the episode.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from palaestra.abilities import (  # fmt: skip
    Casts,
    GivesTasks,
    HasDialect,
    HeldOutSize,
    HoldsEpisodes,
    KnowsSolved,
    LimitsTurns,
    Remarks,
    Solves,
    TrainingSize,
    bounds_of,
)
from palaestra.context import Bench
from palaestra.declared import declare
from palaestra.errors import Fault, UserError
from palaestra.tasks.user_code import accepts, file_of, load, locate_error, path_of, with_own_data
from palaestra.types import Act, Ask, Dialect, Frame, Key, Message, Task, World, stage

METHODS = {
    "reset": ("task", "key"),
    "step": ("state", "acts", "key"),
    "task": ("split", "index"),
    "oracle": ("state",),
}
NEEDED_METHODS = ("reset", "step")
EXCERPT = 60  # characters of a wrong value in a message
MESSAGES = 'a tuple, with its comma: (Message(role="user", content="..."),)'
PAY = 'a number by seat and thread: pay={("policy", ""): 1.0}'


@declare(facts=("*",))
@stage
class UserWorld:
    """`FILE.py:CLASS` as a world; it answers for what the class returns."""

    spec: str

    def __post_init__(self) -> None:
        instance_of(self.spec)

    @property
    def seats(self) -> tuple[str, ...]:
        return instance_of(self.spec).seats

    @property
    def max_tokens(self) -> int:
        instance = instance_of(self.spec)
        own = instance.max_tokens if isinstance(instance, LimitsTurns) else 0
        return own or Bench.max_tokens

    @property
    def has_oracle(self) -> bool:
        return isinstance(instance_of(self.spec), Solves)

    @property
    def solved(self) -> float | None:
        instance = instance_of(self.spec)
        return instance.solved if isinstance(instance, KnowsSolved) else None

    @property
    def dialect(self) -> Dialect | None:
        instance = instance_of(self.spec)
        return instance.dialect if isinstance(instance, HasDialect) else None

    @property
    def bounds(self) -> tuple[float, float] | None:
        return bounds_of(instance_of(self.spec))

    async def remarks(self) -> Sequence[str]:
        instance = instance_of(self.spec)
        return await instance.remarks() if isinstance(instance, Remarks) else ()

    async def reset(self, task: Task, key: Key) -> Frame:
        return self._frame(await call_method(self.spec, "reset", with_own_data(task), key), "reset")

    async def step(self, state: Any, acts: tuple[Act, ...], key: Key) -> Frame:
        return self._frame(await call_method(self.spec, "step", state, acts, key), "step")

    async def oracle(self, state: Any) -> Any:
        return await call_method(self.spec, "oracle", state)

    async def leave(self, state: Any) -> None:
        if isinstance(instance_of(self.spec), HoldsEpisodes):
            await call_method(self.spec, "leave", state)

    def _frame(self, frame: Any, method: str) -> Frame:
        where = f"{self.spec}.{method}"
        if not isinstance(frame, Frame):
            raise UserError(
                f"{where} returned {type(frame).__name__}; return a palaestra.types.Frame"
            )
        need(
            is_list_of(frame.asks, Ask),
            where,
            "asks",
            frame.asks,
            "a tuple, with its comma: asks=(Ask(...),)",
        )
        need(isinstance(frame.pay, Mapping), where, "pay", frame.pay, PAY)
        for who in frame.pay:
            need(isinstance(who, tuple) and len(who) == 2, where, "a key of pay", who, PAY)
        for seat in [a.seat for a in frame.asks] + [seat for seat, _ in frame.pay]:
            if seat not in self.seats:
                raise UserError(
                    f"{where} names the seat {seat!r}; the seats are {', '.join(self.seats)}"
                )
        for ask in frame.asks:
            need(is_conversation(ask.say), where, "say", ask.say, MESSAGES)
            need(
                is_list_of(ask.stop, str),
                where,
                "stop",
                ask.stop,
                'a tuple, with its comma: stop=("\\n",)',
            )
            need(
                ask.choices is None or is_list_of(ask.choices, str),
                where,
                "choices",
                ask.choices,
                'a tuple of texts, with its comma: choices=("yes", "no")',
            )
            limit = ask.max_tokens
            need(
                limit is None or isinstance(limit, int),
                where,
                "max_tokens",
                limit,
                "a whole number",
            )
        for who, amount in frame.pay.items():
            need(is_finite(amount), where, f"the pay of {who[0]!r}", amount, "a finite number")
        return frame


@declare(
    columns=(("split", str, '"train" or "test"'), ("index", int, "the number of the task in it"))
)
@stage
class UserTasks:
    """The tasks of a user's environment: its own, or endless ones without a prompt."""

    spec: str

    @property
    def name(self) -> str:
        return self.spec.rpartition(":")[2].lower()

    @property
    def size(self) -> int | None:
        instance = instance_of(self.spec)
        return instance.size if isinstance(instance, TrainingSize) else None

    @property
    def test_size(self) -> int | None:
        instance = instance_of(self.spec)
        return instance.test_size if isinstance(instance, HeldOutSize) else None

    def task(self, split: str, index: int) -> Task:
        instance, where = instance_of(self.spec), f"{self.spec}.task"
        if not isinstance(instance, GivesTasks):
            return Task(
                id=f"{self.name}/{split}/{index}",
                meta={"split": split, "index": index},
                domain=self.name,
            )
        task = guard_call(self.spec, instance.task, split, index)
        if not isinstance(task, Task):
            raise UserError(
                f"{where} returned {type(task).__name__}; return a palaestra.types.Task"
            )
        for name in ("id", "domain", "bundle"):
            need(isinstance(getattr(task, name), str), where, name, getattr(task, name), "text")
        need(is_conversation(task.prompt), where, "prompt", task.prompt, MESSAGES)
        need(isinstance(task.meta, Mapping), where, "meta", task.meta, "a dictionary")
        return task


def need(good: bool, where: str, what: str, value: Any, instead: str) -> None:
    """Raises UserError for a value that is not what it must be."""
    if not good:
        excerpt = " ".join(repr(value).split())[:EXCERPT]
        raise UserError(f"{where}: {what} is {type(value).__name__} {excerpt}; write {instead}")


def is_list_of(value: Any, kind: type) -> bool:
    return isinstance(value, tuple | list) and all(isinstance(x, kind) for x in value)


def is_conversation(value: Any) -> bool:
    return is_list_of(value, Message) and all(
        isinstance(x, str) for m in value for x in (m.role, m.content)
    )


def is_finite(amount: Any) -> bool:
    """A number of whatever library, or a truth value."""
    try:
        return not isinstance(amount, str) and math.isfinite(float(amount))
    except (TypeError, ValueError, OverflowError):
        return False


def players_of(spec: str) -> Mapping[str, Callable[..., str]]:
    """The functions that play seats in the policy's place: the attribute `players` of the class."""
    instance = instance_of(spec)
    players = given_players(instance)
    good = isinstance(players, Mapping) and all(
        callable(f) and accepts(f, "messages", "rng") for f in players.values()
    )
    need(
        good,
        spec,
        "players",
        players,
        'functions by seat: players = {"second": move}, with def move(messages, rng)',
    )
    if strange := [seat for seat in players if seat not in instance.seats]:
        raise UserError(
            f"{spec}: players has the seat {strange[0]!r}; the seats are "
            f"{', '.join(instance.seats)}"
        )
    if set(players) == set(instance.seats):
        raise UserError(f"{spec}: players fills every seat; leave one to the policy")
    return {seat: partial(_move, spec, seat) for seat in players}


def given_players(instance: object) -> Any:
    return instance.players if isinstance(instance, Casts) else {}


def _move(spec: str, seat: str, messages: Sequence[Message], rng: Any) -> str:
    text = guard_call(spec, instance_of(spec).players[seat], messages, rng)
    need(isinstance(text, str), spec, f"what the player of {seat!r} says", text, "text")
    return text


def load_environment(spec: str) -> tuple[UserWorld, UserTasks]:
    """The world and the tasks of `FILE.py:CLASS`. Raises UserError for what is wrong with the
    class.
    """
    world, tasks = UserWorld(spec), UserTasks(spec)
    tasks.task("train", 0)
    return world, tasks


def check_takes_records(spec: str) -> None:
    """Raises UserError for an environment whose episodes no record of data can begin."""
    instance = instance_of(spec)
    if isinstance(instance, GivesTasks):
        raise UserError(
            f"--env {spec} makes its own tasks, by its method `task`, and --data gives others; drop "
            "one of the two"
        )


@lru_cache(maxsize=32)
def instance_of(spec: str) -> Any:
    """One instance, checked: made without arguments, or a world that the file made itself."""
    made = load(spec, "class")
    if not isinstance(made, type | World):
        raise UserError(
            f"{spec} is {type(made).__name__}, not a class; write class {spec.rpartition(':')[2]}: "
            "..."
        )
    if isinstance(made, type) and not accepts(made):
        raise UserError(f"{spec} must be made without arguments; give those of __init__ defaults")
    instance = guard_call(spec, made) if isinstance(made, type) else made
    _check_seats(spec, getattr(instance, "seats", None))
    for method, arguments in METHODS.items():
        value = getattr(instance, method, None)
        if value is None and method not in NEEDED_METHODS:
            continue
        if not callable(value) or not accepts(value, *arguments):
            has = (
                f"has {method}{inspect.signature(value)}"
                if callable(value)
                else f"has no method {method!r}"
            )
            raise UserError(f"{spec} {has}; write def {method}(self, {', '.join(arguments)})")
    return instance


def _check_seats(spec: str, seats: Any) -> None:
    good = isinstance(seats, tuple) and seats and all(isinstance(s, str) and s for s in seats)
    if not good or len(set(seats)) != len(seats):
        problem = "no seats" if seats is None else f"seats = {seats!r}"
        raise UserError(
            f'{spec} has {problem}; write the players\' names, e.g. seats = ("policy",)'
        )


async def call_method(spec: str, method: str, *arguments: Any) -> Any:
    value = guard_call(spec, getattr(instance_of(spec), method), *arguments)
    return await await_guarded(spec, method, value)


async def await_guarded(spec: str, method: str, value: Any) -> Any:
    """What a method returned, once it is there."""
    if not inspect.isawaitable(value):
        return value
    try:
        return await value
    except (Fault, UserError):
        raise
    except Exception as error:
        raise UserError(_fault(error, spec, f".{method}")) from error


def guard_call(spec: str, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except (Fault, UserError):
        raise
    except Exception as error:
        name = "" if isinstance(function, type) else f".{function.__name__}"
        raise UserError(_fault(error, spec, name)) from error


def _fault(error: Exception, spec: str, method: str) -> str:
    made = load(spec, "class")
    file = file_of(made) if isinstance(made, type) else str(path_of(spec.rpartition(":")[0]))
    return f"{locate_error(error, file)} (in {spec.rpartition(':')[2]}{method})"
