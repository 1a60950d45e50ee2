"""Values as JSON and back: what crosses between a candidate and its tester as data, what by number.

A number stands for an object that stays where it is (`standins`). Instances of the record classes
that a task's setup defines (`TreeNode`) cross by value: each has a key that both sides know, so that
cycles, identity and changes in place hold.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import functools
import importlib
import io
import math
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

import standins
from standins import BASES, DataStandin, Remote

DEEP = 300  # containers inside each other
# bits; Python limits the decimal digits of an integer, and with them what JSON can hold
LONG = 10_000
PLAIN = (type(None), bool, int, float, str)
KINDS = frozenset(BASES.values())
SEQUENCES = {k.__name__: k for k in (list, tuple, set, frozenset)}
MAPPINGS = {k.__name__: k for k in (dict, collections.Counter, collections.OrderedDict)}
VIEWS = {k.__name__: k for k in (type({}.keys()), type({}.items()))}
MARKS = {"Ellipsis": ..., "NotImplemented": NotImplemented}
# of the standard library that cross as data: module, what is sent of one, how it is made again
VALUES = {
    "Decimal": ("decimal", str, lambda kind, sent: kind(sent)),
    "Fraction": ("fractions", lambda x: [int(x.numerator), int(x.denominator)], lambda kind, sent: kind(*sent)),
    "datetime": ("datetime", lambda x: x.isoformat(), lambda kind, sent: kind.fromisoformat(sent)),
    "date": ("datetime", lambda x: x.isoformat(), lambda kind, sent: kind.fromisoformat(sent)),
    "time": ("datetime", lambda x: x.isoformat(), lambda kind, sent: kind.fromisoformat(sent)),
    "timedelta": ("datetime", lambda x: [x.days, x.seconds, x.microseconds], lambda kind, sent: kind(*sent)),
    "PosixPath": ("pathlib", str, lambda kind, sent: kind(sent)),
    "PurePosixPath": ("pathlib", str, lambda kind, sent: kind(sent)),
    "UUID": ("uuid", str, lambda kind, sent: kind(sent)),
}  # fmt: skip
# types that a candidate may send by name; anything else that is called here is called over there
TYPES = {
    k.__name__: k
    for k in (*PLAIN, *BASES.values(), type, object, range, slice, memoryview)
}  # fmt: skip
CALLABLES = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    types.MethodWrapperType,
    functools.partial,
)
ARRAY = re.compile(r"[<>|=][biufcSUmM]\d+(\[\w+\])?")


class Large(ValueError):
    """More than a message holds, containers too deep inside each other, or one inside itself."""


class Codec:
    """One side's objects and what it holds of the other's. `side` names the keys of its records."""

    def __init__(self, trusting: bool):
        self.trusting, self.side = trusting, "c" if trusting else "t"
        self.objects: list[Any] = []
        self.numbers: dict[int, int] = {}  # id: number
        self.stand: dict[int, Any] = {}  # number of the other side's: its stand-in
        self.held_kinds: dict[tuple, type] = {}
        self.errors: dict[int, type] = {}  # number of the other side's exception class: its mirror
        self.records: dict[str, Any] = {}
        self.keys: dict[int, str] = {}  # id of a record: its key
        self.kinds: list[dict] = []  # where record classes are looked up by name, first match first
        self.names: tuple[str, ...] = ()  # of the record classes
        self.queue: list[str] = []  # records to be sent with what is being encoded
        self.changing: dict[
            int, tuple
        ] = {}  # own data that can change and is held there: last sent
        self.left = math.inf  # bytes that what is being encoded may take

    def number(self, x: Any) -> int:
        if id(x) not in self.numbers:
            self.numbers[id(x)] = len(self.objects)
            self.objects.append(x)
        return self.numbers[id(x)]

    # ---- to the other side

    def encode(self, x: Any, depth: int = 0) -> Any:
        """Plain values as they are, containers tagged, anything else by its number here."""
        kind = type(x)
        if kind is Remote or issubclass(kind, DataStandin):
            return {"yours": x.number_}
        self.left -= weight(x)
        if self.left < 0 or depth > DEEP or (kind is list and 16 * len(x) > self.left):
            raise Large
        if kind is int and x.bit_length() > LONG:
            return {"int": hex(x)}
        if kind in PLAIN:
            return x
        if kind in KINDS:
            return self.encode_data(x, kind, depth)
        name = kind.__name__
        if name in VALUES and kind is getattr(sys.modules.get(VALUES[name][0]), name, None):
            return {name: VALUES[name][1](x)}
        if kind in (range, slice):
            return {name: [self.encode(v, depth + 1) for v in (x.start, x.stop, x.step)]}
        if VIEWS.get(name) is kind:
            return {name: [self.encode(v, depth + 1) for v in x]}
        if kind is types.MappingProxyType:
            return self.encode_data(dict(x), dict, depth)
        for mark, value in MARKS.items():
            if x is value:
                return {"mark": mark}
        if (array := encode_array(x)) is not None:
            return array
        return self.encode_object(x, kind)

    def encode_data(self, x: Any, base: type, depth: int) -> Any:
        """One of exactly this kind of data."""
        name = base.__name__
        if name in SEQUENCES:
            return {name: [self.encode(v, depth + 1) for v in x]}
        if base is collections.deque:
            return {name: [[self.encode(v, depth + 1) for v in x], x.maxlen]}
        if issubclass(base, dict):
            pairs = [[self.encode(k, depth + 1), self.encode(v, depth + 1)] for k, v in x.items()]
            if base is collections.defaultdict:
                return {name: [self.encode(x.default_factory, depth + 1), pairs]}
            return {name: pairs}
        if base is complex:
            return {name: [x.real, x.imag]}
        return {name: x.hex()} if base in (bytes, bytearray) else x

    def encode_object(self, x: Any, kind: type) -> Any:
        if isinstance(x, BaseException):
            return {"error": self.encode_error(x)}
        if isinstance(x, type):
            return self.encode_type(x)
        if isinstance(x, types.ModuleType) and not self.trusting:
            return {"module": x.__name__}
        if self.is_record(kind):
            return {"record": self.key(x)}
        if isinstance(x, types.CoroutineType):
            return {"awaitable": self.number(x)}
        base = next((b for b in BASES.values() if isinstance(x, b)), None)
        if base is not None and (self.trusting or is_own(x)):
            return {"held": self.encode_held(x, base)}
        if not self.trusting and not is_handable(x):
            raise TypeError(
                f"a test can't hand a {kind.__name__} to the candidate, only data, functions and "
                "what it defines itself"
            )
        if not self.trusting and (name := standard_name(x)):
            return {"function": name}
        return {"object": self.number(x)}

    def encode_held(self, x: Any, base: type) -> list:
        number, plain = self.number(x), standins.content(x, base)
        sent = plain if base in PLAIN else self.encode_data(plain, base, 1)
        if base.__hash__ is None and len(self.changing) < 64:
            self.changing[number] = (base, sent)
        return [number, base.__name__, sent, standins.overrides(type(x), base), type(x).__name__]

    def encode_changes(self) -> list:
        """Data held by the other side that is not what it was when it was last sent."""
        changes = []
        for number, (base, before) in self.changing.items():
            with contextlib.suppress(Large):
                after = self.encode_data(standins.content(self.objects[number], base), base, 1)
                if after != before:
                    self.changing[number] = (base, after)
                    changes.append([number, after])
        return changes

    def encode_type(self, x: type) -> Any:
        if issubclass(x, BaseException):
            return {"error class": self.encode_error_class(x)}
        if TYPES.get(x.__name__) is x:
            return {"type": x.__name__}
        if self.trusting or x.__module__ == "__main__":
            return {"object": self.number(x)}
        if standins.is_standard(x):
            return {"function": [x.__module__, x.__qualname__]}
        raise TypeError(f"a test can't hand the class {x.__name__} to the candidate")

    def encode_error_class(self, x: type) -> Any:
        if "number_" in vars(x):  # a mirror of the other side's
            return {"yours": vars(x)["number_"]}
        if standins.is_standard(x):
            return {"named": [x.__module__, x.__qualname__]}
        bases = [self.encode_error_class(b) for b in x.__bases__ if issubclass(b, BaseException)]
        return {"own": [self.number(x), x.__name__, bases]}

    def encode_error(self, x: BaseException) -> Any:
        if "origin_" in vars(x):
            return {"yours": vars(x)["origin_"].number_}
        try:
            args = [self.encode(a) for a in x.args]
        except (Large, TypeError):
            args = None
        standard = standins.is_standard(type(x))
        return {
            "class": self.encode_error_class(type(x)),
            "args": args,
            "text": text_of(x),
            "number": None if standard and not vars(x) else self.number(x),
        }

    # ---- records

    def is_record(self, kind: type) -> bool:
        return kind.__name__ in self.names and any(k.get(kind.__name__) is kind for k in self.kinds)

    def key(self, x: Any) -> str:
        if id(x) not in self.keys:
            self.keep(f"{self.side}{len(self.records)}", x)
        self.queue.append(self.keys[id(x)])
        return self.keys[id(x)]

    def keep(self, key: str, x: Any):
        self.records[key] = x
        self.keys[id(x)] = key

    def encode_records(self) -> dict:
        """The state of all records that what was encoded refers to, and of those that they do."""
        records: dict[str, Any] = {}
        while self.queue:
            key = self.queue.pop()
            if key not in records:
                x = self.records[key]
                records[key] = [type(x).__name__, {}]
                records[key][1] = {n: self.encode(v, 1) for n, v in fields(x).items()}
        return records

    def decode_records(self, sent: dict):
        for key, (name, _) in sent.items():
            if key not in self.records:
                kinds = [k for names in self.kinds if (k := self.record_kind(names, name))]
                self.keep(str(key), object.__new__(kinds[0]))
        for key, (_, given) in sent.items():
            x = self.records[key]
            for name, value in given.items():
                if name.isidentifier() and not name.startswith("__") and is_field(type(x), name):
                    new = self.decode(value)
                    if hasattr(x, "__dict__"):
                        vars(x)[name] = new
                    else:
                        object.__setattr__(x, name, new)

    def record_kind(self, names: dict, name: Any) -> Any:
        kind = names.get(name) if name in self.names else None
        return kind if isinstance(kind, type) else None

    # ---- from the other side

    def decode(self, x: Any) -> Any:
        if type(x) is not dict:
            return x
        ((tag, inner),) = x.items()
        if tag in SEQUENCES:
            return SEQUENCES[tag](self.decode(v) for v in inner)
        if tag in MAPPINGS:
            made = MAPPINGS[tag]()
            standins.put(made, type(made), ((self.decode(k), self.decode(v)) for k, v in inner))
            return made
        if tag in VALUES:
            module, _, make = VALUES[tag]
            return make(getattr(importlib.import_module(module), tag), inner)
        return DECODERS[tag](self, inner)

    def decode_defaultdict(self, inner: Any):
        factory = self.decode(inner[0])
        return collections.defaultdict(factory, self.decode({"dict": inner[1]}))

    def decode_view(self, inner: Any, pairs: bool):
        items = [self.decode(v) for v in inner]
        return dict(items).items() if pairs else dict.fromkeys(items).keys()

    def decode_object(self, number: Any) -> Any:
        if number not in self.stand:
            self.stand[number] = Remote(self, int(number))
        return self.stand[number]

    def decode_held(self, inner: Any) -> Any:
        number, tag, sent, overridden, name = inner
        base, plain = BASES[tag], self.decode(sent)
        if number in self.stand:
            if base.__hash__ is None:
                standins.fill(self.stand[number], base, plain)
            return self.stand[number]
        key = (str(name), base, frozenset(overridden).intersection(standins.ADDED))
        if key not in self.held_kinds:
            self.held_kinds[key] = standins.held_class(key[0], base, key[2])
        kind = self.held_kinds[key]
        made = base.__new__(kind) if base.__hash__ is None else base.__new__(kind, plain)
        for attribute, value in (("peer_", self), ("number_", int(number))):
            object.__setattr__(made, attribute, value)
        if base.__hash__ is None:
            standins.fill(made, base, plain)
        self.stand[number] = made
        return made

    def decode_changes(self, sent: list):
        for number, after in sent:
            if issubclass(type(self.stand.get(number)), DataStandin):
                base = next(b for b in BASES.values() if isinstance(self.stand[number], b))
                standins.fill(self.stand[number], base, self.decode(after))

    def decode_function(self, inner: Any) -> Any:
        """What the tester hands over by name. A candidate's word is never taken for a function."""
        if not self.trusting:
            raise ValueError("a function by name")
        module, name = inner
        value = importlib.import_module(module)
        for part in name.split("."):
            value = getattr(value, part)
        return value

    def decode_module(self, name: Any) -> Any:
        if not self.trusting:
            raise ValueError("a module by name")
        return importlib.import_module(name) if name in sys.stdlib_module_names else None

    def decode_error_class(self, sent: Any) -> type:
        ((tag, inner),) = sent.items()
        if tag == "yours":
            return self.objects[inner]
        if tag == "named":
            kind = getattr(sys.modules.get(inner[0]) or builtins, inner[1], None)
            if isinstance(kind, type) and issubclass(kind, Exception) and is_failure(kind):
                return kind
            return BaseException if self.trusting else Exception
        number, name, bases = inner
        if number not in self.errors:
            self.errors[number] = mirror(
                self, number, str(name), list(map(self.decode_error_class, bases))
            )
        return self.errors[number]

    def decode_error(self, sent: Any) -> BaseException:
        if "yours" in sent:
            return self.objects[sent["yours"]]
        if sent["number"] is not None and isinstance(self.stand.get(sent["number"]), BaseException):
            return self.stand[sent["number"]]
        kind, args = self.decode_error_class(sent["class"]), sent["args"]
        given = (sent["text"],) if args is None else tuple(map(self.decode, args))
        made = new_error(kind, given, sent["text"])
        if sent["number"] is not None:
            vars(made)["origin_"] = Remote(self, int(sent["number"]))
            self.stand[sent["number"]] = made
            if "number_" not in vars(kind):
                for name, value in (vars_of(made) or {}).items():
                    vars(made)[name] = value
        return made


