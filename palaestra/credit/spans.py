"""Credit of one part of an answer by a reward of its own."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from palaestra.credit.advantages import group_mean
from palaestra.credit.table import Table, Values
from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.types import Reward, stage


@declare(reads=("spans",))
@stage
class AddOnSpans:
    """x + sum_k (p_k - mean p_k over the group) on the tokens between the tags of k alone.

    `parts` pairs a tag with the part p_k of the reward, (("context", "context"), ("think",
    "logic")); None in the place of a part takes the whole reward. `MarkSpans` finds the tokens.
    `everywhere` adds the sum on all tokens of the answer. Logs "span_advantage", the mean size of
    what is added. (HumanOmniV2, github.com/HumanMLLM/HumanOmniV2, as its text states it.)
    """

    parts: tuple[tuple[str, str | None], ...] = ()
    everywhere: bool = False
    spreads: ClassVar[bool] = True

    def __call__(self, x: Values, table: Table) -> Values:
        out_N = table.lift(x, "token").x_N.copy()
        added_N = np.zeros(len(out_N))
        for tag, part in self.parts:
            value_E = np.array([_value(e.reward, part) for e in table.episodes], np.float64)
            apart_E = value_E - group_mean(value_E, table.group_E) if len(value_E) else value_E
            on_N = np.ones(len(out_N), bool) if self.everywhere else _tokens_of(table, tag)
            added_N += apart_E[table.tokens.episode_N] * on_N
        table.track("span_advantage", Values(level="token", x_N=np.abs(added_N)))
        return Values(level="token", x_N=out_N + added_N)


def _value(reward: Reward | None, part: str | None) -> float:
    """A part of a reward, 0 where it has none; None = its total."""
    if reward is None:
        return 0.0
    return float(reward.total if part is None else reward.parts.get(part, 0.0))


def _tokens_of(table: Table, tag: str) -> np.ndarray:
    """[N] whether each trained token stands between the tags."""
    at = table.tokens
    on_N = np.zeros(len(at.episode_N), bool)
    for e, episode in enumerate(table.episodes):
        if "spans" not in episode.facts:
            raise UserError(
                "an episode has no 'spans', which credit by tags needs: put MarkSpans behind Score"
            )
        for row, first, last in episode.facts["spans"].get(tag, ()):
            on_N |= (
                (at.episode_N == e)
                & (at.row_N == row)
                & (at.position_N >= first)
                & (at.position_N <= last)
            )
    return on_N
