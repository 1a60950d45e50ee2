"""Recipes are nested frozen values; this changes, prints, compares and digests them. No framework.

A path names a field: `learners.policy.objective.high`, `collect.links.0.n`. Any unambiguous end of
it will do, `objective.high`, or some of its names in their order, `learners.high`. A part of a
tuple is called by its number, or by its class where that is the only one there:
`collect.links.sample.n`, `sample.n`.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import math
import re
import sys
import tomllib
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import tomli_w
from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import SchemaError

from palaestra.errors import UserError
from palaestra.identity import former_field, former_fields, leads_back, name_of
from palaestra.schedule import Scheduled
from palaestra.schedule import read as read_schedule
from palaestra.suggest import close_names, from_elsewhere, suggestion, suggestion_or_all

R = TypeVar("R")
YAML = (
    "; settings files are TOML here: `palaestra config --from verl FILE.yaml` translates one of verl, and "
    "docs/beside.md says how the words of other trainers are written"
)


def vary(recipe: R, **changes: Any) -> R:
    """The recipe with other fields.

    Args:
        recipe: stays as it is.
        changes: fields of the recipe by name; those that only a learner has go to the single learner.

    Raises:
        TypeError: neither has a field of that name; the message suggests one.
        ValueError: a learner's field is given, and the recipe has several learners.
    """
    parent: Any = recipe
    inner = {k: changes.pop(k) for k in list(changes) if not hasattr(recipe, k)}
    if inner:
        learners = changes.get("learners", parent.learners)
        if len(learners) != 1:
            raise ValueError(
                f"the recipe has {len(learners)} learners: give learners={{...}}, not "
                f"{', '.join(inner)}"
            )
        ((name, learner),) = learners.items()
        for k in inner:
            if not hasattr(learner, k):
                known = [n for part in (recipe, learner) for n, _ in children(part)]
                raise TypeError(
                    f"neither the recipe nor its learner has a field {k!r}{suggestion(k, known)}"
                )
        changes["learners"] = {name: replace(learner, **inner)}
    return replace(parent, **changes)


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


def is_scalar(x: Any) -> bool:
    """What a file of settings can hold: a number, text, a truth value, none, or a tuple
    of these.
    """
    return (
        x is None
        or isinstance(x, bool | int | float | str)
        or (isinstance(x, tuple) and all(map(is_scalar, x)))
    )


def flatten(whole: object) -> dict[str, Any]:
    """The leaves that a file of settings can hold, by path; what is inside a tuple of scalars is no
    leaf of its own.
    """
    leaves: dict[str, Any] = {}
    inside = "\0"
    for path, x in walk(whole):
        if is_scalar(x) and not path.startswith(inside):
            leaves[path], inside = x, f"{path}."
    return leaves


def describe(part: Any) -> Any:
    """Nested plain data for people: dataclasses as {"is": class, field: ...}, unset fields left
    out.
    """
    if is_dataclass(part) and not isinstance(part, type):
        inside = {n: describe(v) for n, v in children(part) if v not in (None, (), {}, "")}
        return {"is": type(part).__name__, **inside} if inside else type(part).__name__
    if isinstance(part, Mapping):
        return {str(k): describe(v) for k, v in part.items()}
    if isinstance(part, tuple):
        return list(part) if is_scalar(part) else [describe(v) for v in part]
    return part if is_scalar(part) else getattr(part, "__qualname__", str(part))


def brief(part: Any) -> str:
    """One line for people: a call with the fields that are not at their defaults."""
    if is_dataclass(part) and not isinstance(part, type):
        given: list[str] = []
        for f in fields(part):
            x = getattr(part, f.name)
            default = f.default if f.default_factory is MISSING else f.default_factory()
            if default is MISSING:
                given.append(brief(x))
            elif x != default:
                given.append(f"{f.name}={brief(x)}")
        return f"{type(part).__name__}({', '.join(given)})"
    if isinstance(part, tuple) and not is_scalar(part):
        if part and all(map(_is_weighted, part)):
            return " + ".join(f"{weight:g} * ({brief(x)})" for weight, x in part)
        return " -> ".join(map(brief, part))
    if isinstance(part, Mapping):
        return ", ".join(f"{k}: {brief(v)}" for k, v in part.items())
    return repr(part) if is_scalar(part) else getattr(part, "__qualname__", str(part))


def _is_weighted(part: Any) -> bool:
    """Whether this is a pair of a weight and what it weighs, as a sum of chains has them."""
    pair = isinstance(part, tuple) and len(part) == 2
    return pair and isinstance(part[0], int | float) and not is_scalar(part[1])


def difference(before: Any, after: Any, at: str = "") -> list[tuple[str, Any, Any]]:
    """(path, before, after) of what changed, as deep as both have the same shape; None where one
    side has nothing.
    """
    if _equal(before, after):
        return []
    a, b = dict(children(before)), dict(children(after))
    same_shape = type(before) is type(after) and not is_scalar(before) and (a or b)
    if not same_shape or (isinstance(before, tuple) and len(a) != len(b)):
        return [(at, before, after)]
    paths = {name: f"{at}.{name}" if at else name for name in a | b}
    both = [
        difference(a[n], b[n], p) if n in a and n in b else [(p, a.get(n), b.get(n))]
        for n, p in paths.items()
    ]
    return [change for changes in both for change in changes]


def _equal(a: Any, b: Any) -> bool:
    """1, 1.0 and True differ as settings; a NaN is itself."""
    return type(a) is type(b) and (
        a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b))
    )


def digest(part: Any) -> str:
    """sha256 of a value: classes with their fields, functions by name. Equal recipes have equal
    digests.

    Raises TypeError for what has no name to be found by: a closure, a lambda, an object that is no
    dataclass.
    """
    return hashlib.sha256(
        json.dumps(_canonical(part, "recipe"), sort_keys=True).encode()
    ).hexdigest()


def _canonical(x: Any, at: str) -> Any:
    """JSON in which different things look different: every container says what it is."""
    if is_dataclass(x) and not isinstance(x, type):
        return [
            "class",
            _name(type(x), at),
            {former_field(type(x), n): _canonical(v, f"{at}.{n}") for n, v in children(x)},
        ]
    if isinstance(x, Mapping):
        pairs = [[_canonical(k, at), _canonical(v, f"{at}.{k}")] for k, v in x.items()]
        return ["map", *sorted(pairs, key=json.dumps)]
    if isinstance(x, tuple | list):
        return ["list", *(_canonical(v, f"{at}.{i}") for i, v in enumerate(x))]
    if isinstance(x, float):
        return int(x) if x.is_integer() else ["float", x.hex()]  # 1 == 1.0
    if x is None or isinstance(x, bool | int | str):
        return x
    if isinstance(x, type | types.FunctionType | types.BuiltinFunctionType):
        return ["named", _name(x, at)]
    raise TypeError(
        f"{at}: no {type(x).__name__} in a recipe; write a frozen dataclass with __call__"
    )


def _name(x: Any, at: str) -> str:
    """Its stable name. Raises TypeError for what cannot be found by its name."""
    if not leads_back(x):
        where = f"{at}: no closures in a recipe: {x.__module__}:{x.__qualname__}"
        raise TypeError(
            f"{where} cannot be found by its name; write a frozen dataclass with __call__"
        )
    return name_of(x)


# ---- overriding


def overrides(words: list[str]) -> dict[str, str]:
    """`a.b=c` words as a dictionary."""
    values: dict[str, str] = {}
    for word in words:
        path, sign, given = word.partition("=")
        if not sign or not path:
            raise UserError(f"{word!r} is not an override; write stage.field=value")
        values[path] = given
    return values


def override(recipe: R, path: str, given: Any) -> R:
    """The recipe with one field changed. Raises UserError with the candidates, or the closest
    paths.
    """
    full = find(recipe, path, given)
    try:
        return _set(recipe, "", full, given, Any)
    except (TypeError, ValueError) as error:  # what the dataclass itself says about its fields
        raise UserError(f"{full}={given}: {error}") from error


def find(whole: object, path: str, given: Any = "") -> str:
    """The one full path that ends with `path`, or else has its names in this order.

    Args:
        given: the value that is meant for it, for the message if there is none.
    """
    known = [p for p, _ in walk(whole)]
    named = {called: p for p, called in _by_class(whole)}
    matches = _matches(path, known) or [named[called] for called in _matches(path, [*named])]
    if len(matches) == 1:
        return matches[0]
    if matches:
        parts = dict(walk(whole))
        whose = [f"{m} (of {type(parts[m.rpartition('.')[0]]).__name__})" for m in matches]
        raise UserError(f"{path!r} is ambiguous: it could be {' or '.join(whose)}")
    if (now := current_path(whole, path)) != path:
        return now
    near = from_elsewhere(path, value=given) or _near(path, whole, known, named)
    raise UserError(f"no field {path!r} in this recipe{near}")


def current_path(whole: object, path: str) -> str:
    """A path whose last name is that which a field had before, by its name of today; else the same.

    A name that another field of the class has today is that field's.
    """
    place, _, name = path.rpartition(".")
    for at, part in walk(whole):
        today = {
            before: now for now, before in former_fields().get(type(part).__name__, {}).items()
        }
        gone = name in today and name not in {n for n, _ in children(part)}
        if gone and (not place or _matches(place, [at])):
            return f"{at}.{today[name]}"
    return path


def current_leaves(whole: object, leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Leaves by path that were written when some fields had other names, by their paths of today."""
    renamed: dict[str, str] = {}
    for at, part in walk(whole):
        first = former_fields().get(type(part).__name__, {})
        if any(f"{at}.{n}" in leaves for n in set(first.values()) - set(first)):
            renamed |= {f"{at}.{before}": f"{at}.{now}" for now, before in first.items()}
    return {renamed.get(k, k): x for k, x in leaves.items()}


