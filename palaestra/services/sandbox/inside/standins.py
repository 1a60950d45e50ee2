"""Stand-ins: how one process holds what lives in the other.

`Remote` stands for an object that is no data. `DataStandin` stands for one of a class that
somebody derived from a kind of data, as a named tuple or an integer enum: it has that data here, which
decides all comparisons, and asks the other side for what its class adds.

What a test compares with must not decide the comparison. So operators between a stand-in and plain
data are not forwarded: `abs(f(x) - 2) < 1e-6` must not be decided by a `__sub__` of the candidate's.
The exception is arithmetic on what the test itself made of a class (`Vector(1, 2) * 3`), where the
result is again an object, and then one that gives no number or truth value.
"""

from __future__ import annotations

import collections
import decimal
import fractions
import operator
import os
import sys
import types
from collections.abc import Iterable
from typing import Any

UNARY = {
    f"__{f.__name__}__": f for f in (str, repr, len, iter, next, reversed, dir, bytes, hash, format)
}
NUMBER = {f"__{f.__name__}__": f for f in (bool, int, float, complex, abs, round)} | {
    f"__{n}__": getattr(operator, n) for n in ("index", "neg", "pos", "invert")
}  # fmt: skip
ITEMS = {f"__{n}__": getattr(operator, n) for n in ("getitem", "setitem", "delitem")}
COMPARISONS = {f"__{n}__": getattr(operator, n) for n in ("eq", "ne", "lt", "le", "gt", "ge")}
NAMES = (
    "add",
    "sub",
    "mul",
    "matmul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "and_",
    "or_",
    "xor",
    "lshift",
    "rshift",
)
ARITHMETIC = {f"__{n.rstrip('_')}__": getattr(operator, n) for n in NAMES}
INPLACE = {f"__i{n.rstrip('_')}__": getattr(operator, f"i{n.rstrip('_')}") for n in NAMES}
REFLECTED = {
    f"__r{n[2:]}": (lambda x, y, apply=apply: apply(y, x)) for n, apply in ARITHMETIC.items()
}
BINARY = COMPARISONS | ARITHMETIC | INPLACE | REFLECTED
WITH = {
    "__enter__": lambda x: type(x).__enter__(x),
    "__exit__": lambda x, *of: type(x).__exit__(x, *of),
}
SPECIAL = UNARY | NUMBER | ITEMS | BINARY | WITH
SCALARS = (int, float, complex, str, decimal.Decimal, fractions.Fraction)
# what a class derived from a kind of data may have its own of; size, items and value are the data's
ADDED = {n: SPECIAL[n] for n in SPECIAL if n not in NUMBER} | {
    n: NUMBER[n] for n in ("__neg__", "__pos__", "__invert__")
}
for own in ("__len__", "__iter__", "__next__", "__reversed__", "__hash__", "__bytes__"):
    del ADDED[own]
# of an object's special attributes those that a program reads by name
READABLE = (
    *("__name__", "__qualname__", "__doc__", "__dict__", "__wrapped__", "__annotations__"),
    *("__defaults__", "__mro__", "__bases__", "__members__", "__slots__", "__cause__", "__notes__"),
)
BASES = {
    **{k.__name__: k for k in (int, float, complex, str, bytes, bytearray, tuple, list)},
    **{
        k.__name__: k
        for k in (collections.Counter, collections.OrderedDict, collections.defaultdict, dict)
    },
    **{k.__name__: k for k in (set, frozenset, collections.deque)},
}


