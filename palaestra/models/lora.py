"""Low-rank adapters, through peft."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from palaestra.errors import UserError
from palaestra.models.files import silence_bitsandbytes, silence_transformers
from palaestra.models.inside.residual import layers_of
from palaestra.suggest import suggestion
from palaestra.types import seed_of, stage

LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
# several of these in one matrix, by the names that architectures have for it
FUSED = ("qkv_proj", "gate_up_proj", "query_key_value", "c_attn", "Wqkv")
ALL_LINEAR = "all-linear"  # peft's name for every linear layer but the output


@stage
class LoRA:
    """W + (alpha / rank) B A in the named layers, W frozen, B = 0 at first (arXiv:2106.09685).

    Args:
        rank: rows of A.
        alpha: the scale of what the adapters add, over the rank.
        targets: last names of linear layers, such as "q_proj". None named: the projections of
            attention and of the middle layer, in one matrix or several; of a model that calls them
            otherwise, every linear layer of its decoder layers. "all-linear" alone: every linear
            layer of the decoder layers, whatever its name; not the output layer.
        load_in_4bit: W of the decoder layers in 4 bits (QLoRA, see `quantised`).
    """

    rank: int = 16
    alpha: int = 32
    targets: tuple[str, ...] = ()
    load_in_4bit: bool = False

    def __call__(self, module: nn.Module) -> nn.Module:
        """The module with adapters in its layers; A is drawn from a fixed seed.

        Raises UserError for targets that the module does not have, or that peft cannot adapt.
        """
        silence_bitsandbytes()
        try:
            from peft import LoraConfig, get_peft_model
        except ImportError:
            raise UserError("LoRA needs the package peft: pip install 'palaestra[lora]'") from None
        targets = self.layers(module)
        config = LoraConfig(
            r=self.rank,
            lora_alpha=self.alpha,
            target_modules=_places(module, targets),
            task_type="CAUSAL_LM",
            fan_in_fan_out=_is_transposed(module, targets),
        )
        try:
            with silence_transformers(), torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed_of(("lora", self.rank)))
                return get_peft_model(module, config).eval()  # type: ignore[arg-type]
        except ValueError as error:
            why = str(error).splitlines()[0]
            raise UserError(
                f"--lora: {why}; name other layers with --lora-targets, or train without --lora"
            ) from None

    def layers(self, module: nn.Module) -> tuple[str, ...]:
        """The last names of the layers that get adapters. Raises UserError where there are none."""
        linear = _linear_names(module)
        if linear and self.targets == (ALL_LINEAR,):
            return linear
        missing = [t for t in self.targets if t not in linear]
        if missing or not linear:
            raise UserError(
                f"LoRA targets {', '.join(missing)} are not in this model"
                f"{suggestion(missing[0], linear) if missing else ''}; it has "
                f"{', '.join(linear) or 'no linear layer'}: name some of them with --lora-targets"
            )
        if self.targets:
            return self.targets
        usual = tuple(t for t in (*LINEAR, *FUSED) if t in linear)
        return usual if "q_proj" in linear else linear


def _linear_names(module: nn.Module) -> tuple[str, ...]:
    """Last names of the linear layers within the decoder layers."""
    inner = [m for layer in layers_of(module) for m in layer.named_modules()]
    return tuple(sorted({n.rpartition(".")[2] for n, m in inner if isinstance(m, _KINDS)}))


def _places(module: nn.Module, targets: tuple[str, ...]) -> list[str]:
    """What peft is told: last names, or whole ones where a tower has layers of the same names, which
    get no adapters.
    """
    own = {id(m) for layer in layers_of(module) for m in layer.modules()}
    named = [(n, m) for n, m in module.named_modules() if n.rpartition(".")[2] in targets]
    within = [n for n, m in named if id(m) in own]
    return within if len(within) < len(named) else list(targets)


def _is_transposed(module: nn.Module, targets: tuple[str, ...]) -> bool:
    """Whether the targets keep their weights as [in, out], as GPT-2's do."""
    named: Any = module.named_modules()
    return any(isinstance(m, Conv1D) for n, m in named if n.rpartition(".")[2] in targets)


_KINDS = (nn.Linear, Conv1D)
