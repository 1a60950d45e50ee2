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
from collections.abc import Iterator, Mapping, Sequence
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
NUMBERED = re.compile(r"(?:^|\s)\(?\d[.)]\s+")  # before a guess
ITEM = re.compile(r"\s*(?:[-*•+–]|\(?(?:\d+|[a-c])[.)])\s+(.+)")  # of a list
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
    """Up to three guesses of each attribute: of JSON objects, or else behind its name, in a line "city: Rome; Paris;
    Oslo" or with commas or bars between them, in several such lines, or in a list below the name. None = there
    are none of it.
    """
    bare = pl.verifiers.strip_thinking(reply)
    made = _read_objects(bare, names) or _read_lines(bare, names)
    return {name: made.get(name, ())[: len(WEIGHTS)] or None for name in names}


def split_guesses(text: str) -> Guesses:
    """Guesses with ";", "|" or "," between them, the first of these that the text has, or numbers before them; at
    most three.
    """
    mark = next((m for m in ";|," if m in text), "")
    parts = text.split(mark) if mark else NUMBERED.split(text)
    return tuple(x for x in map(_bare, parts) if x)[: len(WEIGHTS)]


def _bare(guess: str) -> str:
    """A guess without its number, its emphasis, and brackets and quotes around it."""
    return re.sub(r"[*_`\"]", "", NUMBERED.sub(" ", guess)).strip(" .[]{}")


def fold(name: Any) -> str:
    """A name as it is compared: without case, and with hyphens and underscores as spaces."""
    return re.sub(r"[\s_-]+", " ", str(name)).strip().casefold()


def _head_of(name: str) -> re.Pattern[str]:
    """A line that begins with a name: in its group what stands behind, None where the line is the name alone."""
    spelt = r"[\s_-]+".join(map(re.escape, re.split(r"[\s_-]+", name.strip())))
    return re.compile(
        rf"\W*(?:\d+[.)]\s*)?\W*{spelt}\W*?\s*(?:[:=]\s*(.*)|$)", re.IGNORECASE | re.DOTALL
    )


def _read_lines(text: str, names: Sequence[str]) -> dict[str, Guesses]:
    """Guesses behind the attributes' names, or in list items below a name that stands alone."""
    heads = {name: _head_of(name) for name in names}
    made = dict[str, Guesses]()
    below = ""  # the attribute whose list goes on
    for line in filter(str.strip, text.splitlines()):
        match = next(((n, m) for n, head in heads.items() if (m := head.match(line))), None)
        if match:
            name, guesses = match[0], split_guesses(match[1][1] or "")
            made[name] = made.get(name, ()) + guesses
            below = "" if guesses else name
        elif below and (item := ITEM.match(line)) and not line.rstrip(" *_").endswith(":"):
            made[below] += tuple(map(_bare, re.split("[;|]", item[1])))
        else:
            below = ""
    return {name: tuple(filter(None, own)) for name, own in made.items()}


def _read_objects(text: str, names: Sequence[str]) -> dict[str, Guesses]:
    """Guesses of the JSON objects in a text that name an attribute, however deep; {} where there are none."""
    made, start, reader = dict[str, Guesses](), text.find("{"), json.JSONDecoder()
    while start >= 0:
        try:
            known, end = reader.raw_decode(text, start)
        except (ValueError, RecursionError):
            known, end = {}, start + 1
        for key, value in _pairs(known):
            for name in names:
                if fold(key) == fold(name):
                    made[name] = made.get(name, ()) + _values(value)
        start = text.find("{", end)
    return made


def _pairs(known: Any) -> Iterator[tuple[str, Any]]:
    """The names and values of an object and of those that it holds, from the outside in."""
    if isinstance(known, list):
        for x in known:
            yield from _pairs(x)
    elif isinstance(known, dict):
        yield from known.items()
        for x in known.values():
            yield from _pairs(x)


def _values(value: Any) -> Guesses:
    """Guesses of a JSON value: a list has one in each item, a text as a line has them, an object none."""
    if isinstance(value, str):
        return split_guesses(value)
    listed = value if isinstance(value, list) else [value]
    texts = (str(x).strip() for x in listed if x is not None and not isinstance(x, list | dict))
    return tuple(x for x in texts if x)


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
    more than 0.5. A text of which no line is like one of the original is no rewrite of it, and stays as it is.
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
    return "\n".join(lines) if used else text.strip()
