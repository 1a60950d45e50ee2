"""Search with a model that stands still: many answers to each problem within a budget of generated
tokens, of which a strategy picks one. `docs/search.md` shows how it is used.
"""

from palaestra.names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
