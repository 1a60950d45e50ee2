"""Rewards in processes of their own: judge models, endpoints and verifiers beside the rollouts.

A rollout process hands over what its ticket waits to have judged, groups and reward at once, so a
judge's batches are those of one process. It does one of these calls at a time, in the context of a
run, with its own models and clients. What a reward says follows from the call alone; a judge that is
lost is made anew by Ray, which hands it the same calls again.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import ray
from ray import exceptions

from palaestra.attempts import Usage
from palaestra.context import Bench, Engine, RewardFn
from palaestra.errors import Fatal, Fault
from palaestra.models.model import Model
from palaestra.rewards.together import judge_together
from palaestra.run.context import RunContext
from palaestra.scale.weights import (
    Publication,
    WrongWeights,
    check_publication,
    load_publication,
)
from palaestra.scale.worker import (
    WorkerParts,
    add_usage,
    difference,
    usage_of,
)
from palaestra.types import Group, Reward

# of a group: a value for each episode, or why there is none
Said: TypeAlias = "Sequence[Reward | Fault] | Fault"
KEPT = 16  # rewards that are known to each other by a reference; schedules make others each step


@dataclass(frozen=True, kw_only=True)
class JudgeCall:
    """A call of a judge: the reward as a reference of the store, under which it is kept."""

    reward: Any
    groups: tuple[Group, ...]
    bench: Bench | None  # None = the run's
    step: int
    version: int


@dataclass(frozen=True, kw_only=True)
class JudgeAnswer:
    """What comes back for a call. Times are of the wall clock, in seconds since the epoch."""

    verdicts: list[Said]  # of each group
    counts: Usage
    begin: float
    end: float


class JudgeContext(RunContext):
    """The context of a judge. Weights of what learns are loaded when a reward asks for them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.due: dict[str, Publication] = {}  # weights that were not asked for yet, by model

    def model(self, name: str) -> Model:
        if name in self.due:
            load_publication(self.due[name], name, super().model(name))
            del self.due[name]
        return super().model(name)

    def engine(self, name: str = "policy") -> Engine:
        self.model(name)
        return super().engine(name)


class JudgeProcess:
    """One judge."""

    def __init__(self, parts: WorkerParts, place: tuple[int, int] = (0, 1)):
        self.ctx = parts.context(JudgeContext)
        self.ctx.part = place
        self.rewards: dict[str, RewardFn] = {}
        self.version: int | None = None
        self.phase = "ready"

    def about(self) -> dict[str, Any]:
        """Where it is, and what it does."""
        return {"pid": os.getpid(), "host": socket.gethostname(), "phase": self.phase}

    def judge(self, asked: JudgeCall, given: Publication | None) -> JudgeAnswer:
        """What a reward says of some groups, under published weights of the learners."""
        begin, before = time.time(), usage_of(self.ctx)
        reward = self._reward(asked.reward)
        self.phase = f"judging {len(asked.groups)} groups of step {asked.step}"
        self.ctx.step = asked.step
        if given is not None and self.version != asked.version:
            models = {name: self.ctx.models[name] for name in given.weights}
            check_publication(given, asked.version, models)
            self.ctx.due, self.version = dict.fromkeys(models, given), asked.version
        self.ctx.renew(asked.version)
        ctx = self.ctx if asked.bench is None else self.ctx.with_bench(asked.bench)
        answers = asyncio.run(verdicts(ctx, reward, asked.groups))
        counts = difference(usage_of(self.ctx), before)
        self.phase = "ready"
        return JudgeAnswer(verdicts=answers, counts=counts, begin=begin, end=time.time())

    def _reward(self, reference: Any) -> RewardFn:
        """Kept from call to call: a reward may hold what is dear to make."""
        name = reference.hex()
        if name not in self.rewards:
            self.rewards[name] = ray.get(reference)
            for old in list(self.rewards)[:-KEPT]:
                del self.rewards[old]
        return self.rewards[name]


async def verdicts(ctx: RunContext, reward: RewardFn, groups: Sequence[Group]) -> list[Said]:
    """Of all groups at once, as a ticket asks where it is collected."""

    async def one(group: Group) -> Said:
        try:
            return await reward(ctx, group)
        except Fault as fault:
            return fault

    return list(await asyncio.gather(*map(one, groups)))


class AskJudges:
    """How a rollout process asks: see `RunContext.ask_elsewhere`.

    Args:
        actors: the judges' processes, asked in turn.
        first: whom to begin with, so that not all begin with the same.
    """

    def __init__(self, actors: Sequence[Any], first: int):
        self.actors, self.turn = actors, first
        self.bench: Bench | None = None  # the run's, in the process that asks
        self.version, self.lent = 0, list[Any]()  # weights, as a reference of the store
        self.known: dict[int, tuple[RewardFn, Any]] = {}
        self.spans: list[tuple[int, float, float]] = []  # of the ticket: judge, begin, end

    async def __call__(
        self, ctx: RunContext, reward: RewardFn, group: Group
    ) -> Sequence[Reward | Fault]:
        # a value for each episode is asked of it: here each time what was said of the whole group
        answers = await judge_together(
            ctx, (id(reward), id(ctx.bench)), group, partial(self._ask, ctx, reward)
        )
        if isinstance(answers[0], Fault):
            raise answers[0]
        return answers[0]

    async def _ask(self, ctx: RunContext, reward: RewardFn, groups: list[Group]) -> list[Said]:
        asked = JudgeCall(
            reward=self._reference(reward),
            groups=tuple(groups),
            bench=None if ctx.bench is self.bench else ctx.bench,
            step=ctx.step,
            version=self.version,
        )
        number = self.turn = (self.turn + 1) % len(self.actors)
        call = self.actors[number].judge.remote(asked, *(self.lent or [None]))
        try:
            answer: JudgeAnswer = await asyncio.wrap_future(call.future())
        except exceptions.RayTaskError as error:
            if isinstance(error.cause, WrongWeights):
                raise Fatal("judge", f"judge {number} had wrong {error.cause}") from None
            raise error.cause from None
        except exceptions.RayError as error:
            raise Fault("judge", f"judge {number} is lost: {type(error).__name__}") from None
        add_usage(ctx.carrier.counts, answer.counts)
        self.spans.append((number, answer.begin, answer.end))
        return [s for s, g in zip(answer.verdicts, groups, strict=True) for _ in g.episodes]

    def _reference(self, reward: RewardFn) -> Any:
        if id(reward) not in self.known:
            self.known[id(reward)] = reward, ray.put(reward)
            for old in list(self.known)[:-KEPT]:
                del self.known[old]
        return self.known[id(reward)][1]
