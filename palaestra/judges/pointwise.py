"""A judge of one response at a time: by a rubric, or against the task's reference answer.

    Judge(client=Endpoint(url=..., model=...))                            # a rating by RUBRIC
    Judge(client=LocalModel("judge"), template=GRADE_PROMPT, read=MarkedLabel((("YES", 1.0), ("NO", 0.0))))
    Judge(client=..., read=Odds(), votes=1)                               # p(Yes), nothing sampled

The parts NAME/agreement and NAME/unparsed of its rewards are the shares of agreeing votes and of
votes that could not be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from palaestra.abilities import bounds_of
from palaestra.context import Source
from palaestra.errors import Fault
from palaestra.judges.prompt import (
    DEFAULT_RUBRIC,
    RATE_PROMPT,
    defuse,
    fields_of,
    fill,
    reply_after_thinking,
)
from palaestra.judges.reading import Rating, Reading
from palaestra.judges.votes import Combine, Tally, poll, tally
from palaestra.rewards.verify import response_text
from palaestra.services.chat.base import client_of, question_messages
from palaestra.services.chat.local import LocalModel
from palaestra.types import ChatRequest, Group, Reward, Task, stage

if TYPE_CHECKING:
    from palaestra.context import Context, Judging


@stage
class Judge:
    """Asks `client` for `votes` verdicts on each response, read by `read`.

    `extract` is applied before the judge sees a response; what it leaves empty is worth `empty`
    without a call (None = ask). A vote that cannot be read is worth `unparsed`; None = it does not
    count, and where none counts, the episode is an error.
    """

    client: Source = LocalModel()
    template: str = RATE_PROMPT
    read: Reading = Rating()
    rubric: str = DEFAULT_RUBRIC
    extract: Callable[[str], str] = reply_after_thinking
    votes: int = 1
    combine: Combine = "mean"
    temperature: float = 0.0  # of the judge; votes differ only above 0
    max_tokens: int = 512
    system: str = ""
    empty: float | None = 0.0
    unparsed: float | None = None
    name: str = "judge"

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Those of the reading, with what is paid where nothing is read."""
        read = bounds_of(self.read)
        others = [x for x in (self.empty, self.unparsed) if x is not None]
        return None if read is None else (min(read[0], *others), max(read[1], *others))

    async def __call__(self, ctx: Context | None, group: Group) -> list[Reward | Fault]:
        texts = [self.extract(response_text(e)) for e in group.episodes]
        return list(
            await asyncio.gather(*(self._rewarded(ctx, group.task, text) for text in texts))
        )

    async def _rewarded(self, ctx: Judging | None, task: Task, text: str) -> Reward | Fault:
        try:
            score = await self.judge_one(ctx, task, text)
        except Fault as fault:
            return fault
        shares = {
            f"{self.name}/agreement": score.agreement,
            f"{self.name}/unparsed": score.unparsed,
        }
        parts = {self.name: score.score, **shares}
        return Reward(total=score.score, parts=parts, verdicts=score.votes)

    async def judge_one(self, ctx: Judging | None, task: Task, text: str) -> Tally:
        """What the judge thinks of one response. Raises `Fault`."""
        if not text.strip() and self.empty is not None:
            return Tally(score=self.empty, agreement=1.0, unparsed=0.0)
        request = self.request({**fields_of(task), "response": defuse(text)})
        client = client_of(ctx, self.client)
        votes = await poll(client, request, self.read, self.votes, self.name)
        vote = tally([v.score for v in votes], self.combine, self.unparsed)
        if vote is None:
            reason = (
                f"none of {len(votes)} replies of {self.name} to task {task.id!r} could be read"
            )
            raise Fault("judge-unparsed", f"{reason}; it was told: {self.read.instruction}")
        return replace(vote, votes=tuple(votes))

    def request(self, fields: Mapping[str, str]) -> ChatRequest:
        values = {"rubric": self.rubric, **fields, "instruction": self.read.instruction}
        return ChatRequest(
            messages=question_messages(fill(self.template, values), self.system),
            temperature=self.temperature,
            max_tokens=self.max_tokens,
        )
