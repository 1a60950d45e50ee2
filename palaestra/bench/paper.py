"""A method at the size of its paper, built whole but for the weights: what it would take, before anybody rents a GPU.

Models are built on the meta device from their published dimensions, in the Llama form (gated middle layer, grouped keys),
which is within a few per cent of the models' own size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, cast

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from palaestra import catalogue
from palaestra.card import Size
from palaestra.models.load import Model, load
from palaestra.pipeline import Pipeline
from palaestra.rollout.collect import Sample
from palaestra.rollout.decoder import Decoder
from palaestra.runtime import config, setup
from palaestra.runtime.context import Context
from palaestra.runtime.train import prepare_models
from palaestra.step import Recipe
from palaestra.types import UserError

# name: width, middle, layers, heads, heads of keys, vocabulary, size of a head (0 = width / heads), tied
SHAPES: dict[str, tuple[int, int, int, int, int, int, int, bool]] = {
    "qwen2.5-0.5b": (896, 4864, 24, 14, 2, 151936, 0, True),
    "qwen2.5-1.5b": (1536, 8960, 28, 12, 2, 151936, 0, True),
    "qwen2.5-3b": (2048, 11008, 36, 16, 2, 151936, 0, True),
    "qwen2.5-7b": (3584, 18944, 28, 28, 4, 152064, 0, False),
    "qwen2.5-14b": (5120, 13824, 48, 40, 8, 152064, 0, False),
    "qwen2.5-32b": (5120, 27648, 64, 40, 8, 152064, 0, False),
    "qwen3-1.7b": (2048, 6144, 28, 16, 8, 151936, 128, True),
    "qwen3-4b": (2560, 9728, 36, 32, 8, 151936, 128, True),
    "qwen3-8b": (4096, 12288, 36, 32, 8, 151936, 128, False),
    "qwen3-14b": (5120, 17408, 40, 40, 8, 151936, 128, False),
    "qwen3-32b": (5120, 25600, 64, 64, 8, 151936, 128, False),
    "llama-2-7b": (4096, 11008, 32, 32, 32, 32000, 0, False),
    "llama-3.1-8b": (4096, 14336, 32, 32, 8, 128256, 0, False),
    "llama-3.2-3b": (3072, 8192, 28, 24, 8, 128256, 128, True),
    "llama-3.3-70b": (8192, 28672, 80, 64, 8, 128256, 0, False),
    "deepseekmath-7b": (4096, 11008, 30, 32, 32, 102400, 0, False),
    "mistral-7b": (4096, 14336, 32, 32, 8, 32768, 0, False),
    "tinyllama-1.1b": (2048, 5632, 22, 32, 4, 32000, 0, False),
    "gemma-2b": (2048, 16384, 18, 8, 1, 256000, 256, True),
    "gemma-2-9b": (3584, 14336, 42, 16, 8, 256000, 256, True),
    "pythia-2.8b": (2560, 10240, 32, 32, 32, 50304, 0, False),
    "pythia-6.9b": (4096, 16384, 32, 32, 32, 50432, 0, False),
}
FLOPS = 0.4 * 989e12  # of one H100 in bfloat16 at 40% of its dense peak
STATE = 16  # bytes of a trained weight: bfloat16 with its gradient, float32 with two moments
FROZEN = 2  # of a frozen one


def shell(name: str) -> Model:
    """A model without weights, with the embedded model's tokenizer."""
    return Model(name, _module(name), load("tiny").tokenizer, name)


@lru_cache(maxsize=len(SHAPES))
def _module(name: str) -> torch.nn.Module:
    width, middle, layers, heads, of_keys, vocabulary, head, tied = SHAPES[name]
    shape = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=middle,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=of_keys,
        head_dim=head or width // heads,
        max_position_embeddings=1 << 17,
        tie_word_embeddings=tied,
        dtype="bfloat16",
    )
    with torch.device("meta"):
        module = cast(torch.nn.Module, LlamaForCausalLM(shape))
    return module.to(torch.bfloat16).eval()


