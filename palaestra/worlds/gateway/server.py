"""The HTTP server that agents talk to, on this machine alone.

    POST /episodes/ID/v1/chat/completions    a turn; also /v1/chat/completions with the header
                                             x-palaestra-episode: ID
    POST /episodes/ID/v1/responses           the same in the form of the Responses API
    POST /episodes/ID/reward                 {"reward": 0.5} or {"answer": "..."}; also below /v1
    GET  /episodes/ID/task                   the task as JSON
    GET  /v1/models                          what may stand as `model`
    POST /episodes                           the next task, of a server that gives them

Every request has the server's key, which is drawn anew for each process, as its bearer token. A
request is handed to the event loop of its episode and waits there for its answer.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import secrets
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from palaestra.worlds.gateway.responses import ResponseAnswer, read_response_request
from palaestra.worlds.gateway.wire import CompletionAnswer, CompletionRequest, Refusal, read_request

LARGEST = 16 << 20  # bytes of a request
BACKLOG = 256  # connections that wait to be accepted
IDLE = 600  # seconds that a connection may be silent
GLANCE = 5.0  # seconds between looks at whether the episode's loop is still alive
MODEL = "policy"
NAME = re.compile(r"\w[\w.-]{0,99}")
PATH = re.compile(
    r"(?:/episodes/([\w.-]{1,100}))?(?:/v1)?/(chat/completions|responses|models|reward|task)"
)
EPISODE, AGENT = "x-palaestra-episode", "x-palaestra-agent"
NAMES = ("127.0.0.1", "localhost")
OVER = "the episode is over"
SERVED = "the API here is POST chat/completions, POST responses and GET models"


@dataclass(eq=False)
class Waiting:
    """A request, and where its answer goes."""

    request: CompletionRequest
    answer: Future[CompletionAnswer] = field(default_factory=lambda: Future())


@dataclass(eq=False)
class GatewaySession:
    """One episode as the server knows it: what its agent asks, and what it reports at the end."""

    id: str
    task: Mapping[str, Any]
    loop: asyncio.AbstractEventLoop
    note: Callable[[Iterable[str]], None]  # says each line once
    inbox: asyncio.Queue[Waiting] = field(default_factory=lambda: asyncio.Queue())
    outcome: dict[str, Any] = field(default_factory=dict)  # "reward" or "answer"
    ended: asyncio.Event = field(default_factory=asyncio.Event)  # it has reported that
    closed: bool = False
    open_calls: set[Waiting] = field(default_factory=lambda: set())
    # the messages of each response, its own among them: what `previous_response_id` goes on from
    responses: dict[str, list[Mapping[str, Any]]] = field(default_factory=lambda: {})

    def ask(self, request: CompletionRequest) -> CompletionAnswer:
        """The answer to a request; blocks its thread. Raises Refusal where the episode ends."""
        waiting = Waiting(request)
        self._in_loop(lambda: self._take(waiting))
        while True:
            try:
                return waiting.answer.result(timeout=GLANCE)
            except FutureTimeout:
                if self.loop.is_closed():
                    raise Refusal(503, OVER, "episode_over") from None

    def report(self, outcome: Mapping[str, Any]) -> None:
        """Notes the reward or the answer that the agent reports."""
        self._in_loop(lambda: self._end(outcome))

    def close(self) -> None:
        """Refuses what still waits, and all that comes."""
        self.closed = True
        for waiting in self.open_calls:
            if not waiting.answer.done():
                waiting.answer.set_exception(Refusal(503, OVER, "episode_over"))
        self.open_calls.clear()

    def _in_loop(self, work: Callable[[], None]) -> None:
        try:
            self.loop.call_soon_threadsafe(work)
        except RuntimeError:  # the loop is closed
            raise Refusal(503, OVER, "episode_over") from None

    def _take(self, waiting: Waiting) -> None:
        if self.closed:
            waiting.answer.set_exception(Refusal(503, OVER, "episode_over"))
        else:
            self.open_calls.add(waiting)
            self.inbox.put_nowait(waiting)

    def _end(self, outcome: Mapping[str, Any]) -> None:
        self.outcome.update(outcome)
        self.ended.set()


class GivesEpisodes(Protocol):
    """Who opens episodes for clients that come from outside."""

    def open_named(self, name: str) -> GatewaySession | None:
        """An episode of this name without a task; None = such are not opened."""
        ...

    def open_next(self) -> GatewaySession | None:
        """The next task as an episode; None = there are no more."""
        ...


class Gateway(ThreadingHTTPServer):
    """Serves episodes on the loopback. Its key is drawn at random and never printed by itself."""

    daemon_threads = True
    request_queue_size = BACKLOG

    def __init__(self, port: int = 0, key: str = "", source: GivesEpisodes | None = None):
        self.key = key or secrets.token_urlsafe(32)
        self.source = source
        self.sessions: dict[str, GatewaySession] = {}
        self._notes: set[str] = set()
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", port), GatewayHandler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def start(self) -> None:
        """Serves in a thread that does not keep the process alive."""
        threading.Thread(target=self.serve_forever, name="gateway", daemon=True).start()

    def open(
        self, task: Mapping[str, Any], loop: asyncio.AbstractEventLoop, name: str = ""
    ) -> GatewaySession:
        """An episode whose requests are answered in an event loop."""
        session = GatewaySession(name or uuid.uuid4().hex, task, loop, self.note)
        self.sessions[session.id] = session
        return session

    def leave(self, session: GatewaySession) -> None:
        session.close()
        self.sessions.pop(session.id, None)

    def find(self, name: str) -> GatewaySession:
        """An episode by its name. Raises Refusal where there is none."""
        with self._lock:
            session = self.sessions.get(name)
            if session is None and self.source is not None:
                session = self.source.open_named(name)
        if session is None:
            how = f"it stands in the base URL, /episodes/ID/v1, or in the header {EPISODE}"
            raise Refusal(404, f"no episode {name[:100]!r} is under way; {how}", "no_episode")
        return session

    def note(self, lines: Iterable[str]) -> None:
        """Says each line once."""
        for line in lines:
            if line not in self._notes:
                self._notes.add(line)
                print(f"note: gateway: {line}", file=sys.stderr, flush=True)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is no error here."""


