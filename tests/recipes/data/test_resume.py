"""Law 6 for budgets and curricula: bandits, memories and buffers of examples survive a stop."""

import asyncio

import palaestra as pl
import pytest
from palaestra.recipes.data import dump, eframe, pcl, sec
from palaestra.recipes.rewards import knowrl_self_knowledge

SIX = "+".join(f"knights(d={d})" for d in range(1, 7))


@pytest.mark.parametrize(
    ("recipe", "task"),
    [
        pytest.param(dump.build(window=20), SIX, id="dump"),
        pytest.param(sec.build(variant="released"), SIX, id="sec"),
        pytest.param(pl.vary(sec.build(), draw=pl.curriculum.ProbedArms(every=3, tasks=1)), SIX, id="probed"),
        pytest.param(knowrl_self_knowledge.build(least=0.0), "chain", id="memory"),
        pytest.param(eframe.build(n=3, further=3), "knights(d=3)", id="eframe"),
        pytest.param(pcl.build(), "knights(d=2)", id="pcl"),
    ],
)
def test_law_06_arms_memories_and_buffers_survive_a_stop(recipe, task, context, small, tmp_path):
    """Six steps at once, or three and three more from the checkpoint: the same weights."""
    found, recipe = [], small(recipe)
    for stops in ([6], [3, 6]):
        out = tmp_path / str(len(stops))
        for last in stops:
            out.mkdir(exist_ok=True)
            ctx = context(task, out=out, steps=last)
            found.append(asyncio.run(recipe.run(ctx)).metrics["weights_sha256"])
    assert found[0] == found[2] != found[1]
