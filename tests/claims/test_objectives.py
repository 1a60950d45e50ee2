"""The arms of the experiments: they vary one thing, and they run."""

import pytest
from palaestra.claims.objectives.cola import Twice
from palaestra.claims.objectives.pav import EqualAnswers
from palaestra.ledger.experiment import experiment_of
from palaestra.pipeline import Pipeline

from tests.claims.two_steps import runs_two_steps


@pytest.mark.parametrize("method", ["apo", "asymre", "dr-grpo"])
def test_experiments_vary_one_thing(method):
    """Arms share optimiser and number of samples; the claim's two arms exist."""
    arms = experiment_of(method).arms
    optimisers = {a.learners["policy"].optimiser for a in arms.values()}
    assert len(optimisers) == 1 and len({a.collect for a in arms.values()}) == 1
    assert len({(a.schedule.lag, a.schedule.prompts) for a in arms.values()}) == 1


ARMS = [
    (method, name, recipe)
    for method in ("capo", "cola", "incorrect-synthetic-data", "kimi-k1.5", "pav", "srpo-gream", "tba")
    for name, arm in experiment_of(method).arms.items()
    for part in ([p.runnable for p in arm.parts.values()] if isinstance(arm, Pipeline) else [arm])
    for recipe in [part.recipe if isinstance(part, Twice | EqualAnswers) else part]
]


@pytest.mark.by_row
@pytest.mark.parametrize("arm", [pytest.param(a, id=f"{i}:{n}") for i, n, a in ARMS])
def test_every_arm_runs(arm, context, small):
    runs_two_steps(small(arm), context())
