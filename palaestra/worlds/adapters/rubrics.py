"""Environments of verifiers up to 0.3 as worlds, the form of its hub: a function `load_environment`
that returns a `vf.Environment` with a data set and a rubric.

`FILE.py:load_environment(level=2)` calls the function of a file, `verifiers:NAME(level=2)` that of an
installed package. The environment's own `rollout` plays each episode: its `setup_state`,
`env_response`, tools and stop conditions run as they do in verifiers. The client that it is given
asks the seat. Then its rubric scores the episode, async functions included. The weighted sum is the
pay, and each function's value is a part of the reward under the function's name.

verifiers logs an exception of a reward function and counts it as 0. Here it stops the run, where
the function stands in the user's file, and is a fault of the episode otherwise.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from palaestra.chat.reply import forged_mark
from palaestra.declared import declare
from palaestra.errors import Fault, UserError
from palaestra.tasks.user_code import file_of, load, locate_error, path_of
from palaestra.types import Act, Call, Frame, Message, Task, ToolSchema, stage
from palaestra.worlds.adapters.base import (
    POLICY,
    AdaptedWorld,
    Live,
    Scene,
    Trail,
    library_call,
)
from palaestra.worlds.adapters.loops import OwnLoop
from palaestra.worlds.adapters.verifiers import TEST_EVERY, VerifiersWorld
from palaestra.worlds.gateway.wire import reply_message

FUNCTION = "load_environment"
IN_A_FILE = re.compile(rf"(?P<file>[^()]+\.py):{FUNCTION}(\(.*\))?", re.DOTALL)
# what a function asks for that compares all answers to a question
OF_A_GROUP = {"states", "prompts", "completions", "answers", "tasks", "infos"}
INSTALL = "pip install 'verifiers<0.4', in an environment of its own where mcp 2 is needed"
ENVIRONMENTS: dict[tuple[str, str], Any] = {}  # made before, by function and arguments
RAISED: ContextVar[list[Exception]] = ContextVar("RAISED")  # by reward functions of this episode


def is_in_a_file(spec: str) -> bool:
    """Whether a name is that of a file's function `load_environment`, maybe with arguments."""
    return IN_A_FILE.fullmatch(spec) is not None


def is_installed(name: str) -> bool:
    """Whether an installed module of that name has a function `load_environment`. verifiers 0.4
    itself names environments otherwise.
    """
    module = module_of(name)
    if not module.isidentifier() or not has_rubrics() or find_spec(module) is None:
        return False
    return has_function(module)


def has_rubrics() -> bool:
    """Whether the installed verifiers is one of those with rubrics, up to 0.3."""
    try:
        return find_spec("verifiers.rubrics") is not None
    except ModuleNotFoundError:
        return False


def has_function(module: str) -> bool:
    try:
        return hasattr(import_module(module), FUNCTION)
    except Exception:  # said where it is loaded
        return True


def rubric_world(make: str, settings: tuple[tuple[str, Any], ...], **own: Any) -> AdaptedWorld:
    """The world of what `load_environment` returns: of verifiers up to 0.3, or of 0.4."""
    environment = environment_of(make, settings)
    if is_of_agents(environment):
        return VerifiersWorld(MadeInAFile(make, settings), **own)
    kind = ToolRubricWorld if getattr(environment, "tool_defs", None) else RubricWorld
    return kind(make, settings, **own)


@dataclass(frozen=True)
class MadeInAFile:
    """A function without arguments that returns the environment."""

    make: str
    settings: tuple[tuple[str, Any], ...]

    @property
    def __name__(self) -> str:
        return self.make

    def __hash__(self) -> int:
        return hash((self.make, repr(self.settings)))

    def __call__(self) -> Any:
        return environment_of(self.make, self.settings)


def is_of_agents(environment: Any) -> bool:
    return any(k.__name__ == "Env" and k.__module__.startswith("verifiers.v1")
               for k in type(environment).__mro__)  # fmt: skip


