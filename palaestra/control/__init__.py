"""Learners that are no language models: simulators in arrays, PPO and Q learning on the project's
objectives, and language models that guide them.
"""

from palaestra.names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
