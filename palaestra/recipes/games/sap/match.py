"""A game between two strategies, whatever the game is."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import palaestra as pl
from palaestra.recipes.games.sap.space import PlannedStrategy

# is called within a game with what was seen of the opponent so far, and returns the own strategy from there on
ChangePlan: TypeAlias = Callable[[str], Awaitable[PlannedStrategy]]


@pl.value_class
class PlayedMatch:
    """A game: 1 won, 0 drawn, -1 lost; the damage that was done less what was suffered; what was spent and
    harvested, each less the opponent's; and what was seen of the opponent, as text.
    """

    won: int
    damage: float
    seen: str
    spent: float = 0.0
    harvested: float = 0.0
