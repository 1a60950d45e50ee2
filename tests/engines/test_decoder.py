"""What the engine runs: prompts in passes of bounded size, a cache that grows, weights in another order."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from palaestra.engines import decoder as module
from palaestra.engines import linears
from palaestra.engines.decoder import Decoder
from palaestra.models.load import load
from torch import nn


@torch.no_grad()
def test_prompts_are_read_in_passes_and_land_in_their_slots(monkeypatch):
    """Six prompts of 5 to 40 tokens, at most 64 padded tokens a pass but for one that is longer alone."""
    monkeypatch.setattr(module, "PREFILL", 64)
    decoder, passes = Decoder(load("tiny")), []
    whole = decoder._extend
    decoder._extend = lambda first, tails, start, seen, shifts: (
        passes.append((len(tails), max(map(len, tails)))) or whole(first, tails, start, seen, shifts)
    )
    rng = np.random.default_rng(0)
    lengths = (5, 40, 70, 20, 30, 9)
    prompts = [rng.integers(1, 200, n + 1).tolist() for n in lengths]
    decoder.cache.reserve(7, 80, 7)
    first = decoder.extend(1, [p[:-1] for p in prompts], [0] * 6)
    assert passes == [(1, 5), (1, 40), (1, 70), (2, 30), (1, 9)]
    whole_logits = [decoder.model.logits(decoder.model.hidden(torch.tensor([p])))[0] for p in prompts]
    second = torch.cat([decoder.extend(1 + i, [p[-1:]], [len(p) - 1]) for i, p in enumerate(prompts)])
    for logits, a, b in zip(whole_logits, first, second, strict=True):
        torch.testing.assert_close(torch.stack([a, b]), logits[-2:], atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_a_long_tail_beside_a_full_slot_writes_no_further_than_the_cache():
    decoder, ids = Decoder(load("tiny")), np.random.default_rng(1).integers(1, 200, (2, 62)).tolist()
    decoder.cache.reserve(2, 64, 2)
    decoder.extend(0, [ids[0][:60]], [0])
    found = decoder.extend(0, [ids[0][60:], ids[1][:30]], [60, 0])
    expected = [decoder.model.logits(decoder.model.hidden(torch.tensor([x])))[0, -1] for x in (ids[0], ids[1][:30])]
    torch.testing.assert_close(found, torch.stack(expected), atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_a_cache_grows_and_never_shrinks():
    decoder, (ids,) = Decoder(load("tiny")), np.random.default_rng(2).integers(1, 200, (1, 100)).tolist()
    decoder.cache.reserve(1, 100, 1)
    decoder.extend(0, [ids[:-1]], [0])
    decoder.cache.reserve(3, 10, 1)  # more sequences, though shorter ones
    assert (decoder.cache.slots, decoder.cache.length) == (3, 128)
    expected = decoder.model.logits(decoder.model.hidden(torch.tensor([ids])))[0, -1:]
    torch.testing.assert_close(decoder.step([ids[-1]], [99]), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs oneDNN")
def test_reordered_weights_are_the_weights_of_now():
    """With the bias; also when a weight was written to or is another tensor. Outside, gradients pass as ever."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
    model = lambda **of: SimpleNamespace(
        **{"module": layers, "device": torch.device("cpu"), "dtype": torch.float32} | of
    )
    reordered, x, large = linears.Reordered(model()), torch.randn(3, 8), layers[0]
    assert reordered.linears == [*layers] and not linears.Reordered(model(dtype=torch.bfloat16)).linears

    def check():
        with torch.no_grad(), reordered:
            assert "forward" in vars(large)
            torch.testing.assert_close(large(x), x @ large.weight.T + large.bias)
        assert "forward" not in vars(large)

    check()
    with torch.no_grad():
        large.weight.mul_(2)
    check()
    large.weight.data = torch.randn(8, 8)
    check()
    large(x).sum().backward()
    assert large.weight.grad is not None