class Remote:
    """A stand-in for an object of the other side."""

    __slots__ = (
        *("class_", "count_", "inert_", "kind_", "made_", "number_", "of_", "peer_", "size_"),
    )

    def __init__(self, peer: Any, number: int):
        for name, value in (("peer_", peer), ("number_", number), ("kind_", None)):
            object.__setattr__(self, name, value)
        # whether it is a class that the test asks for; of one, made by the test; arithmetic's
        for name in ("class_", "made_", "inert_"):
            object.__setattr__(self, name, False)
        # of an iterator: over what, and steps so far; of a container: its size, and when it was so
        for name, value in (("of_", None), ("count_", 0), ("size_", (-1, 0))):
            object.__setattr__(self, name, value)

    def ask_(self, what: str, args: tuple = (), keywords: dict | None = None) -> Any:
        return self.peer_.ask(self.number_, what, args, keywords)

    def mark_(self, name: str):
        object.__setattr__(self, name, True)

    def __getattr__(self, name: str):
        if name.startswith("__") and name not in READABLE:
            raise AttributeError(name)
        return self.ask_("get", (name,))

    def __setattr__(self, name: str, new: Any):
        self.ask_("set", (name, new))

    def __delattr__(self, name: str):
        self.ask_("del", (name,))

    def __call__(self, *args: Any, **keywords: Any):
        made = self.ask_("call", args, keywords)
        if self.class_ and isinstance(made, Remote):
            made.mark_("made_")
        return made

    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """What `isinstance` looks at: see `shadow`."""
        if self.kind_ is None:
            object.__setattr__(self, "kind_", shadow(*self.ask_("kind")))
        return self.kind_

    def __instancecheck__(self, x: Any):
        return is_standin(x) and self.ask_("isinstance", (x,)) is True

    def __subclasscheck__(self, x: Any):
        return is_standin(x) and self.ask_("issubclass", (x,)) is True

    def __mro_entries__(self, bases: tuple):
        return (Derived,)

    def __iter__(self):
        value = self.ask_("__iter__")
        if type(value) is Remote and value is not self:
            object.__setattr__(value, "of_", self)
            object.__setattr__(value, "count_", 0)
        return value

    def __next__(self):
        try:
            value = self.ask_("__next__")
        except StopIteration:
            if self.of_ is not None:
                self.of_.settle_(self.count_)
            raise
        object.__setattr__(self, "count_", self.count_ + 1)
        return value

    def __len__(self):
        return self.settle_(self.ask_("__len__"))

    def settle_(self, size: int):
        """Its size, which is that of its items: else `len(x) == 3` and a loop over none of them
        would both hold.
        """
        when, before = self.size_
        if when == self.peer_.changes and before != size and not self.peer_.trusting:
            raise TypeError(f"an object of {before} items that has {size}")
        object.__setattr__(self, "size_", (self.peer_.changes, size))
        return size

    def __contains__(self, x: Any):
        if self.peer_.trusting:
            return self.ask_("contains", (x,))
        items = self.ask_("items")
        if items is not None:
            return any(x is i or x == i for i in items)
        if not self.made_ and not is_standin(x):
            raise TypeError("an object without items can't be asked what is in it")
        held = self.ask_("contains", (x,)) is True
        if held and any(self.ask_("contains", (other,)) is True for other in strangers(x)):
            raise TypeError("an object that holds everything can't be asked what is in it")
        return held

    def __copy__(self):
        return self.ask_("copy")

    def __deepcopy__(self, memo: dict):
        return self.ask_("deepcopy")

    def __aiter__(self):
        return self.ask_("aiter")

    async def __anext__(self):
        return self.ask_("anext")

    async def __aenter__(self):
        return self.ask_("aenter")

    async def __aexit__(self, *of: Any):
        return self.ask_("aexit", of)

    def __await__(self):
        yield from ()
        return self.ask_("await")


Remote.__doc__ = property(lambda self: self.ask_("get", ("__doc__",)))  # type: ignore[assignment]


class DataStandin:
    """What a stand-in with data of its own has beside the methods of its kind of data."""

    def __getattribute__(self, name: str):
        if name in ("peer_", "number_") or (name.startswith("__") and name not in READABLE):
            return object.__getattribute__(self, name)
        return self.peer_.ask(self.number_, "get", (name,))

    def __setattr__(self, name: str, new: Any):
        self.peer_.ask(self.number_, "set", (name, new))

    def __delattr__(self, name: str):
        self.peer_.ask(self.number_, "del", (name,))

    def __copy__(self):
        return self.peer_.ask(self.number_, "copy")

    def __deepcopy__(self, memo: dict):
        return self.peer_.ask(self.number_, "deepcopy")


class Maker(type):
    """Makes of a class statement over a stand-in a class on the other side."""

    def __new__(cls, name: str, bases: tuple, body: dict):
        if not bases:
            return super().__new__(cls, name, bases, body)
        parent = next(b for b in body["__orig_bases__"] if isinstance(b, Remote))
        given = {k: v for k, v in body.items() if k not in ("__orig_bases__", "__classcell__")}
        made = parent.ask_("subclass", (name, given))
        made.mark_("class_")
        return made


class Derived(metaclass=Maker):
    """The base that a class statement over a stand-in has for a moment."""


def is_standin(x: Any):
    return type(x) is Remote or (isinstance(type(x), type) and issubclass(type(x), DataStandin))


def forward(name: str, to: type):
    def method(self: Any, *args: Any):
        if name in NUMBER and self.inert_:
            raise TypeError("what arithmetic with a plain value gives has no number or truth value")
        if name == "__exit__":
            args = (*args[:2], None)  # the frames of an error stay on this side
        if name not in BINARY or self.peer_.trusting or is_standin(args[0]):
            return self.ask_(name, args)
        if name in COMPARISONS or not self.made_ or not isinstance(args[0], SCALARS):
            return NotImplemented
        value = self.ask_(name, args)
        if type(value) is not Remote:
            return NotImplemented
        value.mark_("made_")
        value.mark_("inert_")
        return value

    setattr(to, name, method)


