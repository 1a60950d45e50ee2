"""Calls between a candidate and the code that tests it, in two processes: only data crosses, never
code.

The tester holds a stand-in for everything that the candidate defined. Numbers, text and containers
come as plain values of exactly these types, so an object that claims to equal anything can't pass
for one. Operators between a stand-in and a plain value are not forwarded: `abs(f(x) - 2) < 1e-6`
must not be decided by a `__sub__` of the candidate's. For `in` a stand-in is iterated over and its
items are compared here; one that can't be iterated over is asked, and not believed where it says to
hold random values as well.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import importlib
import json
import math
import operator
import os
import sys
import types
from typing import Any

import wire

MOST = 1 << 27  # bytes of a message
GLOBAL = 1 << 20  # bytes of a candidate's global; a larger one stays where it is, as an object
DEEP = 300  # containers inside each other
# bits; Python limits the decimal digits of an integer, and with them what JSON can hold
LONG = 10_000
PLAIN = (type(None), bool, int, float, str)
CONTAINERS = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "deque": collections.deque,
}
UNARY = {f"__{f.__name__}__": f for f in (bool, str, repr, len, iter, next, reversed)}
ITEMS = {f"__{n}__": getattr(operator, n) for n in ("getitem", "setitem", "delitem")}
OPERATORS = (
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "add",
    "sub",
    "mul",
    "matmul",
    "truediv",
    "floordiv",
    "mod",
)
BINARY = {f"__{n}__": getattr(operator, n) for n in OPERATORS}
QUESTIONS = {
    "__instancecheck__": lambda kind, x: isinstance(x, kind),
    "__contains__": operator.contains,
}
# of the standard library that cross as data: module, what is sent of one, how it is made again
VALUES = {
    "Decimal": ("decimal", str, lambda kind, sent: kind(sent)),
    "Fraction": ("fractions", lambda x: [int(x.numerator), int(x.denominator)], lambda kind, sent: kind(*sent)),
    "datetime": ("datetime", lambda x: x.isoformat(), lambda kind, sent: kind.fromisoformat(sent)),
    "date": ("datetime", lambda x: x.isoformat(), lambda kind, sent: kind.fromisoformat(sent)),
    "time": ("datetime", lambda x: x.isoformat(), lambda kind, sent: kind.fromisoformat(sent)),
    "timedelta": ("datetime", lambda x: [x.days, x.seconds, x.microseconds], lambda kind, sent: kind(*sent)),
}  # fmt: skip


class Gone(BaseException):
    """The candidate ended or broke the protocol. Not an Exception: no `except` of a test's takes it
    for an outcome.
    """


class Large(ValueError):
    """More than a message holds, containers too deep inside each other, or one inside itself."""


class Remote:
    """A stand-in for an object of the other side."""

    __slots__ = ("number_", "peer_")

    def __init__(self, peer: Peer, number: int):
        object.__setattr__(self, "peer_", peer)
        object.__setattr__(self, "number_", number)

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return self.peer_.ask(self.number_, "get", (name,))

    def __setattr__(self, name: str, new: Any):
        self.peer_.ask(self.number_, "set", (name, new))

    def __call__(self, *args: Any, **keywords: Any):
        return self.peer_.ask(self.number_, "call", args, keywords)

    def __hash__(self):
        return self.number_

    def __instancecheck__(self, x: Any):
        return type(x) is Remote and self.peer_.ask(self.number_, "__instancecheck__", (x,)) is True

    def __contains__(self, x: Any):
        items = self.peer_.ask(self.number_, "items")
        if items is not None:
            return any(x is i or x == i for i in items)
        return self.holds(x) and not any(map(self.holds, strangers(x)))

    def holds(self, x: Any):
        """Whether it says that it holds x."""
        with contextlib.suppress(Exception):
            return self.peer_.ask(self.number_, "__contains__", (x,)) is True
        return False


def forward(name: str):
    def method(self: Remote, *args: Any):
        if name in BINARY and not isinstance(args[0], Remote):
            return NotImplemented
        return self.peer_.ask(self.number_, name, args)

    setattr(Remote, name, method)


for special in (*UNARY, *ITEMS, *BINARY):
    forward(special)


class Peer:
    """One end. The trusting end (the candidate's) does what it is asked; the other only lets its
    own functions be called.
    """

    def __init__(self, end: int, trusting: bool = True):
        self.end, self.trusting, self.objects = end, trusting, []
        self.left = math.inf  # bytes that what is being encoded may take

    def offer(self, names: dict):
        """Sends what a candidate defined, a message for each name, then serves until the other end
        closes.
        """
        with contextlib.suppress(wire.Closed):
            for name, x in list(names.items()):
                if type(name) is str and not name.startswith("__"):
                    self.write({name: self.sized(x, GLOBAL)})
            self.write({})
            while True:
                self.serve(json.loads(wire.receive(self.end)))

    def take(self, wanted: tuple[str, ...]):
        """Of the candidate's names those that are wanted: any other could decide its own test, as
        an `all`, a `math` or a list of cases would. One that is a builtin's must be there, or the
        test would be of Python's own.
        """
        found = {}
        while given := self.receive():
            found |= {n: self.decode(v) for n, v in given.items() if n in wanted}
        for name in wanted:
            if name not in found and hasattr(builtins, name):
                raise NameError(f"name {name!r} is not defined")
        return found

    def ask(self, number: int, what: str, args: tuple = (), keywords: dict | None = None) -> Any:
        """Has the other end do something; meanwhile it may call functions that it was given."""
        sent = [self.encode(a) for a in args]
        self.send({"on": number, "do": what, "args": sent, "keywords": self.encode(keywords or {})})
        while "on" in (reply := self.receive()):
            self.serve(reply)
        if "raise" in reply:
            raise nearest_exception(*reply["raise"], iterating=what == "__next__")
        for old, new in zip(args, map(self.decode, reply["args"]), strict=False):
            renew(old, new)
        return self.decode(reply["value"])

    def serve(self, request: dict):
        try:
            args = [self.decode(a) for a in request["args"]]
            target = self.objects[request["on"]]
            keywords: Any = self.decode(request["keywords"])
            changed = args if request["do"] == "call" else []
            most = MOST // (2 + len(changed))
            reply = {"value": self.sized(self.do(target, request["do"], args, keywords), most)}
            reply["args"] = [self.sized(a, most) for a in changed]
        except Exception as error:
            reply = {"raise": [[t.__name__ for t in type(error).__mro__], str(error)[:10_000]]}
        self.write(reply)

    def do(self, target: Any, what: str, args: list, keywords: dict):
        if what == "call":
            return target(*args, **keywords)
        if not self.trusting:
            raise PermissionError(what)
        if what == "get":
            return getattr(target, *args)
        if what == "set":
            return setattr(target, *args)
        if what == "items":
            asked = hasattr(type(target), "__contains__") and not hasattr(type(target), "__iter__")
            return None if asked else iter(target)
        return (UNARY | ITEMS | BINARY | QUESTIONS)[what](target, *args)

    def send(self, message: object):
        try:
            self.write(message)
        except wire.Closed:
            raise Gone("the candidate ended") from None

    def write(self, message: object):
        wire.send(self.end, json.dumps(message).encode())

    def receive(self):
        try:
            found = json.loads(wire.receive(self.end, MOST))
            if type(found) is dict:
                return found
        except (wire.Closed, ValueError, RecursionError):
            pass
        raise Gone("the candidate ended, or answered nonsense")

    def sized(self, x: Any, most: int) -> Any:
        """`encode`, but only the number of what is too large, too deep or endless."""
        self.left = most
        try:
            return self.encode(x)
        except Large:
            return self.number(x)
        finally:
            self.left = math.inf

    def number(self, x: Any):
        self.objects.append(x)
        return {"object": len(self.objects) - 1}

    def encode(self, x: Any, depth: int = 0) -> Any:
        """Plain values as they are, containers tagged, anything else by its number here."""
        self.left -= weight(x)
        if self.left < 0 or depth > DEEP or (isinstance(x, list) and 16 * len(x) > self.left):
            raise Large
        if type(x) is int and x.bit_length() > LONG:
            return {"int": hex(x)}
        for plain in PLAIN:
            if type(x) is plain:
                return x
        for tag, container in CONTAINERS.items():
            if isinstance(x, container):
                return {tag: [self.encode(v, depth + 1) for v in x]}
        if isinstance(x, dict):
            return {
                "dict": [
                    [self.encode(k, depth + 1), self.encode(v, depth + 1)] for k, v in x.items()
                ]
            }
        if isinstance(x, bytes | bytearray):
            return {"bytes": bytes(x).hex()}
        if isinstance(x, complex):
            return {"complex": [x.real, x.imag]}
        name = type(x).__name__
        if name in VALUES and type(x) is getattr(sys.modules.get(VALUES[name][0]), name, None):
            return {name: VALUES[name][1](x)}
        for plain in (int, float, str):  # subclasses
            if isinstance(x, plain):
                return self.encode(plain(x))
        if isinstance(x, Remote):
            return {"yours": x.number_}
        if isinstance(x, types.ModuleType):
            return {"module": x.__name__}
        if not self.trusting and not isinstance(x, types.FunctionType):
            raise TypeError(
                f"a test can't hand a {type(x).__name__} to the candidate, only data and functions"
            )
        return self.number(x)

    def decode(self, x: Any) -> Any:
        if type(x) is not dict:
            return x
        ((tag, inner),) = x.items()
        if tag in CONTAINERS:
            return CONTAINERS[tag](self.decode(v) for v in inner)
        if tag == "dict":
            return {self.decode(k): self.decode(v) for k, v in inner}
        if tag == "int":
            return int(inner, 16)
        if tag == "bytes":
            return bytes.fromhex(inner)
        if tag == "complex":
            return complex(*inner)
        if tag == "yours":
            return self.objects[inner]
        if tag in VALUES:
            module, _, make = VALUES[tag]
            return make(getattr(importlib.import_module(module), tag), inner)
        if tag == "module":
            return importlib.import_module(inner) if inner in sys.stdlib_module_names else None
        return Remote(self, int(inner))


def weight(x: Any):
    """About the bytes of a value in JSON, a container's without its items."""
    if isinstance(x, str | bytes | bytearray):
        return 16 + 6 * len(x)
    return 16 + (x.bit_length() // 3 if isinstance(x, int) else 16)


def nearest_exception(names: list[str], message: str, iterating: bool):
    """The nearest builtin exception of a class and its bases. A StopIteration of anything but an
    iterator's step is a RuntimeError: it would end the test's own loop, and what ends early is
    passed.
    """
    for found in (getattr(builtins, str(n), None) for n in names):
        if isinstance(found, type) and issubclass(found, Exception):
            if issubclass(found, StopIteration | StopAsyncIteration) and not iterating:
                break
            with contextlib.suppress(TypeError):
                return found(message)
    return RuntimeError(f"{names[0]}: {message}")


def strangers(x: Any):
    """Random values of x's kind, which a container that was written for x does not hold."""
    n = int.from_bytes(os.urandom(8), "big")
    if type(x) is tuple:
        return list(zip(*([s[0], s[-1]] for s in map(strangers, x)), strict=True)) or [(n,)]
    if type(x) in (int, float):
        return [type(x)(n), type(x)(-n)]
    return [n.to_bytes(8, "big") if type(x) is bytes else f"{n:x}"]


def renew(old: Any, new: Any):
    """A container that the other end changed in place."""
    if type(old) is not type(new) or old == new:
        return
    if type(old) is list:
        old[:] = new
    elif type(old) in (dict, set):
        old.clear()
        old.update(new)


def same(a: Any, b: Any):
    """Equal as data: lists and tuples alike, True is not 1, integers exactly, floats to a relative
    1e-9, a float and an integer to an absolute 1e-9.
    """
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if number(a) and number(b):
        return a == b or near(a, b)
    return type(a) is type(b) and a == b


def number(x: Any):
    return isinstance(x, int | float) or type(x).__name__ in ("Decimal", "Fraction")


def near(a: Any, b: Any):
    """Equal but for rounding. What is no float has none: 10**12 + 3 is not 10**12."""
    if float not in (type(a), type(b)):
        return False
    try:
        x, y = float(a), float(b)
    except OverflowError:
        return False
    exact = type(a) is not float or type(b) is not float
    return abs(x - y) <= 1e-9 if exact else math.isclose(x, y, rel_tol=1e-9) or (x != x and y != y)
