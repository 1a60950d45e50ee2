"""Reinforcement learning of language models: methods as small recipes over one engine.

Every public name is a name of this module: `import palaestra as pl`, then `pl.train`, `pl.vary`.
Where it lies is no promise. A module is imported when one of its names is asked for.
"""

import os

import lazy_loader

# threads of torch that wait for each other sleep: where they spin, a busy machine's step takes
# many times as long; this is read when torch is imported
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
