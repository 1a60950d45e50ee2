"""Hidden states by layer are those of transformers; steering reaches sampling and scoring alike, and leaves nothing."""

import asyncio

import numpy as np
import pytest
import torch
from palaestra.engines.own import OwnEngine
from palaestra.errors import UserError
from palaestra.models.inside.activation import activations, steered, token_states
from palaestra.models.load import frozen_copy, load, trainable_copy
from palaestra.models.lora import LoRA
from palaestra.models.score import score_pairs
from palaestra.types import Row, Sampling, Segment

from tests.models.test_models import KINDS, build

ROWS = [[40, 12, 200, 31], [7, 9], [100]]


@pytest.mark.parametrize("kind", [*KINDS])
@torch.no_grad()
def test_states_are_those_of_transformers(kind):
    model = build(kind)
    if kind == "opt":  # projects its last state
        with pytest.raises(UserError, match="ask for it alone"):
            activations(model, ROWS)
    found, means = ([activations(model, ROWS, [p], at)[:, 0] for p in range(3)] for at in ("last", "mean"))
    assert found[2].shape == (3, model.width)
    for i, ids in enumerate(ROWS):
        own = model.causal(torch.tensor([ids]), output_hidden_states=True).hidden_states
        for place, states in enumerate(own):
            np.testing.assert_allclose(found[place][i], states[0, -1], atol=1e-9)
            np.testing.assert_allclose(means[place][i], states[0].mean(0), atol=1e-9)
    assert np.array_equal(activations(model, ROWS, (1, 0)), np.stack([found[1], found[0]], 1))


@pytest.fixture(scope="module")
def tiny():
    return load("tiny")


def test_texts_ids_and_rows_are_the_same(tiny):
    ids = tiny.tokenizer.encode("384+277", add_special_tokens=False)
    hidden = Segment(ids=(5, 5), hidden=True)  # seen while sampling, absent from what is trained on
    row = Row(segments=(Segment(ids=tuple(ids[:3])), hidden, Segment(ids=tuple(ids[3:]))))
    a, b, c = activations(tiny, ["384+277", ids, row], [1, 4])
    assert np.array_equal(a, b) and np.array_equal(b, c)
    many = ["1+1", "23"] * 40
    assert np.allclose(activations(tiny, many)[-1], activations(tiny, ["23"])[0], atol=1e-5)


def test_states_of_the_last_tokens(tiny):
    """Those of ever shorter texts, as a token sees nothing behind it; a text of one token has one."""
    long, short = token_states(tiny, ["384+277", "5"], 3, [1, 4])
    assert long.shape == (3, 2, tiny.width) and short.shape == (1, 2, tiny.width)
    for i, text in enumerate(("384+2", "384+27", "384+277")):
        np.testing.assert_allclose(long[i], activations(tiny, [text], [1, 4])[0], atol=1e-4)


def test_what_cannot_be_read_is_said(tiny):
    with pytest.raises(UserError, match="hidden states 0 to 4; there is none 5"):
        activations(tiny, ["a"], [5])
    with pytest.raises(UserError, match="row 1 has 0 tokens"):
        activations(tiny, ["a", ""])
    for added, why in (({7: np.zeros(tiny.width)}, "there is none 7"), ({1: np.zeros(3)}, "shape")):
        with pytest.raises(UserError, match=why), steered(tiny, added):
            pass


def vector(model, seed=0, size=1.0):
    return size * np.random.default_rng(seed).standard_normal(model.width)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_it_is_added_where_it_is_said(kind, place):
    """The states of the place move by the vector at every token, those before do not."""
    model, given = build(kind), vector(build(kind))
    before = activations(model, ROWS, at="mean")
    with steered(model, {place: given}):
        after = activations(model, ROWS, at="mean")
    assert np.array_equal(after[:, :place], before[:, :place])
    if place < 2:
        np.testing.assert_allclose(after[:, place] - before[:, place], np.tile(given, (3, 1)), atol=1e-9)
    assert not np.allclose(after[:, 2], before[:, 2])


def greedy(engine, prompts):
    async def run():
        asked = (
            engine.generate(tuple(p), Sampling(temperature=1.0, max_tokens=12), (1, i)) for i, p in enumerate(prompts)
        )
        return await asyncio.gather(*asked)

    return asyncio.run(run())


@pytest.mark.parametrize("source", ["tiny", "gpt2", "lora"])
def test_engine_and_scorer_agree_while_steered_and_nothing_stays(source):
    """Law 11 under steering; the engine's memory of other states is dropped; the same bits afterwards."""
    model = (
        build("gpt2", torch.float32) if source == "gpt2" else load("tiny", lora=LoRA() if source == "lora" else None)
    )
    prompts = [[40 + i, *range(50, 70)] for i in range(3)]  # longer than a block that is held
    engine = OwnEngine(model)
    pairs = lambda said: [(p, s.ids) for p, s in zip(prompts, said, strict=True)]
    first = greedy(engine, prompts)
    scored = score_pairs(model, pairs(first))
    with steered(model, {1: vector(model, size=0.5), 2: vector(model, 1, 0.5)}):
        inside = greedy(engine, prompts)
        for said, logp in zip(inside, score_pairs(model, pairs(inside)), strict=True):
            np.testing.assert_allclose(said.logp, logp, atol=1e-5)
        moved = score_pairs(model, pairs(first))
        assert all(np.abs(a - b).max() > 1e-2 for a, b in zip(moved, scored, strict=True))
        with steered(model, {1: -vector(model, size=0.5), 2: -vector(model, 1, 0.5)}):  # they add up, here to nothing
            for a, b in zip(score_pairs(model, pairs(first)), scored, strict=True):
                np.testing.assert_allclose(a, b, atol=1e-5)
        assert not frozen_copy(model).added and not trainable_copy(model).added
    assert all(map(np.array_equal, score_pairs(model, pairs(first)), scored))
    again = greedy(engine, prompts)
    assert [(s.ids, s.logp) for s in again] == [(s.ids, s.logp) for s in greedy(OwnEngine(model), prompts)]
    assert [s.ids for s in again] == [s.ids for s in first]
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.module.modules())


def test_an_error_inside_ends_it(tiny):
    with pytest.raises(RuntimeError), steered(tiny, {1: vector(tiny)}):
        raise RuntimeError
    assert not tiny.added
