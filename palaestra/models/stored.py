"""Models on disk, read and written one weight at a time: a merge needs no model in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerBase

from palaestra.errors import UserError
from palaestra.models.arithmetic import (
    HEAD,
    Weights,
    check_shapes,
    common_weights,
    embedding_names,
    fit_rows,
)
from palaestra.models.files import (
    NO_CODE,
    explain_failures,
    read_tokenizer,
    reads_media,
    silence_transformers,
)
from palaestra.models.limits import file_of
from palaestra.models.load import HEADS, find, holds_adapters_alone
from palaestra.models.vocabulary import check_vocabulary
from palaestra.models.weight_files import files_of_weights

REMEDY = "merge fine-tunes of one base"
ALIKE = (  # settings without which weights of one shape are not of one function
    "model_type", "hidden_act", "hidden_activation", "activation_function", "num_attention_heads",
    "num_key_value_heads", "head_dim", "n_head", "num_experts_per_tok",
)  # fmt: skip
SPOKEN = ("bos_token_id", "eos_token_id", "pad_token_id")  # of the tokenizer that is kept
FOREIGN = ("auto_map", "_name_or_path", "quantization_config")  # left out of a config


@dataclass(eq=False)
class StoredModel:
    """A model of a folder, of the package or of the hub, of which nothing is in memory but its
    tokenizer: `module` is its architecture without numbers.

    Raises UserError where it is not a whole causal model in safetensors files.
    """

    name: str

    def __post_init__(self) -> None:
        self.where = find(self.name)
        self.source = str(self.where)
        if isinstance(self.where, Path) and holds_adapters_alone(self.where):
            raise UserError(
                f"{self.name} holds adapters alone; the last checkpoint of the run that made them is "
                "a whole model, as are all of a run with --merged"
            )
        with silence_transformers(), explain_failures(self.name):
            self.tokenizer: PreTrainedTokenizerBase = read_tokenizer(self.where)
            settings = AutoConfig.from_pretrained(self.where, **NO_CODE)
            if reads_media(settings):
                raise UserError(
                    f"{self.name} sees pictures or hears sounds, and models that read text alone are merged here; "
                    "merge the language parts, each saved as a model of its own"
                )
            with torch.device("meta"):
                self.module: Any = AutoModelForCausalLM.from_config(settings, **NO_CODE)
        self.config: dict[str, Any] = self._settings("config.json")
        if "quantization_config" in self.config:
            raise UserError(f"{self.name} is quantised; merge the model before it was quantised")
        self.files = files_of_weights(self.where, self.name)
        missing = [n for n, _ in self.module.named_parameters() if n not in self.files]
        if missing:
            raise UserError(
                f"{self.name}: {len(missing)} weights are not in its safetensors files under the "
                f"names of its architecture, e.g. {missing[0]}; load it with transformers and save "
                "it again with `save_pretrained`"
            )

    @property
    def has_heads(self) -> bool:
        """Whether heads of another use than the vocabulary's lie beside the weights."""
        return file_of(self.where, HEADS) is not None

    @cached_property
    def embedding(self) -> str:
        """The name of the weight with a row for each token that is read."""
        return next(
            n
            for n, _ in self.module.named_parameters()
            if n in embedding_names(self.module) - {HEAD}
        )

    def read(self, name: str) -> Tensor:
        """One weight. That of a head which is tied to the embedding is the embedding's.

        Raises UserError for numbers that are not floating or not finite.
        """
        own = self.embedding if name == HEAD and not self.has(HEAD) else name
        with explain_failures(self.name), safe_open(self.files[own], framework="pt") as file:
            tensor: Tensor = file.get_tensor(own)
        if not tensor.is_floating_point():
            raise UserError(
                f"{self.name}: the weight {own} is of type {tensor.dtype}; merge the model before it "
                "was quantised"
            )
        if not tensor.sum(dtype=torch.float64).isfinite():
            raise UserError(
                f"{self.name}: numbers of the weight {own} are NaN or infinite; take a checkpoint "
                "that is whole"
            )
        return tensor

    def has(self, name: str) -> bool:
        """Whether the architecture has a weight of that name which is not tied to another."""
        return any(n == name for n, _ in self.module.named_parameters())

    def settings(self, name: str) -> dict[str, Any]:
        """The settings in a file of the model, {} where it is not there."""
        return self._settings(name) if file_of(self.where, name) else {}

    def _settings(self, name: str) -> dict[str, Any]:
        path = file_of(self.where, name)
        assert path is not None  # `find` and transformers read it before
        return json.loads(path.read_text(encoding="utf-8"))


