"""A plain typed Python function as a tool: its hints and docstring are the schema, its errors are
results.
"""

from __future__ import annotations

import inspect
import json
import re
import sqlite3
from collections.abc import AsyncIterable, Callable, Mapping
from concurrent.futures import Future
from copy import copy
from functools import cache, partial
from typing import Any, NamedTuple, NotRequired, Self, cast, get_origin, get_type_hints

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import to_json
from typing_extensions import TypedDict

from palaestra.errors import Fault, UserError
from palaestra.services.threads import LoopThread, run_in_thread
from palaestra.services.tools.base import ToolResult, failure, too_slow, wait_for
from palaestra.services.tools.exits import no_exit
from palaestra.types import ToolSchema

DATABASE = "db"  # the parameter of a tool that an episode's database is given in
STUCK = 16  # calls of one tool that may go on beyond their time before the run ends
SECTION = re.compile(r"^(Args|Arguments|Parameters|Returns?|Raises|Yields|Examples?|Notes?):\s*$")
ARGUMENT = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")


class CallUnderWay(NamedTuple):
    """A call under way: its result as text, and what an event loop awaits for it."""

    future: Future[Any]
    awaited: list[Future[Any]]


class FunctionTool:
    """A function that a model calls by its name. `where` names it in messages to the user.

    A plain function runs in a thread, which cannot be ended: one that takes too long goes on beside
    the run, and too many of them end it. An async one is called off, also where a plain decorator
    stands around it. A call that would end the process is an error like others.
    """

    def __init__(self, function: Callable[..., Any], where: str) -> None:
        self.function, self.where = function, where
        self.schema, self._arguments = schema_of(function, where)
        self.takes_database = any(map(is_database, inspect.signature(function).parameters.values()))
        self._stuck = 0

    def on(self, database: Any) -> Self:
        """The same tool on an episode's database; the tool itself where it takes none."""
        if not self.takes_database:
            return self
        bound = copy(self)
        bound.function, bound.takes_database = partial(self.function, db=database), False
        return bound

    async def call(self, args: Mapping[str, Any], seconds: float) -> ToolResult:
        if self.takes_database:
            raise UserError(
                f"{self.where} takes the database of an episode, {DATABASE}, which only a method with "
                "databases gives, such as mua-rl"
            )
        try:
            given = self._arguments.validate_python(dict(args))
        except ValidationError as error:
            return failure(mistakes(error))
        if self._stuck >= STUCK:
            raise UserError(
                f"{self.where}: {STUCK} calls still run after their {seconds:g} s, and a thread "
                "cannot be ended; bound its work, or make it async"
            )
        work = self._begin(given)
        if not await wait_for(work.future, seconds):
            self._leave(work)
            return too_slow(seconds)
        try:
            return ToolResult(text=work.future.result())
        except (Fault, UserError):
            raise
        except (Exception, SystemExit) as error:
            reason = " ".join(str(error).split())
            return failure(f"{type(error).__name__}{f': {reason}' if reason else ''}")

    def _begin(self, given: dict[str, Any]) -> CallUnderWay:
        if inspect.iscoroutinefunction(self.function):
            future = async_functions().submit(self._awaited(given))
            return CallUnderWay(future, [future])
        awaited: list[Future[Any]] = []

        def work() -> str:
            with no_exit():
                result = self.function(**given)
                if not is_async(result):
                    return as_text(result)
            # a plain decorator may stand around an async function
            awaited.append(async_functions().submit(gathered(result)))
            return as_text(awaited[0].result())

        return CallUnderWay(run_in_thread(work, f"tool {self.schema.name}"), awaited)

    async def _awaited(self, given: dict[str, Any]) -> str:
        return as_text(await gathered(self.function(**given)))

    def _leave(self, work: CallUnderWay) -> None:
        """Calls off what is awaited, and counts a thread as long as it goes on."""
        for future in work.awaited:
            future.cancel()
        if not work.future.done():
            self._stuck += 1
            work.future.add_done_callback(self._ended)

    def _ended(self, _: Future[Any]) -> None:
        self._stuck -= 1


def is_async(result: Any) -> bool:
    return inspect.isawaitable(result) or isinstance(result, AsyncIterable)


async def gathered(result: Any) -> Any:
    """What is awaited, in the end; of an async generator the list of what it yields."""
    try:
        with no_exit():
            while inspect.isawaitable(result):
                result = await result
            if isinstance(result, AsyncIterable):
                return [item async for item in cast(AsyncIterable[Any], result)]
            return result
    except SystemExit as error:  # it would end the loop of all async tools
        raise RuntimeError(f"SystemExit: {error}") from error


