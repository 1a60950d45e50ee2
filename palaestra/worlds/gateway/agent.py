"""Agents that a run starts: a command for each episode, which talks to the policy as to OpenAI.

    palaestra train grpo --data tasks.jsonl --agent "python my_agent.py"

The command runs in a process group of its own. It gets the task as JSON on standard input and in a
file, the address and the key of the policy in the variables that OpenAI's clients read, and says at
the end what its episode was worth:

    OPENAI_BASE_URL, OPENAI_API_KEY   of this episode's endpoint
    PALAESTRA_TASK                    the file with the task
    PALAESTRA_REWARD_URL              where {"reward": 1.0} may be posted
    PALAESTRA_SEED                    a number that the episodes of a group share

A program that takes long to start is kept from episode to episode (`keep`): it reads a task on each
line, whose "base_url" is the address, and answers by a line {"reward": 1.0} or {"answer": "..."}.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from weakref import WeakKeyDictionary

from palaestra.context import RewardFn
from palaestra.declared import declare
from palaestra.errors import Fault, UserError
from palaestra.rollout.collect import judge_group
from palaestra.types import (
    Act,
    Episode,
    Frame,
    Group,
    Key,
    Reward,
    Row,
    Segment,
    Task,
    ToolSchema,
    need_at_least,
    seed_of,
    stage,
)
from palaestra.worlds.gateway.episode import SEAT, AgentEpisode, task_json
from palaestra.worlds.gateway.program import AgentProgram, end_all, in_programs
from palaestra.worlds.gateway.server import Gateway, GatewaySession, gateway, read_outcome

if TYPE_CHECKING:
    from palaestra.context import Context

MOST_TURNS = 256  # of an episode
NO_REWARD = (
    "the agent said no reward: print a number on the last line, or post it to PALAESTRA_REWARD_URL; "
    "for answers that are to be judged give --reward; its last line is {!r:.80}"
)


def environment(server: Gateway, session: str, seed: int) -> dict[str, str]:
    """The variables of an agent. What it asks on this machine goes past any proxy."""
    base = f"{server.url}/episodes/{session}"
    past = {
        name: ",".join(filter(None, (os.environ.get(name), "127.0.0.1")))
        for name in ("NO_PROXY", "no_proxy")
    }
    return {
        **os.environ,
        **past,
        "OPENAI_BASE_URL": f"{base}/v1",
        "OPENAI_API_KEY": server.key,
        "PALAESTRA_REWARD_URL": f"{base}/reward",
        "PALAESTRA_SEED": str(seed),
    }


@dataclass(eq=False)
class Played:
    """An episode under way with its program."""

    episode: AgentEpisode
    program: AgentProgram
    over: asyncio.Future[None]


# under way in this process, by the episode's name
_played: dict[str, Played] = {}
_idle: dict[str, list[AgentProgram]] = {}  # that wait for their next task, by command
_rooms: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


@declare(
    facts=(
        ("agent_calls", int, "turns that the agent asked of the policy"),
        ("agent_names", tuple, 'the agents that asked, by name; "" = one without a name'),
        ("agent_answer", str, "what the agent said as its answer"),
    )
)
@stage
class AgentWorld:
    """Plays each episode by a command of the user. An agent that crashes, or is silent for too
    long, is a fault of its episode. It cannot be forked: a process stands where it stands.

    Args:
        command: the program with its arguments, started without a shell.
        seconds: that it may take between an answer and its next request, or its end.
        processes: agents at the same time.
        most_tokens: of a turn, whatever a request asks; 0 = what it asks.
        last_line: what the last line on standard output is: the reward, or an answer to be judged.
        keep: a program plays one episode after the other, and gets a task on each line.
    """

    command: str
    seconds: float = 300.0
    processes: int = 64
    most_tokens: int = 0
    last_line: Literal["reward", "answer"] = "reward"
    keep: bool = False
    seats: ClassVar[tuple[str, ...]] = (SEAT,)

    def __post_init__(self) -> None:
        need_at_least(self, seconds=0, processes=1)
        try:
            words = shlex.split(self.command)
        except ValueError as error:
            raise UserError(f"--agent {self.command!r} cannot be read: {error}") from None
        if not words or shutil.which(words[0]) is None:
            raise UserError(
                f"--agent {self.command!r}: no program {words[0] if words else ''!r} is installed; "
                'write for example "python my_agent.py"'
            )

    async def reset(self, task: Task, key: Key) -> Frame:
        server, seed = gateway(), seed_of(key)
        await self._room().acquire()
        session = server.open(task_json(task, seed), asyncio.get_running_loop())
        try:
            program = await self._program(server, session, seed)
        except BaseException:
            server.leave(session)
            self._room().release()
            raise
        episode = AgentEpisode(session, self.seconds, most_tokens=self.most_tokens)
        over = asyncio.ensure_future(in_programs(program.over()))
        _played[session.id] = Played(episode, program, over)
        try:
            return await self._next(_played[session.id])
        except BaseException:  # `play` has no frame yet to leave by
            await self.leave((session.id, 0))
            raise

    async def step(self, state: Any, acts: tuple[Act, ...], key: Key) -> Frame:
        name, steps = state
        played = _played.get(name)
        if played is None or played.episode.steps != steps:
            raise UserError(
                f"--agent {self.command!r}: its episodes cannot be forked or gone on with, which "
                "this method does; take one that plays whole episodes, e.g. grpo"
            )
        played.episode.answer(acts)
        return await self._next(played)

    async def leave(self, state: Any) -> None:
        """Ends the agent and all of its process group."""
        played = _played.pop(state[0], None)
        if played is None:
            return
        gateway().leave(played.episode.session)
        played.over.cancel()
        try:
            if played.program.kept and played.program.alive and played.program.outcome:
                _idle.setdefault(self.command, []).append(played.program)
            else:
                await in_programs(played.program.end())
        finally:
            self._room().release()

    async def open(self) -> tuple[ToolSchema, ...]:
        """An agent brings its own tools."""
        return ()

    def close(self) -> None:
        """Ends the programs that wait for their next task."""
        end_all(_idle.pop(self.command, ()))

    async def _program(self, server: Gateway, session: GatewaySession, seed: int) -> AgentProgram:
        """A program that has the task: one that waits, or a new one."""
        env = environment(server, session.id, seed)
        given = dict(session.task)
        if self.keep:
            given |= {"base_url": env["OPENAI_BASE_URL"], "reward_url": env["PALAESTRA_REWARD_URL"]}
        while waiting := _idle.get(self.command):
            if (program := waiting.pop()).alive:
                await in_programs(program.give(given))
                return program
            await in_programs(program.end())
        return await in_programs(AgentProgram.start(self.command, given, env, kept=self.keep))

    def _room(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        return _rooms.setdefault(loop, asyncio.Semaphore(self.processes))

    async def _next(self, played: Played) -> Frame:
        asks = await played.episode.next_asks(played.over)
        return played.episode.frame(asks) if asks else await self._last(played)

    async def _last(self, played: Played) -> Frame:
        """The end: what the agent reported or printed."""
        episode, program = played.episode, played.program
        episode.session.outcome |= program.outcome
        reported = bool(episode.session.outcome)
        if not program.kept or not reported:
            await in_programs(program.end())
        code = program.process.returncode
        if code and not reported:
            why = program.last_line(program.err).replace(gateway().key, "...")
            raise Fault("agent", f"the agent ended with status {code}: {why[:300] or 'no message'}")
        if not episode.turns:
            raise Fault("agent", "the agent ended without a request to OPENAI_BASE_URL")
        if not reported:
            episode.session.outcome |= self._printed(program.last_line(program.out))
        reward = episode.session.outcome.get("reward")
        answer = episode.session.outcome.get("answer")
        if reward is None and (self.last_line == "reward" or answer is None):
            line = program.last_line(program.out)
            raise Fault("reward", NO_REWARD.format(line))
        pay = {} if reward is None else {(SEAT, episode.thread): reward}
        return replace(episode.frame(()), pay=pay, facts=episode.facts())

    def _printed(self, line: str) -> dict[str, Any]:
        """What the last line says: JSON as it may be posted, else a reward or an answer."""
        with suppress(ValueError, RecursionError):
            value = json.loads(line)
            if outcome := read_outcome(value):
                return outcome
            if self.last_line == "reward":
                return read_outcome({"reward": value})
        return {"answer": line} if self.last_line == "answer" else {}


@stage
class JudgeAgents:
    """Judges what agents said as their answers by `reward`, as if the policy had said it in its
    last turn. Other episodes are judged as they are.
    """

    reward: RewardFn

    async def __call__(self, ctx: Context, group: Group) -> Sequence[Reward | Fault]:
        episodes = tuple(map(answered, group.episodes))
        return await judge_group(ctx, self.reward, replace(group, episodes=episodes))


def answered(episode: Episode) -> Episode:
    """An episode of which nothing is left but the agent's answer."""
    answer = episode.facts.get("agent_answer")
    if answer is None:
        return episode
    segment = Segment(ids=(), logp=(), author="policy", trained=True, text=answer, finish="eos")
    return replace(episode, rows=(Row(segments=(segment,), seat=SEAT),))
