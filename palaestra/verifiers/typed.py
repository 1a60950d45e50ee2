"""Fields in the types that a verifier's call declares: what data holds instead is the user's
mistake, told by field.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from numbers import Real
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from palaestra.errors import UserError

NAMES: Mapping[Any, str] = {
    str: "text", int: "a whole number", float: "a number", bool: "true or false", list: "a list",
    tuple: "a list",
    dict: "an object",
}  # fmt: skip


@lru_cache(maxsize=256)
def declared_fields(call: Callable[..., Any]) -> dict[str, tuple[Any, bool]]:
    """The annotation of the reference and of each field of a verifier's call, and whether it has a
    default.
    """
    hints = get_type_hints(call)
    # without the verifier and the response
    parameters = list(inspect.signature(call).parameters.values())[2:]
    known = [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    return {p.name: (hints.get(p.name, Any), p.default is not p.empty) for p in known}


def check_fields(
    call: Callable[..., Any], who: object, answer: Any, fields: Mapping[str, Any]
) -> dict[str, Any]:
    """The fields without those that are null and have a default. Raises UserError for one of
    another type than declared.
    """
    known = declared_fields(call)
    given = {k: v for k, v in fields.items() if v is not None or not known.get(k, (Any, False))[1]}
    for name, value in {"answer": answer, **given}.items():
        kind = known.get(name, (Any, False))[0]
        kind = str if kind is Any and isinstance(value, str) else kind
        if not fits(value, kind):
            raise UserError(
                f"{type(who).__name__}: {name} is {describe_value(value)}; give it as "
                f"{describe_type(kind)}"
            )
    return given


def fits(given: Any, kind: Any) -> bool:
    """Whether a value is of a declared type: lists of any kind are sequences, 2.0 is whole, truth
    values are no numbers.
    """
    inside = get_args(kind)
    match get_origin(kind) or kind:
        case origin if origin in (Union, UnionType):
            return any(fits(given, k) for k in inside)
        case origin if origin is Sequence:
            return isinstance(given, list | tuple) and all(fits(x, inside[0]) for x in given)
        case origin if origin is Mapping:
            return isinstance(given, Mapping) and all(
                fits(k, inside[0]) and fits(v, inside[1]) for k, v in given.items()
            )
        case origin if origin in (int, float):
            number = isinstance(given, Real) and not isinstance(given, bool)
            return number and (origin is float or given % 1 == 0)
        case origin if origin is str:
            return isinstance(given, str) and is_whole_text(given)
        case origin:
            return origin is Any or isinstance(given, NoneType if origin is None else origin)


def describe_value(given: Any) -> str:
    half = " with half a character" if isinstance(given, str) and not is_whole_text(given) else ""
    return "missing" if given is None else f"{type(given).__name__} {str(given)[:40]!r}{half}"


def is_whole_text(text: str) -> bool:
    """Whether a text has no half of a character (a lone surrogate)."""
    return text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text)


def describe_type(kind: Any) -> str:
    """A declared type in words; None, which stands for a field left out, is not among them."""
    inside = get_args(kind)
    match get_origin(kind) or kind:
        case origin if origin in (Union, UnionType):
            return describe_types(inside)
        case origin if origin is Sequence:
            return "a list" if inside[0] is Any else f"a list, each {describe_type(inside[0])}"
        case origin if origin is Mapping:
            return (
                "an object"
                if inside[1] is Any
                else f"an object, each value {describe_type(inside[1])}"
            )
        case origin:
            return NAMES.get(origin, str(getattr(origin, "__name__", origin)))


def describe_types(kinds: Sequence[Any]) -> str:
    """Several types in words; a whole number is not told beside a number."""
    names = [k for k in kinds if k is not NoneType and not (k is int and float in kinds)]
    return " or ".join(dict.fromkeys(map(describe_type, names)))