@cache
def async_functions() -> LoopThread:
    """Where the users' async functions run."""
    return LoopThread("async tools")


def as_text(result: Any) -> str:
    """Text as it is, anything else as JSON."""
    return result if isinstance(result, str) else to_json(result, fallback=str).decode()


def mistakes(error: ValidationError) -> str:
    """What is wrong with the arguments, each in a few words."""
    problems = []
    for e in error.errors(include_url=False, include_context=False, include_input=False):
        place = ".".join(map(str, e["loc"]))
        problems.append(f"{place}: {e['msg']}" if place else e["msg"])
    return f"arguments: {'; '.join(problems)}"


def schema_of(function: Callable[..., Any], where: str) -> tuple[ToolSchema, TypeAdapter[Any]]:
    """What a model is told of a function, and what checks the arguments of a call.

    Args:
        where: names it in messages.

    Raises:
        UserError: a parameter has no type, or one that is no JSON; there is no docstring.
    """
    text = inspect.getdoc(function) or ""
    about, notes = read_docstring(text)
    if not about:
        raise UserError(
            f"{where} has no docstring; one line of it tells the model what the tool is for"
        )
    parameters = typed_parameters(function, where)
    fields: Any = {
        name: hint if parameter.default is parameter.empty else NotRequired[hint]
        for name, (parameter, hint) in parameters.items()
    }
    make: Any = TypedDict  # a type checker takes its fields only where they are written out
    shape = make("arguments", fields)
    shape.__pydantic_config__ = ConfigDict(extra="forbid")
    try:
        adapter = TypeAdapter[Any](shape)
        schema = without_titles(adapter.json_schema())
    except (PydanticUserError, TypeError) as error:
        tool_schema = " ".join(str(error).split())[:160]
        raise UserError(f"{where}: a parameter cannot be written as JSON: {tool_schema}") from None
    schema = {k: v for k, v in schema.items() if k != "additionalProperties"}
    for name, note in notes.items():
        if name in schema.get("properties", {}):
            schema["properties"][name].setdefault("description", note)
    tool_schema = ToolSchema(
        name=str(getattr(function, "__name__", "")),
        description=about,
        parameters=json.dumps(schema, ensure_ascii=False),
    )
    return tool_schema, adapter


def typed_parameters(
    function: Callable[..., Any], where: str
) -> dict[str, tuple[inspect.Parameter, Any]]:
    """The parameters by name, with their types."""
    try:
        hints = get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters
    except (NameError, TypeError, ValueError) as error:
        raise UserError(f"{where}: its type hints cannot be read: {error}") from None
    parameters = {n: p for n, p in parameters.items() if not is_database(p)}
    for p in parameters.values():
        if p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise UserError(
                f"{where}: {str(p).split(':')[0]} cannot be given by name; a tool takes named "
                "arguments alone"
            )
        if p.name not in hints:
            raise UserError(
                f"{where}: {p.name} has no type, which the model must know; write {p.name}: int, "
                "or what it is"
            )
    return {name: (p, hints[name]) for name, p in parameters.items()}


def is_database(parameter: inspect.Parameter) -> bool:
    """Whether a parameter is the database of an episode, which the model is not told of: it is called
    `db`, and has no type, or that of a dict or of an SQLite connection.
    """
    hint = parameter.annotation
    whole = hint if isinstance(hint, str) else getattr(get_origin(hint) or hint, "__name__", "")
    kind = whole.partition("[")[0].strip().rpartition(".")[2]
    kinds = ("_empty", "Any", "dict", "Mapping", "MutableMapping", sqlite3.Connection.__name__)
    return parameter.name == DATABASE and kind in kinds


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """What stands before the sections of a docstring, on one line; and what its "Args:" say of each
    argument.
    """
    about: list[str] = []
    notes: dict[str, str] = {}
    section, last = "", ""
    for line in text.splitlines():
        if match := SECTION.match(line):
            section, last = match[1], ""
        elif not section:
            about.append(line)
        elif section in ("Args", "Arguments", "Parameters") and line.strip():
            if named := ARGUMENT.match(line.strip()):
                last = named[1]
                notes[last] = named[2]
            elif last:
                notes[last] += f" {line.strip()}"
    return " ".join(" ".join(about).split()), notes


def without_titles(schema: Any) -> Any:
    """A schema without the titles that repeat its names; an argument called "title" stays."""
    if isinstance(schema, list):
        return [without_titles(x) for x in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        k: {n: without_titles(x) for n, x in v.items()}
        if k in ("properties", "$defs")
        else without_titles(v)
        for k, v in schema.items()
        if not (k == "title" and isinstance(v, str))
    }
