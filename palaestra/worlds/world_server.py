"""A world of ours behind AgentGym's HTTP protocol, as `palaestra serve` runs it.

    GET  /                                -> {"environment": "craftgoal", "whole": true, "train": null, ...}
    POST /create {"split": "train"}       -> {"id": 7}
    POST /reset {"id": 7, "data_idx": 3}  -> {"observation": "goal: collect wood ...", "ask": {...}}
    POST /step {"id": 7, "action": "up"}  -> {"observation": ..., "reward": 0.0, "done": false, "ask": {...}}
    GET  /observation?id=7                -> the observation
    POST /close {"id": 7}                 -> true

`reward` is what the world has paid in the episode so far, so that the reward of the last step is the
score, as the protocol has it. What the protocol has no word for stands in fields that other clients do
not read: `ask`, the messages with their roles and what the reply is limited to; `status` and `facts` of
the end. `AgentGymWorld` reads them, and its episodes are those of the world in process.

A failure is never a reward: a world that fails, or ends an episode without paying, is answered with
{"error": ...} and status 500, and an unknown id with 404.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from palaestra.abilities import HoldsEpisodes, KnowsSolved, split_size
from palaestra.chat.calls import read_first
from palaestra.context import Bench
from palaestra.errors import UserError
from palaestra.rollout.play import await_if_needed
from palaestra.types import Act, Ask, Frame

LARGEST = 1 << 20  # bytes of a request
IDLE = 3600.0  # seconds after which an environment that nobody steps is dropped
BACKLOG = 256  # connections that wait to be accepted
LOOPBACK = ("127.0.0.1", "localhost", "::1")
SPLITS = ("train", "test")
LIMITS = ("stop", "max_tokens", "new_row", "prefix", "choices", "temperature")  # of an Ask


class WrongRequest(Exception):
    """A request that cannot be answered, with the status that says so."""

    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status = status


@dataclass(eq=False)
class ServedEpisode:
    """One environment: where its episode stands, and what it was paid."""

    split: str
    frame: Frame | None = None  # None = not reset
    key: tuple[Any, ...] = ()
    turns: int = 0
    paid: float = 0.0
    pays: bool = False  # whether anything was paid
    facts: dict[str, Any] = field(default_factory=dict)
    used: float = field(default_factory=time.monotonic)
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)


class WorldServer(ThreadingHTTPServer):
    """Serves the episodes of a bench. Those of one item are all alike: the item seeds the world."""

    daemon_threads = True
    request_queue_size = BACKLOG

    def __init__(self, bench: Bench, port: int = 0, host: str = "127.0.0.1"):
        check_servable(bench)
        self.bench = bench
        self.episodes: dict[int, ServedEpisode] = {}
        self.created = 0
        self.names = LOOPBACK if host in LOOPBACK else ()  # () = any name may be asked for
        self.loop = asyncio.new_event_loop()
        super().__init__((host, port), WorldHandler)

    @property
    def url(self) -> str:
        return f"http://{self.server_address[0]}:{self.server_port}"

    def start(self) -> None:
        """Serves in threads that do not keep the process alive."""
        for work in (self.loop.run_forever, self.serve_forever):
            threading.Thread(target=work, name="world-server", daemon=True).start()

    def stop(self) -> None:
        """Ends all episodes, and serves no more."""
        self.shutdown()
        self.wait(self._drop(list(self.episodes)))
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.server_close()

    def wait(self, work: Any) -> Any:
        """The result of a coroutine of the server's own loop, in which all worlds run."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is no error here."""

    # ---- the protocol

    def about(self) -> dict[str, Any]:
        """What the environment is; numbers of items are null where there is no last one."""
        world, tasks = self.bench.world, self.bench.tasks
        return {
            "environment": self.bench.name,
            "whole": True,  # an action is a whole reply
            "train": tasks.size,
            "test": split_size(tasks, "test"),
            "max_turns": self.bench.max_turns,
            "max_tokens": self.bench.max_tokens,
            "solved": world.solved if isinstance(world, KnowsSolved) else None,
        }

    async def create(self, body: Mapping[str, Any]) -> Any:
        split = body.get("split", "train")
        if split not in SPLITS:
            raise WrongRequest(400, f"split is {split!r}; it is 'train' or 'test'")
        limit = time.monotonic() - IDLE
        await self._drop([n for n, e in self.episodes.items() if e.used < limit])
        self.created += 1
        self.episodes[self.created] = ServedEpisode(split)
        return {"id": self.created}

    async def reset(self, body: Mapping[str, Any]) -> Any:
        episode, item = self._episode(body), body.get("data_idx", 0)
        if isinstance(item, bool) or not isinstance(item, int) or item < 0:
            raise WrongRequest(400, f"data_idx is {item!r}; it is a whole number from 0")
        most = self.about()[episode.split]
        if most is not None and item >= most:
            raise WrongRequest(400, f"data_idx is {item}; {episode.split} has {most} items")
        async with episode.busy:
            await self._leave(episode)
            episode.key = ("agentgym", episode.split, item)
            episode.turns, episode.paid, episode.pays, episode.facts = 0, 0.0, False, {}
            task = self.bench.tasks.task(episode.split, item)
            self._enter(episode, await await_if_needed(self.bench.world.reset(task, episode.key)))
            return self._shown(episode)

    async def step(self, body: Mapping[str, Any]) -> Any:
        episode, action = self._episode(body), body.get("action")
        if not isinstance(action, str):
            raise WrongRequest(400, f"action is {action!r}; it is text")
        async with episode.busy:
            frame = episode.frame
            if frame is None or not frame.asks:
                raise WrongRequest(400, "the episode is over or was never reset; POST /reset first")
            acts = (act_of(frame.asks[0], action),)
            episode.turns += 1
            key = (*episode.key, episode.turns)
            self._enter(
                episode, await await_if_needed(self.bench.world.step(frame.state, acts, key))
            )
            return self._shown(episode)

    async def observation(self, body: Mapping[str, Any]) -> Any:
        frame = self._episode(body).frame
        return "" if frame is None else text_of(frame)

    async def close(self, body: Mapping[str, Any]) -> Any:
        self._episode(body)
        await self._drop([int(body["id"])])
        return True

    # ---- how

    def _episode(self, body: Mapping[str, Any]) -> ServedEpisode:
        name = body.get("id", body.get("env_idx"))
        number = int(name) if isinstance(name, int | str) and str(name).isdecimal() else 0
        if number not in self.episodes:
            raise WrongRequest(404, f"there is no environment {name!r}; POST /create gives one")
        self.episodes[number].used = time.monotonic()
        return self.episodes[number]

    def _enter(self, episode: ServedEpisode, frame: Frame) -> None:
        """The episode at its next frame. Raises WrongRequest where it ends and was never paid."""
        check_frame(self.bench, frame)
        episode.frame = frame
        episode.facts |= frame.facts
        episode.paid += sum(frame.pay.values())
        episode.pays = episode.pays or bool(frame.pay)
        if not frame.asks and not episode.pays:
            raise WrongRequest(500, f"{self.bench.name} ended the episode and paid nothing")

    def _shown(self, episode: ServedEpisode) -> dict[str, Any]:
        frame = episode.frame
        assert frame is not None
        answer = {
            "observation": text_of(frame),
            "reward": episode.paid,
            "done": not frame.asks,
            "facts": {k: v for k, v in episode.facts.items() if is_json(v)},
        }
        return answer | (
            {"ask": ask_json(frame.asks[0])} if frame.asks else {"status": frame.status}
        )

    async def _leave(self, episode: ServedEpisode) -> None:
        frame, world = episode.frame, self.bench.world
        if frame is not None and isinstance(world, HoldsEpisodes):
            await await_if_needed(world.leave(frame.state))
        episode.frame = None

    async def _drop(self, numbers: list[int]) -> None:
        for number in numbers:
            if (episode := self.episodes.pop(number, None)) is not None:
                await self._leave(episode)


