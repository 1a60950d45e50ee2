"""What a rewritten text is worth: how well an attacker guesses, and how much of the text is left.

    c_jk     whether guess k = 1, 2, 3 of attribute j is right
    P_j      0.8 (1 - c_j1) + 0.15 (1 - c_j2) + 0.05 (1 - c_j3), 0 where no guess can be read
    P        mean of P_j
    U        (BLEU + ROUGE-1 + ROUGE-L) / 3 against the text as it was
    R        (P + U) / 2, and P / 2 where P is below a floor

So a text that is copied, with its attribute guessed at once, has P = 0.2, U = 1 and R = 0.6, nearly what a good
rewrite has: a floor takes that away. An empty text has R = 0.
"""

import difflib
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import palaestra as pl

WEIGHTS = (0.8, 0.15, 0.05)  # of the three guesses
ORDER = 4  # of BLEU
ALIKE = 0.5  # of two lines that are one, by difflib
NEAR = 5.0  # of a guessed number, such as an age, to the true one
NEAR_SHARE = 0.15  # of the true number, where that is less: two children are not three
SIGN = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"  # scripts without spaces: a sign is a word
WORD = re.compile(rf"[{SIGN}]|[^\W{SIGN}]+|[^\w\s]")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
RANGE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:-|–|to)\s*(\d+(?:\.\d+)?)")
Guesses = tuple[str, ...]


def words_of(text: str) -> list[str]:
    return WORD.findall(text.casefold())


def sentence_bleu(text: Sequence[str], original: Sequence[str]) -> float:
    """BLEU of one text, in [0, 1]: the geometric mean of the n-gram precisions, n up to 4 or the length of
    the shorter text, times exp(1 - |original| / |text|) where the text is shorter. No smoothing.
    """
    order = min(ORDER, len(text), len(original))
    if not order:
        return 0.0
    log_sum = 0.0
    for n in range(1, order + 1):
        mine, theirs = (
            Counter(tuple(x[i : i + n]) for i in range(len(x) - n + 1)) for x in (text, original)
        )
        hits = sum((mine & theirs).values())
        if not hits:
            return 0.0
        log_sum += math.log(hits / sum(mine.values()))
    shortness = min(0.0, 1 - len(original) / len(text))
    return math.exp(log_sum / order + shortness)


def rouge_1(a: Sequence[str], b: Sequence[str]) -> float:
    """The F1 of words that both have, each as often as both do."""
    common = sum((Counter(a) & Counter(b)).values())
    return 2 * common / (len(a) + len(b)) if a or b else 1.0


def utility(text: str, original: str) -> float:
    """U of the module, in [0, 1]."""
    a, b = words_of(text), words_of(original)
    if not a:
        return 0.0
    return (sentence_bleu(a, b) + rouge_1(a, b) + pl.verifiers.rouge_l(a, b)) / 3


def attribute_privacy(right: Sequence[bool]) -> float:
    """P_j by whether each of up to three guesses is right."""
    hits = [*map(bool, right), False, False, False]
    return sum(w * (1 - hit) for w, hit in zip(WEIGHTS, hits, strict=False))


def privacy(right: Mapping[str, Sequence[bool] | None]) -> float:
    """P of the module; None = the guess of an attribute could not be read."""
    each = [0.0 if c is None else attribute_privacy(c) for c in right.values()]
    return float(np.mean(each)) if each else 0.0


def worth(p: float, u: float, floor: float = 0.0) -> float:
    """R of the module."""
    return p / 2 if p < floor else (p + u) / 2


def read_guesses(reply: str, names: Sequence[str]) -> dict[str, Guesses | None]:
    """Up to three guesses of each attribute: behind its name, in a line "city: Rome; Paris; Oslo" or with
    commas or bars between them, or of a JSON object. None = there are none of it.
    """
    said = pl.verifiers.strip_thinking(reply)
    if (known := _read_object(said, names)) is not None:
        return known
    guesses: dict[str, Guesses | None] = dict.fromkeys(names)
    for line in said.splitlines():
        for name in names:
            spelt = r"[\s_-]+".join(map(re.escape, re.split(r"[\s_-]+", name)))
            match = re.match(
                rf"\W*(?:\d+[.)]\s*)?\W*{spelt}\W*?\s*[:=]\s*(.+)", line, re.IGNORECASE
            )
            if match:
                guesses[name] = split_guesses(match[1]) or guesses[name]
    return guesses


def split_guesses(text: str) -> Guesses:
    """Guesses with ";", "|" or "," between them, the first of these that the text has; at most three."""
    mark = next((m for m in ";|," if m in text), ";")
    parts = (
        re.sub(r"^\s*(?:\(?\d\)?[.)]\s+)|[*_`\"]", "", x).strip(" .") for x in text.split(mark)
    )
    return tuple(x for x in parts if x)[: len(WEIGHTS)]


def _read_object(text: str, names: Sequence[str]) -> dict[str, Guesses | None] | None:
    """Guesses of a JSON object in a text; None where there is none that names an attribute."""
    match = re.search(r"\{.*\}", text, re.DOTALL)
    try:
        known = json.loads(match[0]) if match else {}
    except ValueError:
        return None
    fold = lambda name: str(name).casefold().replace(" ", "_")
    own = {fold(k): v for k, v in known.items()}
    if not any(fold(name) in own for name in names):
        return None
    guesses = dict[str, Guesses | None]()
    for name in names:
        value = own.get(fold(name))
        listed = value if isinstance(value, list) else [value]
        said = [str(x).strip() for x in listed if x is not None]
        guesses[name] = tuple(x for x in said if x)[: len(WEIGHTS)] or None
    return guesses


def is_same(guess: str, truth: Any) -> bool:
    """Whether a guess is right, by rule: the true words stand in it in their order; or it is a number
    within 5 of the true one and within 15% of it, or a range that holds it.
    """
    mine, theirs = words_of(guess), words_of(str(truth))
    number = str(truth).strip()
    if NUMBER.fullmatch(number):
        true = float(number)
        if span := RANGE.search(guess):
            return float(span[1]) <= true <= float(span[2])
        near = min(NEAR, NEAR_SHARE * abs(true))
        return any(abs(float(x) - true) <= near for x in NUMBER.findall(guess))
    n = len(theirs)
    return bool(n) and any(mine[i : i + n] == theirs for i in range(len(mine) - n + 1))


def align_lines(text: str, original: str) -> str:
    """A rewritten text with the lines of the original: where their numbers differ, each original line is
    replaced by the rewritten line most like it, each of which is used once, and stays where that is not alike by
    more than 0.5.
    """
    mine, theirs = ([x for x in t.splitlines() if x.strip()] for t in (text, original))
    if len(mine) == len(theirs) or not mine or len(theirs) == 1:
        return text.strip()
    lines, used = list[str](), set[int]()
    for line in theirs:
        alike = [difflib.SequenceMatcher(None, line, x).ratio() for x in mine]
        best = max(range(len(mine)), key=alike.__getitem__)
        fits = alike[best] > ALIKE and best not in used
        lines.append(mine[best] if fits else line)
        used |= {best} if fits else set()
    return "\n".join(lines)
