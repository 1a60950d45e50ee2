"""Tools that the model meets: typed functions, and a stand-in for the sandbox's `python`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from palaestra.services.index import BM25
from palaestra.services.tools.base import ToolResult, failure
from palaestra.services.tools.sandboxed import SILENT, PythonTool
from palaestra.toys.count import NotExpression, value_of

PRINTED = re.compile(r"print\((.*)\)")
# what `search` and `get` look into; an episode puts its own there before it begins
PAGES: list[BM25] = []
STORE: dict[str, int] = {}


def add(a: int, b: int) -> int:
    """The sum of a and b."""
    return a + b


def subtract(a: int, b: int) -> int:
    """a less b."""
    return a - b


def multiply(a: int, b: int) -> int:
    """The product of a and b."""
    return a * b


def calculate(expression: str) -> int:
    """The value of an expression of numbers and + - *."""
    return value_of(expression)[0]


def reverse(text: str) -> str:
    """The text from its end."""
    return text[::-1]


def upper(text: str) -> str:
    """The text in capitals."""
    return text.upper()


def search(query: str) -> str:
    """The pages that share words with the query."""
    return "\n".join(text for _, text, _ in PAGES[0].search(query, 3)) or "nothing"


def get(key: str) -> int:
    """The value of a key."""
    return STORE[key]


def stock(item: str) -> int:
    """How many of an item there are."""
    return STORE[item]


def order(item: str, amount: int) -> str:
    """Orders an item."""
    if amount > STORE[item]:
        raise ValueError(f"there are {STORE[item]} of {item}")
    return f"ordered {amount} {item}"


class Printing:
    """`python`, of programs that print an expression of + - *. What the sandbox would show."""

    schema = PythonTool.schema

    async def call(self, args: Mapping[str, Any], seconds: float) -> ToolResult:
        found = PRINTED.fullmatch(str(args.get("code", "")))
        if found is None:
            return ToolResult(text=SILENT)
        try:
            return ToolResult(text=f"{value_of(found[1])[0]}\n")
        except NotExpression:
            return failure("error: SyntaxError: invalid syntax")
