"""Collab: several frozen models, each aligned with a reward of its own, take turns at every token, so
that a target reward is met that none of them was aligned with (arXiv:2503.21720).

    J_j(s, z) = Q_j(s, z) - alpha KL(pi_j(.|s) || pi_ref(.|s))
    (j, z)    = argmax over agents j and tokens z among the likeliest of pi_j

Q_j(s, z) needs no training: agent j ends the text greedily after z, and the target reward judges
the end. All agents go on from the chosen token. Where every agent has one and the same candidate it
is taken without a search.

Here three fine-tunes of the run's own model answer sums: one shows its working and is right, one
answers at once and is mostly wrong, one says thanks after what somebody answered to another problem.
The target wants all three virtues. At
decode time it knows the right answer, for every arm: what is measured is the very reward that
decoding raises, as in the paper.

All ways to decode have the same budget of forwards a problem: tokens that a model has read or
sampled, prompts left out, as they are read once in every arm. What is left of it when an answer is
there is spent on nothing by Collab, and on further answers by those that take the best of several.

Deviations: candidates are the nucleus of .95, at most four; ends of texts that are known are not
made again; alpha is chosen for each arm, as the scale of a reward is its own.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

import palaestra as pl

CARD = pl.Card(
    title="Collab: controlled decoding with a mixture of agents",
    paper="arXiv:2503.21720",
    claim="Choosing at every token which of several aligned models speaks, by an implicit Q function, "
    "gives a higher target reward than decoding with any one of them.",
    source="abstract and summaries (the objective by agent and token, implicit Q); candidates, horizon "
    "and alpha are ours",
    size=pl.Size(
        setting="7B models aligned with different preferences; up to 1.56 times the average reward "
        "and 71.89% wins and ties by GPT-4 against the best decoding before it",
    ),
)

Method = Literal["collab", "best of n", "switch", "average"]
AGENTS = ("right", "short", "polite")
THANKS = "\nThanks!"
NUCLEUS, CANDIDATES = 0.95, 4


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


@pl.stage
class ControlledDecoding:
    """A program: answers held-out problems by one way to decode with the models `agents`, and
    measures the target

        right + polite / 2 + (1 - tokens / limit) / 2,

    where a right answer counts 1 and thanks at the end 1.

    Its summary has the mean of the target and of its parts, forwards a problem, nats a token under
    the run's own model, and the share of tokens that each agent chose.

    Args:
        method: `collab` as above, with one agent controlled decoding by it alone; `best of n` takes
            the best of the agents' samples, in turn; `switch` the best of answers in which an agent
            is drawn for every token; `average` the best of answers from the mean of their logits.
        agents: models by name, "policy" the run's own.
        forwards: budget of a problem; 0 = one greedy answer of the first agent.
        alpha: weight of the KL to the run's own model.
        horizon: tokens of an end that Q looks ahead; 0 = to the end of the text.
        temperature: of samples.
        misjudged: Q is the target of another problem, a placebo.
        tasks: held-out problems.
    """

    method: Method = "collab"
    agents: tuple[str, ...] = AGENTS
    forwards: int = 1500
    alpha: float = 0.03
    horizon: int = 0
    temperature: float = 1.0
    misjudged: bool = False
    tasks: int = 24

    async def run(self, ctx: pl.Context) -> pl.Result:
        return pl.Result(metrics=await ctx.once("answers", lambda: self._measure(ctx)))

    async def _measure(self, ctx: pl.Context) -> dict[str, Any]:
        first = ctx.bench.first_held_out
        tasks = [ctx.bench.tasks.task("test", first + i) for i in range(self.tasks)]
        spendings = [Spending(self.forwards) for _ in tasks]
        answers = await asyncio.gather(
            *(
                self._answer(ProblemInRun(ctx, task, tasks[(i + 1) % len(tasks)], spent, self))
                for i, (task, spent) in enumerate(zip(tasks, spendings, strict=True))
            )
        )
        spent = [s.spent for s in spendings]
        ctx.spend("forwards", sum(spent))
        parts = [target_parts(ctx, t, a.ids) for t, a in zip(tasks, answers, strict=True)]
        by = [j for a in answers for j in a.by if j >= 0]
        said = {n: by.count(j) / len(by) for j, n in enumerate(self.agents) if by}
        return {
            "target": float(np.mean([target(p) for p in parts])),
            **{name: float(np.mean([p[name] for p in parts])) for name in parts[0]},
            "tokens": float(np.mean([len(a.ids) for a in answers])),
            "forwards": float(np.mean(spent)),
            "nats": reference_nats(ctx, tasks, answers),
            "chosen_by": said,
            "sampled_tokens": 0,
        }

    async def _answer(self, place: "ProblemInRun") -> SignedAnswer:
        if self.method == "collab":
            return await TokenSearch(place).answer()
        if not self.forwards:
            return await greedy(place, self.agents[0])
        found = await (best_of_n(place) if self.method == "best of n" else self._joint(place))
        return max(found, key=lambda a: place.judge(a.ids))

    async def _joint(self, place: "ProblemInRun") -> list[SignedAnswer]:
        """Answers to whose every token all agents are heard, some at a time, until the next might
        not be paid for.
        """
        found: list[SignedAnswer] = []
        price = len(self.agents) * place.limit
        while (n := place.spending.left // price) or not found:
            found += joint_answers(place, max(1, n), len(found), self.method == "average")
        return found


class ProblemInRun:
    """A problem in a run, what may be spent on it, and how an answer is judged while decoding."""

    def __init__(
        self,
        ctx: pl.Context,
        task: pl.Task,
        other: pl.Task,
        spending: Spending,
        how: ControlledDecoding,
    ) -> None:
        self.ctx, self.task, self.spending, self.how = ctx, task, spending, how
        self.limit = ctx.bench.max_tokens
        self.judged = other if how.misjudged else task
        heard = ctx.engine("policy").dialect.extend(task.prompt, first=True, closed=False)
        self.prompt = tuple(i for segment in heard for i in segment.ids)

    def judge(self, ids: Sequence[int]) -> float:
        """The target of a text, as far as it goes."""
        return target(target_parts(self.ctx, self.judged, ids))

    def cursor(self, model: str) -> pl.Cursor:
        """At the end of the prompt, which is read for nothing."""
        return replace(pl.Cursor.start(self.ctx.model(model), self.prompt), count=self.spending.add)

    def key(self, *path: int | str) -> pl.Key:
        return self.ctx.key("collab", self.task.id, *path)


def target_parts(ctx: pl.Context, task: pl.Task, ids: Sequence[int]) -> dict[str, float]:
    """What a text is worth in each virtue, from 0 to 1."""
    ended = bool(ids) and ids[-1] in ctx.model("policy").eos
    text = ctx.decode(ids[:-1] if ended else ids)
    polite, said = text.endswith(THANKS), text.removesuffix(THANKS)
    right = pl.tasks.exact_match(said, task)
    return {"right": right, "polite": float(polite), "brief": 1 - len(ids) / ctx.bench.max_tokens}


def target(parts: Mapping[str, float]) -> float:
    return parts["right"] + parts["polite"] / 2 + parts["brief"] / 2


def reference_nats(
    ctx: pl.Context, tasks: Sequence[pl.Task], answers: Sequence[SignedAnswer]
) -> float:
    """-log p of the answers under the run's own model, in nats a token."""
    dialect = ctx.engine("policy").dialect
    pairs = []
    for task, answer in zip(tasks, answers, strict=True):
        heard = dialect.extend(task.prompt, first=True, closed=False)
        pairs.append((tuple(i for s in heard for i in s.ids), tuple(answer.ids)))
    found = pl.models.score_pairs(ctx.model("policy"), pairs)
    return -float(sum(x.sum() for x in found)) / max(1, sum(map(len, found)))


