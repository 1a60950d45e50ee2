"""The JSON that a reply gives as its answer: in a fence, in <answer></answer>, the whole reply, or
the one value at its end, with prose before it.

What the words around deny or take back is no answer; neither is one of several values in prose.
"""

from __future__ import annotations

import json
import re

from palaestra.verifiers.answers.final import tagged_answer
from palaestra.verifiers.base import fences

LANGUAGES = ("json", "jsonc", "json5", "")
NEAR = 200  # characters before an answer in which it can be denied
END = re.compile(r"`{0,2}[\s.!*]*")
DENIED = re.compile(
    r"\b(?:not|never|wrong|incorrect|invalid|bad|broken|instead|rather than|unlike|ignore"
    r"|avoid|forget|e\.g\.|for (?:example|instance)|an? example|counter-?example"
    r"|would have been|if it were)\b|n['’]t\b",
    re.IGNORECASE,
)
WITHDRAWN = re.compile(
    r"(?:^|[.!?:;,\n])[\s*_]*(?:but|or|no|nope|wait|actually|alternatively|rather|hmm+)\b"
    r"|\b(?:wrong|incorrect|invalid|mistaken?|oops|sorry|correction|ignore|scratch|never ?mind"
    r"|disregard|discard|withdraw|instead|should (?:be|have|read|say)|(?:not|n['’]t) (?:the|what|it"
    r"|right|correct|true))\b|(?:is|was)n['’]t\b",
    re.IGNORECASE,
)


def stated_json(text: str) -> str | None:
    """The JSON text that a reply states; None where it states none, or takes it back.

    Args:
        text: the reply without its thoughts.
    """
    text = text.replace("\ufeff", "").strip()
    blocks = fences(text, LANGUAGES)
    given = blocks[-1].strip("\n") if blocks else tagged_answer(text)
    if given is None:
        before, given, behind = text_at_end(text)
    elif not given:  # nothing in the block or tags, or what surrounds the tags denies it
        return None
    else:
        before, _, behind = text.rpartition(given)
        behind = behind.partition("```")[2] if blocks else re.sub(r"^\s*</answer>", "", behind)
    if WITHDRAWN.search(behind) or another_value(behind):
        return None
    return None if DENIED.search(before[-NEAR:]) else given


def text_at_end(text: str) -> tuple[str, str, str]:
    """What stands before an object or a list, it, and what stands behind it; where there is none,
    the whole text is the value.
    """
    start = min((at for c in "{[" if (at := text.find(c)) >= 0), default=0)
    if not start:
        return "", text, ""
    try:
        _, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return "", text, ""
    return (text[:start], text[start:end], "") if END.fullmatch(text, end) else ("", text, "")


def another_value(text: str) -> bool:
    """Whether a text holds an object or a list."""
    start = min((at for c in "{[" if (at := text.find(c)) >= 0), default=-1)
    try:
        return start >= 0 and bool(json.JSONDecoder().raw_decode(text, start))
    except (ValueError, RecursionError):
        return False