@declare(facts=("reward_parts",))
@stage
class RubricWorld(AdaptedWorld):
    """An environment of verifiers up to 0.3 (https://github.com/PrimeIntellect-ai/verifiers).

    Args:
        make: FILE.py:load_environment, or the name of an installed environment.
        settings: arguments of the function.

    Rows of `eval_dataset` are held out; without one every eighth row of `dataset` is.
    """

    draws: ClassVar[bool] = False
    make: str
    settings: tuple[tuple[str, Any], ...] = ()
    retries: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        check_environment(self.environment, self.label)

    @property
    def label(self) -> str:
        return self.make if is_in_a_file(self.make) else f"verifiers:{self.make}"

    @property
    def environment(self) -> Any:
        return environment_of(self.make, self.settings)

    @property
    def rows(self) -> tuple[Any, Any]:
        """Training rows and held-out rows; None = these are among the training rows."""
        return rows_of(self.environment)

    @property
    def size(self) -> int:
        train, held_out = self.rows
        return len(train) if held_out is not None else len(train) - len(train) // TEST_EVERY

    @property
    def test_size(self) -> int:
        train, held_out = self.rows
        return len(held_out) if held_out is not None else len(train) // TEST_EVERY

    @property
    def caveat(self) -> str:
        return ""

    def task(self, split: str, index: int) -> Task:
        train, held_out = self.rows
        if held_out is not None:
            at = index + (len(train) if split == "test" else 0)
        else:
            ahead = TEST_EVERY - 1
            at = index * TEST_EVERY + ahead if split == "test" else index + index // ahead
        return Task(
            id=f"{self.label}/{split}/{index}", meta={"seed": at, "plays": ""}, domain=self.label
        )

    def row(self, at: int) -> dict[str, Any]:
        train, held_out = self.rows
        return dict(train[at] if at < len(train) else held_out[at - len(train)])

    async def remarks(self) -> list[str]:
        """What the reward is made of, so that the weights are in the log of the run."""
        named = [(name_of(f), w) for f, w in weighted(self.environment.rubric)]
        terms = [f"{name}*{weight:g}" for name, weight in named if weight]
        beside = [name for name, weight in named if not weight]
        line = f"{self.label} pays {' + '.join(terms) or 'nothing'}"
        return [
            *await super().remarks(),
            line + (f"; measured: {', '.join(beside)}" if beside else ""),
        ]

    def open_live(self) -> Live:
        return RubricEpisode(self)

    def said(self, act: Act) -> str:
        """The reply as a message of the assistant, with its calls, and how it ended."""
        if act.ask.tools and forged_mark(act.text):
            return json.dumps({"forged": True})
        reply = {**reply_message(act, 0), "finish": act.finish}
        if "tool_calls" in reply:
            reply["ids"] = [c.id for c in act.calls if isinstance(c, Call)]
        return json.dumps(reply, ensure_ascii=False)

    def _ask(self, trail: Trail, scene: Scene, pay: Mapping[str, float], text: str) -> Frame:
        """Behind the results of calls, and after other messages than the user's, nothing is said."""
        frame = super()._ask(trail, scene, pay, text)
        return frame if text else replace(frame, asks=(replace(frame.asks[0], say=scene.before),))


@stage
class ToolRubricWorld(RubricWorld):
    """One whose policy may call tools."""

    async def open(self) -> tuple[ToolSchema, ...]:
        return schemas_of(self.environment.tool_defs)

    def close(self) -> None:
        """The tools are functions of the environment."""

    def _ask(self, trail: Trail, scene: Scene, pay: Mapping[str, float], text: str) -> Frame:
        frame = super()._ask(trail, scene, pay, text)
        ask = replace(frame.asks[0], tools=schemas_of(self.environment.tool_defs))
        return replace(frame, asks=(ask,))


# ---- what `load_environment` returns


