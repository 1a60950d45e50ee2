"""Copies of weights in fewer bytes: how far they are from the weights, and what samples make of that."""

import asyncio
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from palaestra.engines import formats
from palaestra.engines.linears import Reordered
from palaestra.engines.own import OwnEngine
from palaestra.engines.select import build, check
from palaestra.errors import UserError
from palaestra.models.load import load
from palaestra.types import Sampling
from torch import nn

HERE = [
    kind
    for kind, there in {
        "int8": "fbgemm" in torch.backends.quantized.supported_engines,
        "float16": "fbgemm" in torch.backends.quantized.supported_engines,
        "bfloat16": formats.computes_bfloat16() and "ONEDNN_MAX_CPU_ISA" not in os.environ,
    }.items()
    if there
]
needs_int8 = pytest.mark.skipif("int8" not in HERE, reason="needs FBGEMM")


def weight(outputs, inputs, seed=0):
    return torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(seed))


@needs_int8
def test_a_weight_is_within_half_a_scale():
    """|w - s q| <= s / 2 with s = max |w| / 127 of each output; a row of zeros stays one."""
    w = weight(40, 64) * torch.logspace(-6, 3, 40)[:, None]
    w[7] = 0
    numbers, scale = formats.quantise(w)
    torch.testing.assert_close(scale, (w.abs().amax(1) / 127).clamp(min=formats.LEAST))
    assert numbers.dtype == torch.int8 and int(numbers.abs().max()) == 127
    assert bool(((w - scale[:, None] * numbers).abs() <= scale[:, None] / 2 * (1 + 1e-4)).all())
    assert not numbers[7].any()


@needs_int8
@pytest.mark.parametrize("bias", [None, torch.arange(24.0)])
def test_int8_sums_are_whole_numbers(bias):
    """y = s a sum q r, of rounded weights q and inputs r: the sum as whole numbers of 64 bits give it."""
    x, w = weight(5, 200, 1) * torch.tensor([[1e-4], [1.0], [30.0], [0.0], [7.0]]), weight(24, 200)
    levels, (numbers, scale) = formats.input_levels(), formats.quantise(w)
    a = (x.abs().amax(1, keepdim=True) / levels).clamp(min=formats.LEAST)
    whole = (x / a).round().long() @ numbers.long().T
    expected = whole * a.double() * scale.double() + (0 if bias is None else bias)
    found = formats.product_in("int8", w, bias)(x)
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-6)


@needs_int8
def test_the_largest_sums_do_not_overflow():
    """Where every input and weight is at its bound, also without VNNI, as another process sees it."""
    x, product = torch.ones(3, 1536), formats.product_in("int8", torch.ones(16, 1536), None)
    torch.testing.assert_close(product(x), torch.full((3, 16), 1536.0))
    code = (
        "import torch\nfrom palaestra.engines import formats\n"
        "out = formats.product_in('int8', torch.ones(16, 1536), None)(torch.ones(3, 1536))\n"
        "print(formats.input_levels(), float((out - 1536).abs().max()))"
    )
    seen = os.environ | {"FBGEMM_ENABLE_INSTRUCTIONS": "AVX2"}
    done = subprocess.run([sys.executable, "-c", code], env=seen, capture_output=True, text=True, timeout=200)
    levels, gap = done.stdout.split()
    assert int(levels) == 63 and float(gap) < 0.01, done.stderr


@pytest.mark.parametrize("kind", HERE)
def test_a_product_is_near_the_float32_one(kind):
    """Relative errors: 2^-11 of each weight in float16, 2^-9 of weight and input in bfloat16, and of int8 half
    of a 127th of the largest number, of which a normal one is a third or so.
    """
    x, w, bias = weight(6, 256, 1), weight(32, 256), weight(1, 32, 2)[0]
    bound = {"float16": 2**-11, "bfloat16": 2**-8, "int8": 0.02}[kind]
    expected = x @ w.T + bias
    found = formats.product_in(kind, w, bias)(x)
    assert found.dtype == torch.float32
    assert 0 < float((found - expected).norm() / expected.norm()) < bound
    assert formats.product_in(kind, w.bfloat16(), None)(x.bfloat16()).dtype == torch.bfloat16


@needs_int8
def test_what_is_no_number_stays_none():
    """A policy that diverged is not hidden by rounding it."""
    x = torch.ones(2, 64)
    x[1, 5] = float("nan")
    found = formats.product_in("int8", weight(16, 64), None)(x)
    assert bool(found[0].isfinite().all()) and bool(found[1].isnan().all())


def answers(engine, n=6, tokens=16):
    tokenizer = engine.model.tokenizer
    prompts = [tuple(tokenizer.encode(f"{i} + {i + 3} - {2 * i} =", add_special_tokens=False)) for i in range(n)]

    async def run():
        return await asyncio.gather(
            *(engine.generate(p, Sampling(max_tokens=tokens), ("a", i)) for i, p in enumerate(prompts))
        )

    return list(zip(prompts, asyncio.run(run()), strict=True))


