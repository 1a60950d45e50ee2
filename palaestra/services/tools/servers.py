"""Tools of an MCP server (Model Context Protocol), through the official client.

One session a run: the server is started, or connected to, when the first episode asks for its
tools, and ended with the run. A server that dies is a `Fault`, which ends the episodes that wait
for it; the next one that needs it starts it again.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import logging
import os
import shlex
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from importlib.util import find_spec
from typing import IO, Any

from palaestra.errors import Fault, UserError
from palaestra.services.tools.base import ToolResult, failure, too_slow, wait_for
from palaestra.services.tools.names import SERVER
from palaestra.types import ToolSchema

OPENING = 30.0  # seconds that a server has to begin and to list its tools
TELLING = 5.0  # seconds of waiting after which it is said
CLOSING = 10.0  # seconds that it has to end
GRACE = 2.0  # seconds beyond a call's own in which the session must say that it took too long
PAGES = 100  # of a list of tools
EXCERPT = 300  # characters of what a server wrote before it died


class ToolServer:
    """The session with one server. `where` is its URL, or the command that starts it."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.http = where.startswith(("http://", "https://"))
        if find_spec("mcp") is None:
            raise UserError(f"{SERVER}{where} needs the extra mcp: pip install 'palaestra[mcp]'")
        words = self._words()
        if not self.http and not (words and shutil.which(words[0])):
            raise UserError(
                f"{SERVER}{where}: no program {words[0] if words else ''!r} is installed; write "
                f'{SERVER}"COMMAND ARGUMENTS", or {SERVER}http://HOST:PORT/PATH'
            )
        # without a handler of the user's own, its warnings would go into the run's display
        logging.getLogger("mcp").addHandler(logging.NullHandler())
        self._lock = threading.Lock()
        self._session: ServerSession | None = None
        atexit.register(self.close)  # where an error comes before anybody would close it
        self._ended: list[ServerSession] = []  # sessions that failed; their servers may still end

    def _words(self) -> list[str]:
        try:
            return [self.where] if self.http else shlex.split(self.where)
        except ValueError as error:
            raise UserError(f"{SERVER}{self.where}: {error}; close the quotes") from None

    async def tools(self) -> list[ToolSchema]:
        """What the server offers. Raises UserError where it cannot be reached."""
        session = self._open()
        try:
            return await session.tools()
        except Fault as fault:
            raise UserError(str(fault)) from None

    async def call(self, name: str, args: Mapping[str, Any], seconds: float) -> ToolResult:
        """Raises Fault where the server does not answer, or cannot be started again."""
        session = self._open()
        await session.tools()
        return await session.call(name, args, seconds)

    def _open(self) -> ServerSession:
        with self._lock:
            if self._session is not None and self._session.dead:
                self._ended.append(self._session)
                self._session = None
            if self._session is None:
                self._session = ServerSession(self.where, self._words(), self.http)
            return self._session

    def close(self) -> None:
        atexit.unregister(self.close)
        with self._lock:
            sessions, self._session = [*self._ended, self._session], None
            self._ended = []
        for session in sessions:
            if session is not None:
                session.close()


