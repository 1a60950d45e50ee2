"""Reinforcement learning of language models: methods as small recipes over one engine.

Every public name is a name of this module: `import palaestra as pl`, then `pl.train`, `pl.vary`.
Where it lies is no promise. A module is imported when one of its names is asked for.
"""

import lazy_loader

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
