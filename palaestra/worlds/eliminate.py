"""Candidates of a query are ranked by dropping one after the other, the least relevant first.

boss of bako?  [1] tiru: heir of tiru is bako.  [2] bako: boss of bako is mema.        [1]
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import ClassVar

from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.services.index import Hit
from palaestra.types import Act, Ask, Frame, Key, Task, need_at_least, rng_of, stage, value_class
from palaestra.verifiers.base import strip_thinking
from palaestra.verifiers.ranking import ndcg, rank_sources
from palaestra.worlds.pools import candidates_of, draw_pool, grade_of, grades_of
from palaestra.worlds.retrieval import Retriever

DROP_ONE = (
    "Which of these candidates is the least relevant? Write its number alone, such as [2]; it is dropped, and you "
    "are asked again about the rest."
)
ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
BEFORE = r"[\s*`>#-]*(?:(?:final\s+)?(?:answer|candidate|drop)[\s*`]*:?)?[\s*`]*"
NUMBER = re.compile(rf"{BEFORE}(?:\[\s*(\d+)\s*\].*|\(?(\d+)[\s.):*`]*)", re.IGNORECASE | re.DOTALL)
NO_ANSWER, OUTSIDE = -1, 0  # choices that name no candidate


@value_class
class EliminationState:
    task: Task
    hits: tuple[Hit, ...]  # all candidates, in the retriever's order
    left: tuple[Hit, ...]  # those that are shown, in their order
    gone: tuple[Hit, ...] = ()  # those that were dropped, the first one first
    unread: int = 0  # turns in which no candidate was named


@declare(
    facts=(
        (
            "choice",
            int,
            "the candidate named last, from 1; 0 = none of those shown, -1 = nothing was named",
        ),
        ("right_choice", bool, "whether no candidate was less relevant than the one named last"),
        (
            "chance",
            float,
            "the share of the candidates shown last of which no other was less relevant",
        ),
        "ndcg",
        "ndcg_plain",
        "ranking",
        "ranking_plain",
        "malformed",
        "answered",
        "correct",
    ),
    reads_columns=("gold",),
)
@stage
class Eliminate:
    """Pays NDCG@10 of the order in which candidates are left over, against the task's `meta["gold"]`; with a
    `size` 1 for one right choice, else 0.

    Each turn is a context of its own with the candidates that are left, by numbers. A number, an id or the
    text of a candidate names it, in <answer> or alone. Where none is named, the last one in the
    retriever's order is dropped; an episode that names none in any turn has no ranking, and pays 0.

    Args:
        retriever: that finds candidates; None = rows list them in the column `items`.
        k: candidates, at most.
        usage: what stands below them; told = 0 leaves it out.
        shuffle: they stand in an order drawn at random; 0 = in the retriever's.
        size: above 0 asks for one choice alone, among a relevant candidate and `size` - 1 others.
    """

    retriever: Retriever | None
    k: int = 20
    usage: str = DROP_ONE
    told: bool = True
    shuffle: bool = True
    size: int = 0
    places: ClassVar[int] = 10  # that count in the NDCG
    seats: tuple[str, ...] = ("policy",)
    solved: ClassVar[float] = 1.0
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __post_init__(self) -> None:
        need_at_least(self, k=2, size=0)

    async def reset(self, task: Task, key: Key) -> Frame:
        grades = grades_of(task)
        hits = await candidates_of(task, self.retriever, self.k, self._kept)
        candidates, rng = hits, rng_of((*key, "candidates", task.id))
        if self.size:
            candidates = draw_pool(hits, grades, self.retriever, self.size, rng)
            # where none is graded, any choice would be right
            if not any(grade_of(name, grades) for name, _, _ in candidates):
                raise UserError(
                    f"task {task.id!r}: none of its candidates is in its column gold, {str(list(grades))[:60]}, so "
                    "nothing tells a right drop from a wrong one; mend the names, or drop the row"
                )
        if self.shuffle or self.size:
            candidates = tuple(candidates[int(i)] for i in rng.permutation(len(candidates)))
        return self._ask(EliminationState(task=task, hits=hits, left=candidates))

    def step(self, state: EliminationState, acts: tuple[Act, ...], key: Key) -> Frame:
        grades = grades_of(state.task)
        choice = read_choice(acts[0].text, state.left)
        worth = [grade_of(name, grades) for name, _, _ in state.left]
        right = choice > 0 and worth[choice - 1] == min(worth)
        chance = worth.count(min(worth)) / len(worth) if worth else 1.0
        choice_facts = {"choice": choice, "right_choice": right, "chance": chance}
        after = self._drop(state, choice)
        if not self.size and len(after.left) > 1:
            return replace(self._ask(after, new_row=True), facts=choice_facts)
        ranked = (*after.left, *reversed(after.gone))
        ranking = tuple(rank_sources([name for name, _, _ in ranked], grades))
        plain = tuple(rank_sources([name for name, _, _ in state.hits], grades))
        turns = len(after.gone) or 1
        if after.unread == turns:
            ranking = ()
        value = ndcg(ranking, grades, self.places)
        pay = float(right) if self.size else value
        facts = {
            **choice_facts,
            "ndcg": value,
            "ndcg_plain": ndcg(plain, grades, self.places),
            "ranking": ranking,
            "ranking_plain": plain,
            "malformed": after.unread,
            "answered": after.unread == 0,
            "correct": pay == 1.0,
        }
        return Frame(state=after, pay={("policy", ""): pay}, facts=facts)

    def oracle(self, state: EliminationState) -> str:
        """The last of the least relevant candidates."""
        grades = grades_of(state.task)
        worth = [grade_of(name, grades) for name, _, _ in state.left]
        return f"[{max((n for n, w in enumerate(worth, 1) if w == min(worth)), default=1)}]"

    def _ask(self, state: EliminationState, new_row: bool = False) -> Frame:
        *before, last = state.task.prompt
        lines = "\n".join(
            f"[{n}] {' '.join(t.split())}" for n, (_, t, _) in enumerate(state.left, 1)
        )
        behind = (lines, self.usage) if self.told and self.usage else (lines,)
        say = (*before, replace(last, content="\n\n".join((last.content, *behind))))
        return Frame(state=state, asks=(Ask(seat="policy", say=say, new_row=new_row),))

    def _drop(self, state: EliminationState, choice: int) -> EliminationState:
        """The state without the chosen candidate, or without the last one where none was named."""
        if not state.left:
            return replace(state, unread=state.unread + (choice < 1))
        last = max(
            state.left, key=lambda h: state.hits.index(h) if h in state.hits else len(state.hits)
        )
        gone = state.left[choice - 1] if choice > 0 else last
        return replace(
            state,
            left=tuple(h for h in state.left if h[0] != gone[0]),
            gone=(*state.gone, gone),
            unread=state.unread + (choice < 1),
        )

    @cached_property
    def _kept(self) -> dict[str, tuple[Hit, ...]]:
        return {}


def read_choice(text: str, candidates: Sequence[Hit]) -> int:
    """Which of the candidates a message names, from 1; `OUTSIDE` where it names none of these, and
    `NO_ANSWER` where it says nothing behind its thoughts. In <answer> tags the last pair counts; an id or a
    text comes before a number.
    """
    reply = strip_thinking(text)
    answers = ANSWER.findall(reply)
    lines = [x.strip() for x in (answers[-1] if answers else reply).splitlines() if x.strip()]
    if not lines:
        return NO_ANSWER
    plain = plain_words(lines[0])
    for n, (name, content, _) in enumerate(candidates, 1):
        if plain in (plain_words(name), plain_words(content)):
            return n
    match = NUMBER.fullmatch(lines[0])
    number = int(match[1] or match[2]) if match and len(match[1] or match[2]) < 9 else 0
    return number if 1 <= number <= len(candidates) else OUTSIDE


def plain_words(text: str) -> str:
    """A text without case and spare spaces."""
    return " ".join(text.casefold().split())
