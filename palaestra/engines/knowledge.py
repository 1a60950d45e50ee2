"""Words that documents tie to the words of a text: the external memory of knowledge infused decoding
(arXiv:2204.03084).

    "The twin of bako is tiru."   gives the pairs   bako tiru, bako twin, tiru bako, tiru twin, twin bako, twin tiru

Two terms of a sentence are a pair in both directions; the paper has pairs of subject and object of an
open information extraction with coreference, and nouns by a tagger, for which every word that is no stop
word stands here. A pair is kept under its own letters, so that what begins with a term is found by a prefix.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations

from palaestra.services.index import STOP_WORDS

SENTENCE_END = re.compile(r"(?<=[.!?])[^\S\n]+")
# an initial, a short capitalised word without vowels ("Dr", "Mrs", "St"), or a title that has some
ABBREVIATION = re.compile(
    r"(?<!\w)(?:[^\W\d_]|[BCDFGHJ-NP-TV-Z][bcdfghj-np-tv-z]{1,2}|Prof|Capt|Gen|Col|Rev|Hon|Gov|Sen|Dipl|Ing)\.$"
)
WORD = re.compile(r"[^\W\d_](?:[\w'\u2019-]*\w)?|\d[\d.,]*\d|\d")
GENITIVE = re.compile("['\u2019]s$")
MOST_TERMS = 40  # of a sentence; what is longer is a list or a table


def terms_of(text: str) -> list[str]:
    """The words of a text that are no stop words, each once, in order, as they are written."""
    words = (GENITIVE.sub("", x) for x in WORD.findall(text))
    return list({x.casefold(): x for x in words if x.casefold() not in STOP_WORDS}.values())


def sentences_of(text: str) -> list[str]:
    """The sentences of a text; each line begins one. A title or an initial before a capital ends none:
    "Dr. Eva M. Roth leads it."
    """
    sentences = list[str]()
    for line in text.splitlines():
        begun = len(sentences)
        for part in SENTENCE_END.split(line):
            if len(sentences) > begun and part[:1].isupper() and ABBREVIATION.search(sentences[-1]):
                sentences[-1] += f" {part}"
            else:
                sentences.append(part)
    return sentences


def lemma(term: str) -> str:
    """A term in small letters, without the s of a plural."""
    low = term.casefold()
    return low[:-1] if len(low) > 3 and low.endswith("s") and not low.endswith("ss") else low


@dataclass(frozen=True)
class KnowledgeTrie:
    """Pairs of terms by their letters.

    Args:
        keys: "subject object" in small letters, sorted.
        objects: the object of each, as it is written.
    """

    keys: tuple[str, ...]
    objects: tuple[str, ...]

    @classmethod
    def of(cls, texts: Iterable[str]) -> KnowledgeTrie:
        """The pairs of all sentences of some texts."""
        pairs: dict[str, str] = {}
        for text in texts:
            for sentence in sentences_of(text):
                for subject, other in permutations(terms_of(sentence)[:MOST_TERMS], 2):
                    pairs.setdefault(f"{subject} {other}".casefold(), other)
        keys = sorted(pairs)
        return cls(tuple(keys), tuple(pairs[k] for k in keys))

    def under(self, prefix: str) -> list[str]:
        """The objects of all pairs whose letters begin with `prefix`; a number or a single letter is a
        whole subject, so that "X" is not Xaver.
        """
        if len(prefix) == 1 or prefix[:1].isdigit():
            prefix += " "
        at, objects = bisect_left(self.keys, prefix), list[str]()
        while at < len(self.keys) and self.keys[at].startswith(prefix):
            objects.append(self.objects[at])
            at += 1
        return objects

    def related(self, memory: Sequence[str], hops: int = 1) -> list[str]:
        """The knowledge terms of a local memory: objects of pairs that begin with one of its terms, and
        with more `hops` of pairs that begin with these. Each once; a term of the memory is none.
        """
        seen, entities = {lemma(x) for x in memory}, dict[str, str]()
        asked = [lemma(x) for x in memory]
        for _ in range(hops):
            new = [x for prefix in asked for x in self.under(prefix) if lemma(x) not in seen]
            entities |= {lemma(x): x for x in new if lemma(x) not in entities}
            asked = [lemma(x) for x in new]
        return list(entities.values())


class TermSpeller:
    """Knowledge terms as tokens.

    Args:
        encode, decode: of the model's tokenizer, for plain text.
    """

    def __init__(
        self, encode: Callable[[str], Sequence[int]], decode: Callable[[Sequence[int]], str]
    ):
        self.encode, self.decode = encode, decode
        self._spelled: dict[str, tuple[tuple[int, ...], ...]] = {}

    def spellings(self, term: str) -> tuple[tuple[int, ...], ...]:
        """The ids of a term at the beginning of a line and behind a space, which itself is left out
        where it is a token of its own.
        """
        if term not in self._spelled:
            ways = list[tuple[int, ...]]()
            for text in (f" {term}", term):
                ids = tuple(self.encode(text))
                while ids and not self.decode(ids[:1]).strip():
                    ids = ids[1:]
                ways += [ids] if ids and ids not in ways else []
            self._spelled[term] = tuple(ways)
        return self._spelled[term]

    def next_tokens(self, terms: Sequence[str], written: Sequence[int], whole: bool) -> list[int]:
        """The ids that begin a term, in ascending order; with `whole`, where what was said ends in the
        middle of terms, the ids that go on with these instead.
        """
        first, begun = set[int](), set[int]()
        for term in terms:
            for ids in self.spellings(term):
                first.add(ids[0])
                for j in range(1, min(len(ids), len(written) + 1)) if whole else ():
                    if tuple(written[-j:]) == ids[:j] and self._at_word(written[:-j]):
                        begun.add(ids[j])
        return sorted(begun or first)

    def _at_word(self, before: Sequence[int]) -> bool:
        """Whether a word may begin behind these ids."""
        return not before or not self.decode(before[-1:])[-1:].isalnum()
