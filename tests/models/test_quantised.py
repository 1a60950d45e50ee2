"""Frozen weights in 4 bits under adapters, and moments in 8 bits: numbers from the papers, and what a run keeps of them."""

import asyncio
import copy
from dataclasses import replace
from importlib.util import find_spec

import palaestra as pl
import pytest
import torch
from palaestra.api.run import Run
from palaestra.cli.main import main
from palaestra.engines.own import OwnEngine
from palaestra.engines.probe import Sampled, own_logp, probe_prompts
from palaestra.errors import UserError
from palaestra.models import quantised
from palaestra.models.forward import forward
from palaestra.models.load import load, save, save_adapters
from palaestra.models.lora import LoRA
from palaestra.models.quantised import BITS, Linear4bit, dequantise, is_quantised, quantise, restore_conv1d
from palaestra.run import setup
from palaestra.settings import overrides
from palaestra.settings.fields import Settings
from palaestra.types import Sampling
from palaestra.update import AdamW8bit

from tests.models.test_models import batch_of, build

# arXiv:2305.14314, appendix E
NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
QLORA = LoRA(rank=2, load_in_4bit=True)
SMALL = ["train", "grpo", "schedule.prompts=2", "sample.n=2", "--evaluate", "0", "--max-tokens", "12", "--lora", "4",
         "--load-in-4bit", "--optim", "adamw_8bit", "optimiser.smallest=64", "optimiser.lr=0.01", "--keep", "9"]  # fmt: skip

pytest.importorskip("peft")
needs_bits = pytest.mark.skipif(not find_spec("bitsandbytes"), reason="bitsandbytes is not installed")


def rows(length=(9, 5)):
    batch = batch_of(list(length))
    return replace(batch, columns={**batch.columns, "temperature": torch.ones(len(length), max(length))})


def moved(model):
    """Its adapters away from where they begin."""
    with torch.no_grad():
        for p in model.trainable():
            p.add_(0.05 * torch.randn(p.shape, generator=torch.Generator().manual_seed(0)))
    return model


def adapted(kind="llama", dtype=torch.float32):
    model = build(kind, dtype)
    quantise(model.module, "cpu")
    return moved(replace(model, module=QLORA(model.module)))


@needs_bits
def test_levels_are_those_of_the_paper():
    """Rows of the 16 levels, four times, of a scale: nothing is lost. Between two levels the nearer one is taken."""
    levels = torch.tensor(NF4).repeat(4)
    layer = torch.nn.Linear(64, 2, bias=False)
    layer.weight.data = torch.stack([0.5 * levels, 0.5 * levels])
    packed = Linear4bit(layer, torch.device("cpu"))
    torch.testing.assert_close(packed.dequantised(), layer.weight, rtol=0, atol=1e-6)
    assert packed.weight.numel() == 64 and packed.weight.dtype == torch.uint8
    layer.weight.data[0, 7] = 0.5 * 0.03  # nearer to 0 than to 0.0796
    layer.weight.data[0, 8] = 0.5 * 0.05
    found = Linear4bit(layer, torch.device("cpu")).dequantised()[0]
    assert found[7] == 0 and found[8] == pytest.approx(0.5 * NF4[8], abs=1e-6)


@needs_bits
def test_a_weight_takes_what_the_formula_says():
    layer = Linear4bit(torch.nn.Linear(1024, 512, bias=False), torch.device("cpu"))
    state = layer.state
    tables = {id(state.code), id(state.state2.code)}  # one of each kind, whatever the size
    kept = [layer.weight, state.absmax, state.state2.absmax]
    assert tables and 8 * sum(t.numel() * t.element_size() for t in kept) / (1024 * 512) == pytest.approx(BITS)
    assert pytest.approx(4.127, abs=5e-4) == BITS


@needs_bits
@pytest.mark.parametrize("kind", ["llama", "gpt2", "phi3"])
def test_gradients_are_those_of_the_rounded_weights(kind):
    packed = adapted(kind)
    plain = replace(packed, module=dequantise(copy.deepcopy(packed.module)))
    assert is_quantised(packed.module) and not is_quantised(plain.module) and packed.n_parameters == plain.n_parameters
    grads = []
    for model in (packed, plain):
        out = forward(model, rows(), ("logp",))["logp"]
        out.square().sum().backward()
        grads.append([out.detach(), *(p.grad for p in model.trainable())])
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    assert all(not p.requires_grad for n, p in packed.module.named_parameters() if "lora_" not in n)


