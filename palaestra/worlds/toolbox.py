"""Tools by their names, as settings hold them: FILE.py:NAME, FILE.py for all of a file, python, mcp:COMMAND, mcp:URL.

A function that a program gives has the name of the file it stands in, so that another process finds
it; one that stands in no file (a notebook's, a closure, a method) is known to its own process only.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from inspect import isfunction
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from palaestra.errors import UserError
from palaestra.services.tools.base import Tool, ToolResult, failure
from palaestra.services.tools.functions import FunctionTool
from palaestra.services.tools.names import FORMS, GIVEN, SANDBOX, SERVER, is_function
from palaestra.services.tools.sandboxed import PythonTool
from palaestra.services.tools.servers import ServerTool, ToolServer
from palaestra.suggest import suggestion
from palaestra.tasks.user_code import VALUES, load, module_of, path_of, spec_of
from palaestra.types import Call, Malformed, Message, ToolSchema
from palaestra.worlds.outage import OUT

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
AT_ONCE = 32  # calls under way at a time
A_MESSAGE = 16  # calls of one message that are made
SHOWN = 80  # characters of a malformed call in its result
MISTAKES = {
    "json": "it is no JSON",
    "name": "it has no name",
    "arguments": "its arguments are no object",
    "xml": "it is no <function=NAME>...</function>",
    "unclosed": "it is not closed",
    "cut": "it was cut at the limit of a turn",
}

FUNCTIONS: dict[str, Callable[..., Any]] = {}  # those that open boxes were made with, by name
BOXES: dict[tuple[str, ...], Toolbox] = {}  # that are open


def tool_names(given: Any) -> tuple[str, ...]:
    """The names of tools that a program gives: functions and names, or one of them."""
    each = given if isinstance(given, list | tuple) else (given,)
    return tuple(x if isinstance(x, str) else name_function(x) for x in each)


def name_function(given: Any) -> str:
    """The name under which this process finds a function, and others too where it stands in a
    file.
    """
    called = getattr(given, "__name__", "")
    if not callable(given) or isinstance(given, type) or not NAME.fullmatch(called):
        raise UserError(
            f"tools takes named functions, {FORMS}; not {' '.join(repr(given).split())[:SHOWN]}"
        )
    name = spec_of(given)
    if FUNCTIONS.get(name) is not given:
        for stale in [names for names in BOXES if name in names]:
            BOXES.pop(stale).close()
    FUNCTIONS[name] = given
    return name


def function_named(name: str) -> Callable[..., Any]:
    """The function of a name. Raises UserError where this process has none."""
    if name.startswith(GIVEN) and name not in VALUES:
        called = name.removeprefix(GIVEN)
        raise UserError(
            f"the tool {called!r} is a function of another program; put it into a file and name it "
            f"FILE.py:{called}, or give it again with tools=[{called}]"
        )
    if ":" not in name and ".py" not in name:
        raise UserError(f"unknown tool {name!r}{suggestion(name, [SANDBOX])}; tools are {FORMS}")
    function = load(name, "function")
    if not callable(function) or isinstance(function, type):
        raise UserError(f"{name} is no function; write def {name.rpartition(':')[2]}(...)")
    return function


def is_file(name: str) -> bool:
    """Whether a name is that of a whole file of functions; the command of a server may end with one."""
    return name.endswith(".py") and not name.startswith("mcp:")


def functions_in(file: str) -> list[str]:
    """The public functions that a file defines, by name. Raises UserError where it has none."""
    module = module_of(str(path_of(file)))
    own = [
        f"{file}:{name}"
        for name, x in vars(module).items()
        if isfunction(x) and x.__module__ == module.__name__ and not name.startswith("_")
    ]
    if not own:
        raise UserError(f"{file} defines no function that could be a tool; write def NAME(...)")
    return own


def toolbox(names: tuple[str, ...]) -> Toolbox:
    """The tools of these names, the same while they are open. Raises UserError for one that cannot
    be had.
    """
    if names not in BOXES:
        BOXES[names] = Toolbox(names)
    return BOXES[names]


def close_toolbox(names: tuple[str, ...]) -> None:
    """Ends the servers of tools that are open."""
    if names in BOXES:
        BOXES.pop(names).close()


class CalledTool(NamedTuple):
    """The answer to a call."""

    message: Message
    failed: bool  # it is an error
    seconds: float = 0.0  # of the call itself, without waiting for others; 0 = nothing was called


class Toolbox:
    """What can be called in an episode."""

    def __init__(self, names: tuple[str, ...], more: Sequence[Tool] = ()) -> None:
        whole = [x for n in names for x in (functions_in(n) if is_file(n) else (n,))]
        functions = [n for n in whole if is_function(n) or n.startswith(GIVEN)]
        self.fixed: list[Tool] = [*more, *(FunctionTool(function_named(n), n) for n in functions)]
        self.fixed += [PythonTool()] if SANDBOX in names else []
        self.servers = [ToolServer(n.removeprefix(SERVER)) for n in names if n.startswith(SERVER)]
        self._tools: dict[str, Tool] = {}
        self._gates: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]
        self._gates = WeakKeyDictionary()
        if not self.servers:
            self._tools = by_name(self.fixed)

    @property
    def takes_database(self) -> bool:
        """Whether some function works on the database of an episode."""
        return any(isinstance(t, FunctionTool) and t.takes_database for t in self.fixed)

    async def schemas(self) -> tuple[ToolSchema, ...]:
        """What models are told; servers are begun where they are not. Raises UserError where one
        cannot be.
        """
        if not self._tools:
            offered = [[ServerTool(s, t) for t in await s.tools()] for s in self.servers]
            self._tools = by_name([*self.fixed, *(t for tools in offered for t in tools)])
        return tuple(t.schema for t in self._tools.values())

    async def answer(
        self,
        calls: Sequence[Call | Malformed],
        seconds: float,
        chars: int,
        *,
        in_order: bool = False,
        database: Any = None,
        broken: Collection[int] = (),
    ) -> list[CalledTool]:
        """Makes the calls of a message at the same time.

        Args:
            seconds: that a call may take.
            chars: that a result may have; the rest is left out.
            in_order: one after the other instead.
            database: that functions with a parameter `db` are given.
            broken: places of calls that are not made and give an error, see `Outage`.

        Returns:
            For each the result as a message, whether it is an error, and the seconds that it took.
        """
        making = [
            self._broken(call) if n in broken else self._outcome(call, n, seconds, database)
            for n, call in enumerate(calls)
        ]
        outcomes = [await one for one in making] if in_order else await asyncio.gather(*making)
        return [
            CalledTool(self._message(c, shorten(o.text, chars)), o.failed, took)
            for c, (o, took) in zip(calls, outcomes, strict=True)
        ]

    async def _outcome(
        self, call: Call | Malformed, n: int, seconds: float, database: Any
    ) -> tuple[ToolResult, float]:
        """What a call gives, and the seconds that it took."""
        if isinstance(call, Malformed):
            what = MISTAKES.get(call.kind, call.kind)
            text = f"the call cannot be read, {what}: {shorten(call.text, SHOWN)}"
            return failure(text), 0.0
        if n >= A_MESSAGE:
            return failure(f"not called; a message may make {A_MESSAGE} calls"), 0.0
        await self.schemas()
        tool = self._tools.get(call.name)
        if tool is None:
            name = shorten(call.name, SHOWN)
            return failure(f"no tool {name!r}; there are {', '.join(self._tools)}"), 0.0
        if database is not None and isinstance(tool, FunctionTool):
            tool = tool.on(database)
        gate = self._gates.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(AT_ONCE))
        async with gate:
            begin = time.perf_counter()
            result = await tool.call(call.args, seconds)
            return result, time.perf_counter() - begin

    async def _broken(self, call: Call | Malformed) -> tuple[ToolResult, float]:
        return failure(OUT), 0.0

    def _message(self, call: Call | Malformed, text: str) -> Message:
        """Only a name that is a tool's is said again: what a policy makes up must not reach a
        template.
        """
        if isinstance(call, Malformed):
            return Message(role="tool", content=text)
        name = call.name if call.name in self._tools else ""
        return Message(role="tool", content=text, name=name, call_id=call.id)

    def close(self) -> None:
        """Ends the servers."""
        for server in self.servers:
            server.close()


def by_name(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Tools by what a model calls them. Raises UserError where two have one name."""
    by_tool_name: dict[str, Tool] = {}
    for tool in tools:
        name = tool.schema.name
        if not NAME.fullmatch(name):
            raise UserError(
                f"a tool is called {name!r}; a name has letters, digits and _ . - alone"
            )
        if name in by_tool_name:
            raise UserError(f"two tools are called {name!r}; rename one, or leave it out")
        by_tool_name[name] = tool
    if not by_tool_name:
        raise UserError("the servers of --tools offer no tool")
    return by_tool_name


def shorten(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[:chars]} [{len(text) - chars} more characters]"
