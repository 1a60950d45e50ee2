"""Collab on one problem in a run (the search is `pl.engines.TokenSearch`), and what it is compared with."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import torch

import palaestra as pl

Method = Literal["collab", "best of n", "switch", "average"]


class Decoding(Protocol):
    """The settings of a way to decode; see `ControlledDecoding`."""

    @property
    def agents(self) -> tuple[str, ...]: ...
    @property
    def target(self) -> pl.RewardFn | None: ...
    @property
    def alpha(self) -> float: ...
    @property
    def horizon(self) -> int: ...
    @property
    def temperature(self) -> float: ...
    @property
    def misjudged(self) -> bool: ...


@dataclass
class Spending:
    """Forwards of one problem, and how many there may be."""

    most: float
    spent: float = 0.0

    def add(self, tokens: float) -> None:
        self.spent += tokens

    @property
    def left(self) -> int:
        return int(max(0.0, min(self.most - self.spent, 1e9)))


class ProblemInRun:
    """A problem in a run, what may be spent on it, and how an answer is judged while decoding."""

    def __init__(
        self,
        ctx: pl.Context,
        task: pl.Task,
        other: pl.Task,
        spending: Spending,
        how: Decoding,
    ) -> None:
        self.ctx, self.task, self.spending, self.how = ctx, task, spending, how
        self.agents, self.alpha, self.horizon = how.agents, how.alpha, how.horizon
        self.limit = ctx.bench.max_tokens
        self.eos = tuple(ctx.model("policy").eos)
        self.reward_task = other if how.misjudged else task
        heard = ctx.engine("policy").dialect.extend(task.prompt, first=True, closed=False)
        self.prompt = tuple(i for segment in heard for i in segment.ids)

    @property
    def left(self) -> int:
        return self.spending.left

    async def judge(self, texts: Sequence[Sequence[int]]) -> list[float]:
        """The target of texts, each as far as it goes."""
        rewards = await asyncio.gather(*(self.reward(ids, self.reward_task) for ids in texts))
        return [r.total for r in rewards]

    async def reward(self, ids: Sequence[int], task: pl.Task) -> pl.Reward:
        """What a text is worth as an answer to a task. Raises Fault where its judge fails."""
        ended = bool(ids) and ids[-1] in self.eos
        segment = pl.Segment(
            ids=tuple(ids),
            author="policy",
            policy="policy",
            trained=True,
            text=self.ctx.decode(ids[:-1] if ended else ids),
            finish="eos" if ended else "length",
        )
        episode = pl.Episode(rows=(pl.Row(segments=(segment,)),), status="finished")
        group = pl.Group(task=task, episodes=(episode,))
        scored = await pl.Score(reward=self.how.target)(self.ctx, self.key("judge"), group)
        reward = scored.episodes[0].reward
        if reward is None:
            why = scored.episodes[0].facts.get("error", "no reward")
            raise pl.Fault("reward", f"the target of task {task.id!r}: {why}")
        return reward

    def cursor(self, model: str) -> pl.Cursor:
        """At the end of the prompt, which is read for nothing."""
        return replace(pl.Cursor.start(self.ctx.model(model), self.prompt), count=self.spending.add)

    async def go_on(self, agent: str, ids: Sequence[int], most: int) -> list[int]:
        return await generate(self, agent, ids, most, 0.0, self.key("end"))

    def key(self, *path: int | str) -> pl.Key:
        return self.ctx.key("collab", self.task.id, *path)


async def generate(
    place: ProblemInRun,
    agent: str,
    answer_so_far: Sequence[int],
    most: int,
    temperature: float,
    key: pl.Key,
) -> list[int]:
    """What an agent says after the prompt and `answer_so_far`."""
    sampling = pl.Sampling(temperature=temperature, max_tokens=most)
    made = await place.ctx.engine(agent).generate((*place.prompt, *answer_so_far), sampling, key)
    place.spending.add(len(made.ids))
    return list(made.ids)


async def greedy(place: ProblemInRun, agent: str) -> pl.engines.SignedAnswer:
    ids = await generate(place, agent, (), place.limit, 0.0, place.key("greedy"))
    return pl.engines.SignedAnswer(ids, [0] * len(ids))


async def best_of_n(place: ProblemInRun) -> list[pl.engines.SignedAnswer]:
    """Samples of the agents in turn, until the next might not be paid for."""
    answers: list[pl.engines.SignedAnswer] = []
    while place.spending.left >= place.limit or not answers:
        n, agents = len(answers), place.how.agents
        j = n % len(agents)
        heat, key = place.how.temperature, place.key("sample", n)
        ids = await generate(place, agents[j], (), place.limit, heat, key)
        answers.append(pl.engines.SignedAnswer(ids, [j] * len(ids)))
    return answers


def joint_answers(
    place: ProblemInRun, n: int, first: int, average: bool
) -> list[pl.engines.SignedAnswer]:
    """`n` answers in step: at every token an agent is drawn, or the mean of all logits."""
    eos, agents = place.eos, place.how.agents
    answers = [pl.engines.SignedAnswer() for _ in range(n)]
    rngs = [pl.rng_of(place.key("joint", first + i)) for i in range(n)]
    open_rows = list(range(n))
    cursors = [place.cursor(a).fork([0] * n) for a in agents]
    while open_rows:
        logits_KBV = torch.stack([c.logits() for c in cursors])
        token = list[int]()
        for b, i in enumerate(open_rows):
            j = -1 if average else int(rngs[i].integers(len(agents)))
            law_V = logits_KBV[:, b].mean(0) if average else logits_KBV[j, b]
            p_V = (law_V / place.how.temperature).double().softmax(-1).numpy(force=True)
            z = int(rngs[i].choice(len(p_V), p=p_V / p_V.sum()))
            answers[i].ids.append(z)
            answers[i].by.append(j)
            token.append(z)
        full = len(answers[open_rows[0]].ids) == place.limit
        on = [b for b, z in enumerate(token) if z not in eos and not full]
        open_rows = [open_rows[b] for b in on]
        if on:
            cursors = [c.fork(on).append([token[b] for b in on]) for c in cursors]
    return answers