def check_servable(bench: Bench) -> None:
    """Raises UserError for a bench whose episodes cannot be played over the protocol."""
    if bench.reward is not None:
        raise UserError(
            f"serve: {bench.name} asks questions whose answers a reward judges, and a server pays by "
            "its environment; give --env FILE.py:CLASS or a --task of several turns"
        )
    if len(bench.world.seats) != 1:
        raise UserError(
            f"serve: {bench.name} has the seats {', '.join(bench.world.seats)}, and the protocol has "
            "one player; serve an environment of one seat"
        )


def check_frame(bench: Bench, frame: Frame) -> None:
    """Raises WrongRequest for a frame that the protocol cannot tell."""
    if len(frame.asks) > 1:
        raise WrongRequest(500, f"{bench.name} asks for several replies at once")
    if frame.asks and (frame.asks[0].tools or any(m.pictures for m in frame.asks[0].say)):
        raise WrongRequest(
            500, f"{bench.name} offers tools or pictures, which the protocol has not"
        )


def text_of(frame: Frame) -> str:
    """What the player is shown, as one text; "" at the end."""
    return "\n\n".join(m.content for ask in frame.asks for m in ask.say)


def ask_json(ask: Ask) -> dict[str, Any]:
    """The messages of an ask with their roles, and its limits as far as it has any."""
    plain = Ask(seat=ask.seat)
    limits = {k: v for k in LIMITS if (v := getattr(ask, k)) != getattr(plain, k)}
    return {"say": [[m.role, m.content] for m in ask.say], **limits}


