"""Functions and the sandbox as tools: schemas from hints and docstrings, errors as results."""

import asyncio
import functools as functools_
import json
import os
import posix
import subprocess
import sys
import threading
import time
from typing import Literal

import pytest
from palaestra.errors import Fault, UserError
from palaestra.services import sandbox
from palaestra.services.tools import functions
from palaestra.services.tools.functions import FunctionTool, read_docstring
from palaestra.services.tools.names import split_names
from palaestra.services.tools.sandboxed import SILENT, PythonTool, outcome_of
from pydantic import BaseModel


def add(a: int, b: int = 1) -> int:
    """The sum of two
    numbers.

    Args:
        a: the first,
            which is needed
        b (int): the second

    Returns:
        a: number
    """
    return a + b


async def later(word: str) -> list[str]:
    """Says it twice."""
    await asyncio.sleep(0)
    return [word, word]


class Place(BaseModel):
    city: str
    title: str = ""


def weather(place: Place, unit: Literal["C", "F"], days: list[int] | None = None) -> dict[str, float]:
    """The weather."""
    return {place.city: 1.5}


def tool(function):
    return FunctionTool(function, f"tools.py:{function.__name__}")


def call(made, seconds=5.0, **args):
    return asyncio.run(made.call(args, seconds))


def test_the_schema_is_that_of_hints_and_docstring():
    schema = tool(add).schema
    assert (schema.name, schema.description) == ("add", "The sum of two numbers.")
    assert json.loads(schema.parameters) == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "the first, which is needed"},
            "b": {"type": "integer", "description": "the second"},
        },
        "required": ["a"],
    }
    assert schema.json()["function"]["parameters"]["required"] == ["a"]


def test_the_schema_of_nested_types_keeps_a_field_called_title():
    parameters = json.loads(tool(weather).schema.parameters)
    assert parameters["properties"]["unit"]["enum"] == ["C", "F"] and parameters["required"] == ["place", "unit"]
    assert set(parameters["$defs"]["Place"]["properties"]) == {"city", "title"}
    assert "title" not in parameters["$defs"]["Place"]


def test_sections_of_a_docstring():
    assert read_docstring("One.\nTwo.\n\nArgs:\n    x: a\n\nRaises:\n    y: b") == ("One. Two.", {"x": "a"})


def test_calls_give_text():
    assert call(tool(add), a=1, b=2).text == "3"
    assert call(tool(add), a="5").text == "6"  # numbers in quotes are numbers
    assert call(tool(later), word="é").text == '["é","é"]'
    assert call(tool(weather), place={"city": "Bonn"}, unit="C").text == '{"Bonn":1.5}'


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({}, "a: Field required"),
        ({"b": "x"}, "a: Field required; b: Input"),
        ({"a": "x"}, "a: Input should be a valid integer"),
        ({"a": 1, "c": 2}, "c: Extra"),
    ],
)
def test_wrong_arguments_are_a_result(args, said):
    found = call(tool(add), **args)
    assert found.failed and found.text.startswith("error: arguments: ") and said in found.text


def test_what_a_tool_raises_is_a_result_but_for_faults():
    def broken(kind: str) -> str:
        """Raises."""
        raise {"value": ValueError("no\nluck"), "exit": SystemExit(1), "time": TimeoutError(),
               "fault": Fault("disk", "full"), "user": UserError("mend me")}[kind]  # fmt: skip

    async def broken_later(kind: str) -> str:
        """Raises later."""
        return broken(kind)

    for made in (tool(broken), tool(broken_later)):
        assert call(made, kind="value").text == "error: ValueError: no luck"
        assert call(made, kind="time").text == "error: TimeoutError"
        with pytest.raises(Fault, match="disk"):
            call(made, kind="fault")
        with pytest.raises(UserError, match="mend me"):
            call(made, kind="user")
    assert call(tool(broken), kind="exit").text == "error: SystemExit: 1"


def test_a_tool_that_hangs_is_left_and_too_many_of_them_end_the_run(monkeypatch):
    monkeypatch.setattr(functions, "STUCK", 2)
    free = threading.Event()

    def hang() -> str:
        """Waits."""
        free.wait(60)
        return "done"

    made = tool(hang)
    for _ in range(2):
        assert call(made, seconds=0.05).text == "error: no result within 0.05 s"
    with pytest.raises(UserError, match=r"tools.py:hang: 2 calls still run"):
        call(made, seconds=0.05)
    free.set()
    for _ in range(200):  # those that went on beside the run come to their end
        if not made._stuck:
            break
        time.sleep(0.01)
    assert call(made).text == "done"


def test_an_async_tool_that_hangs_is_called_off():
    ended = []

    async def hang() -> str:
        """Waits."""
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)
        return ""

    assert call(tool(hang), seconds=0.05).failed
    functions.async_functions().submit(asyncio.sleep(0)).result(5)
    assert ended == [True]


def plain(function):
    """A decorator that knows nothing of async."""

    @functools_.wraps(function)
    def inner(*args, **kwargs):
        return function(*args, **kwargs)

    return inner


class Methods:
    @plain
    async def add(self, a: int, b: int) -> int:
        """The sum."""
        await asyncio.sleep(0)
        return a + b


