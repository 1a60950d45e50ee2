"""What an update leaves out of memory changes no bit of its gradient."""

import gc
from dataclasses import replace

import numpy as np
import pytest
import torch
from palaestra.models import forward as passes
from palaestra.models import model as models
from palaestra.models.forward import InStrips, forward
from palaestra.models.load import load
from palaestra.types import Example, Row, Segment
from palaestra.update import pack

NEEDS = ("logp", "entropy", "vocab_mean_logp", "power_logp", "top_logp:3")


def batch_of(rows=5):
    """Rows of different lengths, temperatures and exponents after one prompt."""
    rng, examples = np.random.default_rng(0), []
    for i in range(rows):
        n = 4 + 3 * i
        answer = Segment(ids=tuple(map(int, rng.integers(5, 200, n))), trained=True, policy="p", logp=(0.0,) * n)
        columns = {"exponent": 0.5 + i / 4}
        examples.append(Example(row=Row(segments=(Segment(ids=(7, 8, 9)), answer)), columns=columns))
    batch = pack(examples, "p")
    warm = torch.linspace(0.5, 1.5, batch["ids"].numel()).view_as(batch["ids"])
    return replace(batch, columns={**batch.columns, "temperature": warm})


def gradients(model, needs=NEEDS, used=NEEDS, **options):
    """Outputs, and the gradient of a sum of those that are used with fixed weights."""
    for p in model.trainable():
        p.grad = None
    out = forward(model, batch_of(), needs, **options)
    rng = torch.Generator().manual_seed(3)
    sum((out[n] * torch.rand(out[n].shape, generator=rng)).sum() for n in used).backward()
    return {k: v.detach() for k, v in out.items()}, [p.grad for p in model.trainable()]


def same(a, b):
    return a[0].keys() == b[0].keys() and all(
        torch.equal(x, y) for x, y in zip([*a[0].values(), *a[1]], [*b[0].values(), *b[1]], strict=True)
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("logits", [passes.LOGITS, 263 * 20])
def test_strips_of_logits_have_the_bits_of_all_at_once(dtype, logits, monkeypatch):
    """Outputs and gradients, of one chunk and of several that are computed again, whatever is used of them."""
    model, found = load("tiny", dtype=dtype), []
    for used in (NEEDS, ("entropy",)):
        for strip in (1 << 20, 263 * 7, 1):
            monkeypatch.setattr(passes, "STRIP", strip)
            found.append(gradients(model, used=used, logits=logits))
    assert all(same(found[0], f) for f in found[1:3]) and all(same(found[3], f) for f in found[4:6])


def test_what_nobody_learns_from_has_no_slope():
    """The entropy of a distribution with a log-prob of -inf has none, which must not reach a loss without it."""
    logits = torch.tensor([[0.0, 1.0, float("-inf")]] * 4, requires_grad=True)

    def reduce(logits_NV, token_N):
        logp_NV = torch.log_softmax(logits_NV, -1)
        return logp_NV.gather(1, token_N[:, None])[:, 0], -(logp_NV.exp() * logp_NV).sum(-1)

    logp, _ = InStrips.apply(reduce, 3, logits, torch.tensor([0, 1, 1, 0]))
    logp.sum().backward()
    assert logits.grad.isfinite().all() and logits.grad.abs().sum() > 0


def test_log_probs_of_the_vocabulary_never_exist_as_a_whole(monkeypatch):
    """Between forward and backward an update keeps the logits alone, and no float32 form of them."""
    monkeypatch.setattr(passes, "STRIP", 263 * 2)
    model, kept = load("tiny", dtype="bfloat16"), []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: (kept.append((x.shape, x.dtype)), x)[1], lambda x: x):
        forward(model, batch_of(), ("logp", "entropy"))
    wide = [dtype for shape, dtype in kept if shape[-1:] == (263,) and len(shape) == 2 and shape[0] > 2]
    assert set(wide) <= {torch.bfloat16} and wide


def test_a_thrifty_model_keeps_less_and_learns_the_same(monkeypatch):
    """Large ones in bfloat16 on a processor: the same bits, and fewer bytes between forward and backward."""
    model, held, found = load("tiny", dtype="bfloat16"), [], []
    for small in (10**9, 10):
        monkeypatch.setattr(models, "SMALL", small)
        found.append(gradients(model))
        kept = {}
        keep = lambda x, kept=kept: (kept.setdefault(x.untyped_storage().data_ptr(), x), x)[1]
        before = tensors()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            out = forward(model, batch_of(20), ("logp",))
        held.append(tensors() - before)
        del out, kept
    assert same(*found)
    assert held[1] < 0.75 * held[0]
    assert not load("tiny").is_thrifty


def tensors():
    """Bytes of all tensors that are held."""
    gc.collect()
    storages = {}
    for x in gc.get_objects():
        if type(x) is torch.Tensor and x.layout is torch.strided:
            storages[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
    return sum(storages.values())
