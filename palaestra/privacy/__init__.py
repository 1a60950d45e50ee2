"""Differential privacy of what is trained: sampling, clipping, noise and accounting."""

from palaestra.names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
