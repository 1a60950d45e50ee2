"""Passages that a fixed retriever found for a question, of which the policy chooses some, in order.

    boss of bako?  [1] tiru: boss of tiru is bako.  [2] bako: boss of bako is mema.        [2]

A message is a list of numbers, such as "[3], [1]", or "None", behind its thoughts.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cached_property
from typing import ClassVar

from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.services.index import Hit
from palaestra.types import Act, Ask, Frame, Key, Task, need_at_least, rng_of, stage, value_class
from palaestra.verifiers.answers.short import contains_term, normalise_text
from palaestra.verifiers.base import strip_thinking
from palaestra.worlds.retrieval import Retriever, check_gold, find
from palaestra.worlds.search import gain, sources_among, sources_of

CHOOSE_PASSAGES = (
    "Choose the passages that are needed to answer the question, the most useful one first, and no "
    'more than suffice. Write their numbers alone, such as [3], [1], or "None" where none is needed.'
)
NUMBERS = r"\[\s*\d+(?:\s*[,;]\s*\d+)*\s*\]"
BEFORE = (
    r"[\s*`-]*(?:(?:final\s+)?(?:answer|passages?)[\s*`]*:)?[\s*`-]*"  # of a list, or its marks
)
LISTED = re.compile(
    rf"{BEFORE}({NUMBERS}(?:[\s,;>]*(?:\n\s*[-*])?\s*{NUMBERS})*)[\s.*`]*", re.ASCII | re.IGNORECASE
)
EMPTY = re.compile(rf"{BEFORE}\W*none\W*", re.IGNORECASE)


@value_class
class RerankState:
    task: Task
    hits: tuple[Hit, ...]


@declare(
    facts=(
        ("chosen", tuple, "numbers of the passages that were chosen, in order, from 1"),
        ("passages", tuple, "the texts of the passages that were chosen, in order"),
        "malformed",
        "answered",
        "correct",
    )
)
@stage
class Rerank:
    """Pays the share of the gold documents that are among the chosen passages; without the column
    `gold` 1 where one of these has a right answer's words, else 0. So it pays no answer: a recipe
    asks a generator for one. A number that stands for no passage, or comes twice, is left out.

    Args:
        retriever: that is asked with the question; it stays as it is.
        k: passages that it gives to the policy.
        usage: what stands behind them; told = 0 leaves it out.
        pad: irrelevant passages behind the relevant ones in what the oracle says.
    """

    retriever: Retriever
    k: int = 20
    usage: str = CHOOSE_PASSAGES
    told: bool = True
    pad: int = 0
    turns: ClassVar[int] = 1
    seats: tuple[str, ...] = ("policy",)
    solved: ClassVar[float] = 1.0
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __post_init__(self) -> None:
        need_at_least(self, k=1, pad=0)

    @property
    def shorter(self) -> str:
        """How to make prompts shorter; "" where one passage is shown."""
        if self.k == 1:
            return ""
        return f'--env "rerank(k={max(1, self.k // 4)})" shows fewer passages than {self.k}'

    async def reset(self, task: Task, key: Key) -> Frame:
        if not task.prompt or task.answer is None or task.answer in ([], ()):
            raise UserError(f"task {task.id!r} of a search needs a question and an answer")
        check_gold(self.retriever, sources_of(task), task)
        *before, last = task.prompt
        hits = await find(self.retriever, last.content, self.k, self._kept)
        passages = "\n".join(
            f"[{i}] {' '.join(text.split())}" for i, (_, text, _) in enumerate(hits, 1)
        )
        behind = (passages, self.usage) if self.told and self.usage else (passages,)
        say = (*before, replace(last, content="\n\n".join((last.content, *behind))))
        return Frame(state=RerankState(task=task, hits=hits), asks=(Ask(seat="policy", say=say),))

    def step(self, state: RerankState, acts: tuple[Act, ...], key: Key) -> Frame:
        numbers = read_numbers(acts[0].text, len(state.hits))
        chosen = [state.hits[n - 1] for n in numbers or ()]
        worth = gain(state.task, chosen)
        facts = {
            "chosen": numbers or (),
            "passages": tuple(text for _, text, _ in chosen),
            "malformed": int(numbers is None),
            "answered": numbers is not None,
            "correct": worth == 1.0,
        }
        return Frame(state=state, pay={("policy", ""): worth}, facts=facts)

    def oracle(self, state: RerankState) -> str:
        """The relevant passages in the retriever's order, which is an expert's list; then `pad`
        others, drawn at random.
        """
        right = [n for n, hit in enumerate(state.hits, 1) if is_relevant(state.task, hit)]
        others = [n for n in range(1, len(state.hits) + 1) if n not in right]
        drawn = rng_of(("pad", state.task.id)).permutation(len(others))[: self.pad]
        return write_numbers([*right, *(others[int(i)] for i in drawn)])

    @cached_property
    def _kept(self) -> dict[str, tuple[Hit, ...]]:
        return {}


def is_relevant(task: Task, hit: Hit) -> bool:
    """Whether a passage is of a gold document, or without those has a right answer's words."""
    if gold := sources_of(task):
        return bool(sources_among(gold, [hit[0]]))
    answers = task.answer if isinstance(task.answer, list | tuple) else [task.answer]
    return any(contains_term(str(a), normalise_text(hit[1])) for a in answers)


def read_numbers(text: str, n: int) -> tuple[int, ...] | None:
    """The numbers of a message, each once and from 1 to `n`; () of "None"; None where it is no list."""
    reply = strip_thinking(text)
    if EMPTY.fullmatch(reply):
        return ()
    listed = LISTED.fullmatch(reply)
    if listed is None:
        return None
    numbers = dict.fromkeys(int(x) for x in re.findall(r"\d+", listed[1]))
    return tuple(x for x in numbers if 1 <= x <= n)


def write_numbers(numbers: list[int]) -> str:
    """A list as a message has it."""
    return ", ".join(f"[{n}]" for n in numbers) or "None"