class CommonWeights:
    """The weights of stored models under the names and shapes of the first of them, one at a time.

    They may differ in special tokens, in the rows that pad the vocabulary and in whether the head is
    tied; `notes` say so, `special` are the tokens. Raises UserError for models of another
    architecture, of other shapes or with another vocabulary.
    """

    def __init__(self, base: StoredModel, models: Sequence[StoredModel]) -> None:
        self.base, self.models, self.notes = base, models, list[str]()
        self.special: set[str] = set()
        for model in models:
            check_architecture(base, model)
            self.special |= {*check_vocabulary(base, model, REMEDY)}
            self.notes += differences(base, model)
        whole, given, notes = common_weights(base.module, [m.module for m in models])
        check_shapes(whole, given)
        self.notes += notes
        self.shapes: Weights = whole
        self.rows = embedding_names(base.module)
        if self.special:
            several = sorted(self.special)
            self.notes.append(
                f"special tokens that the models do not share: {', '.join(several[:4])}"
                f"{' and others' if len(several) > 4 else ''}; the tokenizer that is kept decides "
                "what they mean"
            )
        if left := [m.name for m in dict.fromkeys((base, *models)) if m.has_heads]:
            self.notes.append(f"heads of {', '.join(left)} are left out")

    @property
    def untied(self) -> bool:
        """Whether the merge needs a head of its own, which the base does not have."""
        return HEAD in self.shapes and not self.base.has(HEAD)

    def __iter__(self) -> Iterator[tuple[str, Tensor, list[Tensor]]]:
        """Name, weight of the base, and weights of the models in its shape."""
        for name in self.shapes:
            own = self.base.read(name)
            yield name, own, [self._like(own, name, m) for m in self.models]

    def _like(self, own: Tensor, name: str, model: StoredModel) -> Tensor:
        theirs = model.read(name)
        if name in self.rows and len(theirs) != len(own):
            theirs = fit_rows(theirs, own)
        if theirs.shape != own.shape:
            raise UserError(
                f"{model.name}: the weight {name} is {tuple(theirs.shape)} in its file, unlike its "
                f"config.json and {self.base.name}; download it again"
            )
        return theirs


def text_settings(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of what reads text, which stand apart in models that read pictures too."""
    return {**config, **config.get("text_config", {})}


def check_architecture(base: StoredModel, model: StoredModel) -> None:
    """Raises UserError where the same weights would be another function."""
    own, theirs = text_settings(base.config), text_settings(model.config)
    for name in ALIKE:
        if own.get(name) != theirs.get(name):
            raise UserError(
                f"{model.name} has {name} {theirs.get(name)}, and {base.name} has {own.get(name)}: "
                f"models of another architecture do not merge; {REMEDY}"
            )


def differences(base: StoredModel, model: StoredModel) -> Iterator[str]:
    """Settings of the forward pass in which a model differs, which are the base's in a merge."""
    own, theirs = base.module.config.to_dict(), model.module.config.to_dict()
    for name in ("rope_theta", "rope_parameters", "rms_norm_eps", "layer_norm_eps"):
        if own.get(name) != theirs.get(name):
            yield (
                f"{model.name} has {name} {theirs.get(name)}, and {base.name} {own.get(name)}: the "
                f"merge has that of {base.name}"
            )


def check_rows(common: CommonWeights, speaker: StoredModel) -> None:
    """Raises UserError where a tokenizer has tokens beyond the rows of the merge."""
    base, rows = common.base, len(common.shapes[common.base.embedding])
    beyond = {i for i in speaker.tokenizer.get_vocab().values() if i >= rows}
    if beyond:
        raise UserError(
            f"the tokenizer of {speaker.name} has {len(beyond)} tokens beyond the {rows:,} rows of "
            f"{base.name}; keep the tokenizer of {base.name}"
        )


def write_settings(common: CommonWeights, speaker: StoredModel, folder: Path) -> None:
    """The config of the base, with the tokenizer, chat template and turn tokens of `speaker`."""
    base = common.base
    config = {k: v for k, v in base.config.items() if k not in FOREIGN}
    config["architectures"] = [type(base.module).__name__]
    config |= {k: speaker.config[k] for k in SPOKEN if k in speaker.config}
    if common.untied:
        for part in (config, config.get("text_config", {})):
            part["tie_word_embeddings"] = False
    generation = speaker.settings("generation_config.json")
    for name, settings in (("config.json", config), ("generation_config.json", generation)):
        if settings:
            text = json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
            (folder / name).write_text(text, encoding="utf-8")
    with silence_transformers():
        speaker.tokenizer.save_pretrained(folder)
