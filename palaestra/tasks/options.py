"""Multiple choice: the column `options` of a record, written out under its question.

Which one?
A. aspirin
B. ibuprofen
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from palaestra.types import Message

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def option_texts(columns: Mapping[str, Any]) -> list[str]:
    """The options in the order in which they are shown: `order[i]` says which one stands at place
    i, else as in the data.

    Empty where the column `options` is no list of 2 to 26 texts or numbers.
    """
    own = columns.get("options")
    if not isinstance(own, list | tuple) or not 2 <= len(own) <= len(LETTERS):
        return []
    if not all(isinstance(o, str | int | float) for o in own):
        return []
    places, order = list(range(len(own))), columns.get("order")
    if isinstance(order, list | tuple) and sorted(map(repr, order)) == sorted(map(repr, places)):
        places = list(order)
    return [str(own[i]) for i in places]


def letter_options(options: Sequence[str]) -> str:
    """A line for each option; one that begins with its letter already stays as it is."""
    named = [o if _has_mark(i, o) else f"{LETTERS[i]}. {o}" for i, o in enumerate(options)]
    return "\n".join(named)


def contains_options(text: str, options: Sequence[str]) -> bool:
    """Whether a text shows every option behind its letter, as "A. red", "(A) red" or "a) red"."""
    lines = [
        re.escape(o) if _has_mark(i, o) else _mark(i) + re.escape(o.strip())
        for i, o in enumerate(options)
    ]
    return all(re.search(rf"(?<!\w){line}", text, re.IGNORECASE) for line in lines)


def add_options(prompt: tuple[Message, ...], columns: Mapping[str, Any]) -> tuple[Message, ...]:
    """The prompt with the options under its last message, unless it contains them."""
    options = option_texts(columns)
    if not options or contains_options("\n".join(m.content for m in prompt), options):
        return prompt
    *before, last = prompt
    return (*before, replace(last, content=f"{last.content}\n{letter_options(options)}"))


def _mark(place: int) -> str:
    return rf"[(\[]?{LETTERS[place]}(?:[.):\]]+|\s-)\s*"


def _has_mark(place: int, option: str) -> bool:
    return re.match(_mark(place), option.strip(), re.IGNORECASE) is not None
