"""Text for people and programs: Markdown tables, JSON in readable lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table; a bar inside a cell does not end it."""
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in lines]


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def one_line_lists(data: Any) -> str:
    """Indented JSON in which a list of numbers or names stays on its line."""
    joined = lambda found: " ".join(found[0].split()).replace("[ ", "[").replace(" ]", "]")
    return re.sub(r"\[\s[^][{}]*\]", joined, json.dumps(data, indent=1)) + "\n"
