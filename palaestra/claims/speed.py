"""What claims about throughput share: how it is measured."""

import math

import palaestra as pl

SKIPPED = 4  # steps in which workers start and the queue fills


@pl.stage
class LogSpeed:
    """The natural logarithm of the answers learned from in a second of wall-clock time, over all
    steps but the first `skip`: a difference of 0.14 is a factor of 1.15. NaN where there are no
    more steps.
    """

    skip: int = SKIPPED

    def __call__(self, cell: pl.ledger.Cell) -> float:
        begin, *steps = cell.steps[self.skip - 1 :] or [{}]
        if not steps:
            return float("nan")
        seconds = steps[-1]["seconds"] - begin["seconds"]
        return math.log(sum(s["episodes"] for s in steps) / seconds)
