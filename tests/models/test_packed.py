"""The packed forward pass: exact log-probs and gradients, prompts computed once, no padding."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from benchmarks.packed import gaps, pairs_of
from hypothesis import given, settings
from hypothesis import strategies as st
from palaestra.models import packed
from palaestra.models.forward import forward
from palaestra.models.layout import Block, Layout
from palaestra.models.load import frozen_copy, load, save
from palaestra.models.packed import attend_in_line
from palaestra.models.score import score_pairs
from palaestra.types import Example, Row, Segment
from palaestra.update import pack, split
from torch.nn.functional import scaled_dot_product_attention

from tests.rounding import agree


@pytest.fixture(scope="module")
def model():
    model = load("tiny")
    model.module.double()
    return model


def batch_of(shapes, seed=0):
    """shapes: (prompt number, turns), turns = lengths of alternating trained and environment runs behind the prompt."""
    rng = np.random.default_rng(seed)
    prompts = {p: tuple(map(int, rng.integers(0, 250, 3 + 4 * p))) for p, _ in shapes}
    examples = []
    for p, turns in shapes:
        row = Row(segments=(Segment(ids=prompts[p]),))
        for k, n in enumerate(turns):
            ids = tuple(map(int, rng.integers(0, 250, n)))
            row = row.add(Segment(ids=ids, trained=k % 2 == 0, policy="p", logp=(0.0,) * n))
        examples.append(Example(row=row, columns={}))
    return pack(examples, dtype=torch.float64)


def both(model, batch):
    found = []
    for packs in (True, False):
        model.__dict__["packs"] = packs
        for p in model.trainable():
            p.grad = None
        out = forward(model, batch, ("logp", "entropy"))
        weight = torch.arange(out["logp"].numel(), dtype=torch.float64).reshape(out["logp"].shape) / 100
        (out["logp"] * weight + out["entropy"]).sum().backward()
        found.append((out, torch.cat([p.grad.flatten() for p in model.trainable()])))
    model.__dict__.pop("packs")
    return found


@settings(max_examples=15)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(1, 6), min_size=1, max_size=4)), min_size=1, max_size=7)
)
def test_equals_the_padded_computation(model, shapes):
    assert model.packs
    (out, gradient), (plain, expected) = both(model, batch_of(shapes))
    for name in out:
        assert torch.allclose(out[name], plain[name], rtol=0, atol=1e-9)
    assert float((gradient - expected).norm() / expected.norm()) < 1e-6


def test_long_rows_meet_no_keys_behind_themselves(model, monkeypatch):
    """Three queries at a time: the same numbers, and of the keys of a row about half."""
    met, attend = [], packed._attend
    monkeypatch.setattr(packed, "_attend", lambda q, k, *more: met.append((q.shape, k.shape)) or attend(q, k, *more))
    shapes = [(0, [12]), (0, [3, 2, 11]), (1, [17])]
    (whole, slope), met_whole = both(model, batch_of(shapes))[0], sum(q[2] * k[2] for q, k in met)
    met.clear()
    monkeypatch.setattr(packed, "LONG", 3)
    (out, gradient), (plain, expected) = both(model, batch_of(shapes))
    for name in out:
        assert torch.allclose(out[name], plain[name], rtol=0, atol=1e-9)
        assert torch.allclose(out[name], whole[name], rtol=0, atol=1e-12)
    assert float((gradient - expected).norm() / expected.norm()) < 1e-6
    assert torch.allclose(gradient, slope, rtol=0, atol=1e-9)
    assert max(q[2] for q, _ in met) == 3 and sum(q[2] * k[2] for q, k in met) < 0.8 * met_whole


def test_a_shared_prompt_is_computed_once():
    batch = batch_of([(0, [3]), (0, [5]), (1, [2])])
    layout = Layout.of(batch)
    assert len(layout.ids) == 3 + 7 + (2 + 4 + 1)  # two prompts, and every row without its last token
    assert sorted(layout.position.tolist())[:4] == [0, 0, 1, 1]


def test_one_token_answers():
    batch = batch_of([(0, [1]), (1, [1])])
    assert len(Layout.of(batch).ids) == 3 + 7


def test_a_part_holds_what_it_may_and_no_less():
    """Positions are those that are computed: packed, prompts once in a part and no last tokens; else all of the padding."""
    batch = batch_of([(p, [n]) for p, n in ((0, 3), (0, 5), (1, 2), (1, 9), (0, 4), (2, 1), (2, 6), (1, 1))])
    packed = lambda rows: len(Layout.of(batch.part(torch.tensor(rows))).ids)
    padded = lambda rows: len(rows) * int(batch["length"][rows].max())
    for size, budget in ((packed, 12), (packed, 25), (packed, 40), (padded, 30), (padded, 50)):
        parts = [p.tolist() for p in split(batch, budget, whole_units=False, packed=size is packed)]
        assert sorted(row for p in parts for row in p) == list(range(8)) and len(parts) > 1
        assert all(size(p) <= budget or len(p) == 1 for p in parts)
        assert all(size([*p, after[0]]) > budget for p, after in pairwise(parts))


def test_copies_and_saved_models_stay_ordinary(model, tmp_path):
    assert model.packs and frozen_copy(model).packs
    save(model, tmp_path)
    assert "palaestra" not in (tmp_path / "config.json").read_text()


def test_shared_heads_in_line_are_those_of_grouped_attention():
    generator = torch.Generator().manual_seed(0)
    normal = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)
    query, key, value = normal(3, 6, 4, 8), normal(3, 2, 5, 8), normal(3, 2, 5, 8)
    mask = torch.ones(4, 5, dtype=torch.bool).tril(1).expand(3, 1, 4, 5).clone()
    mask[1, :, :, 0] = False
    grouped = scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=0.3, enable_gqa=True)
    block = Block(query=mask, key=mask, mask=mask, filled=(mask, mask))
    for lined in (mask.repeat(1, 1, 3, 1), block.summand(3, torch.float64)):
        torch.testing.assert_close(attend_in_line(query, key, value, lined, 0.3), grouped)
    assert block.summand(3, torch.float64) is lined and lined.stride(2) % 8 == 0


def test_no_kernel_is_asked_for_both_a_mask_and_shared_heads_on_a_gpu(monkeypatch):
    """Such a call has no fused kernel on CUDA; there is none here, so queries only say that they are there."""
    asked = []

    def attend(query, key, value, **more):
        asked.append((more.get("enable_gqa", False), query.shape[1] == key.shape[1]))
        return scaled_dot_product_attention(query, key, value, **more)

    class There(torch.Tensor):
        is_cuda = True

    monkeypatch.setattr(packed, "scaled_dot_product_attention", attend)
    query, key = torch.randn(2, 4, 3, 8), torch.randn(2, 2, 3, 8)
    mask = torch.ones(2, 1, 3, 3, dtype=torch.bool)
    packed._attend(query.as_subclass(There), key, key, mask, None)
    assert asked == [(False, True)]


def test_what_is_packed_beside_a_row_changes_its_log_probs_by_rounding_alone():
    """Which is all that is promised of scores (docs/engines.md). Another context is seen."""
    model = load("tiny")
    pairs = pairs_of(model, 12)
    for size in (2, 12):
        assert agree(np.concatenate(gaps(model, pairs, size)))
    (context, target), (other, _) = pairs[:2]
    scores = [score_pairs(model, [(c, target)])[0] for c in (context, other)]
    assert not agree(np.abs(scores[0] - scores[1]))
