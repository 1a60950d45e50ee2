"""A judge of pairs: every pair in both orders, so that a liking for the first place pays nobody.

    Pairwise(client=Endpoint(url=..., model=...), opponents=2)     # of the same group
    Pairwise(client=..., against="reference")                      # of each response and the task's answer

The reward is the share of wins, ties half. Parts: NAME/first = wins of the response that is shown
first (0.5 = no bias), NAME/flips = pairs whose winner changes with the order, NAME/unparsed =
verdicts that could not be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from palaestra.context import Source
from palaestra.errors import Fault, UserError
from palaestra.judges.prompt import (
    COMPARE_PROMPT,
    DEFAULT_RUBRIC,
    defuse,
    fields_of,
    fill,
    reference_of,
    reply_after_thinking,
)
from palaestra.judges.reading import MarkedLabel, Reading
from palaestra.judges.votes import poll, tally
from palaestra.rewards.verify import response_text
from palaestra.services.chat.base import client_of, question_messages
from palaestra.services.chat.local import LocalModel
from palaestra.types import ChatRequest, Group, JudgeVote, Reward, Task, rng_of, stage, value_class

if TYPE_CHECKING:
    from palaestra.context import Context, Judging

ABC = MarkedLabel((("A", 1.0), ("B", 0.0), ("tie", 0.5)))


@value_class
class Comparison:
    """Texts `first` and `second` by number, in the order shown; `score` = what the first one gets,
    None = not read.
    """

    first: int
    second: int
    score: float | None
    said: str = ""  # with the verdict

    def of(self, i: int) -> float:
        """What text `i` gets, where the verdict was read."""
        assert self.score is not None
        return self.score if i == self.first else 1 - self.score

    def win(self, i: int) -> float:
        """1 for a win, 0 for a defeat, 0.5 for a tie."""
        return (np.sign(round(self.of(i) - 0.5, 9)) + 1) / 2


@stage
class Pairwise:
    """`read` gives 1 where the response shown first wins, 0 where the second does. Without `swap` a
    coin picks the order.
    """

    client: Source = LocalModel()
    template: str = COMPARE_PROMPT
    read: Reading = ABC
    rubric: str = DEFAULT_RUBRIC
    extract: Callable[[str], str] = reply_after_thinking
    against: Literal["group", "reference"] = "group"
    opponents: int = 0  # that each response meets; 0 = all of its group
    swap: bool = True
    votes: int = 1
    temperature: float = 0.0
    max_tokens: int = 512
    system: str = ""
    name: str = "wins"

    async def __call__(self, ctx: Context | None, group: Group) -> list[Reward | Fault]:
        n, texts = len(group.episodes), [self.extract(response_text(e)) for e in group.episodes]
        if self.against == "reference":
            if group.task.answer is None:
                raise UserError(
                    f"task {group.task.id!r} has no answer to compare with; use against='group'"
                )
            pairs, texts = [(i, n) for i in range(n)], [*texts, reference_of(group.task)]
        else:
            pairs = schedule(n, self.opponents)
        comparisons = await self.compare_texts(ctx, group.task, texts, pairs)
        return [self._reward(i, comparisons) for i in range(n)]

    async def compare_texts(
        self,
        ctx: Judging | None,
        task: Task,
        texts: Sequence[str],
        pairs: Sequence[tuple[int, int]],
    ) -> list[Comparison | Fault]:
        """Every pair in the orders that are asked for."""
        orders = [
            o for i, j in pairs for o in ([(i, j), (j, i)] if self.swap else [_toss(task, i, j)])
        ]
        return list(
            await asyncio.gather(*(self._compare(ctx, task, texts, i, j) for i, j in orders))
        )

    async def _compare(
        self, ctx: Judging | None, task: Task, texts: Sequence[str], i: int, j: int
    ) -> Comparison | Fault:
        fields = {**fields_of(task), "rubric": self.rubric, "instruction": self.read.instruction}
        text = fill(self.template, {**fields, "a": defuse(texts[i]), "b": defuse(texts[j])})
        request = ChatRequest(
            messages=question_messages(text, self.system),
            temperature=self.temperature,
            max_tokens=self.max_tokens,
        )
        try:
            votes = await poll(client_of(ctx, self.client), request, self.read, self.votes)
            vote = tally([v.score for v in votes])
        except Fault as fault:
            return fault
        score, explanation = vote.score if vote else None, votes[0].said
        return Comparison(first=i, second=j, score=score, said=explanation)

    def _reward(self, i: int, comparisons: Sequence[Comparison | Fault]) -> Reward | Fault:
        """Of text `i`. Comparisons that failed or could not be read are left out; without any it is
        an error.
        """
        mine = [c for c in comparisons if isinstance(c, Comparison) and i in (c.first, c.second)]
        read = [c for c in mine if c.score is not None]
        if not read:
            failed = next((f for f in comparisons if isinstance(f, Fault)), None)
            return failed or Fault(
                "judge-unparsed",
                f"{self.name} has no verdict on response {i} in {len(mine)} comparisons",
            )
        score = float(np.mean([c.of(i) for c in read]))
        parts = {
            self.name: score,
            f"{self.name}/first": float(np.mean([c.win(c.first) for c in read])),
            f"{self.name}/flips": flips(read),
            f"{self.name}/unparsed": 1 - len(read) / len(mine),
        }
        judge_votes = tuple(
            JudgeVote(judge=self.name, score=None if c.score is None else c.of(i), said=c.said)
            for c in mine
        )
        return Reward(total=score, parts=parts, verdicts=judge_votes)


def schedule(n: int, opponents: int = 0) -> list[tuple[int, int]]:
    """Pairs of n in a ring: each meets the next `opponents` (0 = all), no pair twice."""
    reach = n - 1 if opponents == 0 else min(opponents, n - 1)
    pairs = {tuple(sorted((i, (i + d) % n))) for i in range(n) for d in range(1, reach + 1)}
    return sorted((i, j) for i, j in pairs)


def flips(comparisons: Sequence[Comparison]) -> float:
    """Of the pairs that were read in both orders, the share whose winner differs; 0 where there are
    none.
    """
    by_order = {(c.first, c.second): c for c in comparisons if c.score is not None}
    both = [(c, by_order[j, i]) for (i, j), c in by_order.items() if i < j and (j, i) in by_order]
    return float(np.mean([a.win(a.first) != b.win(a.first) for a, b in both])) if both else 0.0


def _toss(task: Task, i: int, j: int) -> tuple[int, int]:
    return (i, j) if rng_of(("order", task.id, i, j)).random() < 0.5 else (j, i)