def _near(path: str, whole: object, known: Sequence[str], named: Mapping[str, str]) -> str:
    """What a path that leads nowhere may have meant: the fields of the part that its beginning
    names, else a path that is spelled like it.

    Args:
        known: all paths.
        named: other names of paths, to the paths.
    """
    parts, (*places, field) = dict(walk(whole)), path.split(".")
    for n in range(len(places), 0, -1):
        place = ".".join(places[:n])
        at = _matches(place, known) or [named[n] for n in _matches(place, [*named])]
        own = [n for n, _ in children(parts[at[0]])] if len(at) == 1 else []
        if own:
            near = [f"{at[0]}.{n}" for n in own if suggestion(field, [n])]
            return suggestion(path, near, cutoff=0.0) or f"; {at[0]} has {', '.join(own)}"
    length, like = path.count(".") + 1, close_names(field, {p.rpartition(".")[2] for p in known})
    # of fields that are spelled like the last name those at the likest place
    alike = [p for p in known if not like or p.rpartition(".")[2] in like]
    # a level may be forgotten
    ends = {".".join(p.split(".")[-n:]): p for n in (length + 1, length) for p in alike}
    near = suggestion(path, ends, ends.get, cutoff=0.0 if like else 0.6)
    return near or "; `palaestra show RECIPE --fields` prints them all"


