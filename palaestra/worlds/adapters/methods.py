"""An environment that is one object: its public methods are tools, and it says what it earned.

    class Counter:
        def reset(self) -> str:                    # a fresh episode; what it returns is the prompt
            self.count, self.target = 0, random.randint(1, 6)
            return f"Increment the counter by {self.target}."
        def get_reward(self) -> float:             # after the last turn; may be async; None = no reward
            return float(self.count == self.target)
        def increment(self, step: int) -> int:     # a tool, with hints and a docstring
            "Adds step to the counter."
            self.count += step
            return self.count

TRL's GRPOTrainer takes such classes as `environment_factory` (version 1.9). The policy calls, reads
the results as messages of the role `tool`, and ends the episode with a message without a call.

With `--data` an episode begins with a row: the policy reads its prompt, behind which stands what
`reset` returns (None = nothing), and `reset` is given the columns that it names, or all by
`**columns`.

What `reset` draws from `random` and `numpy.random` follows the task, so that all episodes of a
group begin alike, and so does one that is played anew. What methods draw does not: they take it
from a generator that `reset` makes.
"""

from __future__ import annotations

import inspect
import json
import random
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial, wraps
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from palaestra.abilities import KnowsSolved
from palaestra.errors import NotApplicable, UserError
from palaestra.services.tools.functions import FunctionTool
from palaestra.tasks.user_code import accepts, load
from palaestra.types import (
    Act,
    Call,
    Frame,
    Key,
    Malformed,
    Message,
    Task,
    Tasks,
    ToolSchema,
    seed_of,
    stage,
)
from palaestra.worlds.adapters.base import POLICY, SEEDS, AdaptedWorld, Live, Scene, Trail
from palaestra.worlds.tool_log import LoggedCall, log_facts
from palaestra.worlds.toolbox import Toolbox
from palaestra.worlds.tools import WithTools, end_of, facts, logged, used_tools
from palaestra.worlds.user import await_guarded, guard_call, is_finite, need

RESERVED = ("reset", "get_reward")


@runtime_checkable
class PaysItself(Protocol):
    """An environment that is played by its methods, and says what the calls earned."""

    def reset(self) -> str: ...
    def get_reward(self) -> float: ...


def is_object_of_tools(spec: str) -> bool:
    """Whether `FILE.py:CLASS` is such an environment, and no world of ours."""
    made = load(spec, "class")
    return isinstance(made, type) and issubclass(made, PaysItself) and not hasattr(made, "seats")


def object_world(spec: str, records: Tasks | None = None) -> MethodsWorld:
    """The world of such a class, which begins with `records` or makes its own episodes. Raises
    UserError for what is wrong with it.
    """
    made = load(spec, "class")
    for method in ("__init__", "get_reward", *(("reset",) if records is None else ())):
        if not accepts(getattr(made, method), "self"):
            raise UserError(
                f"{spec}.{method} needs arguments that nobody gives: the environment makes its own "
                "tasks; give them defaults"
                + (", or give rows with these columns, --data" if method == "reset" else "")
            )
    if records is not None:
        chosen_columns(made.reset, spec, columns_of(records.task("train", 0)))
    if not tools_of(guard_call(spec, made), spec):
        raise UserError(f"{spec} has no public method but {' and '.join(RESERVED)}; add a tool")
    rows = records is not None
    return MethodsWorld(
        spec, rows=rows, solved=made.solved if isinstance(made, KnowsSolved) else None
    )


