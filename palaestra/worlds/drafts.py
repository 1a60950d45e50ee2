"""Searches after a draft: the first message answers from memory, and searches only where it doubts.

    <answer>Bern</answer>                                  ends the episode
    <answer>Bako</answer><search>boss of Bako</search>     tool: boss of bako is tiru.
    <answer>Tiru</answer>                                  ends the episode

So an episode shows what the model knew before it read anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from palaestra.declared import declare
from palaestra.types import Act, Frame, Key, Task, stage, value_class
from palaestra.worlds.search import CLOSED, QUOTES, REMARK, THINK, Search, SearchState, hear

UNKNOWN = "unknown"  # the draft of an oracle that has to search


@value_class
class DraftState(SearchState):
    draft: str | None = None  # None until a message begins with an answer


@declare(facts=(("draft", str, "the answer before the first search; None = there was none"),))
@stage
class DraftSearch(Search):
    """`Search` whose first message has an answer, and behind it a search where the model is not sure.
    A search without a draft before it is malformed. Later messages have a search or the answer;
    an answer in front of a search is not the last one. The fact "draft" is the first answer.
    """

    @property
    def usage(self) -> str:
        """How a question is answered, and documents are searched, in words."""
        if self.turns == 1:
            return super().usage
        search, answer = self.forms
        most = self.calls or self.turns - 1
        return (
            f"Your first message has the answer that you know, or your best guess: <{answer}>it"
            f"</{answer}>, as short as possible. If you are sure, end the message there. If you "
            f"doubt it, go on with <{search}>a few words</{search}>, and the next message has what "
            f"documents say. Then search again, or write the final <{answer}>answer</{answer}>. You "
            f"may search {most} times."
        )

    def correction(self, state: SearchState) -> str:
        search, answer = self.forms
        if draft_of(state) is None:
            return f"begin with <{answer}>...</{answer}>; <{search}>...</{search}> may follow it"
        return super().correction(state)

    async def step(self, state: SearchState, acts: tuple[Act, ...], key: Key) -> Frame:
        state = hear(state, acts[0].text)
        answer, query = self.read_both(acts[0].text)
        search_tag, answer_tag = self.forms
        action = ""  # malformed
        if draft_of(state) is None and answer is not None:
            state = replace(state, draft=answer)
        if draft_of(state) is not None:
            if query is not None and self.turns > 1:
                action = f"<{search_tag}>{query}</{search_tag}>"
            elif answer is not None:  # without documents the draft is the answer
                action = f"<{answer_tag}>{answer}</{answer_tag}>"
        return await super().step(state, (replace(acts[0], text=action),), key)

    def read_both(self, text: str) -> tuple[str | None, str | None]:
        """The answer and the search of a message, in this order, each after a thought or other words
        without a tag; (None, None) for any other message. What may stand behind them: see `Search.read`.
        """
        match = self._both.fullmatch(text)
        if match is None:
            return None, None
        *parts, behind = match.groups()
        answer, query = (None if part is None else part.strip() for part in parts)
        rule = REMARK if query is None else CLOSED
        return (answer, query) if rule.fullmatch(behind) else (None, None)

    def oracle(self, state: SearchState) -> str:
        """An unknown answer and a search, and then as `Search`; the answer where no search is known."""
        step = super().oracle(state)
        search, answer = self.forms
        if draft_of(state) is None and step.startswith(f"<{search}>"):
            return f"<{answer}>{UNKNOWN}</{answer}>{step}"
        return step

    @cached_property
    def _both(self) -> re.Pattern[str]:
        search, answer = self.forms
        inside = rf"(?:(?!</?(?:{self._tags})>).)*"
        thought = rf"{inside}(?:<{THINK}>{inside}</{THINK}>{inside})?(?<![{QUOTES}])"
        return re.compile(
            rf"(?:{thought}<{answer}>({inside})</{answer}>)?"
            rf"(?:{thought}<{search}>({inside})</{search}>)?({inside})",
            re.DOTALL,
        )

    def _begin(self, task: Task) -> SearchState:
        return DraftState(task=task)

    def _facts(self, state: SearchState) -> Mapping[str, Any]:
        return {**super()._facts(state), "draft": draft_of(state)}


def draft_of(state: SearchState) -> str | None:
    """The answer that was given before the first search; None = none yet."""
    return state.draft if isinstance(state, DraftState) else None
