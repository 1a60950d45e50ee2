"""Kuhn poker for two seats: three cards, one bet. Each seat antes a chip; who bets or calls adds one;
the higher card takes the pot, or who did not pass on a bet.

user: kuhn / p1 K b        the second seat has the king, and a bet to answer        assistant: b

A turn is shown the rules' name, its role, its card and what was played so far, and no more; a word
of one letter is an action, p to pass or fold, b to bet or call. So what a policy does in one of the
12 situations is two numbers, and its exploitability is exact (`run.exploitability`). Chips are paid,
per hand and seat: the game is worth -1/18 to the first seat.
"""

from __future__ import annotations

from typing import Any

from palaestra.worlds.adapters.spiel import SpielWorld

CARDS, WORDS = "JQK", ("p", "b")


def show_kuhn(state: Any, player: int) -> str:
    """Role, card and history of an open_spiel state, as a seat sees it."""
    card, *played = state.information_state_string(player)
    return " ".join(filter(None, (f"p{player}", CARDS[int(card)], "".join(played))))


def kuhn(teacher: Any = "random") -> SpielWorld:
    """The world. Its teacher, from whom a warm start learns what can be said, plays at random. A
    reply that is no action loses two chips to the other seat.
    """
    return SpielWorld(
        "kuhn_poker", render=show_kuhn, words=WORDS, teacher=teacher, retries=0, intro="kuhn"
    )