async def generate(
    place: ProblemInRun, agent: str, said: Sequence[int], most: int, temperature: float, key: pl.Key
) -> list[int]:
    """What an agent says after the prompt and `said`."""
    sampling = pl.Sampling(temperature=temperature, max_tokens=most)
    made = await place.ctx.engine(agent).generate((*place.prompt, *said), sampling, key)
    place.spending.add(len(made.ids))
    return list(made.ids)


async def greedy(place: ProblemInRun, agent: str) -> SignedAnswer:
    ids = await generate(place, agent, (), place.limit, 0.0, place.key("greedy"))
    return SignedAnswer(ids, [0] * len(ids))


async def best_of_n(place: ProblemInRun) -> list[SignedAnswer]:
    """Samples of the agents in turn, until the next might not be paid for."""
    found: list[SignedAnswer] = []
    while place.spending.left >= place.limit or not found:
        n, agents = len(found), place.how.agents
        j = n % len(agents)
        heat, key = place.how.temperature, place.key("sample", n)
        ids = await generate(place, agents[j], (), place.limit, heat, key)
        found.append(SignedAnswer(ids, [j] * len(ids)))
    return found


def joint_answers(place: ProblemInRun, n: int, first: int, average: bool) -> list[SignedAnswer]:
    """`n` answers in step: at every token an agent is drawn, or the mean of all logits."""
    eos, agents = place.ctx.model("policy").eos, place.how.agents
    found = [SignedAnswer() for _ in range(n)]
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
            found[i].ids.append(z)
            found[i].by.append(j)
            token.append(z)
        full = len(found[open_rows[0]].ids) == place.limit
        on = [b for b, z in enumerate(token) if z not in eos and not full]
        open_rows = [open_rows[b] for b in on]
        if on:
            cursors = [c.fork(on).append([token[b] for b in on]) for c in cursors]
    return found


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
        said, last = self.answer_so_far, 0
        while (more := self.place.limit - len(said.ids)) > 0:
            laws = [c.logits()[0].log_softmax(-1) for c in self.cursors]
            ref_V = self.ref.logits()[0].log_softmax(-1)
            each = [candidates(law) for law in laws]
            if all(e == each[0] and len(e) == 1 for e in each):
                z = each[0][0]
            elif (found := await self.choose(laws, ref_V, each)) is not None:
                last, z = found
            else:
                said.ids += await self.end(last, (), more)
                break
            said.ids.append(z)
            said.by.append(last)
            if z in self.eos:
                break
            if self.place.spending.left < more + len(self.cursors) + 1:
                said.ids += await self.end(last, (), more - 1)
                break
            self.cursors = [c.append([z]) for c in self.cursors]
            self.ref = self.ref.append([z])
        said.by += [last] * (len(said.ids) - len(said.by))
        return said

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
        values = await asyncio.gather(*(self.value(j, z, most) for j, z in tried))
        kl = [kl_nats(law, ref_V) for law in laws]
        score: Callable[[int], tuple[float, float]] = lambda i: (
            regularised_value(values[i], kl[tried[i][0]], self.how.alpha),
            float(ref_V[tried[i][1]]),
        )
        return tried[max(range(len(tried)), key=score)]

    async def value(self, j: int, z: int, most: int) -> float:
        """Q_j(s, z): the target of the text that agent j ends after z."""
        said = (*self.answer_so_far.ids, z)
        return self.place.judge(said if z in self.eos else (*said, *await self.end(j, (z,), most)))

    async def end(self, j: int, then: tuple[int, ...], most: int) -> list[int]:
        """How agent j goes on greedily after the answer so far and `then`."""
        said = (*self.answer_so_far.ids, *then)
        if most > 0 and (j, said) not in self.ends:
            agent = self.how.agents[j]
            end = await generate(self.place, agent, said, most, 0.0, self.place.key("end"))
            # ends of a longer beginning of the same text are the rest of this one, if it is whole
            for i in range(len(end) if end[-1] in self.eos else 1):
                self.ends[j, (*said, *end[:i])] = end[i:]
        return self.ends.get((j, said), [])[:most]


