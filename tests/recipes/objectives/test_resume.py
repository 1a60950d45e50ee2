"""Law 6 for what a method keeps: buffers, rates and heads survive a stop."""

import asyncio

import pytest
from palaestra.recipes.objectives import cola, kimi_k1_5, oreo, tba


@pytest.mark.parametrize(
    "recipe",
    [
        pytest.param(tba.build(lag=1, recent=0.5), id="tba"),
        pytest.param(kimi_k1_5.build(sampling="curriculum", partial=10, length=0.5, length_from=1), id="kimi-k1.5"),
        pytest.param(cola.build(construct=2), id="cola"),
        pytest.param(oreo.build(), id="oreo"),
    ],
)
def test_law_06_buffers_rates_and_heads_survive_a_stop(recipe, context, small, tmp_path):
    """Four steps at once, or two and two more from the checkpoint of a process that is gone: the same weights."""
    found = []
    for stops in ([4], [2, 4]):
        out = tmp_path / str(len(stops))
        for last in stops:
            out.mkdir(exist_ok=True)
            found.append(asyncio.run(small(recipe).run(context(out=out, steps=last))).metrics["weights_sha256"])
    assert found[0] == found[2] != found[1]
