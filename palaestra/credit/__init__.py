"""Who gets how much: advantages, returns and links of credit."""

from palaestra.names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
