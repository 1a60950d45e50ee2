"""Cursors: the law of a text read anew, branches that know nothing of one another, and the gradient to the past."""

import numpy as np
import pytest
import torch
from palaestra.errors import UserError
from palaestra.models.inside.activation import steered
from palaestra.models.inside.cursor import Cursor
from palaestra.models.load import load

from tests.models.test_models import KINDS, build

TEXT = [40, 12, 200, 31, 7]


@pytest.fixture(scope="module")
def tiny():
    return load("tiny")


@torch.no_grad()
def law(model, *rows):
    """[B, V] of whole rows, read anew."""
    return model.logits(model.hidden(torch.tensor(rows))[:, -1])


@pytest.mark.parametrize("kind", [*KINDS])
def test_logits_are_those_of_the_whole_text(kind):
    """Token by token and branch by branch, in windows too, as far as one reaches."""
    model, ids = build(kind), TEXT[:1]
    cursor = Cursor.start(model, ids)
    for token in TEXT[1 : model.context]:
        torch.testing.assert_close(cursor.logits(), law(model, ids), atol=1e-5, rtol=0)
        ids, cursor = [*ids, token], cursor.append([token])
    torch.testing.assert_close(cursor.logits(), law(model, ids), atol=1e-5, rtol=0)
    torch.testing.assert_close(Cursor.start(model, ids).logits(), cursor.logits(), atol=1e-10, rtol=0)


def test_in_float32_too(tiny):
    cursor = Cursor.start(tiny, TEXT).fork([0, 0]).append([5, 9]).append([7, 8])
    assert (len(cursor), cursor.rows) == (7, 2) and cursor.ids_BT.tolist() == [[*TEXT, 5, 7], [*TEXT, 9, 8]]
    expected = law(tiny, [*TEXT, 5, 7], [*TEXT, 9, 8])
    torch.testing.assert_close(cursor.logits().log_softmax(-1), expected.log_softmax(-1), atol=1e-5, rtol=0)


def test_a_fork_is_independent(tiny):
    """Whatever is done with one branch, the bits of the other stay."""
    trunk = Cursor.start(tiny, TEXT)
    before, past = trunk.logits().clone(), [x.clone() for x in trunk.past]
    left, right = trunk.fork([0]).append([5]), trunk.append([9])
    first = left.logits().clone()
    for token in (1, 2, 3):
        right = right.append([token])
    right.on(tuple(x + 1 for x in right.past)).append([4]).logits()
    assert torch.equal(trunk.logits(), before) and all(map(torch.equal, trunk.past, past))
    assert torch.equal(left.logits(), first) and torch.equal(trunk.append([5]).logits(), first)
    assert not torch.allclose(right.logits(), first)


@pytest.mark.parametrize(("kind", "h", "off"), [("gpt2", 1e-6, 1e-8), ("llama", 3e-3, 1e-4), ("gemma2", 3e-3, 1e-4)])
def test_the_gradient_to_the_past_is_the_finite_difference(kind, h, off):
    """In float64; norms of Llama and Gemma compute in float32 even so, hence their longer step."""
    model = build(kind)
    cursor = Cursor.start(model, TEXT[:4]).fork([0, 0])
    leaf = tuple(x.clone().requires_grad_() for x in cursor.past)
    direction = [
        torch.randn(x.shape, generator=torch.Generator().manual_seed(i), dtype=x.dtype) for i, x in enumerate(leaf)
    ]
    value = lambda past: cursor.on(past).logits().log_softmax(-1)[:, 17]
    slopes = torch.autograd.grad(value(leaf).sum(), leaf)
    assert all(s.abs().sum() > 0 for s in slopes)
    for row in (0, 1):  # a row's law has nothing to do with another's past
        along = sum(float((s[row] * d[row]).sum()) for s, d in zip(slopes, direction, strict=True))
        moved = [tuple(x.detach() + s * h * d for x, d in zip(leaf, direction, strict=True)) for s in (1, -1)]
        ahead, behind = (float(value(past)[row]) for past in moved)
        assert abs(along) > 1e-2 and (ahead - behind) / (2 * h) == pytest.approx(along, abs=off)
    assert all(p.grad is None for p in model.module.parameters())


def test_a_moved_past_is_carried_on_and_has_no_history(tiny):
    cursor = Cursor.start(tiny, TEXT)
    assert not cursor.logits().requires_grad
    leaf = tuple((x + 0.1).requires_grad_() for x in cursor.past)
    moved = cursor.on(leaf)
    assert moved.logits().requires_grad and not torch.allclose(moved.logits(), cursor.logits())
    after = moved.append([3])
    assert not after.logits().requires_grad
    assert all(torch.equal(a[:, :, :-1], b) for a, b in zip(after.past, leaf, strict=True))


def test_what_it_computes_is_counted(tiny):
    said = []
    cursor = Cursor.start(tiny, TEXT, count=said.append)
    cursor.logits()
    cursor.logits()
    cursor.fork([0, 0, 0]).logits()  # known already
    cursor.fork([0, 0, 0]).append([1, 2, 3]).logits()
    assert said == [4, 1, 3]


def test_edges(tiny):
    with pytest.raises(UserError, match="there is none"):
        Cursor.start(tiny, [])
    whole = Cursor.start(tiny, np.random.default_rng(0).integers(1, 200, tiny.context).tolist())
    with pytest.raises(UserError, match="512 tokens is full"):
        whole.append([1])
    cursor = Cursor.start(tiny, TEXT)
    with pytest.raises(ValueError, match="shape"):
        cursor.on(cursor.fork([0, 0]).past)
    one = Cursor.start(tiny, TEXT[:1])
    assert one.past == () and one.append([TEXT[1]]).past


def test_a_steered_model_has_another_law(tiny):
    with steered(tiny, {2: torch.full((tiny.width,), 0.3)}):
        inside = Cursor.start(tiny, TEXT).logits()
        torch.testing.assert_close(inside, law(tiny, TEXT), atol=1e-4, rtol=0)
    assert not torch.allclose(inside, Cursor.start(tiny, TEXT).logits(), atol=1e-2)


def test_a_fork_of_what_has_a_gradient_has_one_of_its_own(tiny):
    """The graph of the trunk is gone when its gradient was taken; that of the branch is not."""
    cursor = Cursor.start(tiny, TEXT)
    leaf = tuple(x.clone().requires_grad_() for x in cursor.past)
    trunk = cursor.on(leaf)
    (first,) = torch.autograd.grad(trunk.logits()[0, 17], leaf[:1])
    (again,) = torch.autograd.grad(trunk.fork([0]).logits()[0, 17], leaf[:1])
    assert torch.equal(first, again) and first.abs().sum() > 0
