"""The claim of sec: categories drawn by moving averages of |A|."""

import palaestra as pl
from palaestra.claims.arms import curriculum_experiment
from palaestra.recipes.data.sec import build

EXPERIMENT = curriculum_experiment(
    name="sec",
    bandit=build(),
    claim="On knights and knaves of 2 to 7 people as six categories, drawing them by SEC's bandit "
    "ends at least 3 points higher in held-out accuracy over all six than drawing them alike, at "
    "equal sampled tokens.",
    quantity="up to a third more, relatively, on hard held-out problems (Countdown, Zebra, ARC-1D, "
    "MATH)",
    expect=pl.Greater(
        "sec", "uniform", by=0.03, why="a tenth of the start's accuracy, a third of what is claimed"
    ),
    falsified_if="accuracy over all six categories is not 3 points higher at the end",
    constants={"sec": {"draw.tau": (0.2, 0.4, 1.0)}, "frozen": {"draw.tau": (0.2, 0.4, 1.0)}},
    note="tau is chosen among the paper's values, for the frozen bandit as well.",
)