def environment_of(make: str, settings: tuple[tuple[str, Any], ...]) -> Any:
    """The environment, made once for each set of arguments. Raises UserError where it cannot be."""
    key = (make, repr(settings))
    if key not in ENVIRONMENTS:
        ENVIRONMENTS[key] = make_environment(make, dict(settings))
    return ENVIRONMENTS[key]


def make_environment(make: str, arguments: dict[str, Any]) -> Any:
    file = str(path_of(make.rpartition(":")[0])) if is_in_a_file(make) else ""
    try:
        function = (
            load(make, "function") if file else getattr(import_module(module_of(make)), FUNCTION)
        )
    except UserError as error:
        raise UserError(f"{error}{version_hint(str(error))}") from None
    except Exception as error:
        raise UserError(f"verifiers:{make}: {one_line(error)}{version_hint(str(error))}") from None
    where = make if file else f"{module_of(make)}.{FUNCTION}"
    check_arguments(function, arguments, where)
    try:
        environment = function(**arguments)
    except UserError:
        raise
    except Exception as error:
        place = (
            f"{locate_error(error, file)} (in {FUNCTION})"
            if file
            else f"{where}: {one_line(error)}"
        )
        column = isinstance(error, KeyError) and error.args == ("question",)
        hint = (
            "; its rows need a column 'question', or 'prompt'"
            if column
            else version_hint(str(error))
        )
        raise UserError(place + hint) from error
    if not (is_of_agents(environment) or hasattr(environment, "rubric")):
        kind = type(environment).__name__
        raise UserError(
            f"{where} returned {kind}; return a vf.Environment, such as vf.SingleTurnEnv"
        )
    return environment


def module_of(name: str) -> str:
    """As verifiers names the module of an environment."""
    return name.rpartition("/")[2].partition("@")[0].replace("-", "_")


def check_arguments(function: Callable[..., Any], arguments: Mapping[str, Any], where: str) -> None:
    """Raises UserError for arguments that the function does not take."""
    signature = inspect.signature(function)
    try:
        signature.bind(**arguments)
    except TypeError as error:
        takes = ", ".join(signature.parameters) or "no arguments"
        raise UserError(f"{where}: {error}; it takes {takes}") from None


def version_hint(message: str) -> str:
    """What to install, where a message is about a library that is missing or has no rubrics."""
    about = "module 'verifiers" in message or "module named 'verifiers" in message
    return f"; environments with a rubric need verifiers up to 0.3: {INSTALL}" if about else ""


def one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def rows_of(environment: Any) -> tuple[Any, Any]:
    """Data set and evaluation set, as the library builds them; None = there is none."""
    return environment.build_dataset(), environment.build_eval_dataset()


def check_environment(environment: Any, label: str) -> None:
    """Raises UserError for an environment that cannot be trained on, and watches its rewards."""
    with library_call_of_user(label):
        train, _ = rows_of(environment)
    if train is None or not len(train):
        raise UserError(f"{label} has no rows; give the environment a `dataset`")
    functions = weighted(environment.rubric)
    if not any(weight for _, weight in functions):
        raise UserError(f"{label}: its rubric pays nothing; give vf.Rubric(funcs=[...])")
    for function, _ in functions:
        if asked := sorted(OF_A_GROUP & set(inspect.signature(function).parameters)):
            raise UserError(
                f"{label}: the reward {name_of(function)} compares the answers of a group (it takes "
                f"{asked[0]!r}), which is not offered here; write it for one answer"
            )
    for rubric in rubrics_in(environment.rubric):
        rubric.funcs[:] = [watched(f) for f in rubric.funcs]


class library_call_of_user:
    """What the user's environment raises while its data are read is one line for the user."""

    def __init__(self, label: str) -> None:
        self.label = label

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if not isinstance(error, Exception) or isinstance(error, Fault | UserError):
            return
        column = isinstance(error, KeyError) and error.args == ("question",)
        hint = "; its rows need a column 'question', or 'prompt'" if column else ""
        raise UserError(f"{self.label}: its data: {one_line(error)}{hint}") from error


