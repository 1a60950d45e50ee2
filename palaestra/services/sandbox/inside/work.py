"""What happens behind the walls: a program, a read-eval-print loop, or a candidate beside the code that tests it.

Process 1 puts up the walls and forks the candidate. Nothing that the candidate must not know is in its memory: it is forked
before the tests are read, and descriptors that matter are closed.
"""

import ast
import atexit
import builtins
import json
import linecache
import os
import signal
import socket
import sys
import threading
import types

import isolate
import peer
import wire

OK, ERROR, MEMORY = b"o", b"e", b"m"
OUT_OF_MEMORY = 250  # exit code of a program that ended by MemoryError
PROGRAM = "main.py"


def enter(request, guarded, ends):
    """The life of process 1 of a run: never returns."""
    code = 1
    try:
        if not guarded:
            os.setsid()
        for wanted, end in enumerate(ends[:3]):
            os.dup2(end, wanted)
        control = os.dup2(ends[3], 3)
        os.closerange(4, 4096)
        isolate.confine(request, guarded)
        fresh_streams()
        if request["mode"] == "check":
            code = beside(request)
        else:
            candidate = os.fork()
            if not candidate:
                program() if request["mode"] == "run" else loop(control)
            os.close(control)
            code = reap(candidate)
    except BaseException as error:
        os.write(2, f"sandbox: {type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(code)


def reap(candidate):
    """Waits for the candidate, and for orphans on the way. Its exit code, 128 + N for signal N."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for end in range(3):
        os.close(end)
    while True:
        pid, status = os.wait()
        if pid == candidate:
            return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def fresh_streams():
    for name, mode, end in (("stdin", "r", 0), ("stdout", "w", 1), ("stderr", "w", 2)):
        buffering = 1 if name == "stderr" else -1
        stream = open(end, mode, buffering, encoding="utf-8", closefd=False)  # noqa: SIM115 (it is the process's own)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def fresh_main(**names):
    """A `__main__` with nothing of ours in it."""
    module = types.ModuleType("__main__")
    vars(module).update(__builtins__=builtins, **names)
    sys.modules["__main__"] = module
    return vars(module)


def execute(code, names):
    """Runs a code object with these globals."""
    return types.FunctionType(code, names)()


def program():
    """The candidate as a whole program: exits as python would."""
    leave(attempt(lambda: execute(compile(source(PROGRAM), PROGRAM, "exec"), fresh_main(__file__=PROGRAM))))


def source(name):
    with open(name, encoding="utf-8") as file:
        return file.read()


def attempt(action):
    """Does it, showing what it raises as the interpreter would. Exit code."""
    try:
        action()
    except SystemExit as leaving:
        if leaving.code is None or isinstance(leaving.code, int):
            return (leaving.code or 0) & 0xFF
        print(leaving.code, file=sys.stderr)
        return 1
    except MemoryError:
        os.write(2, b"MemoryError\n")
        return OUT_OF_MEMORY
    except BaseException as error:
        show(error)
        return 1
    return 0


def show(error):
    """The traceback without the frames of this folder."""
    trace = error.__traceback__
    while trace and os.path.basename(trace.tb_frame.f_code.co_filename) == "work.py":
        trace = trace.tb_next
    try:
        sys.excepthook(type(error), error.with_traceback(trace), trace)
    except BaseException:
        os.write(2, type(error).__name__.encode() + b"\n")


def leave(code):
    """What the interpreter does at its end, without taking itself apart."""
    attempt(threading._shutdown)
    attempt(atexit._run_exitfuncs)
    failed = flush()
    os._exit(code or failed)


def flush():
    """1 where something printed could not be written."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        return 1
    return 0


def loop(control):
    """The candidate as a session: reads a cell, runs it, says that it is done."""
    names, n = fresh_main(), 0
    while True:
        try:
            text = wire.receive(control)
        except wire.Closed:
            os._exit(0)
        n += 1
        code = attempt(lambda text=text, n=n: cell(text, f"<cell {n}>", names))
        flush()
        os.write(control, {0: OK, OUT_OF_MEMORY: MEMORY}.get(code, ERROR))


def cell(text, name, names):
    """Runs a cell; the value of a last expression is shown, as in an interactive interpreter."""
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    tree = ast.parse(text, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    execute(compile(tree, name, "exec"), names)
    if last:
        execute(compile(ast.Interactive([last]), name, "single"), names)


def beside(request):
    """A candidate in a child; the tests here, read from a pipe that the child never had. The verdict is the exit code.

    As process 1 of its namespace the tester can't be killed or stopped from inside it, tracing is filtered, and there is no
    /proc. What the child sends is data (see `peer`).
    """
    mine, theirs = (s.detach() for s in socket.socketpair())
    candidate = os.fork()
    if not candidate:
        null = os.open(os.devnull, os.O_RDWR)
        for end in (0, 1):
            os.dup2(null, end)
        os.dup2(theirs, 3)
        os.closerange(4, 4096)
        fresh_streams()
        names = fresh_main(__file__=PROGRAM)
        code = attempt(lambda: execute(compile(source(PROGRAM), PROGRAM, "exec"), names))
        if code == 0:
            peer.Peer(3).offer(names)
        os._exit(code or 1)
    os.close(theirs)
    test = json.load(sys.stdin)

    def judge():
        names = peer.Peer(mine, trusting=False).take(test["wanted"])
        execute(compile(test["code"], "test.py", "exec"), names | fresh_main(inf=float("inf"), nan=float("nan")))

    return attempt(judge)
