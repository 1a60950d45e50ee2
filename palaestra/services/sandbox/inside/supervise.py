"""The supervisor: starts a run in a fresh pid namespace, watches it, and reports what it did.

It stays outside the run's pid namespace and alone holds the channel. What a run says (its exit
code, the end of a cell) only concerns itself; limits are measured here.
"""

from __future__ import annotations

import marshal
import os
import select
import struct
import sys
import time

import isolate
import wire
import work

TYPE_CHECKING = False  # the modules of types are slow to import
if TYPE_CHECKING:
    from collections.abc import Callable

STATUSES = ("ok", "error", "timeout", "memory", "output", "refused")
TICK = 0.02  # seconds between looks at memory and processes
PATIENCE = 5.0  # seconds for a run to be set up
LAST_WORDS = 1.0  # seconds that a session has between the request to end and its end
# signals; the module `signal` is slow to import
KILL, TERM, STOP, CONTINUE, XCPU = 9, 15, 19, 18, 24
READ, HANGUP = select.POLLIN, select.POLLRDHUP | select.POLLHUP
PAGE = os.sysconf("SC_PAGE_SIZE")
NOTES = {"processes": ("error", "sandbox: too many processes\n")}
CELL_STATUSES = {work.OK: "ok", work.MEMORY: "memory"}  # of a cell that ended by itself


def serve(channel: int, guarded: bool):
    """One request: a run, a check, or a session of many cells. False = this interpreter is not used
    again.
    """
    order = marshal.loads(wire.receive(channel))  # from the trusted end; marshal needs no import
    if order["mode"] == "session":
        return attend(channel, order, guarded)
    supervise(channel, order, guarded)
    return True