@lru_cache(maxsize=1)
def gateway() -> Gateway:
    """The server of this process, for the agents that it starts."""
    server = Gateway()
    server.start()
    return server


class GatewayHandler(BaseHTTPRequestHandler):
    server_version, sys_version = "palaestra", ""
    protocol_version = "HTTP/1.1"
    timeout = IDLE

    @property
    def gateway(self) -> Gateway:
        assert isinstance(self.server, Gateway)
        return self.server

    def do_GET(self) -> None:
        self._guarded(self._get)

    def do_POST(self) -> None:
        self._guarded(self._post)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Refusal as refusal:
            # what of the body was not read would be taken for the next request
            self.close_connection = True
            self._reply(refusal.json(), refusal.status)

    def _get(self) -> None:
        self._check()
        episode, what = self._address()
        if what == "models":
            about = {"id": MODEL, "object": "model", "created": 0, "owned_by": "palaestra"}
            return self._reply({"object": "list", "data": [about]})
        if what == "task":
            return self._reply(dict(self.gateway.find(episode).task))
        raise Refusal(405, "this address takes POST", "method_not_allowed")

    def _post(self) -> None:
        self._check()
        if self.path.split("?")[0] == "/episodes":
            return self._open()
        episode, what = self._address()
        body = self._body()
        if what == "reward":
            outcome = read_outcome(body)
            if not outcome:
                raise Refusal(400, 'write {"reward": NUMBER} or {"answer": "TEXT"}')
            self.gateway.find(episode).report(outcome)
            return self._reply({"ok": True})
        if what == "responses":
            return self._respond(body, self.gateway.find(episode))
        if what != "chat/completions":
            raise Refusal(405, "this address takes GET", "method_not_allowed")
        request = read_request(body, self.headers.get(AGENT, ""))
        self.gateway.note(request.notes)
        self._answer(request, self.gateway.find(episode).ask(request))

    def _answer(self, request: CompletionRequest, answer: CompletionAnswer) -> None:
        if not request.stream:
            return self._reply(answer.json(), notes=request.notes)
        self._begin_stream()
        for chunk in answer.chunks(request.usage):
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")

    def _respond(self, body: Any, session: GatewaySession) -> None:
        """Answers a request of the Responses API."""
        request, messages = read_response_request(
            body, session.responses, self.headers.get(AGENT, "")
        )
        self.gateway.note(request.notes)
        answer = ResponseAnswer(answer=session.ask(request), body=body)
        session.responses[answer.id] = [*messages, answer.message]
        if not request.stream:
            return self._reply(answer.json(), notes=request.notes)
        self._begin_stream()
        for event in answer.events():
            data = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
            self.wfile.write(data.encode())

    def _begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def _open(self) -> None:
        self._body()
        source = self.gateway.source
        session = source.open_next() if source is not None else None
        if session is None:
            raise Refusal(404, "there is no further task", "no_task")
        base = f"{self.gateway.url}/episodes/{session.id}/v1"
        self._reply({"id": session.id, "base_url": base, "task": dict(session.task)})

    def _check(self) -> None:
        """Raises Refusal for a request that has not the key, or comes by another name."""
        if self.headers.get("Host", "").rpartition(":")[0] not in NAMES:
            raise Refusal(403, "this is not a name of the gateway", "forbidden")
        word, _, key = self.headers.get("Authorization", "").partition(" ")
        known = hmac.compare_digest(key.strip().encode(), self.gateway.key.encode())
        if word.lower() != "bearer" or not known:
            text = "the API key is wrong; take that of OPENAI_API_KEY"
            raise Refusal(401, text, "invalid_api_key")

    def _address(self) -> tuple[str, str]:
        match = PATH.fullmatch(self.path.split("?")[0])
        if match is None:
            raise Refusal(404, f"there is nothing under this address; {SERVED}", "not_found")
        name = match[1] or self.headers.get(EPISODE, "")
        if name and NAME.fullmatch(name) is None:
            raise Refusal(400, f"{EPISODE} takes up to 100 letters, digits, _, - and .")
        return name, match[2]

    def _body(self) -> Any:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise Refusal(411, "the request says no Content-Length", "length_required")
        if int(length) > LARGEST:
            raise Refusal(413, f"a request holds at most {LARGEST} bytes", "too_large")
        try:
            return json.loads(self.rfile.read(int(length)) or b"{}")
        except (ValueError, RecursionError):
            raise Refusal(400, "the body is no JSON") from None

    def _reply(self, body: Any, status: int = 200, notes: Iterable[str] = ()) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if notes:
            header = "; ".join(notes)[:1000].encode("ascii", "replace").decode()
            self.send_header("x-palaestra-note", header)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is said of requests, which may hold secrets."""


def read_outcome(body: Any) -> dict[str, Any]:
    """What an agent reports: its reward, a finite number, or its answer; {} = neither."""
    if not isinstance(body, Mapping):
        return {}
    reward, answer = body.get("reward"), body.get("answer")
    outcome: dict[str, Any] = {}
    if isinstance(reward, int | float) and reward - reward == 0:
        outcome["reward"] = float(reward)
    if isinstance(answer, str):
        outcome["answer"] = answer
    return outcome
