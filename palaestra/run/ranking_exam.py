"""How good the rankings of held-out queries are, and those that stood before the model did anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestra.errors import UserError
from palaestra.rollout.collect import Sample
from palaestra.run.evaluation import attempt_tasks
from palaestra.types import Episode, Group, need_at_least, stage
from palaestra.verifiers.ranking import document_grades, ndcg, recall, reciprocal_rank

if TYPE_CHECKING:
    from palaestra.run.context import RunContext

RANKINGS = {
    "": "ranking",
    "before ": "ranking_plain",
}  # facts, by what stands before a measure's name


@stage
class RankingExam:
    """Means over held-out queries of NDCG@k, MRR@k and the recall among the first `deep`, of greedy answers
    (the fact "ranking") and of the order without the model ("ranking_plain", with "before" in front).

    Queries without a relevant document have no part in the means; "without" counts them.

    Args:
        n: queries, at most.
        k: places that count in NDCG and MRR.
        deep: places that count in the recall.
    """

    n: int = 128
    k: int = 10
    deep: int = 100

    def __post_init__(self) -> None:
        need_at_least(self, n=1, k=1, deep=1)

    async def __call__(self, ctx: RunContext) -> Mapping[str, Any]:
        n = min(self.n, ctx.plan.evaluate) or self.n  # a run measures on no more
        groups = await attempt_tasks(ctx, n, Sample(n=1, temperature=0.0), label="ranking exam")
        return measure_rankings(groups, self.k, self.deep)


def measure_rankings(groups: Sequence[Group], k: int, deep: int) -> dict[str, Any]:
    """The measures of the first episode of each group. Raises UserError where none has a ranking."""
    ranked: list[tuple[Group, Episode]] = [
        (g, e) for g in groups for e in g.valid[:1] if "ranking" in e.facts
    ]
    if not ranked:
        raise UserError(
            "rankings are measured where documents are ranked; give --docs FOLDER and --data FILE.jsonl "
            "with the column gold"
        )
    with_gold = [(g, e) for g, e in ranked if g.task.meta.get("gold")]
    grades = [document_grades(g.task.meta["gold"], f"task {g.task.id!r}") for g, _ in with_gold]
    numbers: dict[str, Any] = {}
    for name, fact in RANKINGS.items():
        rows = [
            (
                ndcg(e.facts[fact], own, k),
                reciprocal_rank(e.facts[fact], own, k),
                recall(e.facts[fact], own, deep),
            )
            for (_, e), own in zip(with_gold, grades, strict=True)
            if fact in e.facts
        ]
        if rows:
            means = np.mean(rows, axis=0).tolist()
            measures = (f"ndcg@{k}", f"mrr@{k}", f"recall@{deep}")
            numbers |= {name + m: x for m, x in zip(measures, means, strict=True)}
    return numbers | {"n": len(with_gold), "without": len(ranked) - len(with_gold)}
