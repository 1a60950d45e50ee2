"""Claims: experiments, what they expect and measure."""

from palaestra.names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
