"""What watches a run."""

from palaestra.names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
