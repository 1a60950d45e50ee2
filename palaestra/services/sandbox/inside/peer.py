"""Calls between a candidate and the code that tests it, in two processes: only data crosses, never code.

The tester holds a stand-in for everything that the candidate defined. Numbers, text and containers come as plain values of
exactly these types, so an object that claims to equal anything can't pass for one. Operators between a stand-in and a plain
value are not forwarded: `abs(f(x) - 2) < 1e-6` must not be decided by a `__sub__` of the candidate's.
"""

import builtins
import collections
import contextlib
import importlib
import json
import math
import operator
import sys
import types

import wire

MOST = 1 << 24  # bytes of a message
PLAIN = (type(None), bool, int, float, str)
CONTAINERS = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "deque": collections.deque}
UNARY = {f"__{f.__name__}__": f for f in (bool, str, repr, len, iter, next, reversed)}
ITEMS = {f"__{n}__": getattr(operator, n) for n in ("getitem", "setitem", "delitem", "contains")}
OPERATORS = ("eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul", "matmul", "truediv", "floordiv", "mod")
BINARY = {f"__{n}__": getattr(operator, n) for n in OPERATORS}


class Gone(BaseException):
    """The candidate ended or broke the protocol. Not an Exception: no `except` of a test's takes it for an outcome."""


class Remote:
    """A stand-in for an object of the other side."""

    __slots__ = ("_number", "_peer")

    def __init__(self, peer, number):
        object.__setattr__(self, "_peer", peer)
        object.__setattr__(self, "_number", number)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self._peer.ask(self._number, "get", (name,))

    def __setattr__(self, name, new):
        self._peer.ask(self._number, "set", (name, new))

    def __call__(self, *args, **keywords):
        return self._peer.ask(self._number, "call", args, keywords)

    def __hash__(self):
        return self._number


def forward(name):
    def method(self, *args):
        if name in BINARY and not isinstance(args[0], Remote):
            return NotImplemented
        return self._peer.ask(self._number, name, args)

    setattr(Remote, name, method)


for special in (*UNARY, *ITEMS, *BINARY):
    forward(special)


class Peer:
    """One end. The trusting end (the candidate's) does what it is asked; the other only lets its own functions be called."""

    def __init__(self, end, trusting=True):
        self.end, self.trusting, self.objects = end, trusting, []

    def offer(self, names):
        """Sends what a candidate defined, then serves until the other end closes."""
        given = {n: self.encode(v) for n, v in list(names.items()) if type(n) is str and not n.startswith("__")}
        with contextlib.suppress(wire.Closed):
            self.write(given)
            while True:
                self.serve(json.loads(wire.receive(self.end)))

    def take(self, wanted=""):
        """The candidate's names, but none of a builtin (a candidate's `all` or `abs` would decide its own test)."""
        given = self.receive()
        return {n: self.decode(v) for n, v in given.items() if n == wanted or not hasattr(builtins, n)}

    def ask(self, number, what, args=(), keywords=None):
        """Has the other end do something; meanwhile it may call functions that it was given."""
        sent = [self.encode(a) for a in args]
        self.send({"on": number, "do": what, "args": sent, "keywords": self.encode(keywords or {})})
        while "on" in (reply := self.receive()):
            self.serve(reply)
        if "raise" in reply:
            raise raised(*reply["raise"])
        for old, new in zip(args, map(self.decode, reply["args"]), strict=True):
            renew(old, new)
        return self.decode(reply["value"])

    def serve(self, request):
        try:
            args = [self.decode(a) for a in request["args"]]
            target = self.objects[request["on"]]
            keywords = self.decode(request["keywords"])
            reply = {"value": self.encode(self.do(target, request["do"], args, keywords))}
            mutable = request["do"] == "call"
            reply["args"] = [self.encode(a) if mutable else s for a, s in zip(args, request["args"], strict=True)]
        except Exception as error:
            reply = {"raise": [type(error).__name__, str(error)[:10_000]]}
        self.write(reply)

    def do(self, target, what, args, keywords):
        if what == "call":
            return target(*args, **keywords)
        if not self.trusting:
            raise PermissionError(what)
        if what == "get":
            return getattr(target, *args)
        if what == "set":
            return setattr(target, *args)
        return (UNARY | ITEMS | BINARY)[what](target, *args)

    def send(self, message):
        try:
            self.write(message)
        except wire.Closed:
            raise Gone("the candidate ended") from None

    def write(self, message):
        wire.send(self.end, json.dumps(message).encode())

    def receive(self):
        try:
            found = json.loads(wire.receive(self.end, MOST))
            if type(found) is dict:
                return found
        except (wire.Closed, ValueError, RecursionError):
            pass
        raise Gone("the candidate ended, or answered nonsense")

    def encode(self, x):
        """Plain values as they are, containers tagged, anything else by its number here."""
        for plain in PLAIN:
            if type(x) is plain:
                return x
        for tag, container in CONTAINERS.items():
            if isinstance(x, container):
                return {tag: [self.encode(v) for v in x]}
        if isinstance(x, dict):
            return {"dict": [[self.encode(k), self.encode(v)] for k, v in x.items()]}
        if isinstance(x, bytes | bytearray):
            return {"bytes": bytes(x).hex()}
        if isinstance(x, complex):
            return {"complex": [x.real, x.imag]}
        for plain in (int, float, str):  # subclasses
            if isinstance(x, plain):
                return plain(x)
        if isinstance(x, Remote):
            return {"yours": x._number}
        if isinstance(x, types.ModuleType):
            return {"module": x.__name__}
        if not self.trusting and not isinstance(x, types.FunctionType):
            raise TypeError(f"a test can't hand a {type(x).__name__} to the candidate, only data and functions")
        self.objects.append(x)
        return {"object": len(self.objects) - 1}

    def decode(self, x):
        if type(x) is not dict:
            return x
        ((tag, inner),) = x.items()
        if tag in CONTAINERS:
            return CONTAINERS[tag](self.decode(v) for v in inner)
        if tag == "dict":
            return {self.decode(k): self.decode(v) for k, v in inner}
        if tag == "bytes":
            return bytes.fromhex(inner)
        if tag == "complex":
            return complex(*inner)
        if tag == "yours":
            return self.objects[inner]
        if tag == "module":
            return importlib.import_module(inner) if inner in sys.stdlib_module_names else None
        return Remote(self, int(inner))


def raised(name, message):
    """The builtin exception of that name; anything else, SystemExit included, is a RuntimeError."""
    found = getattr(builtins, str(name), None)
    if isinstance(found, type) and issubclass(found, Exception):
        with contextlib.suppress(TypeError):
            return found(message)
    return RuntimeError(f"{name}: {message}")


def renew(old, new):
    """A container that the other end changed in place."""
    if type(old) is not type(new) or old == new:
        return
    if type(old) is list:
        old[:] = new
    elif type(old) in (dict, set):
        old.clear()
        old.update(new)


def same(a, b):
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
