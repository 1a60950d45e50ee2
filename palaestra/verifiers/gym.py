"""reasoning-gym's own scorers, as `palaestra.tasks.gym` guards them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from palaestra.tasks.gym import Gym
from palaestra.types import Message, Task, stage
from palaestra.verifiers.base import (
    Judgement,
    failed_judgement,
    guard_verifier,
    require_field,
    strip_thinking,
)


@stage
class GymAnswer:
    """The score of reasoning-gym's `generator` for an item: `prompt` its question, `metadata` what
    it came with.
    """

    @guard_verifier
    def __call__(
        self,
        response: str,
        answer: Any,
        *,
        generator: str,
        metadata: Mapping[str, Any],
        prompt: str = "",
        params: Mapping[str, str | float | bool | Sequence[str | float]] | None = None,
    ) -> Judgement:
        gym = Gym(
            generator,
            params=tuple(
                (str(k), tuple(v) if isinstance(v, list) else v) for k, v in (params or {}).items()
            ),
        )
        gold = require_field(answer, "answer", (str, int, float), self)
        given = dict(metadata)
        task = Task(
            id="case", prompt=(Message(role="user", content=prompt),), answer=str(gold), meta=given
        )
        text = strip_thinking(response)
        score = min(1.0, max(0.0, gym.check(text, task)))
        return (
            Judgement(score=score, parts={"paper": score})
            if text.strip()
            else failed_judgement("unparsable")
        )