@torch.no_grad()
def gaps(model, sampled):
    """log pi - log mu of every token."""
    every = []
    for prompt, answer in sampled:
        ids = torch.tensor([[*prompt, *answer.ids]])
        logp = model.logits(model.hidden(ids)[0])[len(prompt) - 1 : -1].float().log_softmax(-1)
        every.append(logp.gather(1, ids[0, len(prompt) :, None])[:, 0] - torch.tensor(answer.logp))
    return torch.cat(every)


@pytest.mark.parametrize("kind", HERE)
def test_samplers_are_near_and_say_by_how_much(kind):
    """The recorded log-probs are those of the copies: away from the model's, and by little."""
    model = load("tiny")
    engine = OwnEngine(model, dtype=kind)
    assert not engine.exact and engine.decoder.compact is None
    d = gaps(model, answers(engine))
    k3 = float((d.exp() - 1 - d).mean())
    assert float(d.abs().mean()) > 0 and 0 < k3 < {"float16": 1e-5, "bfloat16": 1e-3, "int8": 1e-3}[kind]


@pytest.mark.smollm2
@pytest.mark.parametrize("kind", HERE)
def test_samplers_of_a_real_model_are_near(kind):
    """SmolLM2: of int8 most of the distance comes from rounding inputs, some of whose numbers are large."""
    model = load("smollm2", dtype="float32")
    d = gaps(model, answers(OwnEngine(model, dtype=kind), n=4, tokens=12))
    assert 0 < float((d.exp() - 1 - d).mean()) < {"float16": 1e-4, "bfloat16": 5e-3, "int8": 0.1}[kind]


@needs_int8
def test_copies_follow_the_weights():
    """After an update and `forget`, samples come from the weights of then; the model's own are untouched."""
    model = load("tiny")
    engine, before = OwnEngine(model, dtype="int8"), {k: v.clone() for k, v in model.module.state_dict().items()}
    first = answers(engine)
    assert all(torch.equal(v, before[k]) for k, v in model.module.state_dict().items())
    assert all("forward" not in vars(m) for m in model.module.modules() if isinstance(m, nn.Linear))
    with torch.no_grad():
        for m in model.module.modules():
            if isinstance(m, nn.Linear):
                m.weight.mul_(1.2)
    engine.forget()
    second = answers(engine)
    assert [a.logp for _, a in first] != [a.logp for _, a in second]
    assert float(gaps(model, second).abs().mean()) < 0.05


def test_instructions_that_are_hidden_from_onednn_are_not_there(monkeypatch):
    """As with ONEDNN_MAX_CPU_ISA=AVX2, where the processor says that it has bfloat16."""

    def refuse(*_):
        raise RuntimeError("bf16 path needs the cpu support avx512bw")

    monkeypatch.setattr(formats, "computes_bfloat16", lambda: True)
    monkeypatch.setattr(formats, "_bfloat16", refuse)
    formats._bfloat16_is_multiplied.cache_clear()
    try:
        assert "bfloat16" not in formats.formats_here()
        with pytest.raises(UserError, match="no instructions for bfloat16"):
            formats.check_format("bfloat16", "cpu")
    finally:
        formats._bfloat16_is_multiplied.cache_clear()


def test_what_cannot_be_is_said_before_anything_runs(monkeypatch):
    model = load("tiny")
    with pytest.raises(UserError, match="dtype is one of int8, float16, bfloat16"):
        check("own(dtype=int4)", model)
    with pytest.raises(UserError, match="GPU"):
        formats.check_format("int8", "cuda")
    monkeypatch.setattr(formats, "computes_bfloat16", lambda: False)
    with pytest.raises(UserError, match="no instructions for bfloat16; use dtype=int8 or float16"):
        build("own(dtype=bfloat16)", model, slots=4, cache_mb=64)
    monkeypatch.setattr(
        type(torch.backends.quantized), "supported_engines", property(lambda self: ["qnnpack"]), raising=False
    )
    with pytest.raises(UserError, match="no FBGEMM"):
        check("own(dtype=int8)", model)


@needs_int8
@torch.no_grad()
def test_a_base_in_four_bits_is_copied_too():
    """From what its packed weights stand for; without a dtype no copy of them stays."""
    pytest.importorskip("bitsandbytes")
    from palaestra.models.quantised import Linear4bit

    layers = nn.Sequential(Linear4bit(nn.Linear(128, 64), torch.device("cpu")))
    model = SimpleNamespace(module=layers, device=torch.device("cpu"), dtype=torch.float32)
    x, expected = weight(4, 128), None
    for dtype in ("", "int8"):
        copies = Reordered(model, dtype)
        with copies:
            found = layers(x)
        assert (copies._made[layers[0]][1].func is formats._times_int8) == (dtype == "int8")
        expected = found if expected is None else expected
    assert 0 < float((found - expected).norm() / expected.norm()) < 0.03
