"""Calls between a candidate and the code that tests it, in two processes: only data crosses, never
code.

The tester holds a stand-in for everything that the candidate defined (`standins`). Numbers, text
and containers come as plain values of exactly these types, so an object that claims to equal
anything can't pass for one (`plain`). Of what the tester hands over the candidate can call what is
callable, and read what is public in objects of the test's own classes.

Each side has a folder of its own. A file that an argument names goes with the call, and comes back
as the call left it.
"""

from __future__ import annotations

import ast
import builtins
import collections
import contextlib
import copy
import functools
import importlib
import io
import json
import math
import os
import sys
import threading
import types
from collections.abc import Generator
from typing import Any

import plain
import standins
import wire
from plain import Codec, Large
from standins import DataStandin, Remote

MOST = 1 << 27  # bytes of a message
GLOBAL = 1 << 20  # bytes of a candidate's global; a larger one stays where it is, as an object
FILES = 8 << 20  # bytes of the files that go with a call
STEPS = ("__next__", "anext")
READS = (
    "__iter__",
    "__next__",
    "__len__",
    "__getitem__",
    "__bool__",
    "__str__",
    "__repr__",
    "kind",
)
PATH = 256  # characters of an argument that may name a file
INPUT = builtins.input
# functions that look at an object by its type, which a stand-in has not
LOOKS = {
    "dataclasses": ("asdict", "astuple", "fields", "is_dataclass", "replace"),
    "inspect": ("signature", "getdoc", "isclass", "isfunction", "iscoroutinefunction", "isgeneratorfunction"),
}  # fmt: skip


class Gone(BaseException):
    """The candidate ended or broke the protocol. Not an Exception: no `except` of a test's takes it
    for an outcome.
    """


