"""Which curriculum, first start: a habit that is half taught, and ways to help.

palaestra reproduce benchmarks/curricula/half_taught.py --out benchmarks/curricula
"""

import palaestra as pl
from palaestra.claims.curricula import UNIFORM, chain, helpers, only_mixed, study
from palaestra.claims.starts import warm_chain

EXPERIMENT = study(
    warm_chain(),
    {"mixed only": only_mixed(), **helpers()},
    what="chains of 6 and of 7 numbers modulo 9, of which four in ten are right at the start",
    task=f"{chain(6)}+{chain(7)}",
    tokens=40_000,
    demonstrations=18,
    seconds=15.0,
    note="Both lengths are nearly as hard, so ways to choose among them would differ from uniform draws in "
    "name only; they stand where tasks differ. 40,000 tokens are some 17 steps of 64 answers.",
)


def build() -> pl.Runnable:
    """The arm that draws every task alike."""
    return EXPERIMENT.arms[UNIFORM]
