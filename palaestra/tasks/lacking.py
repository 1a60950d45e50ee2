"""What is said of a record that lacks a column."""

from __future__ import annotations

from palaestra.suggest import close_names
from palaestra.tasks.columns import ANSWERS, PROMPTS, ColumnMap
from palaestra.tasks.records import Record

ALIASES = {  # columns that may be meant, by what they are read as
    "prompt": (*PROMPTS, "text"),
    "answer": (*ANSWERS, "label", "output"),
}


def describe_no_answer(record: Record, reading: ColumnMap) -> str:
    """What a record without an answer lacks, and what can stand in its place."""
    talk = next((k for k in ("messages", "prompt") if isinstance(record.get(k), list)), "")
    named = "answer" in record or reading.name("answer") != "answer"
    if talk and not named:
        return (
            f"{reading.name(talk)} ends with the user, so it shows no reply to imitate, and there "
            "is no answer to compare with; end it with a message of the assistant, add an "
            "'answer', or judge replies with --reward FILE.py:FUNCTION"
        )
    reply = next((k for k in ("completion", "response") if k in record), "")
    imitate = f", and to imitate {reply!r} give --columns {reply}=demonstration" if reply else ""
    without = f"without answers give a --reward FILE.py:FUNCTION{imitate}"
    return f"{describe_lack(record, 'answer', reading)}; {without}"


def describe_lack(record: Record, use: str, reading: ColumnMap) -> str:
    """That nothing is read as the prompt or the answer, and what the record has in its place."""
    uses = ("prompt", "messages") if use == "prompt" else (use,)
    own = {c.use: str(c) for c in reading.columns}
    has, names = [str(k) for k in record if own.get(k, k) == k], [own.get(u, u) for u in uses]
    # of a column under its own name nothing is left where it is empty
    if empty := [n for n in names if n.partition(".")[0] in has or n in own]:
        return f"{empty[0]} is empty; write it or drop the record"
    unused = [k for k in has if reading.is_free(k)]
    near = [k for k in unused if k.casefold() in ALIASES[use]] or close_names(use, unused)
    named = [n for n in names if n not in uses]
    missing = f"no {(named or uses)[0]!r}"
    missing += " (nor 'messages')" if use == "prompt" and not named else ""
    there = ", ".join(has[:8]) or "no columns"
    return f"{missing}; the record has {there}; {reading.remedy(use, *near[:1])}"
