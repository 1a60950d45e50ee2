"""Decoding of small models with few operators: what transformers computes, up to the order of sums."""

import pytest
import torch
from palaestra.engines.compact import Compact
from palaestra.engines.decoder import Decoder
from palaestra.models.load import load
from palaestra.models.lora import LoRA
from palaestra.models.model import Model
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 263}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
PROMPTS = ([3, 1, 4, 1, 5], [9], [2, 6, 5])


def model_of(causal, tokenizer):
    with torch.no_grad():
        for p in causal.parameters():  # norms that are not 1, weights that are not small
            p.copy_(torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel())) / 4 + 0.1)
    return Model("small", causal.eval(), tokenizer, "")


@pytest.fixture(scope="module")
def tokenizer():
    return load("tiny").tokenizer


def decoders(model):
    """One that decodes with few operators, one by transformers."""
    few, many = Decoder(model), Decoder(model)
    assert few.compact is not None
    many.compact = None
    for decoder in (few, many):
        decoder.cache.reserve(8, 64, 8)
    return few, many


def same(a, b):
    assert torch.allclose(a, b, atol=2e-5, rtol=2e-5), float((a - b).abs().max())


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"num_key_value_heads": 4},
        {"num_key_value_heads": 1, "head_dim": 16},
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 100.0, "factor": 2.0}},
    ],
)
def test_it_computes_what_transformers_does(shape, tokenizer):
    model = model_of(LlamaForCausalLM(LlamaConfig(**SIZES | HEADS | shape)), tokenizer)
    few, many = decoders(model)
    same(few.extend(2, PROMPTS, [0, 0, 0]), many.extend(2, PROMPTS, [0, 0, 0]))
    more = ([7, 7], [8], [1, 2, 3])  # these go on in their slots, at different places
    at = [len(p) for p in PROMPTS]
    same(few.extend(2, more, at), many.extend(2, more, at))
    for decoder in (few, many):
        decoder.cache.copy([0, 1], [4, 2], 6)
    for n in range(3):
        step = [5, 6], [6 + n, 7 + n]
        same(few.step(*step), many.step(*step))


def test_weights_that_moved_are_gathered_again():
    model = load("tiny")
    few, many = decoders(model)
    prompts = [[3, 1, 4], [1, 5]]
    before = few.extend(0, prompts, [0, 0])
    with torch.no_grad():
        for p in model.module.parameters():
            p.mul_(1.1)
    few.forget_weights()
    after = few.extend(0, prompts, [0, 0])
    assert not torch.allclose(before, after, atol=1e-2)
    same(after, many.extend(0, prompts, [0, 0]))


def test_other_models_decode_by_transformers(tokenizer):
    small = SIZES | HEADS
    others = {
        "Qwen2 has biases": Qwen2ForCausalLM(Qwen2Config(**small)),
        "a bias": LlamaForCausalLM(LlamaConfig(**small, attention_bias=True)),
        "another activation": LlamaForCausalLM(LlamaConfig(**small, hidden_act="gelu")),
        "bfloat16": LlamaForCausalLM(LlamaConfig(**small)).bfloat16(),
        "rotations by length": LlamaForCausalLM(
            LlamaConfig(**small, rope_parameters={"rope_type": "dynamic", "rope_theta": 100.0, "factor": 2.0})
        ),
        "large": LlamaForCausalLM(LlamaConfig(**small | {"vocab_size": 400_000})),
    }
    for why, causal in others.items():
        assert Compact.of(Model("m", causal, tokenizer, "")) is None, why
    assert Compact.of(load("tiny", lora=LoRA(rank=2))) is None
    assert Compact.of(load("tiny")) is not None