def attend(channel: int, order: dict, guarded: bool):
    """A session, watched by a fork of this interpreter: its cells pass through the fork's memory
    alone, so the next session begins without them. False where the fork did not end well.
    """
    watcher = os.fork()
    if not watcher:
        code = 1
        try:
            supervise(channel, order, guarded)
            code = 0
        except wire.Closed:
            code = 0
        except SystemExit as leaving:
            os.write(2, f"{leaving}\n".encode())
        except BaseException as error:
            os.write(2, f"sandbox: {type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code)
    return os.waitpid(watcher, 0)[1] == 0


def supervise(channel: int, order: dict, guarded: bool):
    """A run, a check or a session, from its first process to the end of its last."""
    run = SandboxRun(channel, order, guarded)
    try:
        run.set_up()
        if order["mode"] == "session":
            run.cells(order["lifetime"])
        else:
            run.watch(order["limits"])
    finally:
        run.end()
        for end in (run.out, run.err, run.control, run.gone):
            os.close(end)


class OutputBuffer:
    """What a run printed on one stream, in a buffer that is wiped after use."""

    def __init__(self, most: int):
        self.data, self.n = bytearray(most + 1), 0

    def read(self, end: int, most: int):
        """One piece of at most so many bytes. False at the end of the stream, None where nothing is
        there.
        """
        try:
            got = os.readv(end, [memoryview(self.data)[self.n : self.n + most]])
        except BlockingIOError:
            return None
        self.n += got
        return got > 0

    def give(self, channel: int, most: int):
        wire.write(channel, memoryview(self.data)[: min(self.n, most)])
        self.data[: self.n] = bytes(self.n)


class SandboxRun:
    """A run's first process (`init`), its pipes, and all that it starts."""

    def __init__(self, channel: int, order: dict, guarded: bool):
        self.channel, self.guarded, self.most = channel, guarded, order["limits"]
        self.trusted = pids() if guarded else set()
        self.folder = "" if guarded else isolate.scratch()
        self.out, stdout = os.pipe()
        self.err, stderr = os.pipe()
        self.control, inner = isolate.pair()
        own = isolate.new_pids() if guarded else -1
        self.init = os.fork()
        if not self.init:
            work.enter(order, guarded, self.folder, (stdout, stderr, inner, channel))
        if guarded:
            isolate.old_pids(own)
        for end in (stdout, stderr, inner):
            os.close(end)
        for end in (self.out, self.err):
            os.set_blocking(end, False)
        self.gone, self.code = os.pidfd_open(self.init), None

    def set_up(self):
        """Waits until the run has read all of its request from the channel. One that fails is
        nobody's outcome: it ends this interpreter, which says why.
        """
        poll = select.poll()
        poll.register(self.control, READ)
        poll.register(self.channel, HANGUP)
        events = dict(poll.poll(PATIENCE * 1000))
        if self.control not in events or os.read(self.control, 1) != work.READY:
            self.end()
            output = OutputBuffer(1000)
            output.read(self.err, 1000)
            why = (
                bytes(output.data[: output.n]).decode(errors="replace")
                if events
                else f"it took over {PATIENCE:g} s"
            )
            sys.exit(f"the run could not be set up: {why}")

    def cells(self, lifetime: float | None):
        """A session: code comes in, each answered by what it did; frozen in between. None instead
        of code ends it, and so does the first cell that breaks a limit; after `lifetime` seconds
        (None = any number) nothing of it runs any more.
        """
        over = None if lifetime is None else time.monotonic() + lifetime
        while True:
            if not select.select([self.channel], [], [], left(over))[0]:
                self.leave()
            cell = marshal.loads(wire.receive(self.channel))
            if cell is None or self.code is not None:
                self.leave()
                self.answer("ok" if cell is None else "timeout", "", {}, 0.0)
                return
            if over is not None:
                cell["limits"]["seconds"] = min(cell["limits"]["seconds"], left(over))
            self.signal_all(CONTINUE)
            while select.select([self.control], [], [], 0)[0] and os.read(self.control, 4096):
                pass  # what a cell before this one said out of turn
            try:
                wire.send(self.control, cell["code"])
            except wire.Closed:
                pass  # it is dead; watching it says so
            self.watch(cell["limits"], cell=True)
            if self.code is not None:
                return

    def watch(self, limits: dict, cell: bool = False):
        """Until it ends, says that a cell is done, or breaks a limit; then reports."""
        begin = now = time.monotonic()
        deadline, look = begin + limits["seconds"], begin + TICK
        kept = {
            self.out: OutputBuffer(limits["output_bytes"]),
            self.err: OutputBuffer(limits["output_bytes"]),
        }
        poll = select.poll()
        for end in (self.gone, *kept, *((self.control,) if cell else ())):
            poll.register(end, READ)
        poll.register(self.channel, HANGUP)
        broken, byte = "", b""
        while not broken and not byte:
            events = dict(poll.poll(max(0.0, min(deadline, look) - now) * 1000))
            for end in events.keys() & kept.keys():
                if kept[end].read(end, room(limits, kept) + 1) is False:
                    poll.unregister(end)
            now = time.monotonic()
            if self.gone in events:
                broken = "ended"
            elif self.control in events:
                byte = os.read(self.control, 1)
                broken = "" if byte else "ended"
            elif self.channel in events:
                raise wire.Closed  # nobody waits for this any more
            elif room(limits, kept) < 0:
                broken = "output"
            elif now >= deadline:
                broken = "timeout"
            elif now >= look:
                broken, look = self.excess(limits), now + TICK
        self.report(broken, CELL_STATUSES.get(byte, "error"), kept, limits, now - begin)

    def report(
        self, broken: str, status: str, kept: dict[int, OutputBuffer], limits: dict, seconds: float
    ):
        """Ends a run that has to end, reads what is left in the pipes, names the outcome and sends
        it.
        """
        note = ""
        if broken:
            status, note = NOTES.get(broken, (broken, ""))
            code = self.end()
            if broken == "ended":
                status, note = outcome(code)
        for end, output in kept.items():
            while room(limits, kept) >= 0 and output.read(end, room(limits, kept) + 1):
                pass
        if room(limits, kept) < 0 and status in ("ok", "error"):
            status = "output"
            self.end()
        if self.code is None:
            self.signal_all(STOP)
        sizes, fits = dict[int, int](), limits["output_bytes"]
        for end, output in kept.items():
            sizes[end] = min(output.n, fits)
            fits -= sizes[end]
        self.answer(status, note, sizes, seconds)
        for end, n in sizes.items():
            kept[end].give(self.channel, n)

    def answer(self, status: str, note: str, sizes: dict[int, int], seconds: float):
        """The head of an answer; `sizes` are the bytes of each stream that follow it."""
        of = (sizes.get(self.out, 0), sizes.get(self.err, 0))
        head = struct.pack(
            "<BBdIII", STATUSES.index(status), self.code is None, seconds, len(note), *of
        )
        wire.write(self.channel, head + note.encode())

    def excess(self, limits: dict):
        """The limit that all processes of the run together break, or ""."""
        members = self.members()
        if len(members) > limits["processes"] + 2:  # the candidate, and its tester
            return "processes"
        most = (limits["memory_mb"] << 20) - (buffered() if self.guarded else 0)
        return (
            "memory"
            if sum(map(resident, members)) > most and sum(map(proportional, members)) > most
            else ""
        )

    def members(self):
        """Pids of the run: whatever this sandbox holds beside its own processes."""
        return pids() - self.trusted if self.guarded else {self.init}

    def signal_all(self, number: int):
        """To every process; twice, for one that was just being forked."""
        for _ in range(2):
            for pid in self.members():
                try_kill(os.kill, pid, number)

    def leave(self):
        """Ends a session that is over: asks all of its processes to end, and kills what is there a
        second later, or is too much before.
        """
        if self.code is None:
            self.signal_all(TERM)
            isolate.shut(self.control)  # the session's loop ends where no more can come
            self.signal_all(CONTINUE)
            poll, over = select.poll(), time.monotonic() + LAST_WORDS
            poll.register(self.gone, READ)
            while not poll.poll(TICK * 1000) and left(over) and not self.excess(self.most):
                pass
        self.end()

    def end(self):
        """Kills the whole run and waits until nothing of it is left. Returns the first process's
        wait status.
        """
        if self.code is None:
            if not self.guarded:
                try_kill(os.killpg, self.init, KILL)
            try_kill(os.kill, self.init, KILL)
            self.code = os.waitpid(self.init, 0)[1]
            if self.folder:
                isolate.remove(self.folder)
        return self.code


def left(over: float | None):
    """Seconds until a time of the monotonic clock, at least 0; None = there is no end."""
    return None if over is None else max(0.0, over - time.monotonic())


def room(limits: dict, kept: dict[int, OutputBuffer]):
    """Bytes of output still allowed; -1 = one too many was read."""
    return limits["output_bytes"] - sum(o.n for o in kept.values())


def outcome(code: int):
    """(status, note) of a run that ended by itself."""
    if os.WIFSIGNALED(code):
        number = os.WTERMSIG(code)
        return (
            ("timeout", "") if number == XCPU else ("error", f"sandbox: ended by signal {number}\n")
        )
    number = os.WEXITSTATUS(code)
    return (
        ("memory", "") if number == work.OUT_OF_MEMORY else ("error", "") if number else ("ok", "")
    )


def try_kill(kill: Callable, pid: int, number: int):
    try:
        kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # already gone


def pids():
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def buffered():
    """Bytes that the sandbox's sockets can hold: no process is charged for them. A local socket
    counts with its whole buffer, which its sender fills; a TCP socket with twice what waits in it,
    for a buffer is larger than its content.
    """
    sockets = [*table("unix"), *table("udp"), *table("udp6")]
    queues = [line.split()[4].split(b":") for line in (*table("tcp"), *table("tcp6"))]
    return len(sockets) * isolate.BUFFER + 2 * sum(int(n, 16) for pair in queues for n in pair)


def table(name: str):
    """The lines of a list of this network's sockets."""
    try:
        with open(f"/proc/net/{name}", "rb") as file:
            return file.readlines()[1:]
    except OSError:
        return []


def resident(pid: int):
    """Bytes in memory, shared pages counted in full: an upper bound that is cheap to read."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * PAGE
    except OSError:
        return 0


def proportional(pid: int):
    """Bytes in memory, each shared page divided among those that share it."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            return sum(int(line.split()[1]) << 10 for line in file if line.startswith(b"Pss:"))
    except OSError:
        return 0