@plain
async def added(a: int, b: int) -> int:
    """The sum."""
    await asyncio.sleep(0)
    return a + b


async def counted(a: int, b: int) -> list[int]:
    """The numbers between."""
    for n in range(a, b + 1):
        await asyncio.sleep(0)
        yield n


async def nested(a: int, b: int) -> int:
    """Gives what is awaited in turn."""
    return added(a, b)


@pytest.mark.parametrize(
    ("function", "said"),
    [(added, "5"), (Methods().add, "5"), (counted, "[2,3]"), (plain(counted), "[2,3]"), (nested, "5")],
)
def test_what_is_async_is_awaited_behind_whatever_stands_around_it(function, said):
    found = call(tool(function), a=2, b=3)
    assert (found.text, found.failed) == (said, False)


def test_an_async_function_behind_a_decorator_fails_and_is_called_off_as_one_without():
    ended = []

    @plain
    async def hang(raises: bool) -> str:
        """Waits."""
        if raises:
            raise ValueError("no luck")
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)
        return ""

    made = tool(hang)
    assert call(made, raises=True).text == "error: ValueError: no luck"
    assert call(made, raises=False, seconds=0.05).text == "error: no result within 0.05 s"
    for _ in range(200):
        if ended and not made._stuck:
            break
        time.sleep(0.01)
    assert ended == [True] and not made._stuck


@pytest.mark.parametrize("end", [os._exit, posix._exit, sys.exit])
def test_a_tool_that_ends_the_process_ends_its_call_alone(end):
    def leave(status: int) -> str:
        """Ends."""
        end(status)
        return ""

    async def leave_later(status: int) -> str:
        """Ends."""
        return leave(status)

    for function in (leave, leave_later, plain(leave_later)):
        found = call(tool(function), status=0)
        assert found.failed and "SystemExit: 0" in found.text
        assert call(tool(later), word="a").text == '["a","a"]'  # the loop of async tools lives


def test_a_child_that_a_tool_forks_may_end_itself():
    def fork() -> int:
        """Forks."""
        child = os.fork()
        if not child:
            os._exit(3)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert call(tool(fork)).text == "3"
    code = "import palaestra.services.tools.exits, os; os._exit(4)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 4


def no_type(a) -> str:
    """Without."""
    return ""


def many(*a: int) -> str:
    """Many."""
    return ""


def odd(a: threading.Event) -> str:
    """Odd."""
    return ""


def undefined(a: "Missing") -> str:  # noqa: F821
    """Undefined."""
    return ""


def silent(a: int) -> str:
    return ""


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (no_type, "tools.py:no_type: a has no type"),
        (many, r"tools.py:many: \*a cannot be given by name"),
        (odd, "tools.py:odd: a parameter cannot be written as JSON"),
        (undefined, "tools.py:undefined: its type hints cannot be read"),
        (silent, "tools.py:silent has no docstring"),
    ],
)
def test_mistakes_of_the_user_are_named(function, said):
    with pytest.raises(UserError, match=said):
        tool(function)


@pytest.mark.skipif(bool(sandbox.sandbox_kind().refusal()), reason="the sandbox does not run here")
def test_the_sandbox_as_a_tool():
    made = PythonTool()
    assert call(made, code="print(6 * 7)").text == "42\n"
    assert call(made, code="x = 1").text == SILENT
    failed = call(made, code="print(1)\n1 / 0")
    assert failed.failed and failed.text == "error: error: ZeroDivisionError: division by zero\n1"
    slow = call(made, seconds=0.5, code="while True: pass")
    assert slow.failed and slow.text.startswith("error: timeout")
    assert call(made, program="print(1)").text.startswith("error: arguments")


def test_a_program_has_the_seconds_of_its_call(monkeypatch):
    asked = []

    class Runs:
        def refusal(self):
            return ""

    def run_program(code, limits):
        asked.append(limits.seconds)
        return sandbox.Ran(status="ok", stdout="1")

    monkeypatch.setattr("palaestra.services.tools.sandboxed.sandbox_kind", Runs)
    monkeypatch.setattr("palaestra.services.tools.sandboxed.run_program", run_program)
    assert call(PythonTool(), seconds=0.25, code="print(1)").text == "1" and asked == [0.25]


def test_a_sandbox_that_cannot_run_is_named_and_is_no_result(monkeypatch):
    class Refuses:
        def refusal(self):
            return "bubblewrap is missing; install it"

    monkeypatch.setattr("palaestra.services.tools.sandboxed.sandbox_kind", Refuses)
    with pytest.raises(UserError, match="--tools python: bubblewrap is missing"):
        PythonTool()
    with pytest.raises(Fault, match="sandbox"):
        outcome_of(sandbox.Ran(status="refused", stderr="gone"))


def test_names_in_one_text():
    assert split_names(["a.py:f, b.py:g", "python", "a.py:f"]) == ("a.py:f", "b.py:g", "python")
    assert split_names(["a.py:f,mcp:npx x,y"]) == ("a.py:f", "mcp:npx x,y")
    assert split_names(["mcp: npx x --m mcp:y"]) == ("mcp: npx x --m mcp:y",)
