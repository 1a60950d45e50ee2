"""What a method needs, as words: for a terminal, and for its page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from palaestra.needs.declared import (
    NeededColumn,
    NeededModel,
    NeededPlace,
    Requirements,
    holds,
    is_required,
)
from palaestra.needs.rows import columns_of

REQUIRED = "required"
GOAL = (
    "goal",
    "--goal TEXT",
    "what is wanted, in words",
    "what is said of the simulator, or of the method",
)


def column_rows(
    needs: Requirements, arguments: Mapping[str, Any]
) -> list[tuple[str, str, str, str, str]]:
    """Of each column: name, type, an example, meaning, and what happens without it."""
    return [
        (
            c.name,
            c.type,
            json.dumps(c.examples[0], ensure_ascii=False),
            c.meaning,
            c.otherwise or required_words(c),
        )
        for c in columns_of(needs, arguments)
    ]


def required_words(column: NeededColumn) -> str:
    """That a column is required, or else the one that serves in its place."""
    return f"{REQUIRED}, or the column {column.or_else}" if column.or_else else REQUIRED


def other_rows(
    needs: Requirements, arguments: Mapping[str, Any]
) -> list[tuple[str, str, str, str]]:
    """Of each model and place: what it is, how it is given, meaning, and what happens without it."""
    models = [m for m in needs.models if holds(m.when, arguments)]
    places = [p for p in needs.places if holds(p.when, arguments)]
    return [
        *((m.role, given_by(m, needs), m.words, m.otherwise or REQUIRED) for m in models),
        *((p.kind, p.ways, p.meaning, p.otherwise or REQUIRED) for p in places),
        *([GOAL] if "goal" in needs.flags else []),
    ]


def given_by(need: NeededModel | NeededPlace, needs: Requirements) -> str:
    """How a model or a place is given on the command line."""
    if isinstance(need, NeededModel):
        return needs.way(need.argument, need.example)
    return need.given_by


def pointer(method: str, needs: Requirements, arguments: Mapping[str, Any]) -> str:
    """What a method takes that reads no file of rows, and what one can begin from."""
    places = [p for p in needs.places if holds(p.when, arguments)]
    models = [m for m in needs.models if holds(m.when, arguments)]
    if not places:
        taken = ", ".join(f"{given_by(m, needs)} ({m.role})" for m in models) or "--model DIR alone"
        return f"it takes {taken}; `palaestra needs {method}` says more"
    place, ways = places[0], list[str]()
    if is_required(place, arguments) and not place.flag:
        ways.append(f"`palaestra init {method} FOLDER` writes one to begin from")
    if needs.flags.get("env") == "sim":
        ways.append("`palaestra guide init SIM` describes one to a language model")
    if place.built_in:
        ways.append(f'--task "{place.built_in[0]}" is built in')
    if place.otherwise:
        ways.append(f"without it: {place.otherwise}")
    return "; ".join([f"it takes {place.ways} ({place.kind})", *ways])


def shown_words(needs: Requirements) -> str:
    """What the number of the mechanism is where the method acts, and where its mechanism is off."""
    if needs.never_off:
        return f"it differs from 0 where it does. {needs.never_off}"
    without = " and ".join(f"{name}={written(value)}" for name, value in needs.off.items())
    return "it differs from 0 where it does" + (f", and is 0 with {without}" if without else "")


def written(value: Any) -> str:
    """A value as it stands behind an argument; of a part of a method, its form in Python."""
    return value if isinstance(value, str) and value else repr(value)


def quote(words: str) -> str:
    """`name=VALUE` or `--flag VALUE` as a shell reads it: a value with brackets in double quotes."""
    if "(" not in words or '"' in words:
        return words
    name, sign, value = re.split(r"([= ])", words, maxsplit=1)
    return f'{name}{sign}"{value}"'


def own_command(
    method: str, needs: Requirements, arguments: Mapping[str, Any], verb: str = "train"
) -> str:
    """What trains the method on one's own data: what is required, and flags of the run that name a simulator
    and a goal; `verb` "study" for a study.
    """
    words = [f"palaestra {verb} {method}"]
    if needs.columns:
        words.append("--data FILE.jsonl")
    required: list[NeededModel | NeededPlace] = [*needs.models, *needs.places]
    words += [quote(given_by(need, needs)) for need in required if is_required(need, arguments)]
    if "env" in needs.flags:
        words += [p.given_by.split(" or ")[0].split(", ")[0] for p in needs.places]
    if "goal" in needs.flags:
        words.append('--goal "TEXT"')
    return " ".join([*words, *(["--model DIR"] if needs.policy else [])])


def needs_in_short(needs: Requirements, arguments: Mapping[str, Any]) -> str:
    """Columns, models and places in one line; in brackets what the method does without."""
    columns = [(c.name, not c.otherwise and not c.or_else) for c in columns_of(needs, arguments)]
    others: list[tuple[str, NeededModel | NeededPlace]] = [
        *((m.role, m) for m in needs.models),
        *((" or ".join((p.kind, *p.also)), p) for p in needs.places),
    ]
    held = [(x, is_required(need, arguments)) for x, need in others if holds(need.when, arguments)]
    names = [name if required else f"({name})" for name, required in (*columns, *held)]
    least = [f"{n} {what} or more" for what, n in needs.least.items()]
    return ", ".join(dict.fromkeys([*names, *least]))


def lines(
    method: str, needs: Requirements, arguments: Mapping[str, Any], verb: str = "train"
) -> Iterator[str]:
    """For a terminal."""
    yield f"{method} on your own data:"
    yield f"  {own_command(method, needs, arguments, verb)}"
    for name, kind, example, meaning, without in column_rows(needs, arguments):
        yield f"column {name} ({kind}, e.g. {example}): {meaning}"
        yield f"  {without if without.startswith(REQUIRED) else f'without it: {without}'}"
    for what, given, meaning, without in other_rows(needs, arguments):
        yield f"{what}, {given}: {meaning}"
        yield f"  {without if without == REQUIRED else f'without it: {without}'}"
    for what, least in needs.least.items():
        yield f"at least {least} {what}"
    if needs.shows:
        yield f"the metric {needs.shows} shows whether the method acts: {shown_words(needs)}"
