"""The public names of `pl.games`, and where each lies."""

from .one_game import play as play
from .ratings import ratings as ratings
from .standings import tournament as tournament
