"""Calls between a candidate and the code that tests it, in two processes: only data crosses, never code.

The tester holds a stand-in for everything that the candidate defined. Numbers, text and containers come as plain values of
exactly these types, so an object that claims to equal anything can't pass for one. Operators between a stand-in and a plain
value are not forwarded: `abs(f(x) - 2) < 1e-6` must not be decided by a `__sub__` of the candidate's. Nor is `in`: without a
`__contains__` of its own a stand-in is iterated over, and its items are compared here.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import importlib
import json
import math
import operator
import sys
import types
from typing import Any

import wire

MOST = 1 << 27  # bytes of a message
GLOBAL = 1 << 20  # bytes of a candidate's global; a larger one stays where it is, as an object
DEEP = 300  # containers inside each other
LONG = 10_000  # bits; Python limits the decimal digits of an integer, and with them what JSON can hold
PLAIN = (type(None), bool, int, float, str)
CONTAINERS = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "deque": collections.deque}
UNARY = {f"__{f.__name__}__": f for f in (bool, str, repr, len, iter, next, reversed)}
ITEMS = {f"__{n}__": getattr(operator, n) for n in ("getitem", "setitem", "delitem")}
OPERATORS = ("eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul", "matmul", "truediv", "floordiv", "mod")
BINARY = {f"__{n}__": getattr(operator, n) for n in OPERATORS}


class Gone(BaseException):
    """The candidate ended or broke the protocol. Not an Exception: no `except` of a test's takes it for an outcome."""


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


def forward(name: str):
    def method(self: Remote, *args: Any):
        if name in BINARY and not isinstance(args[0], Remote):
            return NotImplemented
        return self.peer_.ask(self.number_, name, args)

    setattr(Remote, name, method)


for special in (*UNARY, *ITEMS, *BINARY):
    forward(special)


class Peer:
    """One end. The trusting end (the candidate's) does what it is asked; the other only lets its own functions be called."""

    def __init__(self, end: int, trusting: bool = True):
        self.end, self.trusting, self.objects = end, trusting, []
        self.left = math.inf  # bytes that what is being encoded may take

    def offer(self, names: dict):
        """Sends what a candidate defined, a message for each name, then serves until the other end closes."""
        with contextlib.suppress(wire.Closed):
            for name, x in list(names.items()):
                if type(name) is str and not name.startswith("__"):
                    self.write({name: self.sized(x, GLOBAL)})
            self.write({})
            while True:
                self.serve(json.loads(wire.receive(self.end)))

    def take(self, wanted: str = ""):
        """The candidate's names, but none of a builtin (a candidate's `all` or `abs` would decide its own test) save `wanted`,
        which must be the candidate's."""
        found = {}
        while given := self.receive():
            found |= {n: self.decode(v) for n, v in given.items() if n == wanted or not hasattr(builtins, n)}
        if wanted and wanted not in found:
            raise NameError(f"name {wanted!r} is not defined")
        return found

    def ask(self, number: int, what: str, args: tuple = (), keywords: dict | None = None) -> Any:
        """Has the other end do something; meanwhile it may call functions that it was given."""
        sent = [self.encode(a) for a in args]
        self.send({"on": number, "do": what, "args": sent, "keywords": self.encode(keywords or {})})
        while "on" in (reply := self.receive()):
            self.serve(reply)
        if "raise" in reply:
            raise raised(*reply["raise"])
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
            reply = {"raise": [type(error).__name__, str(error)[:10_000]]}
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
        return (UNARY | ITEMS | BINARY)[what](target, *args)

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
            return {"dict": [[self.encode(k, depth + 1), self.encode(v, depth + 1)] for k, v in x.items()]}
        if isinstance(x, bytes | bytearray):
            return {"bytes": bytes(x).hex()}
        if isinstance(x, complex):
            return {"complex": [x.real, x.imag]}
        for plain in (int, float, str):  # subclasses
            if isinstance(x, plain):
                return self.encode(plain(x))
        if isinstance(x, Remote):
            return {"yours": x.number_}
        if isinstance(x, types.ModuleType):
            return {"module": x.__name__}
        if not self.trusting and not isinstance(x, types.FunctionType):
            raise TypeError(f"a test can't hand a {type(x).__name__} to the candidate, only data and functions")
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
        if tag == "module":
            return importlib.import_module(inner) if inner in sys.stdlib_module_names else None
        return Remote(self, int(inner))


def weight(x: Any):
    """About the bytes of a value in JSON, a container's without its items."""
    if isinstance(x, str | bytes | bytearray):
        return 16 + 6 * len(x)
    return 16 + (x.bit_length() // 3 if isinstance(x, int) else 16)


def raised(name: str, message: str):
    """The builtin exception of that name; anything else, SystemExit included, is a RuntimeError."""
    found = getattr(builtins, str(name), None)
    if isinstance(found, type) and issubclass(found, Exception):
        with contextlib.suppress(TypeError):
            return found(message)
    return RuntimeError(f"{name}: {message}")


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
    """Equal as data: lists and tuples alike, floats to a relative 1e-9, True is not 1."""
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b or (float in (type(a), type(b)) and (math.isclose(a, b, rel_tol=1e-9) or (a != a and b != b)))
    return type(a) is type(b) and a == b
