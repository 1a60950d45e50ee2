"""A method at the size of its paper, built whole but for the weights: what it would take, before
anybody rents a GPU.

Models are built on the meta device from their published dimensions, in the Llama form (gated middle
layer, grouped keys), which is within a few per cent of the models' own size.
"""

from __future__ import annotations

import copy
import math
import textwrap
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeAlias, cast

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from palaestra import catalogue, values
from palaestra.abilities import CountsSamples, GivesBatches
from palaestra.card import UNKNOWN, Card, Size
from palaestra.context import Runnable
from palaestra.engines.decoder import Decoder
from palaestra.errors import UserError
from palaestra.method import Recipe
from palaestra.models.load import Model, load
from palaestra.models.lora import LoRA
from palaestra.pipeline import Pipeline
from palaestra.rollout.cast import Moving
from palaestra.rollout.collect import Sample
from palaestra.run import setup
from palaestra.run.context import RunContext
from palaestra.run.driver import prepare_models, train
from palaestra.settings import overrides
from palaestra.settings.fields import FULL_LR, LORA_LR, Settings

# name: width, middle, layers, heads, heads of keys, vocabulary, size of a head (0 = width / heads),
# tied
Shape: TypeAlias = tuple[int, int, int, int, int, int, int, bool]
SHAPES: dict[str, Shape] = {
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
    # two thirds of their middle, which has no gate
    "gpt2": (768, 2048, 12, 12, 12, 50257, 0, True),
    "pythia-2.8b": (2560, 6827, 32, 32, 32, 50304, 0, False),
    "pythia-6.9b": (4096, 10923, 32, 32, 32, 50432, 0, False),
}
FLOPS = 0.4 * 989e12  # of one H100 in bfloat16 at 40% of its dense peak
H100 = 80  # GB
TOKENS = 1024  # of an answer, where nobody says
STATE = 16  # bytes of a trained weight: bfloat16 with its gradient, float32 with two moments
FROZEN_STATE = 2  # of a frozen one


def shell(name: str) -> Model:
    """A model without weights, with the embedded model's tokenizer."""
    return Model(
        name, copy.deepcopy(_module(name)), load("tiny").tokenizer, name
    )  # heads and adapters freeze what they get


def config_of(shape: Shape, positions: int) -> LlamaConfig:
    """A Llama of these dimensions in bfloat16, with places for `positions` tokens."""
    width, middle, layers, heads, of_keys, vocabulary, head, tied = shape
    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=middle,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=of_keys,
        head_dim=head or width // heads,
        max_position_embeddings=positions,
        tie_word_embeddings=tied,
        dtype="bfloat16",
    )


@lru_cache(maxsize=len(SHAPES))
def _module(name: str) -> torch.nn.Module:
    shape = config_of(SHAPES[name], 1 << 17)
    with torch.device("meta"):
        module = cast(torch.nn.Module, LlamaForCausalLM(shape))
    return module.to(torch.bfloat16).eval()


# ---- the recipe


def size_of(method: str, model: str = "", lora: int = 0, tokens: int = 0) -> Size:
    """The size on the method's card, with what is given in its place. Raises UserError where no
    model is known.
    """
    card: Card = catalogue.find(method).CARD
    if model and model not in SHAPES:
        raise UserError(
            f"--model {model}: its dimensions are not known here; --paper knows {', '.join(SHAPES)}"
        )
    size = card.size or Size()
    if catalogue.entry_of(method).shape == "program" and not recipes_in(
        overrides.build(method, {})
    ):
        model_text = f" ({size.setting})" if size.setting else ""
        raise UserError(
            f"{method} is a program that holds no recipe{model_text}, so there is nothing to build; see "
            f"palaestra show {method}"
        )
    if not (size.model or model):
        model_text = f"the paper does not say what model it trains ({size.setting})"
        why = model_text if size.setting else "no paper sets its size"
        remedy = f"palaestra doctor {method} --paper --model qwen2.5-7b"
        raise UserError(
            f"{method}: {why}, so there is nothing to build; choose a model, for instance {remedy}"
        )
    return replace(
        size, model=model or size.model, lora=lora or size.lora, tokens=tokens or size.tokens
    )


