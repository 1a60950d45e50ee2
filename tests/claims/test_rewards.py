"""The arms that are compared run, and their measures find their numbers."""

import asyncio
import json

import pytest
from palaestra.settings.overrides import make_smallest


def smoke_arms(experiment, context, tmp_path):
    """The arms that an experiment compares run, and its measure finds their numbers."""
    from palaestra.ledger.cells import read_cell
    from palaestra.ledger.measures import Cell

    found = {}
    for i, name in enumerate(experiment.expect.arms):
        out = tmp_path / str(i)
        ctx = context(experiment.tasks[0], out=out, evaluate=4, samples=experiment.samples, steps=1, tokens=100)
        result = asyncio.run(make_smallest(experiment.arms[name]).run(ctx))
        out.mkdir(exist_ok=True)
        (out / "cell.json").write_text(json.dumps(dict(result.metrics)))
        cell = read_cell(out)
        assert isinstance(cell, Cell)
        found[name] = experiment.measure(cell)
        for control in experiment.controls.values():
            control(cell)
    return found


NAMES = [
    "reward_robust",
    "rlbff",
    "multilabel_grpo",
    "encore",
    "creative_writing",
    "rlcf",
    "salu",
    "l2t",
]


@pytest.mark.parametrize("name", NAMES)
def test_the_arms_run(name, context, tmp_path):
    import importlib

    found = smoke_arms(importlib.import_module(f"palaestra.claims.rewards.{name}").EXPERIMENT, context, tmp_path)
    assert found
