"""Law 12: what is sampled does not depend on who shares a forward pass: on a processor in float32, to the last bit.

Which kernels a product gets depends on the processor; other ones are seen here by settings (`tests/laws/processors.py`).
"""

import asyncio
from pathlib import Path

import numpy as np
import pytest
import torch
from palaestra.engines import rows
from palaestra.engines.own import OwnEngine
from palaestra.models.load import load
from palaestra.types import Sampling

from tests.laws.processors import OTHERS, check_under
from tests.models.test_models import build

ANSWERS, TOKENS = 12, 12


def asked(engine):
    """Prompts of 3 to 300 tokens, some of which begin alike, and a key for each."""
    rng = np.random.default_rng(0)
    ids = rng.integers(1, engine.model.causal.config.vocab_size - 10, (8, 300)).tolist()
    lengths = [*rng.integers(3, 90, ANSWERS - 4), 150, 180, 260, 300]
    return [(tuple(ids[i % 8][: lengths[i]]), (7, "answer", i)) for i in range(ANSWERS)]


def sample(engine, waves, order):
    """Ids and log-probs of every answer, asked for in waves of equal size."""
    requests, found, size = asked(engine), {}, -(-ANSWERS // waves)

    async def run():
        for start in range(0, ANSWERS, size):
            wave = order[start : start + size]
            each = (engine.generate(requests[i][0], Sampling(max_tokens=TOKENS), requests[i][1]) for i in wave)
            found.update(zip(wave, await asyncio.gather(*each), strict=True))

    asyncio.run(run())
    return [(found[i].ids, found[i].logp) for i in range(ANSWERS)]


def engine(kind, **settings):
    """`compact`, `module` as larger models and those of other shapes run, `wide` with sums over 1,280 numbers, and
    `int8` with sums of whole numbers.
    """
    if kind == "int8":
        return OwnEngine(load("tiny"), dtype="int8", **settings)
    shape = {"intermediate_size": 1280, "max_position_embeddings": 512}
    model = build("llama", torch.float32, **shape) if kind == "wide" else load("tiny")
    made = OwnEngine(model, **settings)
    if kind != "compact":
        made.decoder.compact = None
    return made


KINDS = ["compact", "module", "wide"] + ["int8"] * ("fbgemm" in torch.backends.quantized.supported_engines)


@pytest.mark.parametrize("kind", KINDS)
def test_samples_are_the_same_in_any_company(kind):
    """Each alone, in waves of three, all together, and in another order of arrival."""
    together = sample(engine(kind), 1, range(ANSWERS))
    for waves in (4, ANSWERS):
        assert sample(engine(kind), waves, range(ANSWERS)) == together, waves
    shuffled = np.random.default_rng(1).permutation(ANSWERS).tolist()
    assert sample(engine(kind), 4, shuffled) == together, "in another order"


@pytest.mark.parametrize("kind", KINDS)
def test_drafts_change_no_sample(kind):
    """Guessed tokens share a pass with the tokens before them. Guesses are the same answers of a visit before, right but for
    their ends."""
    plain, drafting = engine(kind), engine(kind, drafts="all")
    together = sample(plain, 1, range(ANSWERS))
    assert sample(drafting, 4, range(ANSWERS)) == together
    drafting.forget()
    before = drafting.draft_counts.accepted
    assert sample(drafting, 4, range(ANSWERS)) == together
    assert drafting.draft_counts.accepted - before > ANSWERS * TOKENS // 4


@pytest.mark.parametrize("kind", KINDS)
def test_without_the_rows_that_were_measured_the_law_is_seen_to_break(kind):
    """The same samples with any number of rows, unless that is what was measured."""
    free = is_free(engine(kind))
    with rows.force(rows.ANY):
        same = sample(engine(kind), ANSWERS, range(ANSWERS)) == sample(engine(kind), 1, range(ANSWERS))
    assert same == free


def is_free(engine):
    """Whether any number of rows, and of queries, is what was measured."""
    decoder, tiling = engine.decoder, engine.decoder.attention()
    rules = [decoder.compact.rows(), decoder.outputs()] if decoder.compact else decoder.linears.rules()
    return {*rules} == {rows.ANY} and not tiling.split and all(tiling.up(q) == q for q in range(4, 65, 4))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", OTHERS)
def test_the_law_holds_on_other_processors(name, tmp_path):
    """The tests above, where this processor looks like another one."""
    check_under(name, [f"{__file__}::{test}" for test in INSIDE], tmp_path)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", OTHERS)
def test_other_laws_hold_on_other_processors(name, tmp_path):
    """Those of other files that compare bits, or sums that were added in two orders."""
    check_under(name, [str(TESTS / test) for test in ELSEWHERE], tmp_path)


INSIDE = [
    "test_samples_are_the_same_in_any_company",
    "test_drafts_change_no_sample",
    "test_without_the_rows_that_were_measured_the_law_is_seen_to_break",
]
TESTS = Path(__file__).parents[1]
ELSEWHERE = [
    "laws/test_law_11_logp.py",
    "laws/test_law_13_shards.py::test_gradients_of_some_objectives[2]",
    "laws/test_law_14_pictures.py",
    "laws/test_law_14_sight.py::test_choices_behind_a_picture_agree_between_engine_and_trainer",
    "laws/test_law_14_sight.py::test_steering_reaches_pictures_in_engine_and_trainer_alike",
    "laws/test_law_14_sounds.py",
    "models/test_blockwise.py",
    "models/test_packed.py::test_what_is_packed_beside_a_row_changes_its_log_probs_by_rounding_alone",
    "models/test_values.py::test_engine_and_scorer_act_alike",
    "rollout/test_tickets.py::test_waves_change_nothing_of_single_turns",
    "rollout/test_tickets.py::test_where_rollouts_happen_cannot_be_seen",
]


def test_who_asks_first_does_not_matter_to_who_comes_later():
    """An answer that joins others under way is the one that it is alone."""

    async def run(crowd):
        engine = OwnEngine(load("tiny"))
        requests = asked(engine)[:8]
        others = [asyncio.ensure_future(engine.generate(p, Sampling(max_tokens=40), k)) for p, k in requests[:crowd]]
        while crowd and engine.sampled_tokens < 3 * crowd:
            await asyncio.sleep(0)
        prompt, key = requests[-1]
        found = await engine.generate(prompt, Sampling(max_tokens=24), key)
        await asyncio.gather(*others)
        return found.ids, found.logp

    alone = asyncio.run(run(0))
    assert all(asyncio.run(run(crowd)) == alone for crowd in (1, 2, 7))