def act_of(ask: Ask, text: str) -> Act:
    """What the player did, by its words alone."""
    call = read_first(text, "eos")
    calls = () if call is None else (call,)
    return Act(ask=ask, text=text, call=call, calls=calls, finish="eos", n_tokens=0)


def is_json(value: Any) -> bool:
    """Whether a fact can be sent."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


class WorldHandler(BaseHTTPRequestHandler):
    """Hands requests to the server's loop."""

    server_version, sys_version = "palaestra", ""
    protocol_version = "HTTP/1.1"
    timeout = 600  # seconds that a connection may be silent
    paths: ClassVar[Mapping[str, str]] = {
        "create": "POST", "reset": "POST", "step": "POST", "close": "POST", "observation": "GET",
    }  # fmt: skip

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        self._guarded("GET", lambda: {k: v[-1] for k, v in query.items()})

    def do_POST(self) -> None:
        self._guarded("POST", self._body)

    def _guarded(self, method: str, body: Callable[[], Mapping[str, Any]]) -> None:
        try:
            self._check_name()
            self._reply(200, self._answer(method, body()))
        except WrongRequest as refused:
            self.close_connection = True  # what of the body was not read is no next request
            self._reply(refused.status, {"error": str(refused)})
        except Exception as error:
            what = " ".join(str(error).split())[:300]
            print(f"note: serve: {type(error).__name__}: {what}", file=sys.stderr, flush=True)
            self._reply(500, {"error": f"{type(error).__name__}: {what}"})

    def _answer(self, method: str, body: Mapping[str, Any]) -> Any:
        server = self.server
        assert isinstance(server, WorldServer)
        name = urlsplit(self.path).path.strip("/")
        if not name and method == "GET":
            return server.about()
        if self.paths.get(name) != method:
            raise WrongRequest(404, f"there is no {method} /{name}")
        return server.wait(getattr(server, name)(body))

    def _check_name(self) -> None:
        """Raises WrongRequest where a page of the web asks by a name of its own."""
        server = self.server
        assert isinstance(server, WorldServer)
        name = self.headers.get("Host", "").rpartition(":")[0].strip("[]")
        if server.names and name not in server.names:
            raise WrongRequest(403, "this is not a name of the server")

    def _body(self) -> Mapping[str, Any]:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > LARGEST:
            raise WrongRequest(413, f"a request says its Content-Length, at most {LARGEST} bytes")
        try:
            body = json.loads(self.rfile.read(int(length)) or b"{}")
        except (ValueError, RecursionError):
            raise WrongRequest(400, "the body is no JSON") from None
        if not isinstance(body, dict):
            raise WrongRequest(400, "the body is no JSON object")
        return body

    def _reply(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is said of requests."""
