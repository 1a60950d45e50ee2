"""Models: loading, the training forward pass, scoring, and what reads and steers them."""

from palaestra.names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
