"""Searches whose documents can be opened: a search shows passages, and a page is read in parts.

    <search>boss of Bako</search>      tool: [bako.md#2] The boss of Bako is Tiru. ...
    <open>tiru.md</open>               tool: tiru.md, part 1 of 3: ...
    <open>tiru.md</open>               tool: tiru.md, part 2 of 3: ...
    <answer>Mema</answer>

What is opened is counted apart from what is searched, and has a limit of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.services.index import BM25, Hit, document_of
from palaestra.types import Act, Frame, Key, Task, need_at_least, stage, value_class
from palaestra.verifiers.answers.short import contains_term, normalise_text
from palaestra.worlds.search import (
    CLOSED,
    RESULT,
    THINK,
    Search,
    SearchState,
    facts,
    hear,
    log_of,
    right_answers,
    sources_of,
)

NO_PAGE, NO_MORE, ALL_OPENED = "no such page", "the page has no more parts", "no openings left"


@value_class
class PageState(SearchState):
    opened: tuple[tuple[str, int], ...] = ()  # (page, part from 0), in order

    @property
    def openings(self) -> int:
        """Pages that were asked for, those that there are not among them."""
        return sum(o in ("opened", "unknown") for o in self.outcomes)


@declare(
    facts=(
        ("opens", int, "pages that were asked for"),
        ("pages_opened", tuple, "pages of which a part was shown, in order, a name for each part"),
        "tools_used",
    )
)
@stage
class PageSearch(Search):
    """`Search` in which a message may also open a page, a whole document, by the name that stands in
    front of each passage that was found.

    The name of a page shows its first part, or the one behind that which was shown last; the name of a
    passage, FILE#N, shows the part that it stands in. Facts beside those of `Search`: "opens", "pages_opened" and
    "tools_used"; "found" and "gains" have the passages of opened parts too, "calls" counts searches alone.

    Args:
        opens: pages that an episode may ask for; 0 = none, and it is `Search`.
        passages: of a part, at most 100 words each where documents come from a folder.
        form: tag of an opening.
    """

    index: BM25
    opens: int = 8
    passages: int = 3
    form: str = "open"

    def __post_init__(self) -> None:
        super().__post_init__()
        need_at_least(self, opens=0, passages=1)
        if self.form in (*self.forms, THINK, RESULT) or not re.fullmatch(r"\w+", self.form):
            raise UserError(f"PageSearch: form is a word other than {THINK}, {RESULT} and forms")

    @property
    def usage(self) -> str:
        """How documents are searched, opened and used, in words."""
        if self.turns == 1 or not self.opens:
            return super().usage
        return (
            f"{super().usage} What was found has its page in front, [PAGE#N]: a message that ends with "
            f"<{self.form}>PAGE</{self.form}> opens that page, a part at a time, and the same again its "
            f"next part. You may open {self.opens} times."
        )

    def correction(self, state: SearchState) -> str:
        correction = super().correction(state)
        return f"{correction} or <{self.form}>...</{self.form}>" if self.opens else correction

    def read(self, text: str) -> tuple[Literal["search", "answer", "open", "malformed"], str]:
        """What a message does, see `Search.read`; nothing stands behind an opening either."""
        read = self._action.fullmatch(text)
        if read is None or read[1] != self.form:
            return super().read(text)
        return ("open", read[2].strip()) if CLOSED.fullmatch(read[3]) else ("malformed", "")

    async def step(self, state: SearchState, acts: tuple[Act, ...], key: Key) -> Frame:
        form, name = self.read(acts[0].text)
        if form != "open":
            return await super().step(state, acts, key)
        state = hear(state, acts[0].text)
        assert isinstance(state, PageState)
        if state.openings >= self.opens:
            return self._missed(state, "over", ALL_OPENED, self.rules.over)
        page, at = self.place(state, name)
        parts = self.parts_of(page)
        if at >= len(parts):
            return self._missed(state, "unknown", NO_MORE if parts else NO_PAGE, self.rules.nothing)
        state = replace(state, opened=(*state.opened, (page, at)))
        hits = tuple((i, text, 0.0) for i, text in parts[at])
        text = " ".join(" ".join(text for _, text, _ in hits).split())
        page_text = f"{page}, part {at + 1} of {len(parts)}: {text}"
        return self._go_on(self._after(state, "opened", hits), page_text)

    def place(self, state: PageState, name: str) -> tuple[str, int]:
        """The page that a name means, and the part to be shown of it, from 0."""
        page = name if name in self.index.pages else document_of(name)
        if page != name:
            ids = [[i for i, _ in part] for part in self.parts_of(page)]
            return page, next((n for n, part in enumerate(ids) if name in part), len(ids))
        return page, 1 + next((at for opened, at in reversed(state.opened) if opened == page), -1)

    def parts_of(self, page: str) -> list[tuple[tuple[str, str], ...]]:
        """The parts of a page, each its passages (id, text); none of a page that there is not."""
        whole = self.index.pages.get(page, ())
        return [whole[i : i + self.passages] for i in range(0, len(whole), self.passages)]

    def oracle(self, state: SearchState) -> str:
        """The next step of the shortest way: as `Search`, and before it answers it opens the page of a gold
        passage, or of the one found first, whose parts have the answer where nothing that was shown has it.
        """
        step = super().oracle(state)
        if not isinstance(state, PageState) or not step.startswith(f"<{self.forms[1]}>"):
            return step
        left = state.openings < self.opens and len(state.outcomes) + 2 <= self.turns
        page = self._page_with_answer(state) if left else ""
        return f"<{self.form}>{page}</{self.form}>" if page else step

    def _page_with_answer(self, state: PageState) -> str:
        """The passage to be opened next, by its name; "" = none need be, or has the answer."""
        right = right_answers(state.task)
        has = {
            i for i, text in self._plain_texts.items() if any(contains_term(a, text) for a in right)
        }
        hit_names = [i for ids in state.found for i in ids]
        if not hit_names or has & set(hit_names):
            return ""
        gold = sources_of(state.task)
        known = [i for i in hit_names if not gold or {i, document_of(i)} & gold]
        of_pages = (i for n in known for i, _ in self.index.pages[document_of(n)])
        return next((i for i in of_pages if i in has), "")

    @cached_property
    def _plain_texts(self) -> dict[str, str]:
        """The text of every passage, normalised once and not at each step of an oracle."""
        return {i: normalise_text(text) for page in self.index.pages.values() for i, text in page}

    def line_of(self, hit: Hit) -> str:
        name, _, _ = hit
        return f"[{name}] {super().line_of(hit)}" if self.opens else super().line_of(hit)

    @property
    def _actions(self) -> tuple[str, ...]:
        return (*self.forms, self.form) if self.opens else self.forms

    def _begin(self, task: Task) -> SearchState:
        return PageState(task=task)

    def _facts(self, state: SearchState) -> Mapping[str, Any]:
        assert isinstance(state, PageState)
        search_facts = facts(state)
        used = {"search": "found" in state.outcomes, self.form: bool(state.opened)}
        return {
            **search_facts,
            **log_of(state, "search", self.form if self.opens else ""),
            "tool_calls": search_facts["tool_calls"] + state.openings,
            "tool_errors": search_facts["tool_errors"] + state.outcomes.count("unknown"),
            "opens": state.openings,
            "pages_opened": tuple(page for page, _ in state.opened),
            "tools_used": tuple(name for name, is_used in used.items() if is_used),
        }
