"""Low-rank adapters, through peft."""

from __future__ import annotations

import torch
from torch import nn

from palaestra.errors import UserError
from palaestra.models.files import silence_transformers
from palaestra.types import seed_of, stage

LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@stage
class LoRA:
    """W + (alpha / rank) B A in the named layers, W frozen, B = 0 at first (arXiv:2106.09685)."""

    rank: int = 16
    alpha: int = 32
    targets: tuple[str, ...] = LINEAR

    def __call__(self, module: nn.Module) -> nn.Module:
        """The module with adapters in its layers; A is drawn from a fixed seed."""
        try:
            from peft import LoraConfig, get_peft_model
        except ImportError:
            raise UserError("LoRA needs the package peft: pip install 'palaestra[lora]'") from None
        names = {
            n.rpartition(".")[2] for n, m in module.named_modules() if isinstance(m, nn.Linear)
        }
        targets = [t for t in self.targets if t in names]
        if not targets:
            raise UserError(
                f"LoRA targets {', '.join(self.targets)} are not in this model; it has "
                f"{', '.join(sorted(names))}"
            )
        config = LoraConfig(
            r=self.rank, lora_alpha=self.alpha, target_modules=targets, task_type="CAUSAL_LM"
        )
        with silence_transformers(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_of(("lora", self.rank)))
            return get_peft_model(module, config).eval()  # type: ignore[arg-type]