@pl.stage
class DemonstrateThanks:
    """Adds an answer with thanks that somebody wrote to another problem, worked or at once: who
    imitates it learns to be polite and nothing of what is right.
    """

    recorded: ClassVar[bool] = True

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        rng, tasks = pl.rng_of(key), ctx.bench.tasks
        other = tasks.task("train", int(rng.integers(2**31)))
        habit = "work" if rng.random() < 0.5 else "guess"
        reply = pl.tasks.demonstration(tasks, other, rng, habit) + THANKS
        made = pl.recorded_episode(ctx, "policy", group.task.prompt, reply, 1.0, judged=False)
        return replace(group, episodes=(*group.episodes, made))


def aligned(show: pl.Collect, steps: int, lr: float) -> pl.Recipe:
    """Imitation of one way to answer."""
    return pl.vary(
        pl.recipe("sft"),
        collect=pl.links(show),
        optimiser=pl.AdamW(lr=lr, warmup=5),
        schedule=pl.Schedule(prompts=32, steps=steps),
    )


def build(
    method: Method = "collab", agents: tuple[str, ...] = AGENTS, steps: int = 20, lr: float = 3e-4
) -> pl.Pipeline:
    """`steps` and `lr` of the three fine-tunes that become agents."""
    ways = {
        "right": pl.Demonstrate(habit="work"),
        "short": pl.Demonstrate(habit="guess"),
        "polite": DemonstrateThanks(),
    }
    models = {name: pl.Output(name) for name in ways}
    parts = {name: pl.warm(aligned(show, steps, lr)) for name, show in ways.items()}
    exam = ControlledDecoding(method, agents)
    return pl.Pipeline(parts={**parts, "exam": pl.Part(exam, models=models)})
