"""An index of documents that is searched by words: BM25 of the library bm25s."""

from __future__ import annotations

import hashlib
import re
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from palaestra.errors import UserError
from palaestra.types import rng_of, stage

Hit: TypeAlias = tuple[str, str, float]  # id, text, score
# Chinese and Japanese, which are written without spaces: each character counts as a word
UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")


def words_of(text: str) -> list[str]:
    """The words of a text or a query, in lower case, in order."""
    return WORD.findall(text.casefold())


COMMON = """a about above after again all also am an and any are as at be because been before being below
between both but by can could did do does doing down during each few for from further had has have
having he her here hers him his how i if in into is it its itself just me more most my no nor not
now of off on once only or other our out over own same she should so some such than that the their
them then there these they this those through to too under until up very was we were what when where
which while who whom why will with would you your"""
STOP_WORDS = frozenset(COMMON.split())


def document_of(passage: str) -> str:
    """The document of a passage, by their ids: FILE of FILE#N, else the passage itself. FILE may have
    a # of its own, as C#.md has.
    """
    file, _, n = passage.rpartition("#")
    return file if file and n.isdecimal() else passage


@stage
class BM25:
    """Documents (id, text), searched by the words that they share with a query.

    The score is BM25 as Lucene has it (Robertson and Zaragoza, 2009; k1 = 1.5, b = 0.75), which is
    above 0 where a word is shared. The same documents and query always give the same hits. It needs
    the extra `search`.

    Args:
        docs: (id, text) of each.
        shuffle: a seed, by which every document takes the place of another: what is found then has
            nothing to do with the query. A control; None = what is found is what fits.

    Raises:
        UserError: where two documents have one id, or none has a word.
    """

    docs: tuple[tuple[str, str], ...]
    shuffle: int | None = None

    def __post_init__(self) -> None:
        if len({i for i, _ in self.docs}) < len(self.docs):
            raise UserError("an index takes documents (id, text); two of these have the same id")
        if not any(words_of(text) for _, text in self.docs):
            raise UserError("an index takes documents (id, text); no text here has a word")

    def __repr__(self) -> str:
        digest = hashlib.sha256(repr(self.docs).encode()).hexdigest()[:12]
        return f"BM25({len(self.docs)} documents, {digest}, shuffle={self.shuffle})"

    def search(self, query: str, k: int = 3) -> tuple[Hit, ...]:
        """The `k` best documents that share a word with the query, best first; of equals the one
        that stands first among the documents. The score is that of the place.
        """
        words = words_of(query)
        if not words:
            return ()
        score_N = np.asarray(self._scores.get_scores(words), np.float64)
        best = np.argsort(-score_N, kind="stable")[:k]
        at = self._places
        return tuple((*self.docs[at[i]], float(score_N[i])) for i in best if score_N[i] > 0)

    @cached_property
    def names(self) -> frozenset[str]:
        """The ids of the passages, and of the documents that they are parts of."""
        return frozenset(name for i, _ in self.docs for name in (i, document_of(i)))

    @cached_property
    def pages(self) -> dict[str, tuple[tuple[str, str], ...]]:
        """The passages (id, text) of each document, by the document's name."""
        pages: dict[str, tuple[tuple[str, str], ...]] = {}
        for name, text in self.docs:
            pages[document_of(name)] = (*pages.get(document_of(name), ()), (name, text))
        return pages

    @cached_property
    def _places(self) -> np.ndarray:
        n = len(self.docs)
        if self.shuffle is None:
            return np.arange(n)
        around = rng_of(("index", self.shuffle)).permutation(n)  # one circle: none keeps its place
        places = np.empty(n, np.int64)
        places[around] = np.roll(around, 1)
        return places

    @cached_property
    def _scores(self) -> Any:
        try:
            import bm25s
        except ImportError:
            raise UserError("an index needs bm25s: pip install 'palaestra[search]'") from None
        made = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
        made.index([words_of(text) for _, text in self.docs], show_progress=False)
        return made