DECODERS = {
    "int": lambda codec, inner: int(inner, 16),
    "bytes": lambda codec, inner: bytes.fromhex(inner),
    "bytearray": lambda codec, inner: bytearray.fromhex(inner),
    "complex": lambda codec, inner: complex(*inner),
    "deque": lambda codec, inner: collections.deque(map(codec.decode, inner[0]), inner[1]),
    "defaultdict": Codec.decode_defaultdict,
    "range": lambda codec, inner: range(*map(codec.decode, inner)),
    "slice": lambda codec, inner: slice(*map(codec.decode, inner)),
    "dict_keys": lambda codec, inner: codec.decode_view(inner, False),
    "dict_items": lambda codec, inner: codec.decode_view(inner, True),
    "mark": lambda codec, inner: MARKS[inner],
    "array": lambda codec, inner: decode_array(*inner),
    "type": lambda codec, inner: TYPES[inner],
    "yours": lambda codec, inner: codec.objects[inner],
    "object": Codec.decode_object,
    "held": Codec.decode_held,
    "record": lambda codec, inner: codec.records[inner],
    "awaitable": lambda codec, inner: codec.await_there(inner),
    "function": Codec.decode_function,
    "module": Codec.decode_module,
    "error": Codec.decode_error,
    "error class": Codec.decode_error_class,
}


