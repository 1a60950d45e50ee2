"""The supervisor of one request: starts the run in a fresh pid namespace, watches it, and reports what it did.

It lives outside the run's pid namespace and is the only one that knows the channel. What the run says (exit codes, the end
of a cell) only concerns the run itself; limits are measured here.
"""

import contextlib
import os
import select
import shutil
import signal
import socket
import time

import isolate
import wire
import work

TICK = 0.02  # seconds between looks at memory and processes
SAID = {work.OK: "ok", work.MEMORY: "memory"}  # of a cell that ended by itself
NOTES = {"processes": ("error", "sandbox: too many processes\n")}
PAGE = os.sysconf("SC_PAGE_SIZE")


def serve(channel, guarded):
    """One request: a run, a check, or a session of many cells."""
    fd = channel.fileno()
    with contextlib.suppress(wire.Closed):
        request = wire.receive(fd)
        run = Run(fd, request, guarded)
        try:
            if request["mode"] == "session":
                run.cells()
            else:  # the input is read only now, after the fork: what it holds is not in the run's memory
                wire.send(fd, run.watch(request["limits"], wire.receive_bytes(fd)))
        finally:
            run.end()


class Run:
    """A run's first process (`init`), its pipes, and all that it starts."""

    def __init__(self, channel, request, guarded):
        self.channel, self.guarded = channel, guarded
        self.trusted = pids() if guarded else set()
        stdin, self.stdin = os.pipe()
        self.out, stdout = os.pipe()
        self.err, stderr = os.pipe()
        self.control, inner = (s.detach() for s in socket.socketpair())
        self.folder = None if guarded else isolate.scratch()
        if guarded:
            isolate.new_pids()
        self.init = os.fork()
        if not self.init:
            work.enter(request | {"folder": self.folder}, guarded, (stdin, stdout, stderr, inner))
        for end in (stdin, stdout, stderr, inner):
            os.close(end)
        for end in (self.stdin, self.out, self.err):
            os.set_blocking(end, False)
        self.gone = os.pidfd_open(self.init)
        self.code = None

    def cells(self):
        """A session: frames of code come in, each answered by what it did; frozen in between."""
        os.close(self.stdin)
        while True:
            cell = wire.receive(self.channel)
            self.signal_all(signal.SIGCONT)
            while select.select([self.control], [], [], 0)[0] and os.read(self.control, 4096):
                pass  # what a cell before this one said out of turn
            with contextlib.suppress(wire.Closed):
                wire.send(self.control, cell["code"])
            reply = self.watch(cell["limits"], b"", cell=True)
            if self.code is None:
                self.signal_all(signal.SIGSTOP)
            wire.send(self.channel, reply | {"alive": self.code is None})
            if self.code is not None:
                return

    def watch(self, limits, stdin, cell=False):
        """Until it ends, says that a cell is done, or breaks a limit."""
        begin = now = time.monotonic()
        deadline, look = begin + limits["seconds"], begin + TICK
        kept = {self.out: bytearray(), self.err: bytearray()}
        ends = [self.gone, self.channel, *kept] + ([self.control] if cell else [])
        broken, said, data = "", b"", b"" if cell else self.feed(memoryview(stdin))
        while not broken and not said:
            wait = max(0.0, min(deadline, look) - now)
            ready, writable, _ = select.select(ends, [self.stdin] if data else [], [], wait)
            if writable:
                data = self.feed(data)
            for end in [e for e in kept if e in ready]:
                if not drain(end, kept[end], room(limits, kept)):
                    ends.remove(end)
            now = time.monotonic()
            if self.gone in ready:
                broken = "ended"
            elif self.control in ready:
                said = os.read(self.control, 1)
                broken = "" if said else "ended"
            elif self.channel in ready:
                raise wire.Closed  # nobody waits for this any more
            elif room(limits, kept) < 0:
                broken = "output"
            elif now >= deadline:
                broken = "timeout"
            elif now >= look:
                broken, look = self.excess(limits), now + TICK
        return self.report(broken, SAID.get(said, "error"), kept, limits) | {"seconds": round(now - begin, 6)}

    def feed(self, data):
        """Writes what the pipe takes of standard input; closes it after the last byte. Returns what is left."""
        try:
            while data:
                data = data[os.write(self.stdin, data) :]
        except BlockingIOError:
            return data
        except BrokenPipeError:
            pass
        os.close(self.stdin)
        return b""

    def report(self, broken, status, kept, limits):
        """Ends a run that has to end, reads what is left in the pipes, and names the outcome."""
        note = ""
        if broken:
            status, note = NOTES.get(broken, (broken, ""))
            code = self.end()
            if broken == "ended":
                status, note = outcome(code)
        for end, data in kept.items():
            drain(end, data, room(limits, kept), whole=True)
        if room(limits, kept) < 0 and status in ("ok", "error"):
            status = "output"
            self.end()
        out = kept[self.out][: limits["output_bytes"]]
        err = kept[self.err][: limits["output_bytes"] - len(out)]
        return {"status": status, "stdout": out.decode(errors="replace"), "stderr": err.decode(errors="replace") + note}

    def excess(self, limits):
        """The limit that all processes of the run together break, or ""."""
        found = self.members()
        if len(found) > limits["processes"] + 2:  # its process 1 and the candidate itself
            return "processes"
        most = limits["memory_mb"] << 20
        return "memory" if sum(map(resident, found)) > most and sum(map(proportional, found)) > most else ""

    def members(self):
        """Pids of the run: whatever this sandbox holds beside its own processes."""
        return pids() - self.trusted if self.guarded else {self.init}

    def signal_all(self, number):
        """To every process; twice, for one that was just being forked."""
        for _ in range(2):
            for pid in self.members():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def end(self):
        """Kills the whole run and waits until nothing of it is left. Returns the first process's wait status."""
        if self.code is None:
            for kill in (os.kill,) if self.guarded else (os.killpg, os.kill):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    kill(self.init, signal.SIGKILL)
            self.code = os.waitpid(self.init, 0)[1]
            if self.folder:
                shutil.rmtree(self.folder, ignore_errors=True)
        return self.code


def outcome(code):
    """(status, note) of a run that ended by itself."""
    if os.WIFSIGNALED(code):
        return "error", f"sandbox: ended by signal {os.WTERMSIG(code)}\n"
    number = os.WEXITSTATUS(code)
    if number == work.OUT_OF_MEMORY:
        return "memory", ""
    if number == 128 + signal.SIGXCPU:
        return "timeout", ""
    if number > 128:
        return "error", f"sandbox: ended by signal {number - 128}\n"
    return ("error", "") if number else ("ok", "")


def room(limits, kept):
    """Bytes of output still allowed."""
    return limits["output_bytes"] - sum(map(len, kept.values()))


def drain(end, data, left, whole=False):
    """Reads one piece (or the whole) of what a pipe holds, one byte past what is left at most. False at its end."""
    while left >= 0:
        try:
            part = os.read(end, min(1 << 16, left + 1))
        except BlockingIOError:
            return True
        if not part:
            return False
        data += part
        left -= len(part)
        if not whole:
            break
    return True


def pids():
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def resident(pid):
    """Bytes in memory, shared pages counted in full: an upper bound that is cheap to read."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/statm", "rb") as file:
        return int(file.read().split()[1]) * PAGE
    return 0


def proportional(pid):
    """Bytes in memory, each shared page divided among those that share it."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        for line in file:
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) << 10
    return 0
