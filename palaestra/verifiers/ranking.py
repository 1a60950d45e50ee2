"""How good a ranking is, against documents that are known to be relevant."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from palaestra.errors import UserError
from palaestra.services.index import document_of


def ndcg(ranking: Sequence[str], grades: Mapping[str, float], k: int = 10) -> float:
    """The normalised discounted cumulative gain of the first `k` of a ranking, in [0, 1].

        DCG@k = sum_{i<=k} g_i / log2(i + 1),    NDCG@k = DCG@k / DCG@k of the best ranking

    Gains are the grades themselves, as in trec_eval, scikit-learn and BEIR, and the best ranking
    has all graded documents, found or not (Jarvelin and Kekalainen, 2002). A document that comes
    twice counts once, at its first place. Without a grade above 0 it is 0.

    Args:
        ranking: ids, best first.
        grades: how relevant each document is; those that it does not name are not.
        k: places that count.
    """
    places = list(dict.fromkeys(ranking))[:k]
    best = sorted((g for g in grades.values() if g > 0), reverse=True)[:k]
    ideal = sum(g / math.log2(i + 2) for i, g in enumerate(best))
    gained = sum(
        max(0.0, grades.get(name, 0.0)) / math.log2(i + 2) for i, name in enumerate(places)
    )
    return gained / ideal if ideal else 0.0


def reciprocal_rank(ranking: Sequence[str], grades: Mapping[str, float], k: int = 10) -> float:
    """1 / the place of the first relevant document among the first `k`, 0 where none is there; the mean
    over queries is MRR@k. Ids that come twice stand at their first place.
    """
    places = list(dict.fromkeys(ranking))[:k]
    return next((1 / i for i, name in enumerate(places, 1) if grades.get(name, 0.0) > 0), 0.0)


def recall(ranking: Sequence[str], grades: Mapping[str, float], k: int = 100) -> float:
    """The share of the relevant documents, which have a grade above 0, that are among the first `k`;
    0 where no document is relevant.
    """
    relevant = {name for name, grade in grades.items() if grade > 0}
    places = set(list(dict.fromkeys(ranking))[:k])
    return len(relevant & places) / len(relevant) if relevant else 0.0


def document_grades(gold: Any, of: str) -> dict[str, float]:
    """Documents with their grades: a mapping from ids to numbers, of which one is above 0, or ids
    alone, texts or whole numbers, which have 1.

    Raises:
        UserError: for anything else; `of` says whose it is.
    """
    if is_id(gold):
        return {str(gold): 1.0}
    if isinstance(gold, Mapping):
        given: Mapping[Any, Any] = gold
        if all(is_grade(g) for g in given.values()) and any(g > 0 for g in given.values()):
            return {str(name): float(g) for name, g in given.items()}
    elif isinstance(gold, Iterable):
        names: list[Any] = list(gold)
        if all(map(is_id, names)):
            return dict.fromkeys(map(str, names), 1.0)
    raise UserError(
        f"{of}: gold is {str(gold)[:60]!r}; write the names of the relevant documents, as "
        '["lions.md"], or their grades, one of them above 0, as {"lions.md": 2, "cats.md": 1}'
    )


def is_id(value: Any) -> bool:
    """Whether it can name a document: a text or a whole number."""
    return isinstance(value, str | int) and not isinstance(value, bool)


def is_grade(value: Any) -> bool:
    """Whether it is a number that a grade can be: finite, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def rank_sources(ids: Iterable[str], grades: Mapping[str, float]) -> list[str]:
    """A ranking of passages as one of what is graded: a passage FILE#N stands for FILE where that
    has a grade, and for itself elsewhere. A document stands where its first passage does.
    """
    names = ((i, document_of(i)) for i in ids)
    return list(
        dict.fromkeys(i if i in grades or file not in grades else file for i, file in names)
    )