def _matches(path: str, known: Sequence[str]) -> list[str]:
    """The paths that are meant: the same, else those that end so, else those that have its names in
    this order. Of a sum all terms are meant, though `objective.reduce` may end the path of one alone.
    """
    if path in known:
        return [path]
    ends = [p for p in known if p.endswith(f".{path}")]
    leads = [p for p in known if _leads(path.split("."), p.split("."))]
    summed = f".{path.partition('.')[0]}.parts."
    return leads if any(summed in f".{p}" for p in ends) else ends or leads


def _by_class(part: Any, at: str = "", called: str = "") -> Iterator[tuple[str, str]]:
    """Every path that goes through a tuple, beside itself with the names of classes for numbers."""
    classes = [_snake(type(v).__name__) for _, v in children(part)]
    for (name, inner), kind in zip(children(part), classes, strict=True):
        single = isinstance(part, tuple) and is_dataclass(inner) and classes.count(kind) == 1
        path, named = f"{at}.{name}".lstrip("."), f"{called}.{kind if single else name}".lstrip(".")
        if path != named:
            yield path, named
        yield from _by_class(inner, path, named)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _leads(names: list[str], path: list[str]) -> bool:
    """Whether the names stand in the path in their order, the last one at its end: `objective.low`
    reaches into a sum.
    """
    rest = iter(path)
    return path[-1] == names[-1] and all(name in rest for name in names)