@needs_bits
def test_the_backward_pass_keeps_packed_weights_alone():
    wide = torch.nn.Linear(256, 256, bias=False)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(t), t)[1], lambda t: t):
        Linear4bit(wide, torch.device("cpu"))(torch.ones(3, 256, requires_grad=True))
        n_packed = len(kept)
        wide(torch.ones(3, 256, requires_grad=True))
    assert n_packed == 0 and any(t.shape == (256, 256) for t in kept)  # a plain layer keeps its weight


@needs_bits
def test_the_sampler_sees_what_the_trainer_sees():
    model = moved(load("tiny", lora=QLORA))
    plain = load("tiny", lora=LoRA(rank=2))
    engine = OwnEngine(model)

    async def sample():
        sampling = Sampling(temperature=1.0, max_tokens=12)
        return await asyncio.gather(*(engine.generate(p, sampling, ("probe", i)) for i, p in enumerate(prompts)))

    prompts = probe_prompts(model)
    replies = asyncio.run(sample())
    worst = 0.0
    for prompt, reply in zip(prompts, replies, strict=True):
        sampled = Sampled(prompt, tuple(reply.ids), tuple(reply.logp))
        gap = torch.tensor(reply.logp) - torch.as_tensor(own_logp(model, sampled))
        assert gap.abs().max() < 1e-4
        worst = max(worst, float((torch.tensor(reply.logp) - torch.as_tensor(own_logp(plain, sampled))).abs().max()))
    assert worst > 0.01  # other weights are told apart


@needs_bits
def test_samples_do_not_depend_on_their_company():
    engine = OwnEngine(moved(load("tiny", lora=QLORA)))
    prompts = probe_prompts(engine.model)
    ask = lambda i: engine.generate(prompts[i], Sampling(temperature=1.0, max_tokens=8), ("company", i))

    async def together():
        return await asyncio.gather(*map(ask, range(len(prompts))))

    every = asyncio.run(together())
    alone = [asyncio.run(ask(i)) for i in range(len(prompts))]
    assert [(x.ids, x.logp) for x in every] == [(x.ids, x.logp) for x in alone]


@needs_bits
@pytest.mark.parametrize("kind", ["llama", "gpt2", "phi3"])
def test_what_is_saved_merged_is_what_was_trained(kind, tmp_path):
    model = adapted(kind)
    save(model, tmp_path)
    again = load(str(tmp_path))
    assert not is_quantised(again.module) and is_quantised(model.module)
    found = forward(again, rows(), ("logp",))["logp"]
    torch.testing.assert_close(found, forward(model, rows(), ("logp",))["logp"], rtol=1e-4, atol=1e-4)
    assert {k: p.shape for k, p in again.module.state_dict().items()} == {
        k: p.shape for k, p in build(kind, torch.float32).module.state_dict().items()
    }


@needs_bits
def test_adapters_alone_come_back_on_rounded_weights(tmp_path):
    base = load("tiny")
    save(base, tmp_path / "base")
    model = moved(load(str(tmp_path / "base"), lora=QLORA))
    save_adapters(model, tmp_path / "alone")
    sampled = Sampled(probe_prompts(base)[0], (5, 9, 12, 7), ())
    says = lambda m: torch.as_tensor(own_logp(m, sampled))
    torch.testing.assert_close(says(load(str(tmp_path / "alone"))), says(model), rtol=1e-4, atol=1e-4)
    (tmp_path / "alone" / "adapter" / "base.json").unlink()
    assert (says(load(str(tmp_path / "alone"))) - says(model)).abs().max() > 0.01


@needs_bits
def test_layers_outside_the_decoder_layers_stay_whole():
    model = build("gpt2", torch.float32)
    start = {n: p.clone() for n, p in model.module.named_parameters()}
    plain = restore_conv1d(dequantise(quantise(model.module, "cpu")))
    changed = {n for n, p in plain.named_parameters() if not torch.equal(p, start[n])}
    assert changed and all(n.endswith(("c_attn.weight", "c_fc.weight", "c_proj.weight")) for n in changed)


