"""A list of rules as the state of a judge, and the adversarial loop that revises it before
training.

One writer tries to get flawed replies past the list, one detector applies it; whoever is beaten has
their rules rewritten. No weight moves, and the list stays as it is during training: rewards of
changing rules could not be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from palaestra.types import stage, value_class

RuleList: TypeAlias = tuple[str, ...]
MOST_RULES = 10  # rules of a list


@value_class
class RuleVerdict:
    """What a detector says: good or bad, and the advice that follows from it."""

    good: bool
    advice: str = ""


def revise(old: RuleList, proposed: Any, most: int = MOST_RULES) -> RuleList:
    """The proposed list, each rule once and at most `most` of them; what is no list of texts leaves
    the old one.
    """
    if not isinstance(proposed, list | tuple) or not proposed:
        return old
    texts = [r.strip() for r in proposed if isinstance(r, str) and r.strip()]
    return tuple(dict.fromkeys(texts))[:most] if len(texts) == len(proposed) else old


@stage
class Refine:
    """The loop's four roles: models behind a client, or functions.

    write(query, rules, rng) gives a flawed reply and what is wrong with it; detect(reply, rules,
    rng) a verdict; reflect(reply, good, rules) advice on a verdict that people do not share;
    merge(rules, advice) a proposed list.
    """

    write: Callable[[Any, RuleList, np.random.Generator], tuple[Any, str]]
    detect: Callable[[Any, RuleList, np.random.Generator], RuleVerdict]
    reflect: Callable[[Any, bool, RuleList], str]
    merge: Callable[[RuleList, str], Any]
    rounds: int = 10
    queries: int = 4  # of a round, for the writer
    labelled: int = 4  # of a round, replies that people have labelled

    def __call__(
        self,
        queries: Sequence[Any],
        pool: Sequence[tuple[Any, bool]],
        judge: RuleList,
        writer: RuleList,
        rng: np.random.Generator,
    ) -> tuple[RuleList, RuleList]:
        """The detector's and the writer's lists after all rounds. `pool` holds replies and whether
        people call them good.
        """
        for _ in range(self.rounds):
            for i in rng.choice(len(queries), self.queries):
                reply, flaws = self.write(queries[int(i)], writer, rng)
                mistakes = self.detect(reply, judge, rng)
                if mistakes.good:  # fooled
                    judge = revise(judge, self.merge(judge, flaws))
                else:
                    writer = revise(writer, self.merge(writer, mistakes.advice))
            for i in rng.choice(len(pool), min(self.labelled, len(pool)), replace=False):
                reply, good = pool[int(i)]
                if self.detect(reply, judge, rng).good != good:
                    judge = revise(judge, self.merge(judge, self.reflect(reply, good, judge)))
        return judge, writer