def _set(part: Any, at: str, full: str, given: Any, hint: Any) -> Any:
    """`part`, which stands at the path `at`, with what is at the path `full` replaced."""
    if at == full:
        return parse(given, hint, full, before=part)
    step = f"{at}." if at else ""
    # the longest name that fits: a key of a dictionary may hold a dot
    name = max((n for n, _ in children(part) if f"{full}.".startswith(f"{step}{n}.")), key=len)
    before = dict(children(part))[name]
    after = _set(before, f"{step}{name}", full, given, _hint(part, name, hint))
    if isinstance(part, Mapping):
        return {k: after if str(k) == name else v for k, v in part.items()}
    if isinstance(part, tuple):
        return tuple(after if str(i) == name else v for i, v in enumerate(part))
    return replace(part, **{name: after})


def _hint(part: Any, name: str, hint: Any) -> Any:
    """The declared type of what `part`, itself declared as `hint`, holds under a name; Any =
    undeclared.
    """
    if not is_dataclass(part):
        return _element(hint, int(name) if isinstance(part, tuple) else 0)
    for cls in type(part).__mro__:  # an annotation is read where it was written
        written = inspect.get_annotations(cls)
        if name in written:
            field = SimpleNamespace(__annotations__={name: written[name]})
            try:
                return get_type_hints(field, vars(sys.modules[cls.__module__]))[name]
            except NameError:  # imported for type checkers only
                return written[name]
    return Any


