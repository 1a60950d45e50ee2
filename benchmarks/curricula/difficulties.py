"""Which curriculum, second start: tasks from easy to out of reach, and an exam of the hardest.

palaestra reproduce benchmarks/curricula/difficulties.py --out benchmarks/curricula
"""

import palaestra as pl
from palaestra.claims.curricula import UNIFORM, chain, numbers, study
from palaestra.claims.starts import warm_chain

EXPERIMENT = study(
    warm_chain(10),
    numbers,
    what="chains of 3 to 8 numbers modulo 9, of which the start has the shortest alone",
    task="+".join(map(chain, range(3, 9))),
    exams=(chain(9),),
)


def build() -> pl.Runnable:
    """The arm that draws every task alike."""
    return EXPERIMENT.arms[UNIFORM]
