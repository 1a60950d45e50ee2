"""Kuhn poker for two seats: three cards, one bet. Each seat antes a chip; a bet and its call cost one
more. Who folds loses the ante, else the higher card takes all.

user: kuhn / p1 K b        the second seat has the king, and a bet to answer        assistant: b

A turn is shown the game's name, its role, its card and what was played so far. A reply is one
letter: p to pass or fold, b to bet or call. So what a policy does in one of the 12 situations is two
numbers, and its exploitability is exact (`run.exploitability`). What is paid are chips, of one hand:
between players who make no mistake the first seat loses 1/18 a hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palaestra.worlds.adapters.spiel import SpielWorld, Teacher

CARDS, WORDS = "JQK", ("p", "b")
# of a player who knows that high cards are good and no more: how often each card bets, and calls
NAIVE = {"bet": (0.25, 0.5, 0.75), "call": (0.2, 0.5, 0.8)}


def show_kuhn(state: Any, player: int) -> str:
    """Role, card and history of an open_spiel state, as a seat sees it."""
    card, *played = state.information_state_string(player)
    return " ".join(filter(None, (f"p{player}", CARDS[int(card)], "".join(played))))


def play_naively(state: Any) -> Mapping[int, float]:
    """How the naive player plays an open_spiel state."""
    card, *played = state.information_state_string(state.current_player())
    p = NAIVE["call" if played[-1:] == ["b"] else "bet"][int(card)]
    return {0: 1 - p, 1: p}


def kuhn(teacher: str | Teacher = play_naively) -> SpielWorld:
    """The world. Its teacher is who a warm start learns from what can be said: the naive player,
    since who imitates random play learns to overlook the cards. A reply that is no action loses two
    chips to the other seat.
    """
    return SpielWorld(
        "kuhn_poker", render=show_kuhn, words=WORDS, teacher=teacher, retries=0, intro="kuhn"
    )