def scaled(runnable: Any, size: Size) -> Any:
    """A recipe with the paper's batch, group, length and rate; of a pipeline, every part."""
    if isinstance(runnable, Pipeline):
        parts = {n: replace(p, runnable=scaled(p.runnable, size)) for n, p in runnable.parts.items()}
        return replace(runnable, parts=parts)
    if not isinstance(runnable, Recipe):
        return runnable
    for path, stage in list(config.walk(runnable)):
        if isinstance(stage, Sample):
            runnable = config.override(runnable, f"{path}.max_tokens", size.tokens)
            if size.samples and stage.n > 1:
                runnable = config.override(runnable, f"{path}.n", size.samples)
    if size.prompts:
        runnable = replace(runnable, schedule=replace(runnable.schedule, prompts=size.prompts))
    if size.lr:
        rated = {n: replace(l, optimiser=replace(l.optimiser, lr=size.lr)) for n, l in runnable.learners.items()}
        runnable = replace(runnable, learners=rated)
    return runnable


def dry_run(method: str, overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Builds the method with all its models, heads and references at the paper's size, `overrides` over it.

    Memory in GB, arithmetic in PFLOP a step at most: all answers as long as allowed, once sampled, once trained on, once
    read by each frozen model.
    """
    card = catalogue.find(method).CARD
    if card.size is None:
        raise UserError(f"{method}: {card.paper_scale or 'the paper names no language model that it trains'}")
    size: Size = card.size
    if size.model not in SHAPES:
        raise UserError(f"{method}: no dimensions of {size.model!r}; there are {', '.join(SHAPES)}")
    overrides = overrides or {}
    whole = scaled(setup.build(method, overrides), size)
    for path in overrides.keys() - setup.arguments(method).keys():
        whole = config.override(whole, path, overrides[path])
    runnables = [p.runnable for p in whole.parts.values()] if isinstance(whole, Pipeline) else [whole]
    recipes = [r for r in runnables if isinstance(r, Recipe)]
    bench, _ = setup.bench_of(setup.Settings())
    ctx = Context(bench=bench, seed=0, models={"policy": shell(size.model)})
    for recipe in recipes:
        prepare_models(recipe, ctx)
    trained = {n for r in recipes for n in r.learners}
    sizes = {n: sum(p.numel() for p in _parameters(m)) for n, m in ctx.models.items()}
    prompts = max((r.schedule.prompts for r in recipes), default=size.prompts)
    samples = max((x.n for r in recipes for _, x in config.walk(r) if isinstance(x, Sample)), default=size.samples) or 1
    answers = prompts * samples
    moved, still = (sum(v for n, v in sizes.items() if (n in trained) == which) for which in (True, False))
    flops = answers * size.tokens * ((2 + 6) * sizes["policy"] + 2 * still)
    return {
        "recipe": method,
        "paper": card.paper_scale,
        "model": size.model,
        "parameters": sizes,
        "prompts": prompts,
        "samples": samples,
        "answer_tokens": size.tokens,
        "tokens_per_step": answers * size.tokens,
        "training_state_gb": round(STATE * moved / 1e9, 1),
        "frozen_gb": round(FROZEN * still / 1e9, 1),
        "keys_and_values_gb": round(Decoder(ctx.model("policy")).token_bytes * answers * size.tokens / 1e9, 1),
        "pflop_per_step": round(flops / 1e15, 1),
        "gpu_minutes_per_step": round(flops / FLOPS / 60, 2),
    }


def _parameters(model: Model) -> list[torch.nn.Parameter]:
    return [*model.module.parameters(), *(p for h in model.heads.values() for p in h.parameters())]


def show(found: dict[str, Any]) -> str:
    """The dry run as lines to read."""
    sizes = ", ".join(f"{n} {p / 1e9:.2f} B" for n, p in found["parameters"].items())
    samples = f"{found['prompts']:,} prompts x {found['samples']}"
    return "\n".join(
        [
            f"{found['recipe']} at the size of its paper ({found['paper']}), built without weights",
            f"  models           {found['model']}: {sizes}",
            f"  a step           {samples}, answers of up to {found['answer_tokens']:,} tokens: "
            f"{found['tokens_per_step'] / 1e6:.1f} M tokens at most",
            f"  training state   {found['training_state_gb']:,} GB ({STATE} bytes a trained weight)",
            f"  frozen models    {found['frozen_gb']:,} GB",
            f"  keys and values  {found['keys_and_values_gb']:,} GB, were all answers sampled at once",
            f"  arithmetic       {found['pflop_per_step']:,} PFLOP a step at most, {found['gpu_minutes_per_step']:,} minutes "
            "of an H100 at 40% of its rate",
        ]
    )
