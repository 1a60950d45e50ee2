"""The claim of dump: the parts of a mixture drawn by an upper confidence bound of |A|."""

import palaestra as pl
from palaestra.claims.arms import curriculum_experiment
from palaestra.recipes.data.dump import build

EXPERIMENT = curriculum_experiment(
    name="dump",
    bandit=build(),
    claim="On knights and knaves of 2 to 7 people as six arms, drawing them by DUMP's bound ends at "
    "least 3 points higher in held-out accuracy over all six than drawing them alike, at equal "
    "sampled tokens.",
    quantity="curves only: faster convergence and a higher reward at the end on the harder of 12 "
    "distributions",
    expect=pl.Greater(
        "dump", "uniform", by=0.03, why="the paper gives curves only; what they show is no less"
    ),
    falsified_if="accuracy over all six arms is not 3 points higher at the end",
    note="The window of 300 samples holds the last two or three batches.",
)