class Peer(Codec):
    """One end. The trusting end (the candidate's) does what it is asked; the other only lets be
    called and read what it handed over.
    """

    def __init__(self, end: int, trusting: bool = True):
        super().__init__(trusting)
        self.end, self.folder = end, os.path.realpath(os.getcwd())
        self.changes = 0  # what was asked for so far that may have changed something
        self.lock, self.thread, self.loop = threading.RLock(), threading.local(), None

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
        offered, definitions = {}, {}
        while given := self.receive():
            offered |= {n: (v, given) for n, v in given.items() if n in wanted}
        for name, (sent, given) in offered.items():
            self.decode_records(given.get("records ", {}))
            definitions[name] = self.decode(sent)
            # by the usual way of writing names, which is the test's, a class and no function
            if type(definitions[name]) is Remote and name.lstrip("_")[:1].isupper():
                definitions[name].mark_("class_")
        for name in wanted:
            if name not in definitions and hasattr(builtins, name):
                raise NameError(f"name {name!r} is not defined")
        return definitions

    def ask(self, number: Any, what: str, args: tuple = (), keywords: dict | None = None) -> Any:
        """Has the other end do something; meanwhile it may call functions that it was given."""
        with contextlib.nullcontext() if getattr(self.thread, "nested", False) else self.lock:
            self.changes += what not in READS
            keywords = keywords or {}
            paths = self.paths((*args, *keywords.values())) if what == "call" else []
            sent = {
                "on": number,
                "do": what,
                "args": [self.encode(a) for a in args],
                "keywords": [[k, self.encode(v)] for k, v in keywords.items()],
                "files": [[p, self.read(p)] for p in paths],
                **({} if self.trusting else self.streams()),
            }
            self.send(sent)
            while "on" in (reply := self.receive()):
                self.serve(reply)
            return self.outcome(reply, what, (*args, *keywords.values()), paths)

    def outcome(self, reply: dict, what: str, args: tuple, paths: list[str]) -> Any:
        """What a reply says: changes in place first, then the value or the exception."""
        try:
            self.decode_records(reply["records "])
            self.decode_changes(reply["changes"])
            if reply["said"]:
                sys.stdout.write(reply["said"])
            for path, (same, content) in zip(paths, reply["files"], strict=False):
                if path == same and content is not None:
                    self.store(path, content)
            error = self.decode(reply["raise"]) if "raise" in reply else None
            if error is None:
                for old, new in zip(args, map(self.decode, reply["args"]), strict=False):
                    renew(old, new)
                return args[reply["is"]] if "is" in reply else self.decode(reply["value"])
        except Gone:
            raise
        except Exception as problem:
            raise Gone(f"the candidate answered nonsense: {problem}") from None
        if isinstance(error, StopIteration | StopAsyncIteration) and what not in STEPS:
            # it would end the test's own loop, and what ends early is passed
            raise RuntimeError(f"{type(error).__name__}: {error}") from None
        raise error

    def serve(self, request: dict):
        """Does what the other end asks for, and says what came of it."""
        output, touched = None, list[str]()
        try:
            self.decode_records(request["records "])
            touched += request["records "]
            args = [self.decode(a) for a in request["args"]]
            keywords = {k: self.decode(v) for k, v in request["keywords"]}
            # a candidate names no file of the tester's
            files = request["files"] if self.trusting else []
            paths = [p for p, _ in files]
            for path, content in files:
                self.store(path, content)
            on = request["on"]
            target = self.records[on] if isinstance(on, str) else self.objects[on]
            changed = [*args, *keywords.values()] if request["do"] == "call" else []
            with self.redirected(request) as output:
                value = self.do(target, request["do"], args, keywords)
            reply: dict[str, Any] = {"files": [[p, self.read(p)] for p in paths]}
            same = [i for i, a in enumerate(changed) if a is value and type(a) not in plain.PLAIN]
            most = MOST // (2 + len(changed))
            reply |= {"is": same[0]} if same else {"value": self.sized(value, most)}
            reply["args"] = [self.sized(a, most) for a in changed]
        except Exception as error:
            reply = {"files": [], "raise": {"error": self.encode_error(error)}}
        self.queue += touched
        reply |= {
            "said": output.getvalue()[:MOST] if output else "",
            "changes": self.encode_changes(),
        }
        self.write(reply)

    def do(self, target: Any, what: str, args: list, keywords: dict):
        if not self.trusting and not may(target, what, args):
            refused = AttributeError if what == "get" else PermissionError
            raise refused(
                f"the test does not let the reply do this with what it hands over: {what}"
            )
        if what == "call":
            return target(*args, **keywords)
        if what in standins.SPECIAL:
            return standins.SPECIAL[what](target, *args)
        if what == "await":
            return self.run(target)
        if what in ("anext", "aenter", "aexit"):
            return self.run(getattr(type(target), f"__{what}__")(target, *args))
        if what == "subclass":
            return self.subclass(target, *args)
        return ACTIONS[what](target, *args)

    def subclass(self, base: type, name: str, body: dict):
        """A class over one of this side's, with methods of the other's."""
        made = {k: method(v) if type(v) is Remote else v for k, v in body.items()}
        return types.new_class(name, (base,), {}, lambda ns: ns.update(made))

    # ---- coroutines: each side runs its own, in one loop

    def await_there(self, number: int):
        async def waiting():
            return self.ask(number, "await")

        return waiting()

    def run(self, awaitable: Any):
        import asyncio  # slow to import

        async def waiting():
            return await awaitable

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            if self.loop is None:
                self.loop = asyncio.new_event_loop()
            return self.loop.run_until_complete(waiting())
        return self.run_beside(waiting)

    def run_beside(self, waiting: Any):
        """In a loop of its own: the one of this thread is waiting for the other side."""
        import asyncio

        threads: list[Any] = []

        def inner():
            self.thread.nested = True
            try:
                threads.extend((True, asyncio.run(waiting())))
            except BaseException as error:
                threads.extend((False, error))

        thread = threading.Thread(target=inner)
        thread.start()
        thread.join()
        if not threads[0]:
            raise threads[1]
        return threads[1]

    # ---- files and streams

    def paths(self, args: tuple) -> list[str]:
        """What arguments name in this side's folder, relative to it."""
        path_list = []
        for x in args:
            if type(x) is str or type(x).__name__ in ("PosixPath", "PurePosixPath"):
                text = str(x)
                if 0 < len(text) < PATH and text.isprintable():
                    whole = os.path.normpath(os.path.join(self.folder, text))
                    if whole.startswith(self.folder + "/"):
                        path_list.append(whole[len(self.folder) + 1 :])
        return path_list

    def read(self, path: str):
        """The content of a file of this side's folder in hex; None where there is none."""
        try:
            with open(os.path.join(self.folder, path), "rb") as file:
                data = file.read(FILES + 1)
        except OSError:
            return None
        return data.hex() if len(data) <= FILES else None

    def store(self, path: str, content: Any):
        if content is not None and self.read(path) != content:
            whole = os.path.join(self.folder, path)
            os.makedirs(os.path.dirname(whole), exist_ok=True)
            with open(whole, "wb") as file:
                file.write(bytes.fromhex(content))

    def streams(self) -> dict[str, Any]:
        """What the test has put in place of standard output, standard input and `input`."""
        open_streams: dict[str, Any] = {}
        if sys.stdout is not sys.__stdout__:
            open_streams["stdout"] = True
        if sys.stdin is not sys.__stdin__:
            open_streams["stdin"] = {"object": self.number(sys.stdin)}
        if builtins.input is not INPUT:
            open_streams["input"] = {"object": self.number(builtins.input)}
        return open_streams

    @contextlib.contextmanager
    def redirected(self, request: dict) -> Generator[io.StringIO | None]:
        if not request.keys() & {"stdout", "stdin", "input"}:
            yield None
            return
        before = sys.stdout, sys.stdin, builtins.input
        output = io.StringIO() if "stdout" in request else None
        sys.stdout = output or sys.stdout
        sys.stdin = self.decode(request["stdin"]) if "stdin" in request else sys.stdin
        builtins.input = self.decode(request["input"]) if "input" in request else builtins.input
        try:
            yield output
        finally:
            sys.stdout, sys.stdin, builtins.input = before

    # ---- messages

    def send(self, message: dict):
        try:
            self.write(message)
        except wire.Closed:
            raise Gone("the candidate ended") from None

    def write(self, message: dict):
        """With the records that it refers to. A blank in their name: no candidate's name has one."""
        self.left = math.inf
        if message:
            message["records "] = self.encode_records()
        wire.send(self.end, json.dumps(message).encode())

    def receive(self):
        try:
            message = json.loads(wire.receive(self.end, MOST))
            if type(message) is dict:
                return message
        except (wire.Closed, ValueError, RecursionError):
            pass
        raise Gone("the candidate ended, or answered nonsense")

    def sized(self, x: Any, most: int) -> Any:
        """`encode`, but only the number of what is too large, too deep or endless."""
        self.left, queued = most, len(self.queue)
        try:
            return self.encode(x)
        except Large:
            del self.queue[queued:]
            return {"object": self.number(x)}
        finally:
            self.left = math.inf


