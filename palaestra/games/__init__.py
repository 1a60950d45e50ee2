"""Games between players: one that a person watches or plays, and tournaments of all against all.
`docs/games.md` shows how they are used.
"""

from palaestra.names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
