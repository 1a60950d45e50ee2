"""How alike two texts are: edits, n-grams, common subsequences. Each in [0, 1], 1 = equal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence


def edit_distance(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    """Levenshtein distance, a whole column of its table at once as the bits of an integer (Myers
    1999, Hyyrö 2003).
    """
    if not a or not b:
        return len(a) + len(b)
    places: dict[Hashable, int] = {}
    for i, x in enumerate(a):
        places[x] = places.get(x, 0) | 1 << i
    last, mask = 1 << (len(a) - 1), (1 << len(a)) - 1
    up, down, distance = mask, 0, len(a)  # bits: where the column rises, where it falls
    for x in b:
        equal = places.get(x, 0)
        zero = ((((equal & up) + up) ^ up) | equal | down) & mask
        rise, fall = down | ~(zero | up) & mask, up & zero
        distance += bool(rise & last) - bool(fall & last)
        rise, fall = (rise << 1 | 1) & mask, fall << 1 & mask
        up, down = fall | ~(zero | rise) & mask, rise & zero
    return distance


def relative_length(text: str, gold: str) -> float:
    """1 - | |gold| - |text| | / |gold| in characters; below 0 for a text of more than twice the
    length.
    """
    return 1 - abs(len(gold) - len(text)) / max(1, len(gold))


def edit_similarity(a: Sequence[Hashable], b: Sequence[Hashable]) -> float:
    """1 - distance / longer length; two empty texts are equal."""
    return 1 - edit_distance(a, b) / max(len(a), len(b)) if a or b else 1.0


def jaccard(a: set[Hashable], b: set[Hashable]) -> float:
    """|a & b| / |a | b|, in [0, 1]; 1 for two empty sets."""
    return len(a & b) / len(a | b) if a or b else 1.0


def ngrams(tokens: Sequence[Hashable], n: int) -> set[Hashable]:
    return {tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)}


def common_length(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    """The length of the longest common subsequence, by bits as above (Hyyrö 2004)."""
    places: dict[Hashable, int] = {}
    for i, x in enumerate(a):
        places[x] = places.get(x, 0) | 1 << i
    mask = (1 << len(a)) - 1
    free = mask
    for x in b:
        taken = free & places.get(x, 0)
        free = ((free + taken) | (free - taken)) & mask
    return len(a) - free.bit_count()


def rouge_l(a: Sequence[Hashable], b: Sequence[Hashable]) -> float:
    """F1 of the longest common subsequence (Lin 2004)."""
    return 2 * common_length(a, b) / (len(a) + len(b)) if a and b else float(not a and not b)


def cosine(a: str, b: str, n: int = 3) -> float:
    """Cosine of the counts of character 1- to n-grams."""
    x, y = count_character_ngrams(a, n), count_character_ngrams(b, n)
    return count_cosine(x, y) if x and y else float(a == b)


def count_cosine(x: Mapping[str, int], y: Mapping[str, int]) -> float:
    """Cosine of two counts; 0 where one is empty."""
    norm = math.sqrt(sum(v * v for v in x.values()) * sum(v * v for v in y.values()))
    return min(1.0, sum(v * y.get(k, 0) for k, v in x.items()) / norm) if norm else 0.0


def count_character_ngrams(text: str, n: int) -> Counter[str]:
    """How often each run of 1 to `n` characters stands in a text, its blanks included."""
    return Counter(text[i : i + k] for k in range(1, n + 1) for i in range(len(text) - k + 1))
