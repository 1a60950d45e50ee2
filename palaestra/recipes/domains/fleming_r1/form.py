"""The form of an answer: a chain of thought, and behind it one line that names the option."""

import re
from dataclasses import replace

import palaestra as pl

LAST = re.compile(r"\s*\**answer\s*:\**\s*\S.*", re.IGNORECASE)
ASK = "Think step by step. Then end with the line `Answer: ` and the right option."


def in_form(text: str) -> bool:
    """Whether a text has thoughts, in <think> or plain, and ends with the only line that begins with `Answer:`."""
    lines = [x for x in re.sub(r"</?think>", "\n", text).splitlines() if x.strip()]
    named = [i for i, line in enumerate(lines) if LAST.fullmatch(line)]
    return len(lines) > 1 and named == [len(lines) - 1]


@pl.stage
class RequireForm:
    """A link after `Score`: an answer that is not `in_form` earns 0, whether it is right or not."""

    async def __call__(self, ctx: pl.Context | None, key: pl.Key, group: pl.Group) -> pl.Group:
        return replace(group, episodes=tuple(map(self._pay, group.episodes)))

    def _pay(self, e: pl.Episode) -> pl.Episode:
        if not e.ok or e.reward is None:
            return e
        form = float(in_form(pl.response_text(e)))
        parts = {**e.reward.parts, "form": form}
        reward = replace(e.reward, total=form * e.reward.total, parts=parts, solved=e.solved)
        return replace(e, reward=reward)