def scale_to_paper(runnable: Runnable, size: Size) -> Runnable:
    """A recipe with the paper's batch, group, length and rate; of a pipeline, every part; of a
    program, the recipes that it holds.
    """
    if isinstance(runnable, Pipeline):
        parts = {
            n: replace(p, runnable=scale_to_paper(p.runnable, size))
            for n, p in runnable.parts.items()
        }
        return replace(runnable, parts=parts)
    if not isinstance(runnable, Recipe):
        for path, held in values.walk(runnable):
            if isinstance(held, Recipe):
                runnable = values.override(runnable, path, scale_to_paper(held, size))
        return runnable
    for path, stage in players(runnable):
        if isinstance(stage, Sample):
            runnable = values.override(runnable, f"{path}.max_tokens", size.tokens or TOKENS)
        if size.samples and stage.n > 1:
            runnable = values.override(runnable, f"{path}.n", size.samples)
    prompts = size.prompts or size.answers // samples_of(runnable)
    if prompts:
        runnable = replace(runnable, schedule=replace(runnable.schedule, prompts=prompts))
        if isinstance(runnable.pool, GivesBatches):
            runnable = values.override(runnable, "pool.size", prompts)
    return overrides.set_rate(runnable, size.lr) if size.lr else runnable


def recipes_in(runnable: Runnable) -> list[Recipe]:
    """A recipe itself, those of a pipeline's parts, and those that a program holds."""
    if isinstance(runnable, Pipeline):
        return [r for part in runnable.parts.values() for r in recipes_in(part.runnable)]
    if isinstance(runnable, Recipe):
        return [runnable]
    return [x for _, x in values.walk(runnable) if isinstance(x, Recipe)]


def players(recipe: Recipe) -> list[tuple[str, Any]]:
    """The stages that sample answers, by path: every `Sample`, else the first stage that says how
    many.
    """
    stages = values.walk(recipe.collect, "collect")
    counted = [(path, x) for path, x in stages if isinstance(x, CountsSamples)]
    return [(path, x) for path, x in counted if isinstance(x, Sample)] or counted[:1]


def samples_of(recipe: Recipe) -> int:
    """Answers to a prompt."""
    return max((x.n for _, x in players(recipe)), default=1)


def build_at_size(method: str, size: Size, changes: Mapping[str, Any]) -> Any:
    """The method at a size: arguments of its `build` first, then the numbers, then fields by path;
    `changes` come last.
    """
    takes = overrides.arguments(method)
    rate = LORA_LR if size.lora else FULL_LR
    given = {**size.arguments, **changes}
    whole = overrides.build(method, {k: v for k, v in given.items() if k in takes}, rate=rate)
    whole = scale_to_paper(whole, size)
    for path, x in given.items():
        if path not in takes:
            whole = values.override(whole, path, x)
    return whole


def settings(method: str, given: Mapping[str, Any], whole: Any) -> dict[str, dict[str, Any]]:
    """Which settings of the method are not this project's defaults: name -> {"value",
    "default"}.
    """
    takes, plain, changed = (
        overrides.arguments(method),
        overrides.build(method, {}),
        dict[str, dict[str, Any]](),
    )
    for name, x in given.items():
        if name in takes:
            value, default = values.parse(x, takes[name].annotation, name), takes[name].default
        else:
            path, default = values.find(whole, name), None
            value = dict(values.walk(whole))[path]
            with suppress(UserError):  # a part that an argument adds has no default
                default = dict(values.walk(plain))[values.find(plain, name)]
        if value != default:
            changed[name] = {"value": value, "default": default}
    return changed


# ---- what it takes


