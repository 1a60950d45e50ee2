"""Which curriculum, first start: a habit that is half taught.

palaestra reproduce benchmarks/curricula/half_taught.py --out benchmarks/curricula
"""

import palaestra as pl
from palaestra.claims.curricula import UNIFORM, chain, numbers, study
from palaestra.claims.starts import warm_chain

EXPERIMENT = study(
    warm_chain(),
    numbers,
    what="chains of 6 and of 7 numbers modulo 9, of which four in ten are right at the start",
    task=f"{chain(6)}+{chain(7)}",
)


def build() -> pl.Runnable:
    """The arm that draws every task alike."""
    return EXPERIMENT.arms[UNIFORM]
