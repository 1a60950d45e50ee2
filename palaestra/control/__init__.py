"""Learners that are no language models: simulators in arrays, PPO and Q learning on the project's
objectives, and language models that guide them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
