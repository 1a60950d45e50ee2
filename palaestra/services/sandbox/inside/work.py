"""What happens behind the walls: a program, a read-eval-print loop, or a candidate beside the code
that tests it.

Process 1 of the run puts up the walls. Nothing that the candidate must not know is in its memory:
it is forked before the tests are read, and descriptors that matter are closed.
"""

from __future__ import annotations

import builtins
import gc
import marshal
import os
import sys
import types

import isolate
import wire

TYPE_CHECKING = False  # the modules of types are slow to import
if TYPE_CHECKING:
    from collections.abc import Callable

OK, ERROR, MEMORY, READY = b"o", b"e", b"m", b"r"
OUT_OF_MEMORY = 250  # exit code of a program that ended by MemoryError
PROGRAM = "main.py"
CONTROL, CHANNEL = 3, 4  # descriptors in process 1


def enter(order: dict, guarded: bool, folder: str, ends: tuple[int, ...]):
    """The life of process 1 of a run: never returns."""
    code = 1
    try:
        if not guarded:
            os.setsid()
        descriptors(ends)
        asked = marshal.loads(wire.receive(CHANNEL))
        walls = (order["limits"], order["mode"] == "session", guarded, folder)
        if order["mode"] == "check":
            code = check_beside(asked["files"], walls)
        else:
            isolate.confine(asked["files"], *walls)
            feed(asked["stdin"])
            os.write(CONTROL, READY)
            os.close(CHANNEL)
            begin()
            if order["mode"] == "run":
                os.close(CONTROL)
                code = program()
            else:
                loop()
    except BaseException as error:
        os.write(2, f"sandbox: {type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(code)


def descriptors(ends: tuple[int, ...]):
    """Standard output and error, control and channel at their numbers, nothing else open."""
    aside = max(*ends, 4) + 1  # out of the way of the numbers to come, and of those to be copied
    for i, end in enumerate(ends):
        os.dup2(end, aside + i)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for i in range(4):
        os.dup2(aside + i, 1 + i)
    os.closerange(5, max(4096, aside + 4))


def feed(data: bytes | memoryview):
    """Standard input: a file without a name."""
    if data:
        end = os.open(".stdin", os.O_RDWR | os.O_CREAT | os.O_EXCL)
        os.unlink(".stdin")
        wire.write(end, data)
        os.lseek(end, 0, os.SEEK_SET)
        os.dup2(end, 0)
        os.close(end)


def begin():
    """The last of ours before the candidate's: fresh streams, its folder on the path, garbage
    collection, and what Python has beside its builtins.
    """
    streams()
    leaving()
    sys.path.insert(0, os.getcwd())
    sys.argv[:] = [PROGRAM]
    gc.enable()


def leaving():
    """`exit` and `quit`, which Python takes from the module `site`."""
    for name in ("exit", "quit"):
        setattr(builtins, name, Leave(name))


class Leave:
    """What a program calls to end."""

    def __init__(self, name: str):
        self.name = name

    def __repr__(self):
        return f"Use {self.name}() or Ctrl-D (i.e. EOF) to exit"

    def __call__(self, code: object = None):
        raise SystemExit(code)


def streams():
    for name, mode, end in (("stdin", "r", 0), ("stdout", "w", 1), ("stderr", "w", 2)):
        buffering = 1 if name == "stderr" else -1
        stream = open(end, mode, buffering, encoding="utf-8", closefd=False)  # noqa: SIM115 (it is the process's own)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def fresh_main(**names: object):
    """A `__main__` with nothing of ours in it."""
    return fresh_module("__main__", **names)


def fresh_module(name: str, **names: object):
    module = sys.modules[name] = types.ModuleType(name)
    vars(module).update(__builtins__=builtins, **names)
    return vars(module)


def execute(code: types.CodeType, names: dict):
    """Runs a code object with these globals."""
    return types.FunctionType(code, names)()


def program():
    """The candidate as a whole program: its exit code is python's."""
    code = attempt(run_main, fresh_main(__file__=PROGRAM))
    if "threading" in sys.modules:
        attempt(sys.modules["threading"]._shutdown)
    if "atexit" in sys.modules:
        attempt(sys.modules["atexit"]._run_exitfuncs)
    return flush() or code


def run_main(names: dict):
    with open(PROGRAM, encoding="utf-8") as file:
        text = file.read()
    # the flags of this file's own `from __future__` are not the candidate's
    execute(compile(text, PROGRAM, "exec", dont_inherit=True), names)


def attempt(action: Callable, *given: object):
    """Does it, showing what it raises as the interpreter would. Exit code."""
    try:
        action(*given)
    except SystemExit as leaving:
        if leaving.code is None or isinstance(leaving.code, int):
            return (leaving.code or 0) & 0xFF
        os.write(2, f"{leaving.code}\n".encode(errors="replace"))
        return 1
    except MemoryError:
        os.write(2, b"MemoryError\n")
        return OUT_OF_MEMORY
    except BaseException as error:
        show(error)
        return 1
    return 0


def show(error: BaseException):
    """The traceback without the frames of this folder."""
    trace = error.__traceback__
    while trace and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    try:
        sys.excepthook(type(error), error.with_traceback(trace), trace)
    except BaseException:
        os.write(2, type(error).__name__.encode() + b"\n")


def flush():
    """1 where something printed could not be written."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        return 1
    return 0


def loop():
    """The candidate as a session: reads a cell, runs it, says that it is done."""
    names, n = fresh_main(), 0
    while True:
        text = wire.receive(CONTROL).decode(errors="surrogatepass")
        n += 1
        code = attempt(cell, text, f"<cell {n}>", names)
        flush()
        os.write(CONTROL, {0: OK, OUT_OF_MEMORY: MEMORY}.get(code, ERROR))


def cell(text: str, name: str, names: dict):
    """Runs a cell; the value of a last expression is shown, as in an interactive interpreter."""
    import ast
    import linecache

    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    tree = ast.parse(text, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    execute(compile(tree, name, "exec", dont_inherit=True), names)
    if last:
        execute(compile(ast.Interactive([last]), name, "single", dont_inherit=True), names)


def check_beside(files: dict[str, bytes], walls: tuple):
    """A candidate in a child; the tests here, read from the channel that the child has not. The
    verdict is the exit code.

    As process 1 of its namespace the tester can't be killed or stopped from inside it, tracing is
    filtered, and there is no /proc. Each has a folder of its own, which the other does not see.
    Modules come from the standard library and numpy alone. What the candidate sends is data (`peer`).
    """
    mine, theirs = isolate.pair()
    if not os.fork():
        os.dup2(theirs, CONTROL)
        os.closerange(CHANNEL, 4096)
        isolate.confine(files, *walls)
        os.write(CONTROL, READY)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os._exit(be_tested() or 1)
    os.close(theirs)
    # a candidate that ran before the tests are read could make the set-up fail
    if os.read(mine, 1) != READY:
        return 1
    isolate.confine({}, *walls)
    test = marshal.loads(wire.receive(CHANNEL))
    os.close(CHANNEL)
    os.write(CONTROL, READY)
    wire.send(mine, marshal.dumps((test["given"], test["records"])))
    streams()
    leaving()
    sys.argv[:] = ["test.py"]
    return attempt(judge, mine, test)


def be_tested():
    """The candidate's side: defines what it defines, then does what it is asked. An exit code."""
    import peer

    given, records = marshal.loads(wire.receive(CONTROL))
    begin()
    fresh_main()
    # as if imported: what it does as a program is not asked for
    names = fresh_module("main", __file__=PROGRAM)
    execute(compile(given, "task.py", "exec", dont_inherit=True), names)
    known = dict(names)
    code = attempt(run_main, names)
    if code == 0:
        end = peer.Peer(CONTROL)
        end.names, end.kinds = records, [names, known]
        end.offer({n: x for n, x in names.items() if n not in known or x is not known[n]})
    return code


def judge(end: int, test: dict):
    """The tester's side: runs the test as a program of its own."""
    import peer

    tester = peer.Peer(end, trusting=False)
    names = fresh_main(__kind_of__=peer.kind_of)
    tester.names, tester.kinds = test["records"], [names]
    names |= tester.take(test["wanted"])
    names |= {name: __import__(name) for name in test["modules"]}
    names |= {"inf": float("inf"), "nan": float("nan")}
    peer.see_through()
    execute(peer.compile_test(test["code"]), names)
