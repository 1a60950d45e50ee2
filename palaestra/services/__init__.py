"""What effects go through: chat models, tools, and the sandbox for model-written code."""

from palaestra.names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
