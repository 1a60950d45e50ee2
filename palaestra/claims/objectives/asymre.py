"""The claim of asymre: Asymmetric off-policy REINFORCE (A = r - V, tunable baseline)."""

import palaestra as pl
from palaestra.claims.starts import RATES, TWO_POINTS
from palaestra.recipes.objectives.asymre import build

STALE = pl.Schedule(prompts=16, lag=8, steps=50)


EXPERIMENT = pl.Experiment(
    claim="With samples eight updates old, accuracy is higher with the baseline 0.1 below the "
    "group's mean than 0.1 above it.",
    quantity="training stays stable with a baseline below the mean reward of the sampler and "
    "collapses with one above it (curves; no single number)",
    arms={f"{shift:+g}": pl.vary(build(shift), schedule=STALE) for shift in (-0.5, -0.1, 0.0, 0.1)},
    expect=pl.Greater("-0.1", "+0.1", why=f"{TWO_POINTS}; the collapse that is claimed is more"),
    falsified_if="a baseline above the mean is not worse by two points",
    reasons=(pl.Needs("+0", "a baseline below the mean, not only none above it"),),
    tuned={"optimiser.lr": RATES},
    tokens=80_000,
    samples=4,
    controls={"entropy": pl.Logged("entropy_sampled"), "reward": pl.Logged("reward")},
    note="The paper's sampler is synchronised every N steps; here every batch is eight steps old, "
    "for a few dozen updates.",
)
