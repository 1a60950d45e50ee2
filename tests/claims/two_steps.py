"""What tests of claims ask of every arm: that it runs."""

import asyncio

import numpy as np
from palaestra.run.driver import prepare
from palaestra.step import start, step


def runs_two_steps(recipe, ctx):
    """Two steps sample episodes, and the loss is a number."""
    state = start(0)
    prepare(recipe, ctx)
    for _ in range(2):
        state, metrics = asyncio.run(step(recipe, ctx, state))
    assert metrics["episodes"] > 0 and np.isfinite(metrics.get("loss", 0.0))
