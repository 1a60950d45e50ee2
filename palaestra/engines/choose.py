"""Drawing one of the replies that are legal, from what a model says of each: see
`palaestra.types.Choices`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from palaestra.errors import Fault
from palaestra.types import Choices, Completion, Replies


def choose(scored: Sequence[Completion], temperature: float, uniform: float) -> Completion:
    """One of the scored replies, drawn from their distribution by inverse transform.

    Args:
        scored: each reply whole, with the log-probs of its tokens in nats at the temperature, at 1
            where that is 0.
        temperature: 0 takes the likeliest reply, the first of several, with log-probs of 0.
        uniform: of [0, 1).
    """
    logp_K = np.array([np.sum(x.logp, dtype=np.float64) for x in scored])
    ids = tuple(x.ids for x in scored)
    share_K = np.exp(logp_K - np.logaddexp.reduce(logp_K)).cumsum()
    drawn = int(np.searchsorted(share_K, uniform * share_K[-1], side="right"))
    place = min(drawn, len(ids) - 1) if temperature else int(logp_K.argmax())
    logp = restricted_logp(ids, logp_K, ids[place]) if temperature else (0.0,) * len(ids[place])
    choices = Choices(ids=ids, log_mass=float(np.logaddexp.reduce(logp_K)))
    return replace(scored[place], logp=logp, choices=choices)


def restricted_logp(ids: Replies, logp_K: np.ndarray, reply: tuple[int, ...]) -> tuple[float, ...]:
    """Of each token of `said`, log of the share that the replies which begin with it, and with all
    before it, have among those that begin with all before it.
    """
    upto = [
        float(np.logaddexp.reduce(logp_K[[r[:t] == reply[:t] for r in ids]]))
        for t in range(len(reply) + 1)
    ]
    return tuple(b - a for a, b in pairwise(upto))


def need_room(replies: Replies, room: int) -> None:
    """Raises Fault "context" where the longest does not fit."""
    longest = max(map(len, replies))
    if longest > room:
        raise Fault(
            "context", f"a reply of {longest} tokens is legal, and there is room for {room}"
        )
