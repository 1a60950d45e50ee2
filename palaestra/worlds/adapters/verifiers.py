"""Environments of verifiers as worlds: `verifiers:NAME`, or `VerifiersWorld`.

An environment's own `run` plays each episode. The agents that it hands out are seats here: what it
says to one is asked of the seat, and the reply goes back into its loop. A seat is paid what the
task's rewards, and the environment's own judgement at the end, give its trace. That holds for what
is played by talk alone: what needs a runtime, tool servers or hooks of verifiers' own loop is
refused.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.types import Message, Task, stage, value_class
from palaestra.worlds.adapters.base import (
    POLICY,
    AdaptedWorld,
    Live,
    Scene,
    library_call,
    missing_library,
)
from palaestra.worlds.adapters.loops import OwnLoop

TEST_EVERY = 8  # the last of so many tasks in a row belongs to the test split
LARGEST = 1_000_000  # tasks that are counted; more are endless


@declare(facts=("reward_parts",))
@stage
class VerifiersWorld(AdaptedWorld):
    """An environment of verifiers 0.4 (https://github.com/PrimeIntellect-ai/verifiers).

    Args:
        make: the name of an installed taskset, or a function that makes a `verifiers.v1.Env`.
        settings: fields of the taskset's configuration.

    Every eighth task is held out. The seats are the environment's agents, all of them the policy's.
    """

    draws: ClassVar[bool] = False
    make: str | Callable[[], Any]
    settings: tuple[tuple[str, Any], ...] = ()
    retries: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        check_environment(self.environment, self.label)

    @property
    def label(self) -> str:
        made = self.make
        return f"verifiers:{made if isinstance(made, str) else getattr(made, '__name__', made)}"

    @property
    def environment(self) -> Any:
        return load_environment(self.make, self.settings)

    @property
    def sides(self) -> tuple[str, ...]:
        names = agent_names(self.environment)
        return (POLICY,) if len(names) == 1 else names

    @property
    def size(self) -> int | None:
        n = self._count()
        return None if n is None else n - n // TEST_EVERY

    @property
    def test_size(self) -> int | None:
        n = self._count()
        return None if n is None else n // TEST_EVERY

    @property
    def caveat(self) -> str:
        return ""

    def task(self, split: str, index: int) -> Task:
        ahead = TEST_EVERY - 1
        at = index * TEST_EVERY + ahead if split == "test" else index + index // ahead
        return Task(
            id=f"{self.label}/{split}/{index}", meta={"seed": at, "plays": ""}, domain=self.label
        )

    def open_live(self) -> Live:
        return VerifiersEpisode(self)

    def _count(self) -> int | None:
        taskset = self.environment.taskset
        return count_tasks(self.environment) if taskset.bounded else None


@lru_cache(maxsize=32)
def load_environment(make: str | Callable[[], Any], settings: tuple[tuple[str, Any], ...]) -> Any:
    """One environment of verifiers. Raises UserError where there is none."""
    library = load_library(f"verifiers:{make}")
    if not isinstance(make, str):
        return make()
    try:
        given = {"taskset": {"id": make, **dict(settings)}}
        return library.load_environment(library.resolve_env_config(given))
    except Exception as error:
        what = " ".join(str(error).split())[:300]
        raise UserError(
            f"verifiers:{make}: {type(error).__name__}: {what}; install the taskset, or mend its "
            "name or settings"
        ) from None


def load_library(label: str) -> Any:
    try:
        import verifiers.v1  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise missing_library(label, "verifiers 0.4", "verifiers", error) from None
    return verifiers.v1


def agent_names(environment: Any) -> tuple[str, ...]:
    """The seats of an environment, by the fields of its configuration."""
    kind = load_library("verifiers").AgentConfig
    config = environment.config
    return tuple(n for n in type(config).model_fields if isinstance(getattr(config, n), kind))


def check_environment(environment: Any, label: str) -> None:
    """Raises UserError for what is not played by talk alone."""
    library = load_library(label)
    task = next(iter(environment.taskset), None)
    if task is None:
        raise UserError(f"{label} has no tasks; mend its settings")
    kind, base = type(task), library.Task
    needs = [
        name
        for name, needed in (
            ("a container", kind.NEEDS_CONTAINER or task.data.image),
            ("tool servers", kind.toolsets(task.config)),
            ("tool servers", type(environment.taskset).toolsets(environment.taskset.config)),
            ("a runtime to set up", kind.setup is not base.setup),
            ("a runtime to finish in", kind.finalize is not base.finalize),
            ("hooks that stop it", task.hooks("stop")),
            ("a runtime to score in", any(map(needs_runtime, task.hooks("reward")))),
        )
        if needed
    ]
    if needs:
        raise UserError(
            f"{label} needs {needs[0]}, which is not offered here; take one that is played by talk"
        )


def needs_runtime(reward: Callable[..., Any]) -> bool:
    wanted = inspect.signature(reward).parameters.get("runtime")
    return wanted is not None and wanted.default is inspect.Parameter.empty


@lru_cache(maxsize=32)
def count_tasks(environment: Any) -> int | None:
    """How many tasks there are; None = more than anybody counts."""
    n = sum(1 for _ in itertools.islice(iter(environment.taskset), LARGEST))
    return None if n == LARGEST else n


@dataclass
class TaskList:
    """The tasks of an environment by number, read as far as they are asked for."""

    source: Iterator[Any]
    read: list[Any] = field(default_factory=list)

    def __getitem__(self, at: int) -> Any:
        self.read += itertools.islice(self.source, max(at + 1 - len(self.read), 0))
        return self.read[at]


@lru_cache(maxsize=32)
def tasks_of(environment: Any) -> TaskList:
    return TaskList(iter(environment.taskset))


@value_class
class Asked:
    """What one seat is asked."""

    seat: str
    before: tuple[Message, ...]
    text: str


@dataclass
class VerifiersEpisode:
    """One episode: the environment's `run` goes on between two replies."""

    world: VerifiersWorld
    loop: OwnLoop[Asked, str] = field(default_factory=OwnLoop[Asked, str])
    traces: list[Any] = field(default_factory=list)

    async def start(self, seed: int) -> Scene:
        with library_call(self.world.label):
            task = tasks_of(self.world.environment)[seed]
            self.loop.begin(self.run(task))
            return await self.next_scene()

    async def act(self, action: str) -> Scene:
        with library_call(self.world.label):
            self.loop.answer(action)
            return await self.next_scene()

    async def run(self, task: Any) -> None:
        """As verifiers does it: the agents, then the environment's own judgement of all traces."""
        library, environment = load_library(self.world.label), self.world.environment
        agents = Seats(self)
        await environment.setup(agents)
        await environment.run(task, agents)
        about = library.TraceTask(type=type(task).__name__, data=task.data)
        episode = library.Episode(env=library.EnvInfo(id=environment.config.id), task=about)
        episode.traces.extend(self.traces)
        await environment.finalize(task, episode)

    async def next_scene(self) -> Scene:
        """The next question of the environment, or its end."""
        question = await self.loop.next_question()
        if question is not None:
            return Scene(seat=question.seat, text=question.text, before=question.before)
        pay, parts = dict.fromkeys(self.world.sides, 0.0), dict[str, float]()
        for trace in self.traces:
            pay[self.side(trace.agent.name)] += trace.reward
            parts |= {k: r.value for k, r in trace.rewards.items() if r is not None}
        return Scene(pay=pay, status="finished", facts={"reward_parts": parts})

    def side(self, name: str) -> str:
        return POLICY if self.world.sides == (POLICY,) else name

    async def ask(self, name: str, before: tuple[Message, ...], text: str) -> str:
        return await self.loop.ask(Asked(seat=self.side(name), before=before, text=text))

    def read(self, text: str) -> str:
        return text

    def sample(self, rng: np.random.Generator, how: str) -> str:
        raise NotImplementedError(how)

    async def close(self) -> None:
        await self.loop.close()


class Seats:
    """The agents that an environment is given, by name."""

    def __init__(self, episode: VerifiersEpisode) -> None:
        for name in agent_names(episode.world.environment):
            setattr(self, name, SeatAgent(episode, name))


@dataclass
class SeatAgent:
    """An agent whose words a seat says. Scored when its run ends, by its task's rewards."""

    episode: VerifiersEpisode
    name: str
    trainable: bool = True

    async def run(self, task: Any, **others: Any) -> Any:
        async with self.interaction(task) as talk:
            await talk.turn()
        return talk.trace

    @asynccontextmanager
    async def interaction(self, task: Any, **others: Any) -> AsyncGenerator[Talk]:
        talk = Talk(self, task, open_trace(task, self.name))
        try:
            yield talk
        finally:
            talk.trace.stop("user_closed")
        await task.score(talk.trace, runtime=None)
        talk.trace.ok = True
        self.episode.traces.append(talk.trace)


def open_trace(task: Any, name: str) -> Any:
    """What verifiers records of a run, empty."""
    library = load_library("verifiers")
    from verifiers.v1.state import state_cls  # pyright: ignore[reportMissingImports]

    about = library.TraceTask(
        type=type(task).__name__, data=task.data, key=task.key, hash=task.hash
    )
    agent = library.AgentInfo(config=library.AgentConfig(), name=name)
    return library.Trace(task=about, agent=agent, state=state_cls(type(task))())


@dataclass
class Talk:
    """A conversation that the environment holds with a seat: what `interaction` gives."""

    agent: SeatAgent
    task: Any
    trace: Any

    async def turn(self, message: Any = None) -> Any:
        """What the seat says to a message, or to the task's own prompt."""
        library = load_library("verifiers")
        opening = [] if self.trace.nodes else self.opening()
        if message is None and not opening:
            raise ValueError("a turn without a message opens a task that has a prompt")
        heard = [*opening, *as_messages(message, library)]
        text_reply = await self.agent.episode.ask(self.agent.name, *as_seen(heard))
        reply = library.AssistantMessage(content=text_reply)
        for each in (*heard, reply):
            parent = len(self.trace.nodes) - 1 if self.trace.nodes else None
            sampled = each is reply
            node = library.MessageNode(message=each, parent=parent, sampled=sampled)
            self.trace.nodes.append(node)
        return library.Segment(messages=[reply], root_reply=text_reply)

    def opening(self) -> list[Any]:
        library, data = load_library("verifiers"), self.task.data
        system = data.system_prompt
        first = [] if system is None else [library.SystemMessage(content=system)]
        return [*first, *as_messages(data.prompt, library)]


def as_messages(given: Any, library: Any) -> list[Any]:
    """A text or messages as messages."""
    if given is None:
        return []
    if isinstance(given, str):
        return [library.UserMessage(content=given)]
    roles = {"system": library.SystemMessage, "user": library.UserMessage}
    return [roles[m["role"]](content=m["content"]) if isinstance(m, dict) else m for m in given]


def as_seen(heard: Sequence[Any]) -> tuple[tuple[Message, ...], str]:
    """What a seat is shown: messages, and the last of them as text."""
    texts = [(m.role, text_of(m.content)) for m in heard]
    return tuple(Message(role=r, content=t) for r, t in texts[:-1]), texts[-1][1]


def text_of(content: Any) -> str:
    """A message's text. Raises ValueError for pictures."""
    if isinstance(content, str):
        return content
    if any(part.type != "text" for part in content or ()):
        raise ValueError("a message that is no text cannot be shown to the policy")
    return "".join(part.text for part in content or ())
