"""Candidates of a query are ranked in one message, which names all of them in order.

boss of bako?  [1] tiru: heir of tiru is bako.  [2] bako: boss of bako is mema.        [2] > [1]
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import ClassVar

from palaestra.declared import declare
from palaestra.services.index import Hit
from palaestra.types import Act, Ask, Frame, Key, Task, need_at_least, stage, value_class
from palaestra.verifiers.orders import ORDER_PASSAGES, rank_question, read_order, write_order
from palaestra.verifiers.ranking import ndcg, rank_sources
from palaestra.worlds.pools import candidates_of, grade_of, grades_of
from palaestra.worlds.retrieval import Retriever

ALL_ITEMS = "listwise(deep={n})"  # the environment in which all items of a row are candidates


@value_class
class ListwiseState:
    task: Task
    hits: tuple[Hit, ...]  # all candidates, in the order that they came in


@declare(
    facts=(
        ("order", tuple, "numbers of the candidates shown, from 1, in the order that was written"),
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
class Listwise:
    """Pays NDCG@10 of the order that a message writes, against the task's `meta["gold"]`.

    The first `k` candidates are shown by numbers, in the order of the row or of the retriever; those behind
    them follow in the ranking as they are. Numbers that are left out come last, and those that stand for
    no candidate or come twice are dropped. A message that names no candidate has no ranking, and pays 0.

    Args:
        retriever: that finds candidates; None = rows list them in the column `items`.
        k: candidates that are shown.
        deep: candidates, at most.
        usage: what stands below them; told = 0 leaves it out.
    """

    retriever: Retriever | None
    k: int = 20
    deep: int = 100
    usage: str = ORDER_PASSAGES
    told: bool = True
    places: ClassVar[int] = 10  # that count in the NDCG
    turns: ClassVar[int] = 1
    seats: tuple[str, ...] = ("policy",)
    solved: ClassVar[float] = 1.0
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __post_init__(self) -> None:
        need_at_least(self, k=2, deep=2)

    @property
    def shorter(self) -> str:
        """How to make prompts shorter; "" where two candidates are shown."""
        if self.k == 2:
            return ""
        return f'--env "listwise(k={max(2, self.k // 4)})" shows fewer candidates at once than {self.k}'

    async def candidates(self, task: Task) -> tuple[Hit, ...]:
        """The candidates of a task's query, best first: its column `items`, else what the retriever finds."""
        return await candidates_of(task, self.retriever, self.deep, self._kept, ALL_ITEMS)

    async def reset(self, task: Task, key: Key) -> Frame:
        grades_of(task)
        hits = await self.candidates(task)
        *before, last = task.prompt
        texts = [text for _, text, _ in hits[: self.k]]
        asked = rank_question(last.content, texts, self.usage if self.told else "")
        say = (*before, replace(last, content=asked))
        return Frame(state=ListwiseState(task=task, hits=hits), asks=(Ask(seat="policy", say=say),))

    def step(self, state: ListwiseState, acts: tuple[Act, ...], key: Key) -> Frame:
        grades = grades_of(state.task)
        window, rest = state.hits[: self.k], state.hits[self.k :]
        order = read_order(acts[0].text, len(window), [(name, text) for name, text, _ in window])
        ranked = [*(window[n - 1] for n in order or ()), *rest]
        plain = tuple(rank_sources([name for name, _, _ in state.hits], grades))
        ranking = tuple(rank_sources([name for name, _, _ in ranked], grades)) if order else ()
        value = ndcg(ranking, grades, self.places)
        facts = {
            "order": order or (),
            "ndcg": value,
            "ndcg_plain": ndcg(plain, grades, self.places),
            "ranking": ranking,
            "ranking_plain": plain,
            "malformed": int(order is None),
            "answered": order is not None,
            "correct": value == 1.0,
        }
        return Frame(state=state, pay={("policy", ""): value}, facts=facts)

    def oracle(self, state: ListwiseState) -> str:
        """The candidates shown by their grades; equals in the order that they came in."""
        grades = grades_of(state.task)
        worth = [-grade_of(name, grades) for name, _, _ in state.hits[: self.k]]
        return write_order(sorted(range(1, len(worth) + 1), key=lambda n: worth[n - 1]))

    @cached_property
    def _kept(self) -> dict[str, tuple[Hit, ...]]:
        return {}