for special in SPECIAL.keys() - {"__iter__", "__next__", "__len__"}:
    forward(special, Remote)


def held_class(name: str, base: type, overridden: frozenset[str]):
    """A class of data whose operations are the data's own, but for those that change it and those
    that the other side has its own of.
    """
    changing = {n for n in ("__setitem__", "__delitem__", *INPLACE) if hasattr(base, n)}
    body: dict[str, Any] = {n: ask_held(n, base) for n in {*overridden, *changing}}
    return type(name, (DataStandin, base), body)


def ask_held(name: str, base: type):
    def method(self: Any, *args: Any):
        if name in BINARY and name not in INPLACE and not is_standin(args[0]):
            return getattr(base, name)(self, *args) if hasattr(base, name) else NotImplemented
        return self.peer_.ask(self.number_, name, args)

    return method


def fill(x: Any, base: type, content: Any):
    """Puts content into data that can change."""
    if issubclass(base, list):
        list.__setitem__(x, slice(None), content)
    elif issubclass(base, dict):
        base.clear(x)  # type: ignore[attr-defined]
        put(x, base, content.items())
    else:
        base.clear(x)  # type: ignore[attr-defined]
        (base.update if issubclass(base, set) else base.extend)(x, content)  # type: ignore[attr-defined]


def put(x: Any, base: type, pairs: Iterable):
    """Into a dictionary, in this order; an ordered one keeps it beside its data."""
    for key, value in pairs:
        base.__setitem__(x, key, value)  # type: ignore[attr-defined]


def content(x: Any, base: type) -> Any:
    """The data in an object of a class derived from `base`, whatever that class says of itself."""
    if issubclass(base, dict):
        made = base() if base is not collections.defaultdict else base(x.default_factory)
        put(made, base, base.items(x))
        return made
    if base in (int, float):
        return base.__pos__(x)
    if base is complex:
        return complex(complex.__pos__(x))
    if base in (str, bytes):
        return base.__getitem__(x, slice(None))
    if base is collections.deque:
        return collections.deque(base.__iter__(x), base.maxlen.__get__(x))  # type: ignore[attr-defined]
    return base(base.__iter__(x))


def overrides(kind: type, base: type):
    """The special methods that a class does not have from its kind of data."""
    lacking = {"__missing__"} if hasattr(kind, "__missing__") else set()
    names = {n for n in ADDED if getattr(kind, n, None) is not getattr(base, n, None)}
    if "__missing__" in lacking and kind not in BASES.values():
        names.add("__getitem__")
    return sorted(names)


def describe(x: Any):
    """What `shadow` needs: the class's name, its standard bases and special methods."""
    kind = type(x)
    standard = [
        [k.__module__, k.__qualname__] for k in kind.__mro__ if k is not object and is_standard(k)
    ]
    names = [n for n in dir(kind) if n.startswith("__") and not hasattr(object, n)]
    return [kind.__name__, bool(standard) and is_standard(kind), standard, names]


def is_standard(kind: type):
    return kind.__module__.partition(".")[0] in sys.stdlib_module_names


def shadow(name: str, itself: bool, standard: list, names: list):
    """A class to show `isinstance` in place of one of the other side: the standard class that it
    is, else one that looks like it. It is never a kind of data.
    """
    kinds = [k for k in (standard_class(*s) for s in standard) if k is not None]
    if itself and kinds:
        return kinds[0]
    body = dict.fromkeys(map(str, names), operator.not_)
    for bases in ((kinds[0],) if kinds else (), ()):
        try:
            return types.new_class(str(name), bases, {}, lambda ns: ns.update(body))
        except (TypeError, ValueError, AttributeError):
            continue
    return object


def standard_class(module: Any, name: Any):
    """A class of the standard library by its name; None for a kind of data or what is none."""
    kind = getattr(sys.modules.get(str(module)), str(name), None)
    if not isinstance(kind, type):
        kind = next(
            (k for k in vars(types).values() if isinstance(k, type) and k.__name__ == name), None
        )
    return None if kind is None or issubclass(kind, (*BASES.values(), bool)) else kind


def strangers(x: Any):
    """Random values of x's kind, which a container that was written for x does not hold."""
    n = int.from_bytes(os.urandom(8), "big")
    if is_standin(x):
        return []
    if type(x) is tuple:
        return list(zip(*([s[0], s[-1]] for s in map(strangers, x) if s), strict=True)) or [(n,)]
    if type(x) in (int, float):
        return [type(x)(n), type(x)(-n)]
    return [n.to_bytes(8, "big") if type(x) is bytes else f"{n:x}"]
