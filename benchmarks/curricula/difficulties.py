"""Which curriculum, second start: tasks from easy to out of reach, and an exam of the hardest.

palaestra reproduce benchmarks/curricula/difficulties.py --out benchmarks/curricula
"""

import palaestra as pl
from palaestra.claims.curricula import LONGEST, UNIFORM, study
from palaestra.claims.starts import warm_chain


def numbers(task: pl.Task) -> float:
    """How many numbers a chain has, by the length of its question."""
    return float(len(task.prompt[-1].content))


def chain(n: int) -> str:
    return f"chain(modulo=9,operands=({n},{n}),max_tokens={LONGEST})"


EXPERIMENT = study(
    warm_chain(10),
    numbers,
    what="chains of 3 to 8 numbers modulo 9, of which the start has the shortest alone",
    task="+".join(map(chain, range(3, 9))),
    exams=(chain(9),),
    tokens=40_000,
    tuning_tokens=14_000,
    evaluate=192,
    seconds=25.0,
)


def build() -> pl.Runnable:
    """The arm that draws every task alike."""
    return EXPERIMENT.arms[UNIFORM]