ACTIONS = {
    "get": getattr,
    "set": setattr,
    "del": delattr,
    "isinstance": lambda kind, x: isinstance(x, kind),
    "issubclass": lambda kind, x: issubclass(x, kind),
    "contains": lambda x, item: item in x,
    "kind": standins.describe,
    "type": type,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "aiter": lambda x: type(x).__aiter__(x),
    "look": lambda x, module, name, *more: getattr(importlib.import_module(module), name)(x, *more),
    "items": lambda x: (
        None if hasattr(type(x), "__contains__") and not hasattr(type(x), "__iter__") else iter(x)
    ),
}
# what a candidate may do with all that it was handed, with what can be walked over, and besides with
# objects of the test's own classes
HARMLESS = {"kind", "__hash__", "__eq__", "__ne__", "__bool__", "__str__", "__repr__", "__format__"}
WALKS = {"__iter__", "__next__", "__len__", "aiter", "anext"}
ASYNC = ("aiter", "anext", "aenter", "aexit")
SEEN = {"type", "isinstance", "issubclass", "contains", *ASYNC, *standins.SPECIAL}
NAMED = {"__name__", "__qualname__", "__doc__", "__annotations__"}


def may(target: Any, what: str, args: list):
    """Whether a candidate may have this done with what the tester handed it."""
    own = plain.is_own(target)
    if what == "call":
        return callable(target)
    if what == "await":
        return isinstance(target, types.CoroutineType)
    if what in ("get", "set"):
        name = args[0] if args else ""
        if type(name) is not str or name.startswith("_"):
            return what == "get" and name in NAMED and callable(target)
        return own and (may_get(target, name) if what == "get" else may_set(target, name))
    return what in HARMLESS or what in (SEEN if own else WALKS)


