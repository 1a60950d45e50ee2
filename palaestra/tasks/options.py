"""Multiple choice: the column `options` of a record, written out under its question.

Which one?
A. aspirin
B. ibuprofen

The column is a list of texts, or one of the other forms that data has: {"A": "red", "B": "blue"},
[{"label": "A", "text": "red"}, ...], {"label": ["A", "B"], "text": ["red", "blue"]}, each also as
JSON text, or text with a lettered line for each option.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from palaestra.types import Message, Task

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
LABELS, TEXTS = ("label", "key", "letter", "id"), ("text", "value", "content", "option")
LABEL = re.compile(r"[(\[]?([A-Za-z]|\d{1,2})[.):\]]*")  # of an option: a letter or a number


def read_options(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The record with its column `options` as a list of texts, where it stands in another form.

    An answer that is a label becomes the letter under which its option is shown, as labels may be
    numbers or out of order. A record whose options are in no known form stays as it is.
    """
    labelled = _labelled(record.get("options"))
    if labelled is None:
        return record
    labels, texts = labelled
    changed: dict[str, Any] = {"options": texts}
    answer = record.get("answer")
    if isinstance(answer, str | int) and not isinstance(answer, bool):
        place = {x.casefold(): i for i, x in enumerate(labels)}.get(_label(answer).casefold())
        if place is not None:
            changed["answer"] = LETTERS[place]
    return {**record, **changed}


def has_options(options: Any, answer: Any) -> bool:
    """Whether a value can be read as options of which the answer names one: by label, letter, text
    or index.
    """
    record = read_options({"options": options, "answer": answer})
    texts, named = option_texts(record), record.get("answer")
    if isinstance(named, int) and not isinstance(named, bool):
        return 0 <= named < len(texts)
    known = {*LETTERS[: len(texts)], *(text.strip().upper() for text in texts)}
    return bool(texts) and str(named).strip().upper() in known


def _labelled(own: Any) -> tuple[list[str], list[str]] | None:
    """Labels and texts of options that are no list of texts; None = of no known form."""
    if isinstance(own, str):
        own = _parse(own)
        if isinstance(own, list) and all(_is_text(o) for o in own):
            pairs = [(LETTERS[i], o) for i, o in enumerate(own[: len(LETTERS)])]
            return _checked(pairs) if len(own) == len(pairs) else None
    if isinstance(own, Mapping):
        label, text = (_first(own, names) for names in (LABELS, TEXTS))
        if isinstance(label, list) and isinstance(text, list) and len(label) == len(text):
            return _checked(list(zip(label, text, strict=True)))
        # a table of several kinds of rows has null where a row has fewer options
        return _checked([(k, v) for k, v in own.items() if v is not None])
    if isinstance(own, list) and own and all(isinstance(o, Mapping) for o in own):
        return _checked([(_first(o, LABELS), _first(o, TEXTS)) for o in own])
    return None


def _parse(text: str) -> Any:
    """JSON, or a lettered line for each option as an object; None = neither."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) < 2 or not all(_has_mark(i, x) for i, x in enumerate(lines[: len(LETTERS)])):
        return None
    return {
        LETTERS[i]: re.sub(_mark(i), "", line, count=1, flags=re.IGNORECASE)
        for i, line in enumerate(lines[: len(LETTERS)])
    }


def _checked(pairs: Sequence[tuple[Any, Any]]) -> tuple[list[str], list[str]] | None:
    """Labels and texts, where all labels are different letters or numbers."""
    if not 2 <= len(pairs) <= len(LETTERS) or not all(_is_text(v) for _, v in pairs):
        return None
    labels = [LETTERS[i] if k is None else _label(k) for i, (k, _) in enumerate(pairs)]
    different = len({x.casefold() for x in labels}) == len(labels)
    if not different or not all(LABEL.fullmatch(x) for x in labels):
        return None
    return labels, [str(v) for _, v in pairs]


def _label(value: Any) -> str:
    """A label without its brackets or point: "(a)" is "a"."""
    match = LABEL.fullmatch(str(value).strip())
    return match[1] if match else str(value).strip()


def _first(columns: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((columns[n] for n in names if columns.get(n) is not None), None)


def _is_text(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool) and value != ""


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


def reorder_options(
    task: Task, order: Sequence[int] | None = None, options: Sequence[str] | None = None
) -> Task:
    """The task with its lettered options in another order, `order[i]` being the number of the one at
    place i, and perhaps other options; the column `order` tells verifiers. Options that the prompt
    shows in a form of its own stay as they are.
    """
    known = option_texts(task.meta)
    block = letter_options(known)
    *before, asked = task.prompt
    written = bool(known) and block in asked.content
    if not known or (
        not written and contains_options("\n".join(m.content for m in task.prompt), known)
    ):
        return task
    meta = {k: v for k, v in task.meta.items() if k != "order"}
    if options is not None:
        meta["options"] = list(options)
    if order is not None:
        meta["order"] = [int(i) for i in order]
    content = asked.content if written else f"{asked.content}\n{block}"
    content = content.replace(block, letter_options(option_texts(meta)), 1)
    return replace(task, prompt=(*before, replace(asked, content=content)), meta=meta)


def _mark(place: int) -> str:
    return rf"[(\[]?{LETTERS[place]}(?:[.):\]]+|\s-)\s*"


def _has_mark(place: int, option: str) -> bool:
    return re.match(_mark(place), option.strip(), re.IGNORECASE) is not None
