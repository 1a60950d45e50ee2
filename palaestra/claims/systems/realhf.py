"""The claim of realhf: ReaLHF: parameter reallocation, execution-plan search."""

import math

import palaestra as pl
from palaestra.recipes.systems.realhf import PlanSearch, Rehearsal


@pl.stage
class Rehearsed:
    """A number of the rehearsal; NaN of an arm that has none."""

    name: str

    def __call__(self, cell: pl.ledger.Cell) -> float:
        return float(cell.summary["rehearsal"].get(self.name, math.nan))


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "symmetric": PlanSearch("symmetric"),
        "megatron rule": PlanSearch("megatron"),
        "colocated": PlanSearch("colocated"),
        "searched": PlanSearch("searched", rehearsal=Rehearsal()),
        "searched on all devices": PlanSearch("searched on all devices"),
        "as many random plans": PlanSearch("random plans"),
    },
    start=None,
    illustration=True,
    expect=pl.ledger.Greater(
        "searched", "colocated", by=0.1, why="a tenth of the heuristic's speed"
    ),
    reasons=(
        pl.ledger.Needs("searched on all devices", "devices of their own for calls"),
        pl.ledger.Needs("as many random plans", "a walk instead of as many random plans"),
    ),
    measure=pl.ledger.Final("speed"),
    metric="speed as a multiple of that of colocated calls, by the simulator",
    tokens=1,
    evaluate=0,
    seconds=30,
    controls={
        "gap to the best of all plans on small graphs": pl.ledger.Final("gap.mean"),
        "largest gap": pl.ledger.Final("gap.largest"),
        "share of plans that fit": pl.ledger.Final("fits"),
        "rank correlation of predicted and rehearsed": Rehearsed("rank_correlation"),
        "largest error of a prediction": Rehearsed("largest_error"),
    },
)
