"""Which curriculum, third start: puzzles at which guessing pays nearly as much as working.

palaestra reproduce benchmarks/curricula/knights.py --out benchmarks/curricula
"""

import palaestra as pl
from palaestra.claims.arms import SIX_ARMS, people
from palaestra.claims.curricula import UNIFORM, study

EXPERIMENT = study(
    None,
    people,
    what="knights and knaves of 2 to 7 people, of which the start solves some of each",
    task=SIX_ARMS,
)


def build() -> pl.Runnable:
    """The arm that draws every task alike."""
    return EXPERIMENT.arms[UNIFORM]
