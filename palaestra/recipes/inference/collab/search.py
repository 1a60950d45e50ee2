"""Collab on one problem: the search for the next token, and what it is compared with."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import torch
from torch import Tensor

import palaestra as pl

Method = Literal["collab", "best of n", "switch", "average"]
NUCLEUS, CANDIDATES = 0.95, 4


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


def kl_nats(logp_V: Tensor, ref_V: Tensor) -> float:
    """KL(pi || pi_ref) in nats, of log-probs."""
    p_V = logp_V.double().exp()
    return float((p_V * (logp_V.double() - ref_V.double())).nan_to_num(0.0).sum())


def regularised_value(q: float, kl: float, alpha: float) -> float:
    """J = Q - alpha KL."""
    return q - alpha * kl


def candidates(logp_V: Tensor, p: float = NUCLEUS, k: int = CANDIDATES) -> list[int]:
    """The smallest set of likeliest tokens that holds the share p, at most k of them."""
    top, token = logp_V.exp().topk(min(k, len(logp_V)))
    before = top.cumsum(0) - top
    return token[before < p].tolist()


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


@dataclass
class SignedAnswer:
    """A text on its way: its tokens, and which agent chose each of them (-1 = nobody in
    particular).
    """

    ids: list[int] = field(default_factory=list)
    by: list[int] = field(default_factory=list)
    searches: int = 0  # tokens that were chosen by their value


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
        self.limit = ctx.bench.max_tokens
        self.reward_task = other if how.misjudged else task
        heard = ctx.engine("policy").dialect.extend(task.prompt, first=True, closed=False)
        self.prompt = tuple(i for segment in heard for i in segment.ids)

    async def judge(self, ids: Sequence[int]) -> float:
        """The target of a text, as far as it goes."""
        return (await self.reward(ids, self.reward_task)).total

    async def reward(self, ids: Sequence[int], task: pl.Task) -> pl.Reward:
        """What a text is worth as an answer to a task. Raises Fault where its judge fails."""
        ended = bool(ids) and ids[-1] in self.ctx.model("policy").eos
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


async def greedy(place: ProblemInRun, agent: str) -> SignedAnswer:
    ids = await generate(place, agent, (), place.limit, 0.0, place.key("greedy"))
    return SignedAnswer(ids, [0] * len(ids))


async def best_of_n(place: ProblemInRun) -> list[SignedAnswer]:
    """Samples of the agents in turn, until the next might not be paid for."""
    answers: list[SignedAnswer] = []
    while place.spending.left >= place.limit or not answers:
        n, agents = len(answers), place.how.agents
        j = n % len(agents)
        heat, key = place.how.temperature, place.key("sample", n)
        ids = await generate(place, agents[j], (), place.limit, heat, key)
        answers.append(SignedAnswer(ids, [j] * len(ids)))
    return answers


def joint_answers(place: ProblemInRun, n: int, first: int, average: bool) -> list[SignedAnswer]:
    """`n` answers in step: at every token an agent is drawn, or the mean of all logits."""
    eos, agents = place.ctx.model("policy").eos, place.how.agents
    answers = [SignedAnswer() for _ in range(n)]
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


class TokenSearch:
    """Collab on one problem."""

    def __init__(self, place: ProblemInRun) -> None:
        self.place, self.how = place, place.how
        self.eos = place.ctx.model("policy").eos
        self.cursors = [place.cursor(a) for a in place.how.agents]
        self.ref = place.cursor("policy")
        self.answer_so_far = SignedAnswer()
        self.ends: dict[tuple[int, tuple[int, ...]], list[int]] = {}  # greedy ones, by agent

    async def answer(self) -> SignedAnswer:
        """Token by token, until a text ends or is full; the agent that spoke last ends it greedily
        where no search can be paid for any more.
        """
        answer, last = self.answer_so_far, 0
        while (more := self.place.limit - len(answer.ids)) > 0:
            laws = [c.logits()[0].log_softmax(-1) for c in self.cursors]
            ref_V = self.ref.logits()[0].log_softmax(-1)
            each = [candidates(law) for law in laws]
            if all(e == each[0] and len(e) == 1 for e in each):
                z = each[0][0]
            elif (choice := await self.choose(laws, ref_V, each)) is not None:
                last, z = choice
            else:
                answer.ids += await self.end(last, (), more)
                break
            answer.ids.append(z)
            answer.by.append(last)
            if z in self.eos:
                break
            if self.place.spending.left < more + len(self.cursors) + 1:
                answer.ids += await self.end(last, (), more - 1)
                break
            self.cursors = [c.append([z]) for c in self.cursors]
            self.ref = self.ref.append([z])
        answer.by += [last] * (len(answer.ids) - len(answer.by))
        return answer

    async def choose(
        self, laws: Sequence[Tensor], ref_V: Tensor, each: Sequence[Sequence[int]]
    ) -> tuple[int, int] | None:
        """The agent and token of the highest J, a tie going to what the reference likes best. None
        where no search can be paid for any more.
        """
        tried = [(j, z) for j, tokens in enumerate(each) for z in tokens]
        n, place = len(self.answer_so_far.ids), self.place
        more = place.limit - n
        unknown = sum((j, (*self.answer_so_far.ids, z)) not in self.ends for j, z in tried)
        # the agent that spoke last may need as much as there is room for
        most = min(more - 1, self.how.horizon or place.limit)
        most = min(most, (place.spending.left - more) // max(1, unknown))
        if most < 1 and unknown:
            return None
        self.answer_so_far.searches += 1
        values = await asyncio.gather(*(self.value(j, z, most) for j, z in tried))
        kl = [kl_nats(law, ref_V) for law in laws]
        score: Callable[[int], tuple[float, float]] = lambda i: (
            regularised_value(values[i], kl[tried[i][0]], self.how.alpha),
            float(ref_V[tried[i][1]]),
        )
        return tried[max(range(len(tried)), key=score)]

    async def value(self, j: int, z: int, most: int) -> float:
        """Q_j(s, z): the target of the text that agent j ends after z."""
        ids = (*self.answer_so_far.ids, z)
        return await self.place.judge(
            ids if z in self.eos else (*ids, *await self.end(j, (z,), most))
        )

    async def end(self, j: int, then: tuple[int, ...], most: int) -> list[int]:
        """How agent j goes on greedily after the answer so far and `then`."""
        ids = (*self.answer_so_far.ids, *then)
        if most > 0 and (j, ids) not in self.ends:
            agent = self.how.agents[j]
            end = await generate(self.place, agent, ids, most, 0.0, self.place.key("end"))
            # ends of a longer beginning of the same text are the rest of this one, if it is whole
            for i in range(len(end) if end[-1] in self.eos else 1):
                self.ends[j, (*ids, *end[:i])] = end[i:]
        return self.ends.get((j, ids), [])[:most]
