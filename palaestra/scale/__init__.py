"""Clusters: rollouts, learners and judges in processes of their own."""

from palaestra.names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
