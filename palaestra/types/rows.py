"""What a model read and wrote: runs of tokens, each with its author, in rows of an episode; and what a turn was
chosen from.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import (
    Literal,
    TypeAlias,
)

import numpy as np

from palaestra.pictures import (
    FIRST_PLACE,
    Picture,
    by_digest,
    pictures_in,
)
from palaestra.types.base import (
    Key,
    value_class,
)

Moves: TypeAlias = tuple[tuple[int, int], ...]  # (token, version) from which on it is newer
Replies: TypeAlias = tuple[tuple[int, ...], ...]  # token ids of whole turns, end tokens included


@value_class
class Choices:
    """The replies that a turn could be, and how likely they were without that.

    The turn is drawn from the policy p restricted to them, over whole replies c:

        q(c) = p(c) / sum_c' p(c'),  p(c) the product over the tokens of c at the temperature of the sampling

    A token's log-prob is that of q given the tokens before it: the share of p that the replies with
    this token have among all that begin like the turn so far. The log-probs of a turn sum to
    log q(c), and a token without an alternative has 0. (To mask illegal tokens one by one is another
    distribution: it prefers beginnings that lead to nothing likely.)

    `log_mass` is log sum_c p(c) in nats: how likely the unrestricted policy was to say one of them,
    spelled so.
    """

    ids: Replies
    log_mass: float


@value_class
class ExpertChoices:
    """Which experts the routers of a mixture chose for tokens of a sample's context, from `start` on:
    [n, layers, top] numbers in a byte each, `wide` ones in two. `digest` is a checksum of the ids of the
    context up to the last of these tokens. See `models.routing`.
    """

    start: int
    layers: int
    top: int
    wide: bool
    digest: int
    data: bytes = field(repr=False)

    @property
    def token_bytes(self) -> int:
        return self.layers * self.top * (2 if self.wide else 1)

    @property
    def end(self) -> int:
        """The first token that they say nothing of."""
        return self.start + len(self.data) // self.token_bytes


@value_class
class Segment:
    """A run of tokens with one author and turn.

    `trained` says that the tokens carry gradient, which is not the same as sampled. A `hidden`
    segment was in the context when sampling and is absent from the training view (a hint, a
    critique). `logp` is under the distribution really sampled from, in the context really seen;
    None = unknown. `version` is that of the weights that sampled its first token, None = offline
    data, which has no age; `moved` holds (token, version) where newer weights took over.
    """

    ids: tuple[int, ...]
    author: str = "environment"  # "policy" | "environment" | "demonstration" | "forced" | ...
    policy: str = ""  # the learner that owns the gradient
    turn: int = 0
    trained: bool = False
    hidden: bool = False
    logp: tuple[float, ...] | None = None
    temperature: float = 1.0  # of the sampling; the trainer's log-probs are taken at the same one
    version: int | None = None
    moved: Moves = ()
    text: str = ""
    finish: Literal["", "eos", "stop", "length"] = ""
    choices: Choices | None = None  # what it was restricted to; logp is under that restriction
    pictures: tuple[Picture, ...] = ()  # those that ids are places of
    experts: ExpertChoices | None = None  # of tokens up to its last but one, with router replay

    @property
    def versions(self) -> tuple[tuple[int, int], ...]:
        """(number of tokens, version) of each run under the same weights, in order."""
        if self.version is None or not self.ids:
            return ()
        begins = ((0, self.version), *self.moved)
        ends = (*(at for at, _ in self.moved), len(self.ids))
        return tuple((end - at, v) for (at, v), end in zip(begins, ends, strict=True))

    @property
    def replies(self) -> bool:
        """Whether it is part of a reply: it was sampled, or the reply had to begin with it."""
        return self.logp is not None or self.author == "forced"

    def __post_init__(self) -> None:
        if self.logp is not None and len(self.logp) != len(self.ids):
            raise ValueError(f"Segment.logp has {len(self.logp)} values for {len(self.ids)} tokens")


@value_class
class View:
    """What training sees of a row: numpy arrays over its T visible tokens."""

    ids_T: np.ndarray  # int64
    trained_T: np.ndarray  # bool
    logp_T: np.ndarray  # behaviour log-prob, NaN where unknown
    turn_T: np.ndarray  # int64
    temperature_T: np.ndarray


@value_class
class Row:
    """An append-only run of segments: one context that was really seen, by one seat in
    one thread.
    """

    segments: tuple[Segment, ...] = ()
    seat: str = ""
    thread: str = ""
    key: Key = ()  # of its own in the run, once a step has collected it

    def add(self, segment: Segment) -> Row:
        return replace(self, segments=(*self.segments, segment))

    def context(self) -> tuple[int, ...]:
        """All token ids so far, hidden ones included: what the next token is sampled after."""
        return tuple(i for s in self.segments for i in s.ids)

    def view(self, policy: str | None = None) -> View:
        """The training view; with `policy`, only that learner's tokens count as trained."""
        seen = [s for s in self.segments if not s.hidden]
        n, at = sum(len(s.ids) for s in seen), 0
        ids_T, turn_T = np.empty(n, np.int64), np.empty(n, np.int64)
        trained_T, logp_T, temperature_T = np.empty(n, np.bool_), np.empty(n), np.empty(n)
        for s in seen:
            of = slice(at, at := at + len(s.ids))
            ids_T[of], turn_T[of] = s.ids, s.turn
            trained_T[of] = s.trained and policy in (None, s.policy)
            logp_T[of] = np.nan if s.logp is None else s.logp
            temperature_T[of] = s.temperature
            if s.pictures:  # nobody chose their places
                trained_T[of] &= ids_T[of] < FIRST_PLACE
        return View(
            ids_T=ids_T,
            trained_T=trained_T,
            logp_T=logp_T,
            turn_T=turn_T,
            temperature_T=temperature_T,
        )

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """All that are in its context, each once, hidden ones included. Raises UserError where the
        pixels of one are missing.
        """
        given = [p for s in self.segments for p in s.pictures]
        return pictures_in(self.context(), by_digest(given)) if given else ()

    @property
    def n_sampled(self) -> int:
        """Tokens a policy sampled, hidden ones included."""
        return sum(len(s.ids) for s in self.segments if s.logp is not None)

    def oldest(self) -> int | None:
        """The oldest policy version among its trained tokens; None = offline data only."""
        versions = [s.version for s in self.segments if s.trained and s.version is not None]
        return min(versions, default=None)
