"""Reinforcement learning of language models: methods as small recipes over one engine.

Every public name is a name of this module: `import palaestra as pl`, then `pl.train`, `pl.vary`.
Where it lies is no promise. A module is imported when one of its names is asked for.
"""

import os

import lazy_loader

# threads of torch that wait for each other soon sleep: where they spin for long, a step takes many
# times as long beside other work. libgomp reads this when torch is imported
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