@stage
class MethodsWorld(AdaptedWorld):
    """`FILE.py:CLASS`, an object whose public methods are tools, as a world.

    Who still calls in turn `max_turns` is cut, and paid what the object says then; so is one whose
    last message was cut by its length, or that writes marks of the host: neither has answered.
    """

    draws: ClassVar[bool] = False
    spec: str
    rows: bool = False  # an episode begins with a row of data

    async def reset(self, task: Task, key: Key) -> Frame:
        if not self.rows:
            return await super().reset(task, key)
        given = json.dumps(columns_of(task), default=str)
        seed = seed_of((self.label, "row", task.id, given)) % SEEDS
        live, scene = await self._play_anew(trail := Trail(seed=seed, given=given))
        frame = await self._or_end(live, self._go_on(trail, live, scene))
        (ask,) = frame.asks
        return replace(frame, asks=(replace(ask, say=with_text(task.prompt, scene.text)),))

    def start(self, live: Live, trail: Trail) -> Any:
        if not self.rows or not isinstance(live, MethodsEpisode):
            return super().start(live, trail)
        return live.start(trail.seed, json.loads(trail.given))

    @property
    def label(self) -> str:
        return self.spec.rpartition(":")[2]

    def open_live(self) -> Live:
        return MethodsEpisode(self.spec)

    def said(self, act: Act) -> str:
        """The calls, or how the message ends the episode where it is no answer."""
        status, answered = end_of(act) or ("", True)
        if not answered:
            return json.dumps({"status": status})
        return json.dumps([call_fields(call) for call in act.calls])

    async def open(self) -> tuple[ToolSchema, ...]:
        return schemas_of(self.spec)

    def close(self) -> None:
        """Nothing of it runs elsewhere."""

    def _ask(self, trail: Trail, scene: Scene, pay: Mapping[str, float], text: str) -> Frame:
        """Beside the results of calls there is nothing to say."""
        frame = super()._ask(trail, scene, pay, text)
        ask = replace(frame.asks[0], tools=schemas_of(self.spec))
        return replace(frame, asks=(replace(ask, say=scene.before) if scene.before else ask,))

    async def _end(
        self, trail: Trail, live: Live, pay: Mapping[str, float], scene: Scene, status: str
    ) -> Frame:
        earned = await live.reward() if isinstance(live, MethodsEpisode) else 0.0
        return await super()._end(trail, live, {POLICY: earned}, scene, status)


class MethodsEpisode:
    """One object, and the calls that it has answered. An action is the calls of a message."""

    def __init__(self, spec: str) -> None:
        self.spec = spec
        self.object: Any = guard_call(spec, load(spec, "class"))
        self.box = Toolbox((), tools_of(self.object, spec))
        self.counts = (0, 0, 0)  # calls, those that could not be read, errors of the others
        self.executed: tuple[bool, ...] = ()  # by turn, whether all its calls worked
        self.used: tuple[str, ...] = ()  # tools of which a call worked
        self.log: tuple[tuple[LoggedCall, float], ...] = ()  # each call, and its seconds

    async def start(self, seed: int, columns: Mapping[str, Any] | None = None) -> Scene:
        """`columns`: of the row that the episode begins with; None = it begins with its seed."""
        reset = self.object.reset
        if columns is not None:
            reset = wraps(reset)(partial(reset, **chosen_columns(reset, self.spec, columns)))
        with seeded(seed):
            begun = guard_call(self.spec, reset)
        prompt = await await_guarded(self.spec, "reset", begun)
        if prompt is None and columns is not None:
            prompt = ""
        need(isinstance(prompt, str), f"{self.spec}.reset", "its prompt", prompt, 'return "..."')
        return self.scene(text=prompt)

    def read(self, text: str) -> str:
        return text

    async def act(self, action: str) -> Scene:
        given = json.loads(action)
        if isinstance(given, dict):
            return self.scene(status=given["status"])
        calls = [call_of(fields) for fields in given]
        if not calls:
            return self.scene(status="finished", answered=True)
        results = await self.box.answer(calls, WithTools.seconds, WithTools.chars, in_order=True)
        malformed = [isinstance(call, Malformed) for call in calls]
        failed = [r.failed and not m for r, m in zip(results, malformed, strict=True)]
        n, unread, errors = self.counts
        self.counts = (n + len(calls), unread + sum(malformed), errors + sum(failed))
        self.executed = (*self.executed, not any(r.failed for r in results))
        self.used = used_tools(self.used, results)
        self.log = (*self.log, *logged(calls, results, len(self.executed)))
        return self.scene(before=tuple(r.message for r in results))

    def scene(self, answered: bool = False, **shown: Any) -> Scene:
        done = (*self.executed, answered) if shown.get("status") else self.executed
        offered = [t.name for t in schemas_of(self.spec)]
        log = log_facts(tuple(c for c, _ in self.log), tuple(s for _, s in self.log), offered)
        return Scene(facts=facts(self.counts, done, self.used, answered=answered, **log), **shown)

    async def reward(self) -> float:
        where = f"{self.spec}.get_reward"
        paid = guard_call(self.spec, self.object.get_reward)
        paid = await await_guarded(self.spec, "get_reward", paid)
        if paid is None:
            raise NotApplicable(f"{where} gave None")
        need(is_finite(paid), where, "the reward", paid, "return a finite number")
        return float(paid)

    def sample(self, rng: np.random.Generator, how: str) -> str:
        raise NotImplementedError(how)

    def close(self) -> None:
        """The object goes when nobody holds it."""


