"""Searches whose results are judged: the message after one says first whether it was useful.

    <search>boss of Bako</search>                               tool: host of Tiru is Mema.
    <judge>no</judge><search>boss of Bako</search>              tool: boss of Bako is Tiru.
    <judge>yes</judge><answer>Tiru</answer>

After `no` the next action is another search, as long as the episode has one left.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.services.index import BM25, Hit, document_of
from palaestra.types import Act, Ask, Frame, Key, Message, Task, rng_of, stage, value_class
from palaestra.verifiers.answers.short import contains_term, normalise_text
from palaestra.worlds.search import (
    QUOTES,
    RESULT,
    THINK,
    Outcome,
    Search,
    SearchState,
    hear,
    right_answers,
    sources_of,
)

JUDGE = "judge"
GO_ON, AGAIN = "search again or answer", "search again"
LEFT_OUT = "left out, as it was judged not useful"


@value_class
class JudgeState(SearchState):
    judgements: tuple[bool | None, ...] = ()  # by search that found something; None = not judged
    useful: tuple[bool, ...] = ()  # likewise, whether it showed what answers the question
    talk: tuple[
        Message, ...
    ] = ()  # what the policy has read and said, where passages may be left out
    shown: int = -1  # where in `talk` the passages stand that were found last
    renewed: bool = False  # passages of `talk` were left out after the last message


@declare(
    facts=(
        (
            "judgements",
            tuple,
            "by search that found something, what was said of it; None = nothing",
        ),
        ("useful", tuple, "likewise, whether it showed a gold document, or words of the answer"),
    )
)
@stage
class JudgeSearch(Search):
    """`Search` in which the first thing after a search that found something is a judgement, alone in
    a message or before the next action. A message without one is malformed there, and so is one
    that answers after `no` although it could search.

    A search is useful that shows a gold document. Of a gold document of several passages those are useful
    that have a right answer's words, or all of them, if none has.

    Args:
        hard: passages that are judged not useful leave the context of what follows; else they stay.
        noise: how likely a search shows the `k` passages behind the best ones in their place, for
            all episodes of a group in a turn or for none.
    """

    hard: bool = False
    noise: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if JUDGE in self.forms or not 0 <= self.noise <= 1:
            raise UserError(f"JudgeSearch: noise is 0 to 1, and no form is called {JUDGE}")

    def reset(self, task: Task, key: Key) -> Frame:
        frame = super().reset(task, key)
        return replace(frame, state=replace(frame.state, talk=frame.asks[0].say))

    @property
    def usage(self) -> str:
        """How documents are searched, judged and used, in words."""
        if self.turns == 1:
            return super().usage
        _, answer = self.forms
        return (
            f"{super().usage} After a search first judge what it found: begin the next message with "
            f"<{JUDGE}>yes</{JUDGE}> if it helps to answer the question, or <{JUDGE}>no</{JUDGE}> if "
            f"it does not. After no, search again with other words; after yes, search for what is "
            f"missing or write <{answer}>the answer</{answer}>, in the same message."
        )

    def correction(self, state: SearchState) -> str:
        if isinstance(state, JudgeState) and is_pending(state):
            return f"begin with <{JUDGE}>yes</{JUDGE}> or <{JUDGE}>no</{JUDGE}>; after no, search again"
        if isinstance(state, JudgeState) and self.must_search(state):
            return AGAIN
        return super().correction(state)

    async def step(self, state: SearchState, acts: tuple[Act, ...], key: Key) -> Frame:
        assert isinstance(state, JudgeState)
        state = hear(state, acts[0].text)
        judgement, action = self.read_judged(acts[0].text)
        message = Message(role="assistant", content=acts[0].text, author="policy")
        state = replace(state, talk=(*state.talk, message), renewed=False)
        after = state
        if is_pending(state) and judgement is not None:
            after = self._judge(state, judgement)
        form, _ = self.read(action)
        fits = is_pending(state) == (judgement is not None)
        if not fits or (form == "answer" and self.must_search(after)):
            return await super().step(state, (replace(acts[0], text=""),), key)
        if judgement is not None and not action.strip():
            again = self.must_search(after)
            return self._go_on(self._after(after, "judged"), AGAIN if again else GO_ON)
        if form == "malformed":
            after = state  # a message is read as a whole or not at all
        return await super().step(after, (replace(acts[0], text=action),), key)

    def read_judged(self, text: str) -> tuple[bool | None, str]:
        """What a message judges, None = nothing, and what stands after that."""
        match = self._judgement.match(text)
        return (None, text) if match is None else (match[1].lower() == "yes", text[match.end() :])

    def must_search(self, state: JudgeState) -> bool:
        """Whether the last passages were judged not useful, and there are searches left."""
        left = len(state.outcomes) + 2 <= self.turns and not 0 < self.calls <= state.calls
        return left and bool(state.judgements) and state.judgements[-1] is False

    def oracle(self, state: SearchState) -> str:
        """Judges rightly, and then as `Search`; answers where no search is left. A question without
        known searches is searched again while what it finds is not useful.
        """
        assert isinstance(state, JudgeState)
        judgement = ""
        if is_pending(state):
            judgement = f"<{JUDGE}>{'yes' if state.useful[-1] else 'no'}</{JUDGE}>"
            state = self._judge(state, state.useful[-1])
        spent = len(state.outcomes) + 2 > self.turns or 0 < self.calls <= state.calls
        if self.must_search(state) and not self.next_query(state):
            return f"{judgement}<{self.forms[0]}>{self.first_query(state.task)}</{self.forms[0]}>"
        return judgement + Search.oracle(self.closed() if spent else self, state)

    @property
    def _tags(self) -> str:
        return "|".join((*self._actions, JUDGE, THINK, RESULT))

    @cached_property
    def _judgement(self) -> re.Pattern[str]:
        inside = rf"(?:(?!</?(?:{self._tags})>).)*"
        return re.compile(
            rf"{inside}(?:<{THINK}>{inside}</{THINK}>{inside})?"
            rf"(?<![{QUOTES}])<{JUDGE}>\s*(yes|no)[\s.!]*</{JUDGE}>[.!]?",
            re.DOTALL | re.IGNORECASE,
        )

    async def _search(self, query: str, key: Key) -> tuple[Hit, ...]:
        if rng_of((*key, "noise")).random() >= self.noise:
            return await super()._search(query, key)
        hits = await replace(self, k=2 * self.k, noise=0.0)._search(query, key)
        return hits[self.k :] or hits

    def _judge(self, state: JudgeState, judgement: bool) -> JudgeState:
        state = replace(state, judgements=(*state.judgements[:-1], judgement))
        if judgement or not self.hard:
            return state
        talk = list(state.talk)
        talk[state.shown] = replace(talk[state.shown], content=LEFT_OUT)
        return replace(state, talk=tuple(talk), renewed=True)

    def _begin(self, task: Task) -> SearchState:
        return JudgeState(task=task)

    def _after(
        self, state: SearchState, outcome: Outcome, hits: tuple[Hit, ...] = (), seconds: float = 0.0
    ) -> SearchState:
        after = super()._after(state, outcome, hits, seconds)
        if outcome != "found" or not isinstance(after, JudgeState):
            return after
        return replace(
            after,
            judgements=(*after.judgements, None),
            useful=(*after.useful, after.gains[-1] > 0 and self._is_useful(state.task, hits)),
            shown=len(after.talk),
        )

    def _is_useful(self, task: Task, hits: Sequence[Hit]) -> bool:
        """Whether passages that earned a gain have what the question asks for; see the class."""
        gold = sources_of(task)
        if not gold:
            return True
        gold_names = [name for name, _, _ in hits if {name, document_of(name)} & gold]
        pages = (
            self.index.pages if isinstance(self.index, BM25) else {}
        )  # of an own search not known
        parts = {n: pages.get(document_of(n), ()) for n in gold_names if n not in gold}
        holding = {n: [i for i, text in of if has_answer(task, text)] for n, of in parts.items()}
        return any(n not in parts or not holding[n] or n in holding[n] for n in gold_names)

    def _go_on(self, state: SearchState, say: str) -> Frame:
        frame = super()._go_on(state, say)
        if not isinstance(state, JudgeState) or not frame.asks:
            return frame
        talk = (*state.talk, *frame.asks[0].say)
        asks: tuple[Ask, ...] = frame.asks
        if state.renewed:
            asks = (replace(asks[0], say=talk, new_row=True),)
        return replace(frame, state=replace(state, talk=talk), asks=asks)

    def _facts(self, state: SearchState) -> Mapping[str, Any]:
        assert isinstance(state, JudgeState)
        own = {"judgements": state.judgements, "useful": state.useful}
        return {**super()._facts(state), **own}


def has_answer(task: Task, text: str) -> bool:
    """Whether a text has the words of a right answer."""
    plain = normalise_text(text)
    return any(contains_term(a, plain) for a in right_answers(task))


def is_pending(state: JudgeState) -> bool:
    """Whether passages were shown that nobody has judged."""
    return bool(state.judgements) and state.judgements[-1] is None