def rubrics_in(rubric: Any) -> Iterator[Any]:
    """A rubric, those of a group of rubrics, and those of a group of environments."""
    yield rubric
    for part in getattr(rubric, "rubrics", ()):
        yield from rubrics_in(part)
    for environment in getattr(rubric, "env_map", {}).values():
        yield from rubrics_in(environment.rubric)


def weighted(rubric: Any) -> list[tuple[Callable[..., Any], float]]:
    """All functions with their weights; those of weight 0 are only measured."""
    return [
        (function, float(weight))
        for each in rubrics_in(rubric)
        for function, weight in zip(each.funcs, each.weights, strict=True)
    ]


def name_of(function: Any) -> str:
    return getattr(function, "__name__", type(function).__name__)


def watched(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose exceptions are kept for the episode, since the library drops them."""
    if getattr(function, "is_watched", False):
        return function

    @wraps(function)
    async def call(*arguments: Any, **named: Any) -> Any:
        try:
            value = function(*arguments, **named)
            return await value if inspect.isawaitable(value) else value
        except Exception as error:
            RAISED.get([]).append(reward_error(function, error))
            raise

    call.is_watched = True  # type: ignore[attr-defined]
    return call


def reward_error(function: Callable[..., Any], error: Exception) -> Exception:
    """An exception of a reward function: of the user's own file it stops the run."""
    if isinstance(error, Fault | UserError):
        return error
    file, name = file_of(function), name_of(function)
    if is_of_library(file):
        return Fault("reward", f"{name}: {one_line(error)}")
    return UserError(f"{locate_error(error, file)} (in the reward {name})")


def is_of_library(file: str) -> bool:
    return file == "?" or "verifiers" in Path(file).parts


# ---- an episode


@dataclass
class RubricEpisode:
    """One episode: the environment's `rollout` goes on between two replies."""

    world: RubricWorld
    loop: OwnLoop[Sequence[Any], dict[str, Any]] = field(
        default_factory=OwnLoop[Sequence[Any], dict[str, Any]]
    )
    heard: list[Message] = field(default_factory=list)  # all that the seat has seen or said
    # of calls, by the ids that the library has them by: the tool, and the policy's own id
    calls: dict[str, tuple[str, str]] = field(default_factory=dict)
    state: Any = None

    async def start(self, seed: int) -> Scene:
        self.loop.begin(self.run(self.world.row(seed)))
        return await self.next_scene()

    async def act(self, action: str) -> Scene:
        reply = json.loads(action)
        if reply.get("forged"):
            return Scene(pay={POLICY: 0.0}, status="finished")
        self.heard.append(Message(role="assistant", content=reply["content"] or ""))
        for call, own in zip(reply.get("tool_calls", ()), reply.get("ids", ()), strict=True):
            call["id"] = f"call{len(self.calls):03d}"
            self.calls[call["id"]] = (call["function"]["name"], own)
        self.loop.answer(reply)
        return await self.next_scene()

    async def run(self, row: dict[str, Any]) -> None:
        environment, raised = self.world.environment, list[Exception]()
        RAISED.set(raised)
        client = seat_client(self.loop.ask)
        state = await environment.rollout(row, client, "policy", {})
        if state.get("error") is not None:
            raise Fault("environment", f"{self.world.label}: {one_line(cause_of(state['error']))}")
        await environment.rubric.score_rollout(state)
        await environment.rubric.cleanup(state)
        if raised:
            raise raised[0]
        self.state = state

    async def next_scene(self) -> Scene:
        """The next question of the environment, or what the episode is worth."""
        try:
            with library_call(self.world.label):
                prompt = await self.loop.next_question()
        except Fault as fault:
            raise self.fault_of_user(fault) from fault.__cause__
        if prompt is not None:
            return self.scene(prompt)
        state = self.state
        parts = {name: float(value) for name, value in (state["metrics"] or {}).items()}
        pay = {POLICY: float(state["reward"])}
        return Scene(pay=pay, status="finished", facts={"reward_parts": parts})

    def scene(self, prompt: Sequence[Any]) -> Scene:
        """What is new in a prompt. Raises UserError where it does not continue the conversation."""
        messages = [self.message(m) for m in prompt]
        if [(m.role, m.content) for m in messages[: len(self.heard)] if m.role != "assistant"] != [
            (m.role, m.content) for m in self.heard if m.role != "assistant"
        ]:
            raise UserError(
                f"{self.world.label} changes what was said before, which is not offered here; let "
                "get_prompt_messages append to the conversation"
            )
        fresh = messages[len(self.heard) :]
        self.heard += fresh
        if not fresh:
            raise UserError(f"{self.world.label}: env_response returned no message")
        *before, last = fresh
        if last.role != "user":
            return Scene(before=tuple(fresh))
        return Scene(text=last.content, before=tuple(before))

    def message(self, given: Any) -> Message:
        role, text = given["role"], text_of(given["content"], self.world.label)
        if role != "tool":
            return Message(role="user" if role == "text" else role, content=text)
        name, own = self.calls.get(given.get("tool_call_id") or "", ("", ""))
        offered = [t["name"] for t in self.world.environment.tool_defs or ()]
        # a name that a policy makes up must not reach a template
        return Message(role=role, content=text, name=name if name in offered else "", call_id=own)

    def fault_of_user(self, fault: Fault) -> Exception:
        """What an exception in the user's own file is: one line with its place, and the run ends."""
        error = fault.__cause__
        if error is None or not is_in_a_file(self.world.make):
            return fault
        file = str(path_of(self.world.make.rpartition(":")[0]))
        line = locate_error(error, file)
        return UserError(line) if re.match(rf"{re.escape(file)}:\d+: ", line) else fault

    def read(self, text: str) -> str:
        return text

    def sample(self, rng: np.random.Generator, how: str) -> str:
        raise NotImplementedError(how)

    async def close(self) -> None:
        await self.loop.close()


def cause_of(error: BaseException) -> BaseException:
    """verifiers wraps what was raised in an error of its own, which says nothing itself."""
    return error.__cause__ if error.__cause__ is not None and not str(error) else error


def text_of(content: Any, label: str) -> str:
    """A message's text. Raises UserError for pictures and sounds."""
    if content is None or isinstance(content, str):
        return content or ""
    if any(part["type"] != "text" for part in content):
        raise UserError(f"{label} shows pictures or sounds, which is not offered here")
    return "".join(part["text"] for part in content)


def schemas_of(tools: Sequence[Any]) -> tuple[ToolSchema, ...]:
    """The tools of an environment as a model is told of them."""
    return tuple(
        ToolSchema(
            name=t["name"],
            description=t["description"] or "",
            parameters=json.dumps(t["parameters"]),
        )
        for t in tools
    )


def seat_client(ask: Callable[[Sequence[Any]], Any]) -> Any:
    """The client that an environment of verifiers samples from: it asks a seat."""
    clients = import_module("verifiers.clients")
    types = import_module("verifiers.types")

    class SeatClient(clients.Client):
        def __init__(self) -> None:
            super().__init__(None)

        async def get_response(
            self, prompt: Sequence[Any], model: str, *others: Any, **more: Any
        ) -> Any:
            reply = await ask(prompt)
            cut = reply["finish"] == "length"
            calls = [
                types.ToolCall(
                    id=c["id"], name=c["function"]["name"], arguments=c["function"]["arguments"]
                )
                for c in reply.get("tool_calls", ())
            ]
            message = types.ResponseMessage(
                content=reply["content"],
                tool_calls=calls or None,
                finish_reason="length" if cut else "tool_calls" if calls else "stop",
                is_truncated=cut,
            )
            return types.Response(id="reply", created=0, model=model, message=message)

        async def close(self) -> None:
            """Nothing is connected."""

    # what a client does for an endpoint is not asked of this one
    SeatClient.__abstractmethods__ = frozenset()
    return SeatClient()
