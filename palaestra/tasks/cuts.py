"""Records that are too long, cut to size: a prompt loses the beginning of its longest message, a
recorded text its end. What has lost its end is learned from without an end token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from palaestra.types import Message, Task

# the place of a message and the characters that its beginning loses, or a column of text and the
# characters that stay
Cut: TypeAlias = tuple[int | str, int]
CUT = "cut_texts"  # in `Task.meta`: the columns that have lost their end
DOCUMENT = "document"


def is_cut(task: Task, column: str) -> bool:
    """Whether a recorded text has lost its end."""
    return column in (task.meta.get(CUT) or ())


def is_document(task: Task) -> bool:
    """Whether a task is a text to imitate whole: its prompt is that text."""
    text = task.meta.get(DOCUMENT)
    asked = [m.content for m in task.prompt]
    return text is not None and text == task.meta.get("demonstration") and asked == [text]


def shorten(task: Task, cuts: tuple[Cut, ...]) -> Task:
    """The task after these cuts."""
    for place, n in cuts:
        if isinstance(place, int):
            messages = [*task.prompt]
            messages[place] = replace(messages[place], content=messages[place].content[n:])
            task = replace(task, prompt=tuple(messages))
            continue
        whole = is_document(task)
        texts = {k: str(task.meta[k])[:n] for k in ((DOCUMENT, place) if whole else (place,))}
        marks = tuple(dict.fromkeys([*(task.meta.get(CUT) or ()), place]))
        prompt = tuple(replace(m, content=m.content[:n]) for m in task.prompt)
        task = replace(
            task, prompt=prompt if whole else task.prompt, meta={**task.meta, **texts, CUT: marks}
        )
    return task


def cut_prompt(task: Task, fits: Callable[[Task], bool]) -> Cut | None:
    """How the prompt of a task comes to fit; None where it does not. What others than the system say
    is cut, without pictures and where it is not imitated; of a text to imitate whole, its end.
    """
    if is_document(task):
        return cut_text(task, "demonstration", fits)
    able = [i for i, m in enumerate(task.prompt) if _may_lose(m)]
    if not able:
        return None
    place = max(able, key=lambda i: len(task.prompt[i].content))
    size = len(task.prompt[place].content)
    kept = most(size - 1, lambda n: fits(shorten(task, ((place, size - n),))))
    return (place, size - kept) if kept else None


def _may_lose(message: Message) -> bool:
    return message.role != "system" and not message.pictures and not message.trained


def cut_text(task: Task, column: str, fits: Callable[[Task], bool]) -> Cut | None:
    """How a recorded text comes to fit behind its prompt; None where nothing of it would be left."""
    size = len(str(task.meta[column]))
    kept = most(size - 1, lambda n: fits(shorten(task, ((column, n),))))
    return (column, kept) if kept else None


def most(limit: int, holds: Callable[[int], bool]) -> int:
    """The largest number from 1 to `limit` for which this holds, as it does for all below; 0 = none."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