class ServerSession:
    """A connection in a thread with a loop of its own, in which it is opened, used and closed."""

    def __init__(self, where: str, words: list[str], http: bool) -> None:
        self.where, self.words, self.http = where, words, http
        self.dead = False
        self._listed: Future[list[ToolSchema]] = Future()
        self._client: Any = None
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._log: IO[str] | None = None  # what the server writes as errors
        self._reading = threading.RLock()  # of it: its file ends with the session's thread
        self._wrote = ""
        self._thread = threading.Thread(target=self._run, name=f"mcp {where}", daemon=True)
        self._thread.start()

    async def tools(self) -> list[ToolSchema]:
        begin = time.monotonic()
        while (left := begin + OPENING - time.monotonic()) > 0:
            if await wait_for(self._listed, min(left, TELLING)):
                return self._listed.result()
            waited = time.monotonic() - begin
            if waited < OPENING:
                reason = f"has not listed its tools for {waited:.0f} s; it has {OPENING:g} s"
                print(
                    f"note: the server of tools {self.where} {reason}", file=sys.stderr, flush=True
                )
        raise self._fault(f"no list of tools in {OPENING:g} s")

    async def call(self, name: str, args: Mapping[str, Any], seconds: float) -> ToolResult:
        from mcp import MCPError
        from mcp_types import INVALID_PARAMS, REQUEST_TIMEOUT

        asked = self._client.call_tool(name, dict(args), read_timeout_seconds=seconds)
        try:
            work = asyncio.run_coroutine_threadsafe(asked, self._loop)
            if not await wait_for(work, seconds + GRACE):
                work.cancel()
                return too_slow(seconds)
            return outcome_of(work.result())
        except MCPError as error:
            if error.code == REQUEST_TIMEOUT:
                return too_slow(seconds)
            if error.code == INVALID_PARAMS:
                return failure(error.message)
            raise self._fault(error.message) from None
        except Exception as error:  # whatever the transport raises
            raise self._fault(f"{type(error).__name__}: {error}") from None

    def close(self) -> None:
        self._end()
        self._thread.join(CLOSING)

    def _end(self) -> None:
        with contextlib.suppress(RuntimeError):  # its loop is closed: the thread has ended
            self._loop.call_soon_threadsafe(self._stop.set)

    def _run(self) -> None:
        with tempfile.TemporaryFile("w+", errors="replace") as self._log:
            try:
                self._loop.run_until_complete(self._serve_until_stopped())
            except BaseException as error:
                if not self._listed.done():
                    self._listed.set_exception(self._fault(reason(error)))
            finally:
                with self._reading:
                    self.dead, self._wrote = True, self._written()
                    self._log = None
                self._loop.close()

    async def _serve_until_stopped(self) -> None:
        """Ends the server also where it is still being opened, or lists its tools for ever."""
        serving = asyncio.ensure_future(self._serve())
        stopped = asyncio.ensure_future(self._stop.wait())
        await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if self._stop.is_set() and not self._listed.done():
            serving.cancel()  # else it ends by itself, as `_stop` is what it waits for
        try:
            await serving
        except asyncio.CancelledError:
            raise ConnectionError("it was ended before it had listed its tools") from None

    async def _serve(self) -> None:
        from mcp import Client, StdioServerParameters, stdio_client

        command = StdioServerParameters(command=self.words[0], args=self.words[1:])
        log: Any = self._log or sys.stderr
        server: Any = self.where if self.http else stdio_client(command, errlog=log)
        async with Client(server, read_timeout_seconds=OPENING) as self._client:
            self._listed.set_result(await self._list())
            await self._stop.wait()

    async def _list(self) -> list[ToolSchema]:
        schemas: list[ToolSchema] = []
        cursor: str | None = None
        for _ in range(PAGES):
            page = await self._client.list_tools(cursor=cursor)
            schemas += [
                ToolSchema(
                    name=t.name,
                    description=t.description or "",
                    parameters=json.dumps(t.input_schema, ensure_ascii=False),
                )
                for t in page.tools
            ]
            cursor = page.next_cursor
            if not cursor:
                break
        return schemas

    def _fault(self, what: str) -> Fault:
        """The session is over, and the next one that needs the server begins another."""
        self.dead = True
        self._end()
        wrote = " ".join(self._written().split())[-EXCERPT:]
        reason = f"the server {self.where} failed: {' '.join(what.split())}"
        return Fault("mcp", f"{reason}; it wrote: {wrote}" if wrote else reason)

    def _written(self) -> str:
        """The end of what the server wrote as errors, whose place in the file stays as it is."""
        with self._reading:
            if self._log is None:
                return self._wrote
            file = self._log.fileno()
            start = max(0, os.fstat(file).st_size - 4 * EXCERPT)
            return os.pread(file, 4 * EXCERPT, start).decode(errors="replace")


class ServerTool:
    """One tool of a server."""

    def __init__(self, server: ToolServer, schema: ToolSchema) -> None:
        self.server, self.schema = server, schema

    async def call(self, args: Mapping[str, Any], seconds: float) -> ToolResult:
        return await self.server.call(self.schema.name, args, seconds)


def outcome_of(result: Any) -> ToolResult:
    """The texts of a result; what is no text is named by its kind."""
    texts = [c.text if c.type == "text" else f"({c.type})" for c in result.content]
    text = "\n".join(texts)
    return failure(text) if result.is_error else ToolResult(text=text)


def reason(error: BaseException) -> str:
    """The first cause of what may be a group of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
