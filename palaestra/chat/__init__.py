"""How models are talked to: chat templates, and the dialects of messages, calls and replies."""

from palaestra.names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
