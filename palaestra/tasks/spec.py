"""How tasks and verifiers are named in text: NAME, NAME(setting=value, ...), and sums of these with
weights, `a*2+b`.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from palaestra.errors import UserError
from palaestra.services.tools.names import GIVEN
from palaestra.types import value_class

FILE_PART = re.compile(rf"(?:[^()*+]+\.py:|{GIVEN})\w+")  # see `palaestra.tasks.user_code`
NAME = r"(?:rg:)?[A-Za-z_][\w-]*"
REST = r"(?P<settings>\(.*\))?\s*(?:\*\s*(?P<weight>[^()*]+))?"
PART = re.compile(f"(?P<name>{NAME}){REST}", re.DOTALL)
PART_OR_FILE = re.compile(f"(?P<name>{FILE_PART.pattern}|{NAME}){REST}", re.DOTALL)

ADDRESS = re.compile(r"(?P<name>[^()\s]+)(?P<settings>\(.*\))?", re.DOTALL)


@value_class
class SpecPart:
    """One part of a sum; `weight` is None where none is written, `text` is all but the weight."""

    name: str
    settings: Mapping[str, Any]
    weight: float | None
    text: str


def parse_spec(spec: str, kind: str, least: float = 0.0, *, files: bool = False) -> list[SpecPart]:
    """The parts that a string names, at least one.

    Args:
        kind: what it names, for the messages: "task", "verifier".
        least: the least weight.
        files: whether a part may be FILE.py:NAME too.

    Raises:
        UserError: it cannot be read.
    """
    pattern, form = (PART_OR_FILE, "FILE.py:NAME, NAME") if files else (PART, "NAME")
    pieces = (piece.strip() for piece in split_outside(spec, "+"))
    matches = [(piece, pattern.fullmatch(piece)) for piece in pieces]
    if unread := [piece for piece, match in matches if match is None]:
        what = f"{unread[0]!r} in {spec!r}" if unread[0] else f"an empty part in {spec!r}"
        raise UserError(
            f"{kind} {what} cannot be read; write {form}, NAME(setting=value) or NAME*2, joined by +"
        )
    return [_part(piece, match, least) for piece, match in matches if match is not None]


def parse_alone(spec: str, form: str) -> SpecPart:
    """What stands alone under whatever name another library gave it, with its settings.

    Args:
        form: how it is written, for the message.

    Raises:
        UserError: it cannot be read, or it is a sum.
    """
    match = ADDRESS.fullmatch(spec)
    if match is None or len(split_outside(spec, "+")) > 1:
        raise UserError(f"{spec!r} cannot be read; write {form}, and nothing beside it")
    settings = _settings(match["settings"] or "()", match["name"])
    return SpecPart(name=match["name"], settings=settings, weight=None, text=spec)


def names_in(spec: str) -> list[str]:
    """The names of the parts of a string such as `a(x=1)*2+b`; of what cannot be read none."""
    matches = (PART.fullmatch(piece.strip()) for piece in split_outside(spec, "+"))
    return [m["name"] for m in matches if m]


def split_outside(text: str, separator: str) -> list[str]:
    """Splits where the separator stands outside brackets and quotes."""
    pieces, depth, quote, escaped = [""], 0, "", False
    for c in text:
        if quote:
            quote = "" if c == quote and not escaped else quote
            escaped = c == "\\" and not escaped
        elif c in "'\"":
            quote = c
        depth += 0 if quote else (c in "([{") - (c in ")]}")
        if c == separator and not depth and not quote:
            pieces.append("")
        else:
            pieces[-1] += c
    return pieces


def write_part(name: str, settings: Iterable[tuple[str, Any]]) -> str:
    """A part as it is read: the name alone, or with its settings in brackets."""
    given = ",".join(f"{k}={v!r}" for k, v in settings)
    return f"{name}({given})" if given else name


def _part(piece: str, match: re.Match[str], least: float) -> SpecPart:
    name = match["name"]
    settings = _settings(match["settings"] or "()", name)
    return SpecPart(
        name=name,
        settings=settings,
        weight=read_weight(match["weight"], piece, least),
        text=name + (match["settings"] or ""),
    )


def read_weight(text: str | None, piece: str, least: float) -> float | None:
    """A weight as written behind `*`; None where none is. Raises UserError below `least`."""
    if text is None:
        return None
    try:
        weight = float(text)
    except ValueError:
        raise UserError(f"the weight in {piece!r} is no number; write NAME*2") from None
    if not (math.isfinite(weight) and weight >= least):
        raise UserError(f"the weight in {piece!r} must be at least {least:g}")
    return weight


def _words(value: ast.expr) -> str:
    """A bare word, or several joined by +, as text; "" for anything else."""
    if isinstance(value, ast.Name):
        return value.id
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        first, last = _words(value.left), _words(value.right)
        return f"{first}+{last}" if first and last else ""
    return ""


def _settings(text: str, name: str) -> dict[str, Any]:
    """`(a=1,b=(2,3))` as keywords; values are Python literals, bare words are text, lists are
    tuples.
    """
    form = f"{name}(name=value), values as numbers, 'text' or (1, 2)"
    wanted = f"{name + text!r} cannot be read; write settings as {form}"
    try:
        call = ast.parse(f"f{text}", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UserError(wanted) from None
    if (
        not isinstance(call, ast.Call)
        or not isinstance(call.func, ast.Name)
        or call.args
        or any(not k.arg for k in call.keywords)
    ):
        raise UserError(wanted)
    try:
        return {
            k.arg or "": _hashable(text if (text := _words(k.value)) else ast.literal_eval(k.value))
            for k in call.keywords
        }
    except (ValueError, TypeError):
        raise UserError(wanted) from None


def _hashable(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_hashable(v) for v in value)
    hash(value)
    return value