def is_failure(kind: type):
    """Whether an error is Python's own and no failure's opposite: one of unittest's skips a test."""
    return standins.is_standard(kind) and not kind.__module__.startswith("unittest")


def text_of(x: BaseException):
    try:
        return str(x)[:10_000]
    except Exception:
        return type(x).__name__


def weight(x: Any):
    """About the bytes of a value in JSON, a container's without its items."""
    if isinstance(x, str | bytes | bytearray):
        return 16 + 6 * len(x)
    return 16 + (x.bit_length() // 3 if isinstance(x, int) else 16)


def is_own(x: Any):
    """Whether an object is of the test's own making, so that its public parts may be read from the
    other side: of a class that it defines, a mock, an open file.
    """
    kind = x if isinstance(x, type) else type(x)
    return kind.__module__ in ("__main__", "unittest.mock") or isinstance(x, io.IOBase)


def is_handable(x: Any):
    kinds = (*CALLABLES, Iterator, types.MethodDescriptorType, types.AsyncGeneratorType)
    return is_own(x) or isinstance(x, kinds)


def standard_name(x: Any):
    """Module and name of a function of the standard library; None for any other."""
    if isinstance(x, types.MethodDescriptorType):
        module, name = x.__objclass__.__module__, x.__qualname__
    elif isinstance(x, types.BuiltinFunctionType | types.FunctionType):
        module, name = x.__module__, x.__qualname__
    else:
        return None
    if (
        not module
        or module.partition(".")[0] not in sys.stdlib_module_names
        or module == "__main__"
    ):
        return None
    value: Any = sys.modules.get(module)
    for part in name.split("."):
        value = getattr(value, part, None)
    return [module, name] if value is x else None


def fields(x: Any):
    """The public attributes of a record."""
    slots = [n for k in type(x).__mro__ for n in getattr(k, "__slots__", ()) if hasattr(x, n)]
    values = {n: getattr(x, n) for n in slots if n not in ("__dict__", "__weakref__")}
    return values | {n: v for n, v in getattr(x, "__dict__", {}).items() if type(n) is str}


def is_field(kind: type, name: str):
    """Whether an instance may have this attribute from the other side: none that hides a method."""
    given = getattr(kind, name, None)
    return isinstance(given, types.MemberDescriptorType) or not (
        callable(given) or hasattr(given, "__get__")
    )


def encode_array(x: Any):
    """A numpy array or number; None for anything else, and for arrays of objects."""
    numpy = sys.modules.get("numpy")
    if not isinstance(x, getattr(numpy, "ndarray", ())) and not isinstance(
        x, getattr(numpy, "generic", ())
    ):
        return None
    if not ARRAY.fullmatch(x.dtype.str):
        return None
    shape = list(x.shape) if type(x).__name__ == "ndarray" else None
    return {"array": [x.dtype.str, shape, x.tobytes().hex()]}


def decode_array(dtype: Any, shape: Any, sent: Any):
    if not ARRAY.fullmatch(dtype):
        raise ValueError("an array of objects")
    numpy = importlib.import_module("numpy")
    data = numpy.frombuffer(bytearray.fromhex(sent), dtype=dtype)
    return data[0] if shape is None else data.reshape(shape)


def mirror(codec: Any, number: int, name: str, bases: list):
    """A class for the other side's exception class, to be caught by and made of."""

    def init(self: Any, *args: Any, **keywords: Any):
        value = codec.ask(number, "call", args, keywords)
        Exception.__init__(self, *value.args)
        vars(self)["origin_"] = vars(value)["origin_"]
        vars(self)["text_"] = vars(value)["text_"]

    def read(self: Any, name: str):
        if name.startswith("__") or name in ("origin_", "text_"):
            raise AttributeError(name)
        return getattr(vars(self)["origin_"], name)

    body = {
        "__init__": init,
        "__getattr__": read,
        "__str__": lambda self: vars(self).get("text_", ""),
        "number_": number,
    }
    for given in (tuple(dict.fromkeys(bases)), (Exception,)):
        with contextlib.suppress(TypeError):
            return type(name, given, dict(body))
    raise TypeError(name)


def new_error(kind: type, args: tuple, text: str) -> Any:
    """An exception with these arguments that says this text."""
    if "number_" not in vars(kind):
        with contextlib.suppress(Exception):
            made = kind(*args)
            if str(made) == text:
                return made
        error_class = type(
            kind.__name__,
            (kind,),
            {"__str__": lambda self: text, "__init__": lambda self, *a: None},
        )
        with contextlib.suppress(Exception):
            return error_class(*args)
        return RuntimeError(f"{kind.__name__}: {text}")
    made: Any = kind.__new__(kind, *args)
    made.args = args
    vars(made)["text_"] = text
    return made


def vars_of(made: BaseException):
    with contextlib.suppress(Exception):
        return vars(made)["origin_"].__dict__
    return {}
