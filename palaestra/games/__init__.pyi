"""The public names of `pl.games`, and where each lies."""

from .bradley_terry import ratings as ratings
from .one_game import play as play
from .standings import tournament as tournament
