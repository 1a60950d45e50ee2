"""Which replies a world takes in a turn, where it says so, and the candidates among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from palaestra.types import Ask, World
from palaestra.worlds.user import UserWorld, instance_of


@runtime_checkable
class ListsReplies(Protocol):
    """A world that knows which replies are legal. Without it, only a turn with `Ask.choices` has a
    list of them.
    """

    def legal(self, state: Any) -> Sequence[str]:
        """What the seat to move may say in a frame's state; empty = there is no list."""
        ...


@runtime_checkable
class ListsRepliesBySeat(Protocol):
    """A world whose seats differ in what they may say, as where all move at once. It is asked instead
    of `ListsReplies`, where a world has both.
    """

    def legal_for(self, state: Any, seat: str) -> Sequence[str]:
        """What a seat may say in a frame's state; empty = there is no list."""
        ...


@runtime_checkable
class NamesCandidates(Protocol):
    """A world that knows which legal replies are worth a look. Without it, that is all of them."""

    def candidates(self, state: Any) -> Sequence[str]:
        """Some of the legal replies in a frame's state, at least one of each seat that moves."""
        ...


def legal_replies(world: World, state: Any, ask: Ask) -> tuple[str, ...]:
    """The replies that are legal in a turn; () = nobody lists them."""
    if ask.choices is not None:
        return ask.choices
    lister = instance_of(world.spec) if isinstance(world, UserWorld) else world
    if isinstance(lister, ListsRepliesBySeat):
        return tuple(lister.legal_for(state, ask.seat))
    if isinstance(lister, ListsReplies) and callable(lister.legal):  # it may be a field
        return tuple(lister.legal(state))
    return ()


def candidate_replies(world: World, state: Any, ask: Ask) -> tuple[str, ...]:
    """The candidates among the legal replies of a turn, in the order of these; () = there is no
    list of legal ones.
    """
    legal = legal_replies(world, state, ask)
    lister = instance_of(world.spec) if isinstance(world, UserWorld) else world
    if not legal or not isinstance(lister, NamesCandidates):
        return legal
    named = set(lister.candidates(state))
    return tuple(reply for reply in legal if reply in named) or legal