def _element(hint: Any, i: int) -> Any:
    """The declared type of a container's element `i`."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _element(args[0], i)
    if origin in (Union, types.UnionType):
        return next((e for e in (_element(a, i) for a in args) if e is not Any), Any)
    if origin is tuple and args[-1] is not ...:
        return args[i] if i < len(args) else Any
    if origin is tuple:
        return args[0]
    return args[-1] if isinstance(origin, type) and issubclass(origin, Mapping | Sequence) else Any


def parse(given: Any, annotation: Any, name: str, before: Any = MISSING) -> Any:
    """A value of the annotated type from plain data, or from text: a TOML literal, `none`, or the
    text itself.

    What stands there `before` always fits, and a schedule, "linear(1, 0, 100)", stands for any
    number. Text makes no other parts.
    """
    if isinstance(before, float | Scheduled) or type(before) is int:
        with suppress(ValueError):
            schedule = read_schedule(given) if isinstance(given, str) else given
            if isinstance(schedule, Scheduled):
                return schedule
    undeclared = annotation in (Any, inspect.Parameter.empty) or isinstance(annotation, str)
    adapter = _adapter(Any if undeclared else annotation)
    if _is_part(given) and (adapter is None or undeclared):
        return given
    candidates = _readings(given)
    if (before is None or _is_part(before)) and _takes_no_text(annotation):
        candidates = [x for x in candidates if not isinstance(x, str)]
    for x in candidates:
        if _equal(_tuples(x), before):
            return before
        if adapter is not None and not (undeclared and _holds_parts(before)):
            for strict in (True, False):
                with suppress(ValidationError):
                    value = adapter.validate_python(x, strict=strict)
                    if isinstance(value, float) and math.isnan(value):
                        raise UserError(f"{name} takes a number, not nan")
                    if _parts(value) <= _parts(x) and (
                        isinstance(value, bool) or not isinstance(x, bool)
                    ):
                        return value
    if _holds_parts(before) or not candidates:
        own = ", ".join(n for n, _ in children(before))
        rewards = name.rpartition(".")[2] == "reward"
        raise UserError(
            f"{name} is a part, not a value; "
            + (f"set its {own}" if own else "write a recipe of your own")
            + ("; the run's own reward is its setting reward, or --reward" if rewards else "")
        )
    kind = "" if isinstance(given, str) else f" ({type(given).__name__})"
    raise UserError(f"{name} takes {_wanted(annotation, before)}, not {given!r}{kind}")


def _takes_no_text(annotation: Any) -> bool:
    """Whether a type that is known by its written form alone has no place for text."""
    return isinstance(annotation, str) and not re.search(r"\b(str|Any|Literal)\b", annotation)


def _wanted(annotation: Any, before: Any) -> str:
    """What a value may be, for people; a list with what stands there `before` as an example."""
    choices = [
        repr(c)
        for p in (annotation, *get_args(annotation))
        if get_origin(p) is Literal
        for c in get_args(p)
    ]
    if choices:
        return f"one of {', '.join(choices)}"
    if isinstance(before, Mapping):
        return "a table, {name = value}"
    if get_origin(annotation) in (tuple, list):
        example = list(before) if isinstance(before, tuple | list) and before else [1, 2]
        return f"a list, e.g. '{example}'"
    if isinstance(annotation, type):
        return annotation.__name__
    return str(annotation).replace("typing.", "")


def _readings(given: Any) -> list[Any]:
    """What text may mean, the likeliest first."""
    if not isinstance(given, str):
        return [given]
    if given in ("none", "None"):
        return [None, given]
    try:
        literal = tomllib.loads(f"x = {given}")
    except tomllib.TOMLDecodeError:
        return [*_python_tuple(given), given]
    return [literal["x"], given] if len(literal) == 1 else [given]


def _python_tuple(given: str) -> list[Any]:
    """A tuple as Python writes it, ('eyes', 'ears'), which lists are shown as; nothing for other text."""
    if given[:1] + given[-1:] != "()":
        return []
    try:
        value = ast.literal_eval(given)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return []
    return [list(value)] if isinstance(value, tuple) else []


def _adapter(annotation: Any) -> TypeAdapter[Any] | None:
    """What checks values of a type; None for a protocol, which looks at no value."""
    # a dataclass brings its own configuration
    for config in (ConfigDict(arbitrary_types_allowed=True), None):
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(annotation, config=config)
            with suppress(ValidationError):
                adapter.validate_python(object())
            return adapter
        except (PydanticUserError, SchemaError, NameError, TypeError):
            continue
    return None


def _is_part(x: Any) -> bool:
    return is_dataclass(x) or callable(x)


def _holds_parts(x: Any) -> bool:
    """Whether it is a part, or a container of some."""
    return _is_part(x) or any(_is_part(v) for _, v in walk(x))


def _parts(x: Any) -> set[int]:
    """The dataclasses in a value, by identity."""
    return {id(v) for _, v in walk((_tuples(x),)) if is_dataclass(v)}


def _tuples(x: Any) -> Any:
    return tuple(map(_tuples, x)) if isinstance(x, list | tuple) else x


# ---- files


def to_toml(settings: Mapping[str, Any]) -> str:
    """Settings as TOML: scalars first, then the overrides of [set], where None is "none"; elsewhere
    it is left out.
    """
    plain = {k: v for k, v in settings.items() if v is not None}
    if "set" in plain:
        plain["set"] = {k: file_form(v) for k, v in plain["set"].items()}
    return tomli_w.dumps(plain)


def file_form(x: Any) -> Any:
    return "none" if x is None else [file_form(v) for v in x] if isinstance(x, list | tuple) else x


def stored_as(x: Any, given: Any) -> bool:
    """Whether a file of settings holds `x` as what is given."""
    return _equal(file_form(x), given)


def from_toml(path: Path, known: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Settings of a file; tables inside [set] become dotted paths. Raises UserError with the line
    of a mistake.

    With `known` settings and their types, others are mistakes too.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        settings = tomllib.loads(text)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        what, _, where = str(error).partition(" (at ")
        line = re.match(r"line \d+", where)
        hint = YAML if Path(path).suffix in (".yaml", ".yml") else ""
        raise UserError(
            f"{path}, {line[0] if line else 'last line'}: not TOML: {what}{hint}"
        ) from None
    if known is not None:
        for key, given in settings.items():
            place = f"{path}, line {_line(text, key)}"
            if key not in known:
                hint = suggestion_or_all(key, known)
                raise UserError(f"{place}: unknown setting {key!r}{hint}")
            settings[key] = parse(given, known[key], f"{place}: {key}")
    if isinstance(settings.get("set"), Mapping):
        settings["set"] = dict(_dotted_paths(settings["set"]))
    return settings


def _line(text: str, key: str) -> int:
    """Where a top-level key stands, whether it is a value or a table."""
    match = re.search(rf"^\s*\[?\s*[\"']?{re.escape(key)}[\"']?\s*[=.\]]", text, re.MULTILINE)
    return text.count("\n", 0, match.end()) + 1 if match else 1


def _dotted_paths(table: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, Any]]:
    for key, x in table.items():
        if isinstance(x, Mapping):
            yield from _dotted_paths(x, f"{at}{key}.")
        else:
            yield f"{at}{key}", x
