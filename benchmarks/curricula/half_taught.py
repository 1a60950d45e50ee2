"""Which curriculum, first start: a habit that is half taught.

palaestra reproduce benchmarks/curricula/half_taught.py --out benchmarks/curricula
"""

import palaestra as pl
from palaestra.claims.curricula import LONGEST, UNIFORM, study
from palaestra.claims.starts import warm_chain


def numbers(task: pl.Task) -> float:
    """How many numbers a chain has, by the length of its question."""
    return float(len(task.prompt[-1].content))


EXPERIMENT = study(
    warm_chain(),
    numbers,
    what="chains of 6 and of 7 numbers modulo 9, of which four in ten are right at the start",
    task=f"chain(modulo=9,operands=(6,6),max_tokens={LONGEST})+chain(modulo=9,operands=(7,7),max_tokens={LONGEST})",
    tokens=40_000,
    tuning_tokens=14_000,
    evaluate=192,
    seconds=25.0,
)


def build() -> pl.Runnable:
    """The arm that draws every task alike."""
    return EXPERIMENT.arms[UNIFORM]
