"""Planners and simulators: what a run would take, and which devices should do what."""

from palaestra.names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
