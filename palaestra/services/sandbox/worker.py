"""Workers: sandboxes with a warm interpreter in them, kept in a pool; and the kind of sandbox that
runs on them.
"""

from __future__ import annotations

import atexit
import marshal
import os
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import Any, get_args

from palaestra.cores import cores
from palaestra.errors import Fault, UserError
from palaestra.services.sandbox import bubblewrap
from palaestra.services.sandbox.values import CheckScript, Files, Limits, Ran, Status

STATUSES: tuple[Status, ...] = get_args(Status)
HEAD = struct.Struct("<BBdIII")  # status, alive, seconds, bytes of note, stdout, stderr
GRACE = 10.0  # seconds beyond a run's own limit after which its supervisor is taken for dead


RESTART_NOTE = "sandbox: the session was restarted; earlier names are gone\n"


class SandboxWorker:
    """One sandbox with an interpreter in it, and the socket to that interpreter."""

    def __init__(self, guarded: bool, warm: bool):
        self.channel, inner = socket.socketpair()
        inner.set_inheritable(True)
        if not guarded:
            self.process = start_process(
                bubblewrap.interpreter(inner.fileno(), False, warm), inner.fileno()
            )
        elif os.geteuid():
            self.process = start_process(bubblewrap.command(inner.fileno(), warm), inner.fileno())
        else:
            self.process = start_as_root(inner.fileno(), warm)
        inner.close()

    def tell(self, *messages: bytes) -> None:
        data = b"".join(struct.pack("<I", len(m)) + m for m in messages)
        try:
            self.channel.settimeout(GRACE)
            self.channel.sendall(data)
        except TimeoutError:
            raise self.dead("did not take its request in time") from None
        except OSError:
            raise self.dead() from None

    def hear(self, seconds: float) -> tuple[Ran, bool]:
        """What was run, and whether it is still alive. Raises Fault where the worker is dead."""
        deadline = time.monotonic() + seconds + GRACE
        status, alive, took, *sizes = HEAD.unpack(self._exactly(HEAD.size, deadline))
        note, out, err = (self._exactly(n, deadline).decode(errors="replace") for n in sizes)
        return Ran(status=STATUSES[status], stdout=out, stderr=err + note, seconds=took), bool(
            alive
        )

    def _exactly(self, n: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < n:
            try:
                self.channel.settimeout(max(0.01, deadline - time.monotonic()))
                part = self.channel.recv(n - len(data))
            except TimeoutError:
                raise self.dead("did not answer in time") from None
            except OSError:
                part = b""
            if not part:
                raise self.dead()
            data += part
        return bytes(data)

    def dead(self, why: str = "") -> Fault:
        """Ends it, and says what it said last."""
        error = self.close(kill=True).strip().rpartition("\n")[2]
        return Fault("sandbox", why or error or f"ended with status {self.process.returncode}")

    def close(self, kill: bool = False) -> str:
        """Closing the channel ends the interpreter and with it the sandbox. Returns what it wrote
        on standard error.
        """
        self.channel.close()
        if kill and self.process.poll() is None:
            try:
                self.process.wait(0.2)  # lets it finish saying why
            except subprocess.TimeoutExpired:
                self.process.kill()
        try:
            error = self.process.communicate(timeout=GRACE)[1]
        except subprocess.TimeoutExpired:
            self.process.kill()
            error = self.process.communicate()[1]
        except ValueError:  # closed twice
            error = b""
        return (error or b"").decode(errors="replace")


def start_process(argv: list[str], *descriptors: int) -> subprocess.Popen[bytes]:
    """With standard error in a pipe and these descriptors open."""
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=descriptors,
        env=bubblewrap.ENVIRONMENT,
        start_new_session=True,
    )


def start_as_root(channel: int, warm: bool) -> subprocess.Popen[bytes]:
    """A guarded interpreter whose runs belong to another user than its supervisor."""
    info, tell = os.pipe()
    ready, go = os.pipe()
    try:
        process = start_process(
            bubblewrap.command(channel, warm, users=(tell, ready)), channel, tell, ready
        )
        os.close(tell)
        bubblewrap.map_users(info, go)
    finally:
        for end in (info, ready, go):
            os.close(end)
    return process


class Pool:
    """Idle workers, at most `keep` (None = one a core). They are started from one lasting thread:
    bubblewrap dies with the thread that started it.
    """

    def __init__(self, guarded: bool, keep: int | None = None):
        self.guarded, self.keep = guarded, keep or os.cpu_count() or 2
        self.reset()
        # a forked child shares no worker with its parent
        os.register_at_fork(after_in_child=self.reset)
        atexit.register(self.close)

    def reset(self) -> None:
        self.idle: list[SandboxWorker] = []
        self.starter = ThreadPoolExecutor(1, thread_name_prefix="sandbox")
        self.slots = threading.BoundedSemaphore(max(2, cores()))

    def start(self, warm: bool = True) -> SandboxWorker:
        coming = self.starter.submit(SandboxWorker, self.guarded, warm)
        try:
            return coming.result()
        except OSError as error:
            raise Fault("sandbox", f"{error.strerror}: {error.filename}") from None
        except KeyboardInterrupt:
            coming.add_done_callback(lambda started: started.result().close(kill=True))
            raise

    def take(self) -> SandboxWorker:
        try:
            return self.idle.pop()
        except IndexError:
            return self.start()

    def give(self, worker: SandboxWorker) -> None:
        if len(self.idle) < self.keep:
            self.idle.append(worker)
        else:
            worker.close()

    def close(self) -> None:
        while self.idle:
            self.idle.pop().close()


