"""Episodes of clients that come by themselves: what `palaestra gateway` serves and records.

An episode begins with its first request, or with its task, and ends with the reward or the answer
that its client reports, or when the client is silent. A request that names no episode is one of its
own. Records are lines of JSON; tokens, log-probs and versions stand in them as they were sampled.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from palaestra.abilities import split_size
from palaestra.errors import Fault
from palaestra.rollout.play import play
from palaestra.types import Act, Episode, Frame, Key, Player, Reward, Segment, Task, Tasks, seed_of
from palaestra.worlds.gateway.agent import MOST_TURNS
from palaestra.worlds.gateway.episode import SEAT, AgentEpisode, task_json
from palaestra.worlds.gateway.server import Gateway, GatewaySession


@dataclass(eq=False)
class OutsideWorld:
    """One episode of a client from outside."""

    episode: AgentEpisode
    single: bool = False  # it is over after its first answer
    seats: tuple[str, ...] = (SEAT,)

    async def reset(self, task: Task, key: Key) -> Frame:
        return await self._next()

    async def step(self, state: Any, acts: tuple[Act, ...], key: Key) -> Frame:
        self.episode.answer(acts)
        return self._last("finished") if self.single else await self._next()

    async def _next(self) -> Frame:
        try:
            asks = await self.episode.next_asks()
        except Fault:
            return self._last("truncated:silent")
        return self.episode.frame(asks) if asks else self._last("finished")

    def _last(self, status: str) -> Frame:
        reward = self.episode.session.outcome.get("reward")
        pay = {} if reward is None else {(SEAT, self.episode.thread): reward}
        frame = self.episode.frame(())
        return replace(frame, pay=pay, facts=self.episode.facts(), status=status)


Judge = Callable[[Task, Episode], Awaitable[Reward | Fault]]


@dataclass(eq=False)
class Outside:
    """Opens episodes for a gateway, plays them, and hands their records on.

    Args:
        players: who fills the seat.
        record: takes a record, a mapping that JSON can hold.
        tasks: those of the client that asks for the next; None = there are none.
        judge: rewards an answer that a client reports; None = nobody does.
        seconds: of silence that end an episode.
        most_tokens: of a turn; 0 = what a request asks.
    """

    players: Mapping[str, Player]
    record: Callable[[dict[str, Any]], None]
    tasks: Tasks | None = None
    judge: Judge | None = None
    seconds: float = 300.0
    most_tokens: int = 0
    seed: int = 0
    count: int = 0  # tasks that were given
    under_way: set[asyncio.Task[None]] = field(default_factory=lambda: set())

    def attach(self, server: Gateway) -> None:
        """Opens the episodes of a server in the running event loop."""
        self.server, self.loop = server, asyncio.get_running_loop()
        server.source = self

    def open_named(self, name: str) -> GatewaySession | None:
        return self._open(Task(id=name or "a request"), name or uuid.uuid4().hex, single=not name)

    def open_next(self) -> GatewaySession | None:
        size = None if self.tasks is None else split_size(self.tasks, "train")
        if self.tasks is None or (size is not None and self.count >= size):
            return None
        task = self.tasks.task("train", self.count)
        self.count += 1
        return self._open(task, uuid.uuid4().hex)

    def _open(self, task: Task, name: str, single: bool = False) -> GatewaySession:
        about = task_json(task, seed_of((self.seed, name)))
        session = self.server.open(about, self.loop, name)
        self.loop.call_soon_threadsafe(self._start, session, task, single)
        return session

    def _start(self, session: GatewaySession, task: Task, single: bool) -> None:
        work = asyncio.ensure_future(self._play(session, task, single))
        self.under_way.add(work)
        work.add_done_callback(self.under_way.discard)

    async def _play(self, session: GatewaySession, task: Task, single: bool) -> None:
        episode = AgentEpisode(session, self.seconds, most_tokens=self.most_tokens, obeys=True)
        key: Key = (self.seed, session.id)
        try:
            played = await play(
                OutsideWorld(episode, single), self.players, task, key, key, max_turns=MOST_TURNS
            )
        finally:
            self.server.leave(session)
        if played.ok and played.reward is None and "agent_answer" in played.facts and self.judge:
            reward = await self.judge(task, played)
            if isinstance(reward, Reward):
                played = replace(played, reward=reward)
        self.record(record_of(session.id, task, played))


def record_of(name: str, task: Task, episode: Episode) -> dict[str, Any]:
    """An episode as JSON holds it."""
    return {
        "episode": name,
        "task": task.id,
        "status": episode.status,
        "reward": None if episode.reward is None else episode.reward.total,
        "answer": episode.facts.get("agent_answer"),
        "seconds": episode.seconds,
        "rows": [
            {"thread": row.thread, "segments": [_segment(s) for s in row.segments]}
            for row in episode.rows
        ],
    }


def _segment(s: Segment) -> dict[str, Any]:
    plain = {n: getattr(s, n) for n in ("author", "turn", "trained", "text", "finish", "version")}
    sampled = s.logp is not None
    more = {"logp": list(s.logp or ()), "temperature": s.temperature} if sampled else {}
    return {**plain, "ids": list(s.ids), **more}