def columns_of(task: Task) -> dict[str, Any]:
    """A row of data by its columns. Its prompt is text, or messages where the data wrote messages."""
    users = [m.content for m in task.prompt if m.role == "user"]
    talk = [{"role": m.role, "content": m.content} for m in task.prompt]
    prompt = talk if task.conversational else users[-1] if users else ""
    own = {"id": task.id, "domain": task.domain, "answer": task.answer, "prompt": prompt}
    return {**task.meta, **{k: v for k, v in own.items() if v not in (None, "")}}


def chosen_columns(reset: Any, spec: str, columns: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that `reset` asks for by name; all of them by `**columns`. Raises UserError where
    the row has one not.
    """
    parameters = [p for n, p in inspect.signature(reset).parameters.items() if n != "self"]
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return dict(columns)
    names = [p.name for p in parameters if p.kind is not p.VAR_POSITIONAL]
    needs = [p.name for p in parameters if p.name in names and p.default is p.empty]
    if missing := [n for n in needs if n not in columns]:
        raise UserError(
            f"{spec}.reset asks for {missing[0]!r}, and the row has {', '.join(columns)}; give the "
            "data this column, or the argument a default"
        )
    return {n: columns[n] for n in names if n in columns}


def with_text(prompt: tuple[Message, ...], text: str) -> tuple[Message, ...]:
    """A prompt with a text behind its last message, in a line of its own."""
    *before, last = prompt
    between = "\n" if text and not text[0].isspace() else ""
    return (*before, replace(last, content=f"{last.content}{between}{text}"))


def tools_of(instance: object, spec: str) -> list[FunctionTool]:
    """The public methods of an object as tools. Raises UserError for one that cannot be one."""
    names = [n for n, _ in inspect.getmembers(type(instance), inspect.isfunction)]
    names = [n for n in names if not n.startswith("_") and n not in RESERVED]
    return [FunctionTool(getattr(instance, name), f"{spec}.{name}") for name in names]


@lru_cache(maxsize=32)
def schemas_of(spec: str) -> tuple[ToolSchema, ...]:
    """What models are told of the methods."""
    instance = guard_call(spec, load(spec, "class"))
    return tuple(tool.schema for tool in tools_of(instance, spec))


def call_fields(call: Call | Malformed) -> dict[str, Any]:
    """A call as JSON, and back by `call_of`."""
    if isinstance(call, Malformed):
        return {"kind": call.kind, "text": call.text}
    return {"name": call.name, "args": dict(call.args), "id": call.id}


def call_of(fields: Mapping[str, Any]) -> Call | Malformed:
    return Malformed(**fields) if "kind" in fields else Call(**fields)


@contextmanager
def seeded(seed: int) -> Generator[None]:
    """Python's and numpy's own generators begin at a seed, and afterwards are as they were."""
    python, numpy = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
