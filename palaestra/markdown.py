"""Text for people and programs: Markdown tables, JSON in readable lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
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


def filled(text: str, made: Mapping[str, str]) -> str:
    """A page with these parts between their marks: `<!-- NAME: ... -->` and `<!-- end of NAME -->`, each on its line."""
    for name, part in made.items():
        marks = re.compile(rf"(<!-- {name}: [^\n]*-->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        if not marks.search(text):
            raise ValueError(f"the page has no marks for {name!r}")
        text = marks.sub(lambda found, part=part: f"{found[1]}\n{part}\n\n{found[2]}", text)
    return text
