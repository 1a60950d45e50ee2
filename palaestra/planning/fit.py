"""What of a model's training fits on one GPU: `palaestra doctor MODEL --gpu 24`.

Counted from dimensions alone, as this package holds things (GB are 10^9 bytes):

    weights      2 bytes each in bfloat16; in 4 bits `quantised.BITS` / 8 of the decoder layers' linear ones
    masters      4 bytes a trained weight below float32 (`models.master`)
    gradients    4 bytes a trained weight, until the optimiser has stepped
    moments      8 bytes a trained weight; 2 of them and 8 bytes for each 256 weights in 8 bits
    activations  `Model.position_bytes` for each token of the longest row, the least that an update holds,
                 and what adapters keep of their inputs, which they read in float32
    layer        the largest 4-bit layer in bfloat16, while it multiplies
    answers      keys and values of answers that are sampled at the same time; the engine keeps them
    context      `CONTEXT` GB that CUDA and the allocator take, an assumption

Adapters are float32 (`peft` makes them so) and need no masters.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from palaestra.errors import UserError
from palaestra.models.inside.residual import layers_of
from palaestra.models.limits import file_of
from palaestra.models.load import OWN_MODELS, find
from palaestra.models.lora import LoRA
from palaestra.models.model import Model
from palaestra.models.quantised import BITS
from palaestra.planning.dimensions import dimensions, module_of
from palaestra.planning.paper import SHAPES, shell

GROUPS = (4, 8, 16, 32, 64)  # answers to one prompt
CONTEXT = 0.8  # GB
RANK = 16  # of adapters where nothing is said
PROMPT, ANSWER = 256, 1024  # tokens where nothing is said
MEASURED = Path(__file__).with_name("measured.tsv")
MOMENTS, MOMENTS_8BIT = 8.0, 2 + 8 / 256  # bytes a trained weight


@dataclass(frozen=True)
class Way:
    """A way to train."""

    name: str
    adapters: bool = False
    packed: bool = False
    moments: float = MOMENTS
    flags: str = ""


WAYS = (
    Way("full"),
    Way("full, 8-bit moments", moments=MOMENTS_8BIT, flags="--optim adamw_8bit"),
    Way("LoRA", adapters=True, flags="--lora {rank}"),
    Way("QLoRA", adapters=True, packed=True, flags="--lora {rank} --load-in-4bit"),
)


@dataclass(frozen=True, kw_only=True)
class MemoryParts:
    """GB of each part, see above; `answer` is that of one answer with its prompt."""

    weights: float
    masters: float
    gradients: float
    moments: float
    activations: float
    layer: float
    context: float
    answer: float

    @property
    def least(self) -> float:
        """Without answers."""
        return sum(v for k, v in asdict(self).items() if k != "answer")


def named_model(name: str) -> Model:
    """A model without weights: a name of `paper.SHAPES`, a folder, a config.json, or an id of the hub.

    Raises:
        UserError: it is none of these, or its configuration is not here.
    """
    if name in SHAPES:
        return shell(name)
    path = Path(name).expanduser()
    if path.suffix != ".json":
        where = OWN_MODELS[name]() if name in OWN_MODELS else path if path.is_dir() else name
        config = file_of(where, "config.json") if path.is_dir() or name in OWN_MODELS else None
        config = config or file_of(find(name), "config.json")
        if config is None:
            raise UserError(
                f"model {name!r} has no config.json here; known by name: {', '.join(SHAPES)}"
            )
        path = config
    module = module_of(path).to(torch.bfloat16)
    tokenizer: Any = None
    return Model(name, module, tokenizer, str(path))


def parts_of(model: Model, way: Way, *, rank: int, tokens: int, recompute: bool) -> MemoryParts:
    """The parts of training a model in a way.

    Args:
        model: without weights, in bfloat16.
        rank: of the adapters, where the way has some.
        tokens: of the longest row, prompt and answer.
        recompute: `--recompute`.
    """
    weights = model.n_parameters
    linear = [
        m
        for layer in layers_of(model.causal)
        for m in layer.modules()
        if isinstance(m, nn.Linear | Conv1D)
    ]
    packed = sum(m.weight.numel() for m in linear) if way.packed else 0
    adapted = adapted_layers(model) if way.adapters else []
    trained = sum(rank * (wide + deep) for wide, deep in adapted) if way.adapters else weights
    fresh = Model(model.name, model.module, model.tokenizer, model.source, recompute=recompute)
    each = fresh.position_bytes + adapter_bytes(
        adapted, rank, len(fresh.layers) if recompute else 1
    )
    size = dimensions(model.causal)
    return MemoryParts(
        weights=(2 * (weights - packed) + BITS / 8 * packed + (4 * trained if way.adapters else 0))
        / 1e9,
        masters=0.0 if way.adapters else 4 * trained / 1e9,
        gradients=4 * trained / 1e9,
        moments=way.moments * trained / 1e9,
        activations=tokens * each / 1e9,
        layer=2 * max((m.weight.numel() for m in linear), default=0) / 1e9 if way.packed else 0.0,
        context=CONTEXT,
        answer=tokens * 2 * size.layers * size.key_values / 1e9,
    )


def adapted_layers(model: Model) -> list[tuple[int, int]]:
    """(out, in) of every layer that gets adapters."""
    names = LoRA().layers(model.causal)
    every = [m for layer in layers_of(model.causal) for m in layer.named_modules()]
    return [
        (m.weight.shape[0], m.weight.shape[1])
        if isinstance(m, nn.Linear)
        else (m.weight.shape[1], m.weight.shape[0])
        for name, m in every
        if name.rpartition(".")[2] in names and isinstance(m, nn.Linear | Conv1D)
    ]


def adapter_bytes(adapted: list[tuple[int, int]], rank: int, share: int) -> float:
    """Of one token: the float32 input of A and what A makes of it, in every adapted layer; of one decoder
    layer where these are recomputed (`share` is then their number).
    """
    return sum(4 * (deep + rank) for _, deep in adapted) / share


def fits(model: Model, gpu: float, *, rank: int, prompt: int, answer: int) -> dict[str, Any]:
    """What of each way fits in `gpu` GB: parts, the answers that go at the same time, and those groups
    that do.
    """
    rows = list[dict[str, Any]]()
    for way in WAYS:
        for recompute in (False, True):
            parts = parts_of(model, way, rank=rank, tokens=prompt + answer, recompute=recompute)
            room = gpu - parts.least
            answers = max(0, int(room / parts.answer))
            flags = f"{way.flags.format(rank=rank)}{' --recompute' if recompute else ''}".strip()
            rows.append(
                {
                    "way": way.name,
                    "flags": flags,
                    "recompute": recompute,
                    "from": "formula",
                    "gb": {k: round(v, 2) for k, v in asdict(parts).items()},
                    "least_gb": round(parts.least, 2),
                    "fits": answers >= 1,
                    "answers_at_once": answers,
                    "groups": {str(g): g <= answers for g in GROUPS},
                }
            )
    return {
        "model": model.name,
        "parameters": model.n_parameters,
        "gpu_gb": gpu,
        "prompt_tokens": prompt,
        "answer_tokens": answer,
        "rank": rank,
        "rows": rows,
        "measured": measured(model),
    }


def measured(model: Model) -> list[dict[str, str]]:
    """Lines of the measured table that are of this model, by its name or number of weights."""
    with MEASURED.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader((x for x in file if not x.startswith("#")), delimiter="\t"))
    return [x for x in lines if x["model"] == model.name or int(x["weights"]) == model.n_parameters]


def show(plan: Mapping[str, Any]) -> Iterator[str]:
    """Lines for people."""
    tokens = f"rows of {plan['prompt_tokens']} + {plan['answer_tokens']} tokens"
    yield (
        f"{plan['model']}: {plan['parameters'] / 1e9:.2f} billion weights in bfloat16, {tokens}, adapters of "
        f"rank {plan['rank']}, one GPU of {plan['gpu_gb']:g} GB; GB are 10^9 bytes"
    )
    names = ("weights", "masters", "gradients", "moments", "activations", "layer", "context")
    groups = "".join(f"{g:>5}" for g in GROUPS)
    heads = "".join(f"{n:>12}" for n in names)
    yield f"\n{'':<8}{'':<22}{'recompute':<10}{heads}{'least':>8}  fits  answers at once, and groups of{groups}"
    for row in plan["rows"]:
        numbers = "".join(f"{row['gb'][n]:>12.2f}" for n in names)
        fits = "".join(f"{'yes' if x else 'no':>5}" for x in row["groups"].values())
        yield (
            f"{row['from']:<8} {row['way']:<21}{'yes' if row['recompute'] else 'no':<10}{numbers}{row['least_gb']:>8.2f}"
            f"  {'yes' if row['fits'] else 'no':<6}{row['answers_at_once']:>15}{'':>16}{fits}"
        )
    each = plan["rows"][0]["gb"]["answer"]
    yield f"\nan answer with its prompt takes {each:.2f} GB of keys and values; a larger group is sampled in turns"
    yield "a formula of dimensions, not a run: on the GPU, `palaestra doctor` without --gpu measures"
    for line in plan["measured"]:
        yield (
            f"measured {line['way']}: {line['update_gb']} GB in the update, {line['rollout_gb']} GB while sampling, of "
            f"{line['prompts']} x {line['group']} answers of {line['tokens']} tokens in {line['dtype']}, recompute "
            f"{line['recompute']}, on {line['machine']}"
        )
    if not plan["measured"]:
        yield "measured: nothing yet of this model"
