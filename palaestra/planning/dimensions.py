"""The dimensions of a user's model, from its config.json: no weights are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig

from palaestra.errors import UserError
from palaestra.models.files import (
    NO_CODE,
    architecture_of,
    explain_failures,
    silence_transformers,
)
from palaestra.models.limits import check_config
from palaestra.planning.estimate import DECODERS, DecoderSize

POLICY = "policy"
NUMBERS = "PARAMETERS,LAYERS,HIDDEN,KEY_VALUES"


def module_of(path: Path) -> Any:
    """The model of a config.json, without weights.

    Raises:
        UserError: the file is no model's configuration.
    """
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"{path}: {str(error).splitlines()[0]}; give a model's config.json"
        ) from None
    if not isinstance(given, dict) or not isinstance(given.get("model_type"), str):
        raise UserError(f"{path} has no model_type, so it is no model's config.json")
    check_config(given, str(path))
    with silence_transformers(), explain_failures(str(path)), torch.device("meta"):
        config: Any = AutoConfig.from_pretrained(path, **NO_CODE)
        config = getattr(config, "thinker_config", config)  # what is trained of Qwen2.5-Omni
        return architecture_of(config).from_config(config, **NO_CODE)


def dimensions(module: nn.Module) -> DecoderSize:
    """Of a model: parameters, layers, hidden numbers, and the keys and values of a token in a layer.

    Raises:
        UserError: its configuration does not name them.
    """
    config: Any = module.config
    config = getattr(config, "text_config", config)
    try:
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return DecoderSize(
            parameters=float(sum(p.numel() for p in module.parameters())),
            layers=config.num_hidden_layers,
            hidden=config.hidden_size,
            key_values=2 * heads * head,
        )
    except AttributeError as error:
        raise UserError(
            f"the model's configuration has no {str(error).split(chr(39))[-2]}; give its "
            f"dimensions as {NUMBERS}"
        ) from None


def decoder_named(text: str, policy: nn.Module) -> DecoderSize:
    """The dimensions that text names: "policy", a name of `DECODERS`, the folder of a model or its
    config.json, or four numbers, "6.7e9,32,4096,8192".

    Args:
        text: as above.
        policy: the run's model.

    Raises:
        UserError: it names none.
    """
    if text == POLICY:
        return dimensions(policy)
    if text in DECODERS:
        return DECODERS[text]
    words = text.split(",")
    if len(words) == 4:
        try:
            parameters, layers, hidden, key_values = map(float, words)
        except ValueError:
            raise UserError(f"model {text!r}: give four numbers, {NUMBERS}") from None
        return DecoderSize(
            parameters=parameters,
            layers=int(layers),
            hidden=int(hidden),
            key_values=int(key_values),
        )
    path = Path(text)
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        raise UserError(
            f"model {text!r} is no folder of a model; give one, {', '.join(DECODERS)}, "
            f"{POLICY}, or {NUMBERS}"
        )
    return dimensions(module_of(file))
