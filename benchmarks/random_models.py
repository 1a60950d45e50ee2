"""Models of random weights: speed and memory depend on shapes, not on what a model knows."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import cast

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from palaestra.models.files import silence_transformers
from palaestra.models.load import load
from palaestra.types import seed_of


def model_folder(name: str, config: LlamaConfig, folder: Path, device: str) -> Path:
    """`folder`/`name`, with a model of random weights where there is none. The weights are drawn on
    `device`.
    """
    where = folder / name
    if not (where / "config.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".making-", dir=folder) as aside:
            made = Path(aside) / name
            save_random_model(config, made, device)
            os.replace(made, where)
    return where


def save_random_model(config: LlamaConfig, where: Path, device: str = "cpu") -> None:
    """A model of this shape and dtype in `where`, with the embedded model's tokenizer."""
    tiny = load("tiny")
    config.update({k: getattr(tiny.causal.config, k) for k in ("bos_token_id", "eos_token_id")})
    config.pad_token_id = tiny.causal.config.pad_token_id
    devices = [torch.cuda.current_device()] if device == "cuda" else []
    dtype = getattr(torch, str(config.dtype or "float32").removeprefix("torch."))
    with torch.random.fork_rng(devices=devices), torch.device(device), silence_transformers():
        torch.manual_seed(seed_of(("weights", config.vocab_size, config.hidden_size)))
        module = LlamaForCausalLM(config)
        cast(torch.nn.Module, module).to(dtype)
    with silence_transformers():
        module.save_pretrained(where)
        tiny.tokenizer.save_pretrained(where)
    pad_vocabulary(where / "tokenizer.json", config.vocab_size)


def pad_vocabulary(file: Path, size: int) -> None:
    """Gives every id below `size` a text: random weights choose among all of them, and answers that
    read alike would all be paid alike, which leaves nothing to learn.
    """
    tokenizer = json.loads(file.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    # which would else be numbered anew, behind the vocabulary
    vocabulary |= {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    vocabulary |= {f"w{i}": i for i in range(len(vocabulary), size)}
    file.write_text(json.dumps(tokenizer))
