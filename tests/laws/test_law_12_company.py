"""Law 12: what is sampled does not depend on who shares a forward pass: on a processor in float32, to the last bit."""

import asyncio

import numpy as np
import pytest
import torch
from palaestra.engines.own import OwnEngine
from palaestra.models.load import load
from palaestra.types import Sampling

ANSWERS = 32


def asked(engine):
    """Prompts of 3 to 90 tokens, some of which begin alike, and a key for each."""
    rng = np.random.default_rng(0)
    ids = rng.integers(1, engine.model.causal.config.vocab_size - 10, (8, 90)).tolist()
    lengths = rng.integers(3, 90, ANSWERS)
    return [(tuple(ids[i % 8][: lengths[i]]), (7, "answer", i)) for i in range(ANSWERS)]


def sample(engine, waves, order):
    """Ids and log-probs of every answer, asked for in waves of equal size."""
    requests, found, size = asked(engine), {}, -(-ANSWERS // waves)

    async def run():
        for start in range(0, ANSWERS, size):
            wave = order[start : start + size]
            each = (engine.generate(requests[i][0], Sampling(max_tokens=24), requests[i][1]) for i in wave)
            found.update(zip(wave, await asyncio.gather(*each), strict=True))

    asyncio.run(run())
    return [(found[i].ids, found[i].logp) for i in range(ANSWERS)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["compact", "module"])
def test_samples_are_the_same_in_any_company(kind):
    """Each alone, in waves of eight, all together, and in another order of arrival."""

    def engine():
        made = OwnEngine(load("tiny"))
        if kind == "module":  # as larger models and those of other shapes run
            made.decoder.compact = None
        return made

    if kind == "module" and not torch.backends.mkldnn.is_available():
        pytest.skip("needs oneDNN")
    together = sample(engine(), 1, range(ANSWERS))
    for waves in (4, ANSWERS):
        assert sample(engine(), waves, range(ANSWERS)) == together, waves
    shuffled = np.random.default_rng(1).permutation(ANSWERS).tolist()
    for waves in (1, 4):
        assert sample(engine(), waves, shuffled) == together, f"{waves}, in another order"


def test_who_asks_first_does_not_matter_to_who_comes_later():
    """An answer that joins others under way is the one that it is alone."""

    async def run(crowd):
        engine = OwnEngine(load("tiny"))
        requests = asked(engine)
        others = [asyncio.ensure_future(engine.generate(p, Sampling(max_tokens=40), k)) for p, k in requests[:crowd]]
        while crowd and engine.sampled_tokens < 3 * crowd:
            await asyncio.sleep(0)
        prompt, key = requests[-1]
        found = await engine.generate(prompt, Sampling(max_tokens=24), key)
        await asyncio.gather(*others)
        return found.ids, found.logp

    alone = asyncio.run(run(0))
    assert all(asyncio.run(run(crowd)) == alone for crowd in (1, 2, 5, 20))
