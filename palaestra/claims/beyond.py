"""What claims share whose gain may be one of sampling less at random: an arm's best accuracy,
beside that of the untrained start at its best temperature.
"""

import palaestra as pl

TEMPERATURES = (0.2, 0.4, 0.6, 0.8)  # of the start, beside 0 and 1


@pl.stage
class BestAccuracy:
    """The larger of the greedy accuracy and of that at temperature 1; of a start that was sampled at
    several temperatures, the largest of all.
    """

    def __call__(self, cell: pl.ledger.Cell) -> float:
        own = [
            float(pl.ledger.Final()(cell)),
            float(pl.ledger.Final("sampled_after.pass@1.mean")(cell)),
        ]
        others = cell.summary.get("at_temperature", {}).values()
        return max([*own, *(float(s["pass@1"]["mean"]) for s in others)])


def untrained(tasks: int) -> pl.ledger.Untrained:
    """The start at all these temperatures, on as many held-out tasks as the arms."""
    return pl.ledger.Untrained(temperatures=TEMPERATURES, tasks=tasks, samples=4)
