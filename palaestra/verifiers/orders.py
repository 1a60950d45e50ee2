"""Orders of numbered passages in words: how a model is asked for one, and how its message is read.

boss of bako?  [1] tiru: heir of tiru is bako.  [2] bako: boss of bako is mema.        [2] > [1]
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from palaestra.verifiers.base import strip_thinking

ORDER_PASSAGES = (
    "Rank these passages by how relevant they are to the query, the most relevant one first. Write the "
    "numbers of all of them in that order, such as [2] > [1] > [3], and nothing else."
)
BRACKETED = re.compile(r"\[\s*(\d{1,6})\s*\]")
LISTED = re.compile(r"\[\s*\d{1,6}\s*\](?:[\s,;>]*\[\s*\d{1,6}\s*\])+", re.ASCII)
BARE = re.compile(r"\s*\d{1,6}(?:\s*[>,;]\s*\d{1,6})*[\s.]*", re.ASCII)


def rank_question(query: str, texts: Sequence[str], usage: str = ORDER_PASSAGES) -> str:
    """What a listwise reranker reads: the query, the passages by numbers from 1, and what to do."""
    lines = "\n".join(f"[{n}] {' '.join(text.split())}" for n, text in enumerate(texts, 1))
    return "\n\n".join(part for part in (query, lines, usage) if part)


def write_order(numbers: Sequence[int], texts: Sequence[str] = ()) -> str:
    """An order as a message has it: by numbers, or by the texts of the passages where these are given."""
    return " > ".join(" ".join(texts[n - 1].split()) if texts else f"[{n}]" for n in numbers)


def read_order(
    text: str, n: int, passages: Sequence[tuple[str, str]] = ()
) -> tuple[int, ...] | None:
    """The order of `n` passages that a message names behind its thoughts, each number from 1 to `n` once.

    The longest list of numbers in brackets counts, the last one of equals; without a list all numbers in brackets. A
    last line without brackets may name passages between ">" by their ids or texts, else by bare numbers.
    Repair: what stands for no passage and what comes again is left out, and those that are missing follow in
    the order that was shown. None where no passage is named.

    Args:
        passages: (id, text) of each.
    """
    reply = strip_thinking(text)
    lists = LISTED.findall(reply)
    longest = max(reversed(lists), key=lambda x: len(BRACKETED.findall(x)), default=reply)
    named = list(map(int, BRACKETED.findall(longest)))
    lines = [line for line in reply.splitlines() if line.strip()]
    if not named and lines:
        pieces = [plain_text(x) for x in lines[-1].split(">")]
        place = {plain_text(x): i for i, pair in enumerate(passages, 1) for x in reversed(pair)}
        named = [place[x] for x in pieces if x in place]
        if not named and BARE.fullmatch(lines[-1]):
            named = list(map(int, re.findall(r"\d+", lines[-1])))
    numbers = [x for x in dict.fromkeys(named) if 1 <= x <= n]
    return repair_order(numbers, n) if numbers else None


def plain_text(text: str) -> str:
    """A text without case and spare spaces."""
    return " ".join(text.casefold().split())


def repair_order(numbers: Sequence[int], n: int) -> tuple[int, ...]:
    """An order of all numbers from 1 to `n`: those given, each once, then the missing ones from 1 on."""
    known = [x for x in dict.fromkeys(numbers) if 1 <= x <= n]
    return (*known, *(x for x in range(1, n + 1) if x not in known))