def may_get(target: Any, name: str):
    """Anything public; of a mock only what the test did with it, not what mocks are asked."""
    return type(target).__module__ != "unittest.mock" or not hasattr(type(target), name)


def may_set(target: Any, name: str):
    """Fields, never what a class or a mock says of itself."""
    return (
        type(target).__module__ == "__main__"
        and plain.is_field(type(target), name)
        and (not callable(getattr(target, name, None)))
    )


def method(remote: Remote):
    """A function of the other side's as a method."""

    def call(*args: Any, **keywords: Any):
        return remote(*args, **keywords)

    return call


def renew(old: Any, new: Any):
    """A container that the other end changed in place."""
    if type(old) is not type(new) or old is new:
        return
    if type(old) is list:
        renew_list(old, new)
    elif type(old) in (dict, collections.Counter, collections.OrderedDict, collections.defaultdict):
        for key, value in old.items():
            if key in new and is_renewable(value, new[key]):
                renew(value, new[key])
                new[key] = value
        old.clear()
        standins.put(old, type(old), new.items())
    elif type(old) is set:
        old.clear()
        old.update(new)
    elif type(old) in (collections.deque, bytearray):
        old.clear()
        old.extend(new)
    elif type(old).__name__ == "ndarray" and old.shape == new.shape and old.flags.writeable:
        old[...] = new


def renew_list(old: list, new: list):
    """Its own lists stay the same objects where they stand where they stood."""
    for i, (before, after) in enumerate(zip(old, new, strict=False)):
        if is_renewable(before, after):
            renew(before, after)
            new[i] = before
    old[:] = new


def is_renewable(old: Any, new: Any):
    return type(old) is type(new) and type(old) in (list, dict, set)


def kind_of(x: Any) -> Any:
    """`type(x)`, of the object that a stand-in stands for."""
    if type(x) is Remote or issubclass(type(x), DataStandin):
        return x.peer_.ask(x.number_, "type")
    return type(x)


class KindCalls(ast.NodeTransformer):
    """Has a test ask `kind_of` instead of `type`."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "type" and len(node.args) == 1:
            node.func.id = "__kind_of__"
        return node


def compile_test(text: str) -> types.CodeType:
    tree = ast.parse(text, "test.py")
    if "type" in text:
        tree = KindCalls().visit(tree)
    return compile(tree, "test.py", "exec", dont_inherit=True)


def see_through():
    """Lets the functions of `LOOKS` look at what a stand-in stands for."""
    for module, names in LOOKS.items():
        home = importlib.import_module(module)
        for name in names:
            setattr(home, name, looker(module, name, getattr(home, name)))


def looker(module: str, name: str, original: Any):
    @functools.wraps(original)
    def look(x: Any, *args: Any, **keywords: Any):
        if type(x) is Remote and not keywords:
            return x.ask_("look", (module, name, *args))
        return original(x, *args, **keywords)

    return look


def same(a: Any, b: Any):
    """Equal as data: lists and tuples alike, True is not 1, integers exactly, floats to a relative
    1e-9, a float and an integer to an absolute 1e-9.
    """
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    a = plain_number(a)
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if number(a) and number(b):
        return a == b or near(a, b)
    return type(a) is type(b) and a == b


def plain_number(x: Any) -> Any:
    """Python's number for one of numpy's, any other value as it is."""
    return x.item() if type(x).__module__ == "numpy" and not getattr(x, "shape", ()) else x


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
