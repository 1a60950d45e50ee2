"""Adapters merged into the weights below them: of one layer after another, or in a copy of the whole."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from palaestra.models.quantised import Linear4bit, dequantise, outline, restore_conv1d
from palaestra.models.weight_files import converts_alone, save_weights

if TYPE_CHECKING:
    from palaestra.models.model import Model

Weights: TypeAlias = Iterable[tuple[str, Tensor]]


def save_module(
    model: Model,
    directory: Path,
    *,
    base: bool = False,
    changes: Callable[[Weights], Weights] = iter,
) -> None:
    """Writes a model's transformers module, with its adapters merged, as `save_pretrained` does. Merged
    weights are made one layer after another, each when its turn to be written has come; where files
    have several weights in one tensor, in a copy of the model.

    Args:
        model: which may have adapters.
        directory: that is there.
        base: without the adapters.
        changes: weights as they go into the files, from weights by their names in the module.
    """
    if model.adapted and converts_alone(module := without_adapters(model)):
        save_weights(module, changes(merged_weights(model, base)), directory)
    else:
        whole = merge_adapters(model, base)
        whole.save_pretrained(directory, state_dict=dict(changes(whole.state_dict().items())))


def merge_adapters(model: Model, base: bool = False) -> Any:
    """The model with its adapters merged into a copy, or the `base` below them: in place and back would
    move the weights by rounding.
    """
    if not model.adapted:
        return model.module
    twin: Any = dequantise(copy.deepcopy(model.module))
    return restore_conv1d(twin.unload() if base or model.bare else twin.merge_and_unload())


def without_adapters(model: Model) -> Any:
    """The module below the adapters, on the model's own weights, which no one may write to. A weight
    in 4 bits has its shape and dtype alone.
    """
    same: dict[int, Any] = {id(p): p for p in model.module.parameters()}
    same |= {id(m): outline(m) for m in model.module.modules() if isinstance(m, Linear4bit)}
    twin: Any = copy.deepcopy(model.module, same)
    return twin.unload()


@torch.no_grad()
def merged_weights(model: Model, base: bool = False) -> Iterator[tuple[str, Tensor]]:
    """The weights that are others than those of `without_adapters`, by their names there: with adapters
    merged, unless it is the `base` below them, and out of 4 bits. Each is made when it is asked for.
    """
    from peft.tuners.tuners_utils import BaseTunerLayer

    within = ""
    for name, layer in model.causal.named_modules():
        if within and name.startswith(within):
            continue
        if isinstance(layer, BaseTunerLayer):
            within = f"{name}."
            if (base or model.bare) and not isinstance(layer.get_base_layer(), Linear4bit):
                continue
        elif not isinstance(layer, Linear4bit):
            continue
        yield f"{name}.weight", merged_layer(layer, merge=not (base or model.bare)).weight


def merged_layer(layer: Any, merge: bool) -> Any:
    """A copy of one layer in the model's dtype, with its adapters merged into it or left away."""
    one = dequantise(torch.nn.ModuleList([copy.deepcopy(layer)]))[0]  # type: ignore[index]
    if hasattr(one, "get_base_layer"):
        if merge:
            one.merge()
        one = one.get_base_layer()
    return restore_conv1d(torch.nn.ModuleList([one]))[0]  # type: ignore[index]
