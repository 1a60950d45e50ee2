"""Answers in \\boxed{}: where they stand, and what may stand between and behind them."""

from __future__ import annotations

import re

from palaestra.verifiers.answers.amounts import (
    BEFORE,
    LINKS,
    PERCENT,
    SCALES,
    SIZES,
    bare,
)
from palaestra.verifiers.answers.withdrawal import (
    stands_denied,
)

TOUCHES_BEFORE = re.compile(
    r"(?:[0-9/^_]|(?<!\*)\*(?!\*)|\\(?:cdot|times|div|pm|mp|sqrt)|\}\s*\{|\\(?:[dtc]?frac|sqrt)(?:\[\w+\])?\s*\{?)\s*\$?\s*$"
)


TOUCHES_BEHIND = re.compile(
    r"(?:[0-9A-Za-z]*[0-9]|\.[0-9]|\}?\s*[\^_/*+]|\s*(?:\\(?:cdot|times|div|pm|mp|frac|sqrt)|-\s*[0-9\\])|\}\s*\{"
    rf"|[\s$]*(?:{'|'.join(sorted(SIZES - {*SCALES, 'percent', 'pct'}))})\b)",
    re.IGNORECASE,
)


BOX = re.compile(r"\\boxed *\{|[{}]")


BETWEEN_BOXES = re.compile(
    r"(?:\s|\$|&|,|;|\.(?=\s*\$)|\\[()\[\],;:! ]|\\q?quad|\\\\|\\(?:text|mathrm)\s*\{\s*(?:and|or)\s*\}"
    r"|\b(?:and|or)\b|[A-Za-z](?:_\{?\w+\}?)?\s*=)*"
)


BEHIND_BOX = re.compile(
    rf"[\s$]*(\\?%|(?:{PERCENT})(?!\s+points?)|(?:{'|'.join(SCALES)})(?!\w))", re.IGNORECASE
)


def boxes_in(text: str) -> list[tuple[int, int]]:
    """Where the contents of the \\boxed{...} begin and end that hold no other box, braces balanced;
    none where the last is left open.
    """
    boxes, opened, box = list[tuple[int, int]](), list[int](), -1
    for brace in BOX.finditer(text, max(0, text.find("\\boxed"))):
        if brace.group() != "}":
            box = len(opened) if brace.group() != "{" else box
            opened.append(brace.end())
        elif opened:
            start = opened.pop()
            if len(opened) == box:
                boxes.append((start, brace.start()))
                box = -1
    return [] if box >= 0 else boxes


def boxed_answer(text: str) -> str | None:
    """What the last \\boxed{...} holds; of several with nothing but `and`, `or`, commas or names
    between them what all of them hold, as one answer. Nothing ("") where what touches the box makes
    something else of it: -\\boxed{7}, \\boxed{7}^2, half of \\boxed{7}.
    """
    boxes = boxes_in(text)
    if not boxes:
        return None
    first = len(boxes) - 1
    while first and joins_boxes(text[boxes[first - 1][1] + 1 : boxes[first][0]]):
        first -= 1
    start, end = boxes[first][0], boxes[-1][1]
    if not stands_alone(text, start, end) or stands_denied(text[:start], text[end + 1 :]):
        return ""
    inside = [text[start:end] for start, end in boxes[first:]]
    inside[-1] += behind_box(text, boxes[-1][1])
    between = text[boxes[first][1] : boxes[-1][0]]
    return (" or " if re.search(r"\bor\b", between) else ", ").join(dict.fromkeys(inside))


def stands_alone(text: str, start: int, end: int) -> bool:
    """Whether nothing around a box, with its content from `start` to `end`, is a part of the answer
    but percent signs and scales behind it.
    """
    before = text[max(0, start - 80) : start].rstrip("{ ").removesuffix("\\boxed")
    line = before[before.rfind("\n") + 1 :]
    if TOUCHES_BEFORE.search(line) or (
        re.search(r"[-+]\s*\$*\s*$", line) and not re.fullmatch(r"\s*[-+]\s+", line)
    ):
        return False
    words = [bare(w) for w in re.findall(r"[\w']+", line)][-8:]
    while words and words[-1] in LINKS and not line.rstrip().endswith((":", ",")):
        words.pop()
    if words and words[-1] in BEFORE and not re.search(r"[.,:;!?]\s*\W*$", line):
        return False
    return TOUCHES_BEHIND.match(text[end + 1 : end + 60]) is None


def joins_boxes(between: str) -> bool:
    """Whether what stands between two boxes makes one answer of them."""
    between = between.removesuffix("{").rstrip().removesuffix("\\boxed")
    return len(between) <= 60 and BETWEEN_BOXES.fullmatch(between) is not None


def behind_box(text: str, end: int) -> str:
    """The percent sign or the word that makes another number of what a box holds."""
    match = BEHIND_BOX.match(text, end + 1)
    return "" if match is None else f" {match[1]}"
