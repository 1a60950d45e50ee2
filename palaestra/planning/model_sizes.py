"""Dimensions of decoders by name, from a folder or from a config.json, with the experts that a token
meets: what `sizing` counts with.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from palaestra.errors import UserError
from palaestra.planning.dimensions import dimensions, module_of
from palaestra.planning.paper import SHAPES, Shape
from palaestra.types import value_class

BYTES = 2  # of a weight, an activation, a key or a value in bfloat16


@value_class
class ModelSize:
    """A decoder's dimensions; `active` = the parameters that a token meets, `key_values` = the
    numbers that a layer remembers of a token, `attention` = heads times their size, `middle` = of
    the experts that a token meets where there are several.
    """

    name: str
    parameters: float
    active: float
    layers: int
    hidden: int
    middle: int
    vocabulary: int
    key_values: int
    attention: int
    chosen: float = 1.0  # share of the experts that a token meets

    @property
    def cache_bytes(self) -> int:
        """Keys and values of a token, in all layers."""
        return BYTES * self.layers * self.key_values

    @property
    def layer_parameters(self) -> float:
        """Of a decoder layer."""
        return self.parameters / self.layers

    def read_bytes(self, tokens: np.ndarray) -> np.ndarray:
        """Weights that a decode step of so many tokens reads: all, but for experts none of them
        meets, if each token chooses evenly and independently.
        """
        if self.chosen == 1:
            return np.full(np.shape(tokens), BYTES * self.parameters)
        experts = (self.parameters - self.active) / (1 - self.chosen)
        met = 1 - (1 - self.chosen) ** np.asarray(tokens, float)
        return BYTES * (self.parameters - experts * (1 - met))

    def adapter_weights(self, rank: int) -> float:
        """Of adapters on the seven projections of every layer."""
        keys = self.key_values // 2
        wide = 2 * (self.hidden + self.attention) + 2 * (self.hidden + keys)
        return rank * self.layers * (wide + 3 * (self.hidden + self.middle))


# more than `paper.SHAPES` has: arXiv:2307.09288
DENSE: dict[str, Shape] = {
    "llama-2-13b": (5120, 13824, 40, 40, 40, 32000, 0, False),
    "llama-2-70b": (8192, 28672, 80, 64, 8, 32000, 0, False),
}
# name: width, middle of an expert, layers, heads, heads of keys, vocabulary, size of a head,
# experts, experts of a token: arXiv:2505.09388
SPARSE: dict[str, tuple[int, int, int, int, int, int, int, int, int]] = {
    "qwen3-30b-a3b": (2048, 768, 48, 32, 4, 151936, 128, 128, 8),
    "qwen3-235b-a22b": (4096, 1536, 94, 64, 4, 151936, 128, 128, 8),
}
SHORT = {
    "0.5b": "qwen2.5-0.5b",
    "1.5b": "qwen2.5-1.5b",
    "3b": "qwen2.5-3b",
    "7b": "qwen2.5-7b",
    "14b": "qwen2.5-14b",
    "32b": "qwen2.5-32b",
    "70b": "llama-3.3-70b",
}
SIZES = "sizes"  # all of SHORT


def names() -> list[str]:
    """Models that are known by name."""
    return [*SHORT, *SHAPES, *DENSE, *SPARSE]


def size_named(text: str) -> ModelSize:
    """The dimensions of a model: a short name, a name of `paper.SHAPES`, a folder or a config.json.

    Raises:
        UserError: it is none of these.
    """
    name = SHORT.get(text, text)
    shapes = SHAPES | DENSE
    if name in shapes:
        return dense_size(name, shapes[name])
    if name in SPARSE:
        return sparse_size(name)
    path = Path(text).expanduser()
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        raise UserError(
            f"--model {text}: no folder of a model; give one, a config.json, {SIZES}, or one of "
            f"{', '.join(names())}"
        )
    return size_of_file(file)


def dense_size(name: str, shape: Shape) -> ModelSize:
    """From the dimensions of a Llama; biases, where a model has some, are left out."""
    width, middle, layers, heads, of_keys, vocabulary, head, tied = shape
    head = head or width // heads
    attention = width * head * (2 * heads + 2 * of_keys)
    layer = attention + 3 * width * middle + 2 * width
    total = layers * layer + width + vocabulary * width * (1 if tied else 2)
    return ModelSize(
        name=name,
        parameters=total,
        active=total,
        layers=layers,
        hidden=width,
        middle=middle,
        vocabulary=vocabulary,
        key_values=2 * of_keys * head,
        attention=heads * head,
    )


def sparse_size(name: str) -> ModelSize:
    """A mixture of experts: a token meets a few of them in each layer."""
    width, middle, layers, heads, of_keys, vocabulary, head, experts, chosen = SPARSE[name]
    attention = width * head * (2 * heads + 2 * of_keys)
    rest = layers * (attention + width * experts + 2 * width) + width + 2 * vocabulary * width
    expert = 3 * width * middle * layers
    return ModelSize(
        name=name,
        parameters=rest + experts * expert,
        active=rest + chosen * expert,
        layers=layers,
        hidden=width,
        middle=chosen * middle,
        vocabulary=vocabulary,
        key_values=2 * of_keys * head,
        attention=heads * head,
        chosen=chosen / experts,
    )


def size_of_file(file: Path) -> ModelSize:
    """From a config.json, without weights."""
    module = module_of(file)
    size = dimensions(module)
    config: Any = getattr(module.config, "text_config", module.config)
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    experts = next(
        (n for k in ("num_experts", "num_local_experts", "n_routed_experts")
         if (n := getattr(config, k, None))), 0
    )  # fmt: skip
    share = getattr(config, "num_experts_per_tok", experts) / experts if experts else 1.0
    routed = sum(p.numel() for n, p in module.named_parameters() if ".experts." in n)
    middle = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    if routed:
        middle = getattr(config, "moe_intermediate_size", middle) * config.num_experts_per_tok
    else:
        share = 1.0
    return ModelSize(
        name=str(file.parent.name if file.name == "config.json" else file.name),
        parameters=size.parameters,
        active=size.parameters - routed * (1 - share),
        layers=size.layers,
        hidden=size.hidden,
        middle=middle,
        vocabulary=config.vocab_size,
        key_values=size.key_values,
        attention=config.num_attention_heads * head,
        chosen=share,
    )
