"""The replies of an endpoint, read with the distrust that a stranger's server deserves.

What is read here is a `Reply` that can be stored and paid: its text is text, its counts are whole
numbers of at least 0, its log-probabilities are finite and at most 0. A reply that cannot be made
such is a ValueError, with what is wrong.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from palaestra.types import Reply

# a log-probability of zero probability, which some servers write so and some as -Infinity
LEAST = -9999.0
ROUNDING = 1e-2  # nats above 0 that a server's arithmetic may give to what is certain
MOST_TOKENS = 10**9  # of one reply; a larger count is no count
FINISHES = 64  # characters of why a reply ended


def read_reply(body: bytes, choices: tuple[str, ...]) -> Reply:
    """A chat completion. Raises ValueError with what is wrong with it.

    Half of a surrogate pair in the text becomes U+FFFD. Counts of tokens that are no counts (below
    0, infinite, no numbers) are left out, as those of a server that counts nothing.
    """
    try:
        completion = json.loads(body)
        choice = completion["choices"][0]
        text, usage = choice["message"]["content"] or "", completion.get("usage")
        if not isinstance(text, str):
            raise TypeError("the content is no text")
        counts = usage if isinstance(usage, dict) else {}
        finish = choice.get("finish_reason")
        reply = Reply(
            text=readable(text),
            finish=readable(finish)[:FINISHES] if finish and isinstance(finish, str) else "stop",
            prompt_tokens=count_of(counts.get("prompt_tokens")) or 0,
            reply_tokens=count_of(counts.get("completion_tokens")) or len(text.split()),
        )
        top = first_top(choice.get("logprobs")) if choices else {}
    except (
        ValueError,
        KeyError,
        IndexError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise ValueError(f"{type(error).__name__} {error}") from None
    return replace(reply, choices=of_choices(top, choices)) if top else reply


def readable(text: str) -> str:
    """The text with U+FFFD in the place of each half of a surrogate pair, which no file can hold."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def count_of(given: Any) -> int | None:
    """A count of tokens; None for what is none."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        return None
    return int(given) if 0 <= given <= MOST_TOKENS else None


def log_probability(given: Any) -> float:
    """In nats, at least LEAST and at most 0. Raises ValueError for what is no log-probability."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise ValueError(f"a log-probability is no number but {type(given).__name__}")
    if not given <= ROUNDING:  # NaN is not
        raise ValueError(f"a log-probability of {float(given):g}")
    return min(0.0, float(max(LEAST, given)))


def first_top(logprobs: Any) -> dict[str, float]:
    """Log-probabilities of the likeliest first tokens, in either shape of the protocol (chat, or
    the older completions).
    """
    if not logprobs:
        return {}
    if logprobs.get("content"):
        first = [(t["token"], t["logprob"]) for t in logprobs["content"][0]["top_logprobs"]]
    else:
        first = [*(logprobs.get("top_logprobs") or [{}])[0].items()]
    if not all(isinstance(token, str) for token, _ in first):
        raise ValueError("a token is no text")
    return {token: log_probability(given) for token, given in first}


def of_choices(top: Mapping[str, float], choices: tuple[str, ...]) -> dict[str, float]:
    """log sum p over the spellings of each word (case, a space before it), at most 0. One that is
    not listed gets the least listed log-probability, which bounds its own from above.
    """
    sums: dict[str, float] = {}
    for word in choices:
        same = [p for t, p in top.items() if t.strip(" ▁Ġ\n").casefold() == word.casefold()]
        sums[word] = min(0.0, float(np.logaddexp.reduce(same))) if same else min(top.values())
    return sums


def answers_choices(reply: Reply, choices: tuple[str, ...]) -> bool:
    """Whether a reply has the log-probabilities that were asked for. One that has none is not kept:
    the next server may show them.
    """
    return not choices or (reply.choices is not None and set(choices) <= reply.choices.keys())


def stored_reply(given: Any) -> Reply:
    """A reply from its stored form. Raises ValueError for one that `read_reply` would not give."""
    if not isinstance(given, dict):
        raise ValueError("it is no object")
    reply = Reply(**given)
    numbers = (reply.prompt_tokens, reply.reply_tokens)
    if not isinstance(reply.text, str) or not isinstance(reply.finish, str):
        raise ValueError("its text is no text")
    if readable(reply.text) != reply.text or any(count_of(n) is None for n in numbers):
        raise ValueError("its text or its counts cannot be kept")
    for word, p in (reply.choices or {}).items():
        if log_probability(p) != p or not math.isfinite(p):
            raise ValueError(f"the log-probability of {word!r} is none")
    return reply
