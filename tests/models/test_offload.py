"""What waits elsewhere for the backward pass comes back as it was: the same gradient, bit for bit, and less is held."""

import json
import os
import subprocess
import sys

import palaestra as pl
import pytest
import torch
from palaestra.models.forward import forward
from palaestra.models.offload import SMALLEST, offloading

from tests.models.test_models import batch_of, build, gradients


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("kind", ["llama", "opt", "gemma2"])
def test_the_gradient_is_the_same_bit_for_bit(kind, recompute, monkeypatch):
    monkeypatch.setattr("palaestra.models.offload.SMALLEST", 64)
    model, batch, needs = build(kind), batch_of([9, 12, 3]), ("logp", "entropy")
    model.recompute = recompute
    wanted = gradients(model, forward(model, batch, needs))
    model.offload = True
    found = gradients(model, forward(model, batch, needs))
    assert wanted.keys() == found.keys() and len(found) > 10
    assert all(torch.equal(found[n], wanted[n]) for n in wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64])
def test_a_tensor_comes_back_laid_out_as_it_was(dtype):
    rng = torch.Generator().manual_seed(0)
    whole = torch.randint(0, 99, (64, 33, 40), generator=rng).to(dtype)
    dense = [whole, whole.transpose(0, 2), whole.permute(2, 0, 1), whole[3:]]
    views = [*dense, whole[:, ::2], whole[:1].expand(64, 33, 40)]
    with offloading(()) as moved:
        for view in views:
            weight = torch.ones((), dtype=torch.float64, requires_grad=True)
            out = Keep.apply(weight, view)
            (kept,) = out.grad_fn.saved_tensors
            assert torch.equal(kept, view) and kept.dtype == dtype and kept.data_ptr() != view.data_ptr()
            assert kept.stride() == view.stride() or not any(view is x for x in dense)
    assert moved.tensors == len(views)


class Keep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight, tensor):
        ctx.save_for_backward(tensor)
        return weight * 1

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def test_weights_and_what_is_small_stay():
    weight = torch.randn(256, 256, requires_grad=True)
    small = torch.randn(4, 256, requires_grad=True)
    with offloading([weight]) as moved:
        (small @ weight).sum().backward()
        assert moved.tensors == 0 and weight.numel() * 4 > SMALLEST
        (torch.randn(256, 256, requires_grad=True) @ weight).sum().backward()
    assert moved.tensors == 1 and moved.bytes == 256 * 256 * 4


PROGRAM = """
import json, os, sys, time, torch, transformers
from palaestra.models.offload import offloading
from contextlib import nullcontext
torch.manual_seed(0)
config = transformers.LlamaConfig(hidden_size=256, intermediate_size=1024, num_hidden_layers=5, num_attention_heads=4,
    num_key_value_heads=4, vocab_size=300)
model = transformers.LlamaForCausalLM(config)
rss = lambda: int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
ids = torch.randint(0, 300, (4, 256))
model.model(ids[:, :8]).last_hidden_state.sum().backward()  # buffers of libraries
before, begin = rss(), time.process_time()
away = offloading(model.parameters()) if sys.argv[1] == "away" else nullcontext()
with away:
    out = model.model(ids).last_hidden_state
held = rss() - before
out.square().sum().backward()
norm = float(sum(p.grad.double().square().sum() for p in model.model.parameters()))
print(json.dumps({"held": held, "norm": norm, "seconds": time.process_time() - begin}))
"""


def held(way):
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_MMAP_THRESHOLD_": "65536"}
    run = subprocess.run([sys.executable, "-c", PROGRAM, way], capture_output=True, text=True, check=True, env=env)
    return json.loads(run.stdout.splitlines()[-1])


def test_less_memory_is_held_between_forward_and_backward():
    """The whole process's resident memory, of a model of 5 layers and 1,024 tokens."""
    here, away = held("here"), held("away")
    assert away["norm"] == here["norm"]
    assert here["held"] > 60 and away["held"] < here["held"] / 3, (here, away)


def test_a_run_with_it_learns_the_same(tmp_path):
    small = {"schedule.prompts": 2, "sample.n": 4}
    settings = {"steps": 2, "evaluate": 0, "max_tokens": 24, "set": small, "quiet": True}
    runs = [pl.train("grpo", out=tmp_path / str(on), activation_offloading=on, **settings) for on in (False, True)]
    assert len({r.summary["weights_sha256"] for r in runs}) == 1
    assert "activation_offloading = true" in (tmp_path / "True" / "config.toml").read_text()
