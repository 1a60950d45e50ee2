"""Controlled decoding with a mixture of agents: several frozen models take turns at every token, so that
a target is met that none of them was aligned with (Collab, arXiv:2503.21720).

    J_j(s, z) = Q_j(s, z) - alpha KL(pi_j(.|s) || pi_ref(.|s))
    (j, z)    = argmax over agents j and tokens z among the likeliest of pi_j

Q_j(s, z) needs no training: agent j ends the text greedily after z, and the target judges the end. All
agents go on from the chosen token. Where every agent has one and the same candidate, the search takes
it without asking. A budget counts forwards: tokens that a model has read or sampled, prompts left out.

Candidates, horizon and alpha are ours: candidates are the nucleus of .95, at most four. Ends of texts
that are known are not made again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from palaestra.models.inside.cursor import Cursor

NUCLEUS, CANDIDATES = 0.95, 4


class MixtureProblem(Protocol):
    """A problem that agents decode together: who they are, what they may spend, and who judges."""

    @property
    def agents(self) -> tuple[str, ...]: ...
    @property
    def eos(self) -> Sequence[int]: ...
    @property
    def limit(self) -> int:
        """Tokens of an answer at most."""
        ...

    @property
    def left(self) -> int:
        """Forwards that may still be spent."""
        ...

    @property
    def alpha(self) -> float:
        """Weight of the KL to the reference."""
        ...

    @property
    def horizon(self) -> int:
        """Tokens of an end that Q looks ahead; 0 = to the end of the text."""
        ...

    def cursor(self, model: str) -> Cursor:
        """At the end of the prompt, which is read for nothing; "policy" is the reference."""
        ...

    async def go_on(self, agent: str, ids: Sequence[int], most: int) -> list[int]:
        """What an agent says greedily after the prompt and `ids`, at most `most` tokens, paid for."""
        ...

    async def judge(self, texts: Sequence[Sequence[int]]) -> list[float]:
        """The target of texts, each as far as it goes."""
        ...


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
class SignedAnswer:
    """A text on its way: its tokens, and which agent chose each of them (-1 = nobody in
    particular).
    """

    ids: list[int] = field(default_factory=list)
    by: list[int] = field(default_factory=list)
    searches: int = 0  # tokens that were chosen by their value


class TokenSearch:
    """The answer of a mixture of agents to one problem."""

    def __init__(self, place: MixtureProblem) -> None:
        self.place = place
        self.cursors = [place.cursor(a) for a in place.agents]
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
            if z in self.place.eos:
                break
            if self.place.left < more + len(self.cursors) + 1:
                answer.ids += await self.end(last, (), more - 1)
                break
            if more > 1:
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
        most = min(more - 1, place.horizon or place.limit)
        most = min(most, (place.left - more) // max(1, unknown))
        if most < 1 and unknown:
            return None
        self.answer_so_far.searches += 1
        texts = await asyncio.gather(*(self.text(j, z, most) for j, z in tried))
        values = await place.judge(texts)
        kl = [kl_nats(law, ref_V) for law in laws]
        score: Callable[[int], tuple[float, float]] = lambda i: (
            regularised_value(values[i], kl[tried[i][0]], place.alpha),
            float(ref_V[tried[i][1]]),
        )
        return tried[max(range(len(tried)), key=score)]

    async def text(self, j: int, z: int, most: int) -> tuple[int, ...]:
        """The text that agent j ends after z, which Q_j(s, z) is the target of."""
        ids = (*self.answer_so_far.ids, z)
        return ids if z in self.place.eos else (*ids, *await self.end(j, (z,), most))

    async def end(self, j: int, then: tuple[int, ...], most: int) -> list[int]:
        """How agent j goes on greedily after the answer so far and `then`."""
        ids = (*self.answer_so_far.ids, *then)
        if most > 0 and (j, ids) not in self.ends:
            end = await self.place.go_on(self.place.agents[j], ids, most)
            # ends of a longer beginning of the same text are the rest of this one, if it is whole
            for i in range(len(end) if end[-1] in self.place.eos else 1):
                self.ends[j, (*ids, *end[:i])] = end[i:]
        return self.ends.get((j, ids), [])[:most]
