"""Whether what a call returned is used later: a definition that can be told from the texts alone."""

from __future__ import annotations

import re
from typing import Self

from palaestra.services.index import STOP_WORDS, UNSPACED
from palaestra.types import value_class

# a number is one word, its decimals included
WORD = re.compile(rf"\d+(?:[.,]\d+)+|[{UNSPACED}]|[^\W{UNSPACED}]+")


@value_class
class Uptake:
    """Which results of an episode were used: a result counts as used where the policy later says or passes to a call
    a word that this result was the first to say.

    First to say: the word stands neither in the question, nor in anything that the policy said before, the call itself
    included, nor in an earlier result. Words are compared whole and without case, a number with its decimals is one,
    and `STOP_WORDS` do not count. So a result that repeats the question, the call or an earlier result is not used,
    whatever is said afterwards; nor is one that is only confirmed, such as a page that agrees with a draft. A result
    that is put in other words is missed, and a word that the policy would have said anyway is counted: this tells
    what was taken up, not what it did to the answer.
    """

    known: frozenset[str] = frozenset()  # words that were said so far, by anybody
    brought: tuple[frozenset[str], ...] = ()  # by result, the words that it was the first to say
    used: tuple[bool, ...] = ()  # by result

    def said(self, *texts: str) -> Self:
        """After the policy said this; also what it was asked, before there is any result."""
        words = words_in(*texts)
        used = tuple(u or bool(words & new) for u, new in zip(self.used, self.brought, strict=True))
        return type(self)(known=self.known | words, brought=self.brought, used=used)

    def returned(self, *texts: str) -> Self:
        """After one message's calls returned these, "" = nothing that could be used. Of a word in several of them each
        is the first to say it.
        """
        new = tuple(words_in(text) - self.known - STOP_WORDS for text in texts)
        return type(self)(
            known=self.known.union(*new),
            brought=(*self.brought, *new),
            used=(*self.used, *(False for _ in new)),
        )


def words_in(*texts: str) -> frozenset[str]:
    return frozenset(word for text in texts for word in WORD.findall(text.casefold()))
