"""Traits of a text by rules, how far they are from those of edited texts, and what to change."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

Traits = tuple[float, ...]
TRAITS = (
    "factualness: Is everything that the response states supported by the request?",
    "novelty: Does the response say more than the words of the request?",
    "non-repetition: Does the response say everything only once?",
    "relevance: Is the response about what the request is about?",
)
# what the rules say of a trait that is too low, and too high
REMEDIES: Mapping[str, tuple[str, str]] = {
    "factualness": ("state only numbers and names that the request has", "add facts of your own"),
    "novelty": ("use words of your own", "keep closer to the words of the request"),
    "non-repetition": ("say nothing twice", "take up again what you said"),
    "relevance": ("take up everything that the request names", "leave some of the request out"),
}
OFF = 0.05  # a trait that is further off than this is named
WORD = re.compile(r"\w+(?:[.,]\d+)*")
COMMON = """
about also been from have into more over some that their them then there they this very were what when
where which with will would write your"""


def volume(v: Sequence[float]) -> float:
    """prod_k v_k."""
    return float(np.prod(np.asarray(v, dtype=float)))


def trait_loss(v: Sequence[float], h: Sequence[float]) -> float:
    """L(v, h) of the module: half the relative difference of the volumes (the absolute one where that of
    h is 0), and half the mean difference of the traits.
    """
    spatial = abs(volume(v) - volume(h)) / (volume(h) or 1.0)
    vertices = float(np.mean(np.abs(np.subtract(v, h))))
    return 0.5 * spatial + 0.5 * vertices


def expected_traits(edited: Sequence[Sequence[float]], smoothing: float) -> Traits:
    """h of trait vectors in the order of their edits: the mean where `smoothing` s is 0, else h <- (1 - s)
    h + s v from the first one on.
    """
    v_EK = np.array(edited, dtype=float)
    if not smoothing:
        return tuple(v_EK.mean(0).tolist())
    h_K = v_EK[0]
    for v_K in v_EK[1:]:
        h_K = (1 - smoothing) * h_K + smoothing * v_K
    return tuple(h_K.tolist())


def share(n: int, of: int, empty: float) -> float:
    return n / of if of else empty


def rule_traits(request: str, text: str) -> Traits:
    """Factualness, novelty, non-repetition and relevance by the rules of the module; all 0 of a text
    without a word. A text that states no number and no name states nothing wrong: factualness 1.
    """
    words, asked = WORD.findall(text), WORD.findall(request)
    if not words:
        return (0.0,) * len(TRAITS)
    low, low_asked = [w.lower() for w in words], [w.lower() for w in asked]
    known, common = set(low_asked), set(COMMON.split())
    slots = [w.lower() for w in stated_slots(text)]
    pairs = list(pairwise(low))
    pairs_asked = set(pairwise(low_asked))
    distinct = set(pairs)
    keys = {w for w in low_asked if w[0].isdigit() or (len(w) > 3 and w not in common)}
    return (
        share(sum(s in known for s in slots), len(slots), 1.0),
        share(len(distinct - pairs_asked), len(distinct), float(low[0] not in known)),
        share(len(distinct), len(pairs), 1.0),
        share(len(keys & set(low)), len(keys), 1.0),
    )


def stated_slots(text: str) -> list[str]:
    """Numbers, and words with a capital letter that begin no sentence and no line."""
    slots = list[str]()
    for match in WORD.finditer(text):
        before = text[: match.start()].rstrip(" \t\"'(*-#>")
        begins = not before or before[-1] in ".!?:\n"
        word = match[0]
        if word[0].isdigit() or (word[0].isupper() and word != "I" and not begins):
            slots.append(word)
    return slots


def traits_off(
    v: Sequence[float], h: Sequence[float], names: Sequence[str]
) -> list[tuple[str, float, float]]:
    """(name, value, expected) of the traits that are off by more than `OFF`, the furthest first; the
    furthest alone where none is.
    """
    order = sorted(range(len(names)), key=lambda k: -abs(v[k] - h[k]))
    far = [k for k in order if abs(v[k] - h[k]) > OFF] or order[:1]
    return [(names[k], v[k], h[k]) for k in far]


def rule_advice(off: Sequence[tuple[str, float, float]], wording: str) -> str:
    """A line for each trait that is off. `wording` may name {trait}, {value}, {expected}, {remedy} and
    {sign}, + where there should be more.
    """
    lines = list[str]()
    for name, value, expected in off:
        low = value < expected
        more, less = REMEDIES.get(name, (f"show more {name}", f"show less {name}"))
        lines.append(
            wording.format(
                trait=name,
                value=f"{value:.2f}",
                expected=f"{expected:.2f}",
                remedy=more if low else less,
                sign="+" if low else "-",
            )
        )
    return "\n".join(lines)


WORDING = "- {trait} was {value} and should be {expected}: {remedy}."