def dry_run(
    method: str,
    overrides: Mapping[str, Any] | None = None,
    *,
    model: str = "",
    lora: int = 0,
    tokens: int = 0,
) -> dict[str, Any]:
    """Builds the method with all its models, heads and references at the paper's size, `overrides`
    over it.

    `model`, `lora` (a rank) and `tokens` (of an answer) stand for those of the paper. Memory in GB,
    arithmetic in PFLOP a step at most: all answers as long as allowed, once sampled, once trained
    on, once read by each other model.
    """
    size, overrides = size_of(method, model, lora, tokens), overrides or {}
    whole = build_at_size(method, size, overrides)
    recipes = recipes_in(whole)
    ctx = models(recipes, size)
    trained = {n for r in recipes for n in r.learners}
    moved, still = weights(ctx.models, trained)
    largest = max(recipes, key=lambda r: r.schedule.prompts * samples_of(r))
    prompts, samples, length = largest.schedule.prompts, samples_of(largest), size.tokens or TOKENS
    answers = prompts * samples
    flops = answers * length * token_flops(ctx.models, trained)
    state, frozen = STATE * sum(moved.values()) / 1e9, FROZEN_STATE * sum(still.values()) / 1e9
    learner = largest.learners.get("policy") or next(iter(largest.learners.values()))
    return {
        "recipe": method,
        "paper": size.setting,
        "model": size.model,
        "lora": size.lora,
        "parameters": {n: sum(p.numel() for p in _parameters(m)) for n, m in ctx.models.items()},
        "trained": moved,
        "frozen": still,
        "prompts": prompts,
        "samples": samples,
        "answer_tokens": length,
        "tokens_per_step": answers * length,
        "lr": learner.optimiser.lr,
        "settings": settings(method, {**size.arguments, **overrides}, whole),
        "unknown": list(size.unknown),
        "training_state_gb": round(state, 1),
        "frozen_gb": round(frozen, 1),
        "h100s": math.ceil((state + frozen) / H100),
        "beside_gb": {name: round(FROZEN_STATE * b, 1) for name, b in size.beside.items()},
        "keys_and_values_gb": round(
            Decoder(ctx.model("policy")).token_bytes * answers * length / 1e9, 1
        ),
        "pflop_per_step": round(flops / 1e15, 1),
        "gpu_minutes_per_step": round(flops / FLOPS / 60, 2),
    }


def models(recipes: list[Recipe], size: Size) -> RunContext:
    """The context of a run with every model of the recipes in it."""
    policy, lora = shell(size.model), LoRA(rank=size.lora) if size.lora else None
    if lora:
        with torch.device("meta"):
            policy = Model(policy.name, lora(policy.module), policy.tokenizer, policy.source)
    bench, _ = setup.bench_of(Settings())
    ctx = RunContext(bench=bench, seed=0, models={"policy": policy}, drive=train, lora=lora)
    for recipe in recipes:
        for name, source in recipe.references.items() if lora else ():
            # new adapters change nothing yet: a reference is the model with them switched off
            m = ctx.model(source.model if isinstance(source, Moving) else source)
            ctx.models.setdefault(name, Model(m.name, m.module, m.tokenizer, m.source, bare=True))
        prepare_models(recipe, ctx)
    return ctx


def weights(
    models: Mapping[str, Model], trained: set[str]
) -> tuple[dict[str, int], dict[str, int]]:
    """Trained and frozen parameters by model; what models share counts once, with the first."""
    seen, moved, still = set[int](), dict[str, int](), dict[str, int]()
    for name, model in models.items():
        own = [p for p in _parameters(model) if id(p) not in seen]
        seen |= {id(p) for p in own}
        moved[name] = sum(p.numel() for p in own if name in trained and p.requires_grad)
        still[name] = sum(p.numel() for p in own) - moved[name]
    return moved, still


def token_flops(models: Mapping[str, Model], trained: set[str]) -> int:
    """Of a token: 2 a parameter to sample it, 2 in every model that reads it; trained weights 4
    more.

    Below adapters the gradient passes through frozen weights, 2 each; below a head that detaches
    them it does not.
    """
    total = 2 * sum(p.numel() for p in _parameters(models["policy"]))
    for name, model in models.items():
        own = _parameters(model)
        whole, moved = sum(p.numel() for p in own), sum(p.numel() for p in own if p.requires_grad)
        if name in trained:
            total += 2 * whole + 4 * moved + (2 * (whole - moved) if model.adapted else 0)
        elif name != "policy":
            total += 2 * whole
    return total