class LocalSandbox:
    """Code on this machine, in bubblewrap (`guarded`) or in a plain subprocess (only when asked
    for).
    """

    def __init__(self, guarded: bool = True):
        self.name = "bubblewrap" if guarded else "unsafe"
        self.guarded, self.pool, self.reason = guarded, Pool(guarded), None

    def refusal(self) -> str:
        """Why it can't run here and how to mend it; found by running something."""
        if self.reason is None:
            self.reason = bubblewrap.missing_reason() if self.guarded else ""
            if not self.reason:
                try:
                    ran = self.run("print(1)", "", {}, Limits())
                    self.reason = (
                        ""
                        if ran.stdout == "1\n"
                        else f"{ran.stderr.strip()}; {bubblewrap.NAMESPACES}"
                    )
                except Fault as fault:
                    self.reason = f"{fault}; {bubblewrap.NAMESPACES}"
        return self.reason

    def run(self, code: str, stdin: str, files: Files, limits: Limits, fresh: bool = False) -> Ran:
        asked = {
            "files": file_bytes({**files, "main.py": code}),
            "stdin": stdin.encode(errors="surrogateescape"),
        }
        return self._once("run", [asked], limits, fresh)

    def check(self, code: str, test: CheckScript, limits: Limits) -> Ran:
        asked = {"files": file_bytes({"main.py": code}), "stdin": b""}
        return self._once("check", [asked, asdict(test)], limits)

    def session(self, files: Files, limits: Limits) -> LocalSession:
        return LocalSession(self.pool, file_bytes(files), limits)

    def close(self) -> None:
        self.pool.close()

    def _once(self, mode: str, asked: list[Any], limits: Limits, fresh: bool = False) -> Ran:
        """A run in a warm worker, or in one started for it."""
        frames = [marshal.dumps(x) for x in ({"mode": mode, "limits": wire_limits(limits)}, *asked)]
        with self.pool.slots:
            try:
                return self._in(
                    self.pool.start(warm=False) if fresh else self.pool.take(),
                    frames,
                    limits,
                    fresh,
                )
            except Fault:  # the worker may have died while it was idle, or the set-up have failed: a new one decides
                return self._in(self.pool.start(warm=not fresh), frames, limits, fresh)

    def _in(self, worker: SandboxWorker, frames: list[bytes], limits: Limits, fresh: bool) -> Ran:
        try:
            worker.tell(*frames)
            ran, _ = worker.hear(limits.seconds)
        except BaseException:  # Ctrl-C too: nobody waits for what it does any more
            worker.close(kill=True)
            raise
        if fresh:
            worker.close()
        else:
            self.pool.give(worker)
        return ran


class LocalSession:
    """A worker that one trajectory has to itself, until it ends or breaks a limit.

    After `lifetime` seconds (None = any number) it ends, and every cell is answered by "timeout".
    """

    def __init__(
        self,
        pool: Pool,
        files: Mapping[str, bytes],
        limits: Limits,
        lifetime: float | None = None,
    ):
        self.pool, self.limits = pool, limits
        order = {"mode": "session", "limits": wire_limits(limits), "lifetime": lifetime}
        self.opening = tuple(marshal.dumps(x) for x in (order, {"files": files, "stdin": b""}))
        self.worker: SandboxWorker | None = None
        self.restarted = False

    def run(self, code: str, limits: Limits | None = None) -> Ran:
        """One cell. `limits` may be tighter than the session's; its memory and files were fixed at
        the start.
        """
        limits = limits or self.limits
        opening, note = (
            ((), "") if self.worker else (self.opening, RESTART_NOTE if self.restarted else "")
        )
        worker = self.worker = self.worker or self.pool.take()
        cell = {"code": code.encode(errors="surrogatepass"), "limits": wire_limits(limits)}
        try:
            worker.tell(*opening, marshal.dumps(cell))
            ran, alive = worker.hear(limits.seconds)
        except BaseException:
            worker.close(kill=True)
            self.worker, self.restarted = None, True
            raise
        if not alive:  # its watcher has ended it, and the worker waits for another session
            self.pool.give(worker)
            self.worker, self.restarted = None, True
        return replace(ran, stderr=note + ran.stderr)

    @property
    def alive(self) -> bool:
        """Whether there are names of earlier cells."""
        return self.worker is not None

    def close(self) -> None:
        """Ends what the session runs: it is asked to (SIGTERM), has a second, and is killed. The
        worker then waits for another session; none of this one went through its memory.
        """
        worker, self.worker = self.worker, None
        if worker is None:
            return
        try:
            worker.tell(marshal.dumps(None))
            worker.hear(0.0)
        except Fault:  # a dead worker has ended its session
            return
        except BaseException:
            worker.close(kill=True)
            raise
        self.pool.give(worker)

    def __enter__(self) -> LocalSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def wire_limits(limits: Limits) -> dict[str, Any]:
    """The kernel counts processes per user namespace since Linux 5.14."""
    version = tuple(
        int("".join(c for c in x if c.isdigit()) or 0) for x in os.uname().release.split(".")[:2]
    )
    return limits.json() | {
        "count_processes": version >= (5, 14),
        "user": None if os.geteuid() else bubblewrap.RUNNER,
    }


def file_bytes(files: Files) -> dict[str, bytes]:
    for name in files:
        if not name or name.startswith("/") or ".." in name.split("/") or "\0" in name:
            raise UserError(f"file name {name!r}: must be relative, inside the run's folder")
    return {
        n: c.encode(errors="surrogatepass") if isinstance(c, str) else c for n, c in files.items()
    }
