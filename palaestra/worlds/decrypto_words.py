"""Keywords, hint words and their vectors for `palaestra.worlds.decrypto`.

A file of words has a keyword in each line, and after a colon words that go with it: "fire: flame heat
smoke". Vectors come from a file in the text format of word2vec and GloVe (a word and its numbers in each
line), or are made of the lists of words:

    v(w) = P a(w) / |P a(w)|,    a(w)_k = 1 - 0.1 r where w is number r of keyword k's words, and a(k)_k = 1

P is a fixed Gaussian matrix of `DIMENSIONS` rows, so words of other keywords can be near as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from palaestra.errors import UserError
from palaestra.types import rng_of

DIMENSIONS = 8
LEAST = 4  # keywords of a game
WORDS = """
fire: flame heat smoke ash burn camp
river: stream bank flow bridge boat fish
bread: flour toast bake crust butter loaf
night: dark moon star sleep owl lamp
king: crown throne castle queen rule gold
snow: cold winter white ski flake ice
garden: flower seed soil rose fence bee
music: song drum violin dance band tune
ship: sail harbour captain anchor deck boat
doctor: nurse clinic pill fever cure ward
school: teacher lesson pupil desk exam book
forest: tree wolf moss leaf trail owl
money: coin bank cash purse debt gold
clock: hour minute alarm tick hand late
horse: saddle gallop stable rider mane farm
kitchen: stove pan cook spoon oven bake
desert: sand camel dune dry cactus heat
letter: stamp envelope ink write post word
storm: thunder wind rain cloud hail flood
train: rail station ticket engine track wagon
hand: finger glove palm thumb wrist ring
library: shelf book silence reader page loan
mountain: peak climb rock valley summit snowcap
market: stall price fruit trade crowd basket
soldier: army uniform march helmet rifle war
wedding: bride ring cake vow groom dance
beach: sand wave towel shell sun swim
paint: brush colour canvas wall artist easel
knife: blade sharp cut fork steel slice
dream: sleep pillow wish vision night cloud
football: goal team kick referee pitch score
wine: grape bottle cork cellar glass red
prison: cell guard bars thief escape lock
newspaper: headline print editor page column press
rocket: moon launch orbit fuel space engine
coffee: cup bean roast morning mug milk
"""


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Keywords with the words that go with them, and unit vectors of both."""

    keywords: tuple[str, ...]
    hints: tuple[str, ...]  # words that the embedding players say
    related: dict[str, tuple[str, ...]] = field(repr=False)
    vectors: dict[str, np.ndarray] = field(repr=False)

    def vector(self, word: str) -> np.ndarray:
        """Of a word; nought where it is not known."""
        vector = self.vectors.get(word.lower())
        return np.zeros_like(next(iter(self.vectors.values()))) if vector is None else vector


@lru_cache(maxsize=8)
def lexicon_of(words: str = "", vectors: str = "", keywords: int = 0) -> Lexicon:
    """The lexicon of a file of words ("" = the built-in one) and of vectors ("" = made of the lists).

    Args:
        keywords: the first so many; 0 = all.

    Raises:
        UserError: a file cannot be read, or has too few words.
    """
    related = related_words(read_text(words) if words else WORDS, words or "the built-in words")
    if keywords:
        related = dict(list(related.items())[:keywords])
    if len(related) < LEAST:
        raise UserError(f"decrypto needs at least {LEAST} keywords, not {len(related)}")
    if vectors:
        known = read_vectors(vectors)
        missing = [w for w in related if w not in known]
        if missing:
            raise UserError(f"{vectors} has no vector of the keyword {missing[0]!r}")
        hints = tuple(w for w in known if w not in related)
    else:
        hints = tuple(sorted({w for own in related.values() for w in own} - set(related)))
        known = association_vectors(related)
    if len(hints) < 3:
        raise UserError(
            f"{words or 'decrypto'} has {len(hints)} hint words; write some behind each keyword, as in "
            '"fire: flame heat smoke", or give vectors=FILE'
        )
    return Lexicon(tuple(related), hints, related, known)


def read_text(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file} cannot be read: {error}") from None


def related_words(text: str, name: str) -> dict[str, tuple[str, ...]]:
    """The lists of a text of words. Raises UserError for a keyword that is no single word."""
    related = dict[str, tuple[str, ...]]()
    for number, line in enumerate(text.splitlines(), 1):
        keyword, _, rest = line.strip().lower().partition(":")
        keyword = keyword.strip()
        if not keyword:
            continue
        if not keyword.isalpha():
            raise UserError(f"{name}, line {number}: {keyword!r} is no single word of letters")
        own = (w.strip(",;") for w in rest.replace(",", " ").split())
        related[keyword] = tuple(dict.fromkeys(w for w in own if w.isalpha()))
    return related


def association_vectors(related: dict[str, tuple[str, ...]]) -> dict[str, np.ndarray]:
    """Unit vectors of keywords and their words: see the module."""
    keywords = list(related)
    a: dict[str, np.ndarray] = {}
    for k, keyword in enumerate(keywords):
        for rank, word in enumerate((keyword, *related[keyword])):
            weight = 1.0 if rank == 0 else max(0.1, 1 - 0.1 * (rank - 1))
            a.setdefault(word, np.zeros(len(keywords)))[k] = weight
    p_DK = rng_of(("decrypto", "vectors", len(keywords))).standard_normal(
        (DIMENSIONS, len(keywords))
    )
    projected = {word: p_DK @ a_K for word, a_K in a.items()}
    return {word: x / np.linalg.norm(x) for word, x in projected.items()}


def read_vectors(file: str) -> dict[str, np.ndarray]:
    """Unit vectors of a text file, of lower-case words of letters; a first line of two numbers is the
    header of word2vec. Raises UserError where a line has no numbers, or another number of them.
    """
    known: dict[str, np.ndarray] = {}
    size = 0
    for number, line in enumerate(read_text(file).splitlines(), 1):
        word, *numbers = line.split() or [""]
        if not numbers or (number == 1 and len(numbers) == 1):
            continue
        try:
            x = np.array([float(n) for n in numbers])
        except ValueError:
            raise UserError(f"{file}, line {number}: {word!r} is not followed by numbers") from None
        size = size or len(x)
        if len(x) != size:
            raise UserError(f"{file}, line {number}: {len(x)} numbers, and {size} before")
        length = float(np.linalg.norm(x))
        if word.isalpha() and word.islower() and length > 0:
            known.setdefault(word, x / length)
    return known