def _parameters(model: Model) -> list[torch.nn.Parameter]:
    return [*model.module.parameters(), *(p for h in model.heads.values() for p in h.parameters())]


# ---- for people


def show(result: dict[str, Any]) -> str:
    """The dry run as lines to read."""
    rows = [
        ("paper", result["paper"]),
        ("models", _models(result)),
        ("a step", _step(result)),
        ("settings", _settings(result)),
        ("weights", _weights(result)),
        ("not built", ", ".join(f"{n} ({gb:,} GB of weights)" for n, gb in result["beside_gb"].items())),
        ("keys, values", _cache(result)),
        ("arithmetic", _arithmetic(result)),
        ("not known", _unknown(result)),
    ]  # fmt: skip
    lines = [f"{result['recipe']} at the size of its paper, built without weights"]
    for name, text in rows:
        if text:
            lines += textwrap.wrap(
                text, 110, initial_indent=f"  {name:<14}", subsequent_indent=" " * 16
            )
    return "\n".join(lines)


def _plain(x: Any) -> str:
    return (
        f"{x:,}"
        if type(x) is int
        else "none"
        if x is None
        else f"{x:,g}"
        if isinstance(x, float)
        else str(x)
    )


def _billions(n: int) -> str:
    return f"{n / 1e9:.2f} B"


def _models(result: dict[str, Any]) -> str:
    lines = []
    for name, n in result["parameters"].items():
        moved, still = result["trained"][name], result["frozen"][name]
        how = "trained" if moved == n else f"{_billions(moved)} trained" if moved else "frozen"
        lines.append(
            f"{name} {_billions(n)} ({how if moved or still else 'shared, without adapters'})"
        )
    adapters = f", LoRA of rank {result['lora']}" if result["lora"] else ""
    return f"{result['model']}{adapters}: {', '.join(lines)}"


def _settings(result: dict[str, Any]) -> str:
    rows = result["settings"].items()
    return ", ".join(f"{n} {_plain(s['value'])} (default {_plain(s['default'])})" for n, s in rows)


def _step(result: dict[str, Any]) -> str:
    counts = {
        "prompt": result["prompts"],
        "answer": result["samples"],
        "token": result["answer_tokens"],
    }
    batch, n = (
        " x ".join(f"{n:,} {name}{'s' * (n > 1)}" for name, n in counts.items()),
        result["tokens_per_step"],
    )
    return (
        f"{batch} = {f'{n / 1e6:,.1f} M' if n >= 1e6 else f'{n:,}'} tokens at most, lr "
        f"{_plain(result['lr'])}"
    )


def _weights(result: dict[str, Any]) -> str:
    state, frozen, n = result["training_state_gb"], result["frozen_gb"], result["h100s"]
    state_text = (
        f"{state:,} GB for trained weights ({STATE} bytes each, with gradient and optimiser)"
    )
    state_text += f" + {frozen:,} GB frozen ({FROZEN_STATE} bytes each)" if frozen else ""
    return f"{state_text}: {n} H100 of {H100} GB or more, before activations"


def _cache(result: dict[str, Any]) -> str:
    gb = result["keys_and_values_gb"]
    return (
        f"{gb / (result['prompts'] * result['samples']):,.2f} GB for an answer of full length, "
        f"{gb:,} GB for all at once"
    )


def _arithmetic(result: dict[str, Any]) -> str:
    minutes = result["gpu_minutes_per_step"]
    time = f"{minutes / 60:,.1f} hours" if minutes >= 120 else f"{minutes:.3g} minutes"
    return (
        f"{result['pflop_per_step']:,} PFLOP a step at most: {time} of one H100 at 40% of its rate"
    )


def _unknown(result: dict[str, Any]) -> str:
    own = {**result, "tokens": result["answer_tokens"]}
    return ", ".join(f"{UNKNOWN[name]} ({_plain(own[name])} here)" for name in result["unknown"])
