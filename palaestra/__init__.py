"""Reinforcement learning of language models: methods as small recipes over one engine.

`import palaestra as pl` is the public interface. On top stand what a user calls, the nouns, and the
parts that many methods use: `pl.train`, `pl.Task`, `pl.Center`. The rest is in namespaces that are
the rooms of the package: `pl.credit.Ema`. In which module of a room a name lies is no promise. A
module is imported when one of its names is asked for.
"""

import os

# threads of torch that wait for each other soon sleep: where they spin for long, a step takes many
# times as long beside other work. libgomp reads this when torch is imported
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")

from palaestra.names import attach

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = attach(__name__, __file__)