def test_four_bits_are_for_adapters():
    with pytest.raises(UserError, match=r"--load-in-4bit is of adapters; give their rank too"):
        setup.lora_of(Settings(load_in_4bit=True))
    assert setup.lora_of(Settings(lora=4, load_in_4bit=True)).load_in_4bit


def test_without_the_package_one_line_says_so(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "bitsandbytes", None)
    monkeypatch.setitem(__import__("sys").modules, "bitsandbytes.functional", None)
    for ask in (lambda: load("tiny", lora=QLORA), lambda: AdamW8bit().build([torch.nn.Parameter(torch.ones(2))])):
        with pytest.raises(UserError, match=r"pip install 'palaestra\[quantised\]'"):
            ask()


# ---- moments in 8 bits


def steps_of(stage, n, size=4096):
    """Weights after n steps towards a target, and the optimiser."""
    p = torch.nn.Parameter(torch.zeros(size))
    target = torch.linspace(-1, 1, size)
    optimiser = stage.build([p])
    for clock in range(n):
        p.grad = p.detach() - target
        stage.set(optimiser, clock)
        optimiser.step()
    return p.detach(), optimiser


@needs_bits
def test_the_first_step_is_adams_and_later_ones_are_near():
    """The first step is lr g / (|g| + eps), before any moment is rounded."""
    first, optimiser = steps_of(AdamW8bit(lr=0.01), 1)
    g = -torch.linspace(-1, 1, 4096)
    torch.testing.assert_close(first, -0.01 * g / (g.abs() + 1e-8), rtol=1e-4, atol=1e-7)
    state = next(iter(optimiser.state.values()))
    assert (state["state1"].dtype, state["state2"].dtype) == (torch.uint8, torch.uint8)
    eight, exact = steps_of(AdamW8bit(lr=0.01), 40)[0], steps_of(pl.AdamW(lr=0.01), 40)[0]
    assert 0 < (eight - exact).abs().max() < 0.05 and (eight - exact).abs().mean() < 0.005


@needs_bits
def test_small_tensors_keep_exact_moments():
    eight, optimiser = steps_of(AdamW8bit(lr=0.01), 30, size=512)
    torch.testing.assert_close(eight, steps_of(pl.AdamW(lr=0.01), 30, size=512)[0], rtol=1e-4, atol=1e-6)
    assert next(iter(optimiser.state.values()))["state1"].dtype == torch.float32


def test_every_learner_gets_it_with_the_recipes_numbers():
    plain = overrides.recipe_of(Settings(recipe="grpo")).learners["policy"].optimiser
    eight = overrides.recipe_of(Settings(recipe="grpo", optim="paged_adamw_8bit")).learners["policy"].optimiser
    assert eight == AdamW8bit(**vars(plain), paged=True)
    with pytest.raises(UserError, match="--optim adamw_8bit is for AdamW, and the learner 'policy' has DPAdamW"):
        overrides.recipe_of(Settings(recipe="dp-alignment", optim="adamw_8bit"))


def test_moments_are_not_kept_in_two_ways():
    with pytest.raises(UserError, match="in 8 bits or in bfloat16, not both; leave off --optim, or narrow_moments"):
        overrides.recipe_of(Settings(recipe="grpo", optim="adamw_8bit", set={"optimiser.narrow_moments": "true"}))


@needs_bits
def test_a_run_resumes_bit_by_bit_and_its_checkpoints_are_models(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*SMALL, "--steps", "3", "--checkpoint-every", "1", "--out", "whole"]) == 0
    assert main([*SMALL, "--steps", "2", "--out", "left"]) == 0
    assert main(["train", "--resume", "left", "--steps", "3"]) == 0
    assert Run("left").summary["weights_sha256"] == Run("whole").summary["weights_sha256"]
    alone, whole = load("whole/checkpoints/step-2").module, load("whole/checkpoints/step-3").module
    assert not is_quantised(alone) and not is_quantised(whole)
    start = load("tiny").module.state_dict()
    assert all(
        torch.equal(p, start[k]) for k, p in whole.state_dict().items() if "embed" in k or "norm" in k
    )  # what is not in 4 bits, and has no adapters


def test_only_decoder_layers_are_counted():
    module = build("llama", torch.float32).module
    assert quantised.describe_bits(module) == "" and quantised.unpacked_weights(module) == sum(
        p.numel() for p in module.parameters()
    )
