"""Recipes are nested frozen values; this changes, prints, compares and digests them. No framework.

A path names a field: `learners.policy.objective.high`, `collect.links.0.n`. Any unambiguous end of it will do: `objective.high`.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import tomllib
import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

import tomli_w
from pydantic import TypeAdapter, ValidationError

from palaestra.types import UserError

LEARNER = ("credit", "objective", "update", "optimiser", "needs", "heads")


def vary(recipe: Any, **changes: Any) -> Any:
    """The recipe with other fields; those of a learner go to the single learner."""
    mine = {k: v for k, v in changes.items() if k in LEARNER}
    rest = {k: v for k, v in changes.items() if k not in LEARNER}
    if mine:
        if len(recipe.learners) != 1:
            raise ValueError(
                f"the recipe has {len(recipe.learners)} learners: give learners={{...}}, not {', '.join(mine)}"
            )
        ((name, learner),) = recipe.learners.items()
        rest["learners"] = {name: replace(learner, **mine)}
    return replace(recipe, **rest)


# ---- walking


def children(part: Any) -> Iterator[tuple[str, Any]]:
    if is_dataclass(part) and not isinstance(part, type):
        yield from ((f.name, getattr(part, f.name)) for f in fields(part) if f.init)
    elif isinstance(part, Mapping):
        yield from ((str(k), v) for k, v in part.items())
    elif isinstance(part, tuple):
        yield from ((str(i), v) for i, v in enumerate(part))


def walk(part: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """Every path with its value, outer before inner."""
    for name, inner in children(part):
        path = f"{at}.{name}" if at else name
        yield path, inner
        yield from walk(inner, path)


def scalar(x: Any) -> bool:
    return (
        x is None
        or isinstance(x, bool | int | float | str)
        or (isinstance(x, tuple) and bool(x) and all(map(scalar, x)))
    )


def flatten(recipe: Any) -> dict[str, Any]:
    """What can be written into a file: path -> number, text, truth value, or a tuple of these. None has no form there."""
    found: dict[str, Any] = {}
    for path, x in walk(recipe):
        inside = any(path.startswith(f"{p}.") for p in found)
        if scalar(x) and x is not None and not inside:
            found[path] = x
    return found


def describe(part: Any) -> Any:
    """Nested plain data for people: dataclasses as {"": class, field: ...}, unset fields left out."""
    if is_dataclass(part) and not isinstance(part, type):
        inside = {n: describe(v) for n, v in children(part) if v not in (None, (), {}, "")}
        return {"is": type(part).__name__, **inside} if inside else type(part).__name__
    if isinstance(part, Mapping):
        return {str(k): describe(v) for k, v in part.items()}
    if isinstance(part, tuple):
        return list(part) if scalar(part) else [describe(v) for v in part]
    return part if scalar(part) else getattr(part, "__qualname__", str(part))


def brief(part: Any) -> str:
    """One line for people: a call with the fields that are not at their defaults."""
    if is_dataclass(part) and not isinstance(part, type):
        given = []
        for f in fields(part):
            x = getattr(part, f.name)
            default = f.default if f.default is not MISSING else f.default_factory() if f.default_factory is not MISSING else MISSING
            if default is MISSING:
                given.append(brief(x))
            elif x != default:
                given.append(f"{f.name}={brief(x)}")
        return f"{type(part).__name__}({', '.join(given)})"
    if isinstance(part, tuple) and not scalar(part):
        return " -> ".join(map(brief, part))
    if isinstance(part, Mapping):
        return ", ".join(f"{k}: {brief(v)}" for k, v in part.items())
    return repr(part) if scalar(part) else getattr(part, "__qualname__", str(part))


def difference(before: Any, after: Any, at: str = "") -> list[tuple[str, Any, Any]]:
    """(path, before, after) of what changed, as deep as both have the same shape."""
    if type(before) is not type(after) or scalar(before):
        return [] if before == after else [(at, before, after)]
    a, b = dict(children(before)), dict(children(after))
    if not a and not b:
        return [] if before == after else [(at, before, after)]
    if isinstance(before, tuple) and len(a) != len(b):
        return [(at, before, after)]
    found: list[tuple[str, Any, Any]] = []
    for name in {**a, **b}:
        path = f"{at}.{name}" if at else name
        if name in a and name in b:
            found += difference(a[name], b[name], path)
        else:
            found.append((path, a.get(name), b.get(name)))
    return found


def digest(part: Any) -> str:
    """sha256 of a value: classes, fields, and functions by name. A closure has no name and is a TypeError."""
    return hashlib.sha256(json.dumps(_canonical(part), sort_keys=True).encode()).hexdigest()


def _canonical(x: Any) -> Any:
    if is_dataclass(x) and not isinstance(x, type):
        return {"class": f"{type(x).__module__}:{type(x).__qualname__}", **{n: _canonical(v) for n, v in children(x)}}
    if isinstance(x, Mapping):
        return {"map": [[str(k), _canonical(v)] for k, v in sorted(x.items(), key=lambda item: str(item[0]))]}
    if isinstance(x, tuple | list):
        return [_canonical(v) for v in x]
    if x is None or isinstance(x, bool | int | str):
        return x
    if isinstance(x, float):
        return x.hex()
    name = getattr(x, "__qualname__", "<")
    if isinstance(x, type | types.FunctionType | types.BuiltinFunctionType) and "<" not in name:
        return f"{x.__module__}:{name}"
    raise TypeError(f"no closures in a recipe: {x!r} has no name; write a frozen dataclass with __call__")


# ---- overriding


def overrides(words: list[str]) -> dict[str, str]:
    """`a.b=c` words as a dictionary."""
    found: dict[str, str] = {}
    for word in words:
        path, sign, given = word.partition("=")
        if not sign or not path:
            raise UserError(f"{word!r} is not an override; write stage.field=value")
        found[path] = given
    return found


def override(recipe: Any, path: str, given: Any) -> Any:
    """The recipe with one field changed. Raises UserError with the candidates, or the closest paths."""
    full = find(recipe, path)
    return _set(recipe, full.split("."), given, full)


def find(recipe: Any, path: str) -> str:
    """The one full path that ends with `path`."""
    known = [p for p, _ in walk(recipe)]
    if path in known:
        return path
    matches = [p for p in known if p.endswith(f".{path}")]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UserError(f"{path!r} is ambiguous: it could be {' or '.join(matches)}")
    ends = {".".join(p.split(".")[-n:]) for p in known for n in (1, 2, 3)}
    close = difflib.get_close_matches(path, sorted(ends), n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(close)}?" if close else "`palaestra show RECIPE` prints them all"
    raise UserError(f"no field {path!r} in this recipe; {hint}")


def _set(part: Any, path: list[str], given: Any, full: str) -> Any:
    name, rest = path[0], path[1:]
    before = dict(children(part))[name]
    after = _set(before, rest, given, full) if rest else parse(given, _annotation(part, name, before), full)
    if isinstance(part, Mapping):
        return {**part, name: after}
    if isinstance(part, tuple):
        return tuple(after if str(i) == name else v for i, v in enumerate(part))
    return replace(part, **{name: after})


def _annotation(part: Any, name: str, before: Any) -> Any:
    """The declared type of a field, else the type of what is there."""
    if is_dataclass(part):
        try:
            return get_type_hints(type(part))[name]
        except (NameError, KeyError):  # a name that is only imported for type checkers
            pass
    return type(before)


def parse(given: Any, annotation: Any, name: str) -> Any:
    """A value of the annotated type, from a TOML literal, bare text, or plain data."""
    candidates = [given]
    if isinstance(given, str):
        try:
            candidates.insert(0, tomllib.loads(f"x = {given}")["x"])
        except tomllib.TOMLDecodeError:
            if given in ("none", "None"):
                candidates.insert(0, None)
    if isinstance(annotation, str):
        return candidates[0]
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    except Exception:  # a protocol or a callable: nothing to write on a command line
        raise UserError(
            f"{name} is a part, not a value; its own fields can be set, or write a recipe of your own"
        ) from None
    reason = ""
    for candidate in candidates:
        try:
            return adapter.validate_python(candidate)
        except ValidationError as error:
            reason = reason or error.errors()[0]["msg"][0].lower() + error.errors()[0]["msg"][1:]
    wanted = getattr(annotation, "__name__", None) or str(annotation)
    raise UserError(f"{name}={given}: {reason} (it takes {wanted.replace('typing.', '')})")


# ---- files


def to_toml(settings: Mapping[str, Any]) -> str:
    """Settings as TOML: scalars first, tables behind."""

    def plain(x: Any) -> Any:
        if isinstance(x, Mapping):
            return {k: plain(v) for k, v in x.items() if v is not None}
        return [plain(v) for v in x] if isinstance(x, tuple | list) else x

    return tomli_w.dumps(plain(settings))


def from_toml(path: Path) -> dict[str, Any]:
    """Settings of a file. Raises UserError with the line of a mistake."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: not TOML: {error}") from None
