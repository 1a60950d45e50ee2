"""Models by name, from and to Hugging Face directories. Only safetensors are read; a model's own
code is never run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedConfig

from palaestra.errors import UserError
from palaestra.models import smollm2
from palaestra.models.embedded import FOLDERS
from palaestra.models.files import (
    explain_failures,
    read_module,
    read_processor,
    read_tokenizer,
    silence_bitsandbytes,
    silence_transformers,
)
from palaestra.models.heads import ScalarHead
from palaestra.models.limits import file_of
from palaestra.models.lora import LoRA
from palaestra.models.merged import save_module
from palaestra.models.model import Model, frozen_copy, trainable_copy, weights_sha256
from palaestra.models.quantised import dequantise, is_quantised, quantise, restore_conv1d
from palaestra.models.weight_files import save_weights
from palaestra.suggest import suggestion

__all__ = ["Model", "frozen_copy", "load", "load_heads", "save", "trainable_copy", "weights_sha256"]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
OWN_MODELS: dict[str, Callable[[], Path]] = {
    **{name: partial(Path, folder) for name, folder in FOLDERS.items()},
    "smollm2": smollm2.folder,
}
SCORE = "score"  # the head of a reward model, and the layer of transformers' classifiers
LABEL_LAYERS = (SCORE, "classifier", "v_head", "value_head", "reward_head")  # of the hub's models
HEADS, ADAPTER = "heads.safetensors", "adapter"
BASE = "base.json"  # in ADAPTER, where the model below was in 4 bits


def load(
    name: str,
    *,
    dtype: str = "float32",
    device: str | torch.device = "cpu",
    lora: LoRA | None = None,
    attn_implementation: str = "sdpa",
) -> Model:
    """The model called `name`: "tiny" or "tiny-agent" (come with the package), "smollm2", a local
    directory, or an id of the hub.

    `dtype` is "float32" or "bfloat16". Heads that were saved beside a model come with it; adapters
    that were saved alone are merged into the model that they were trained on. Raises `UserError`.
    """
    if dtype not in DTYPES:
        raise UserError(f"unknown dtype {dtype!r}: use {' or '.join(DTYPES)}")
    where = find(name)
    base = base_of(where)
    with silence_transformers(), explain_failures(name):
        tokenizer = read_tokenizer(base)
        module = read_module(base, DTYPES[dtype], attn_implementation)
        if base != where:
            module = put_on(module, adapter_folder(Path(where)))
        if lora and lora.load_in_4bit:
            module = quantise(module, device)
        processor = read_processor(base, module.config, tokenizer)
    try:
        module = module.to(device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"no device {str(device)!r} here: {str(error).splitlines()[0]}") from None
    if module.device.type == "cuda":
        torch.cuda.set_device(module.device)
        # it plans anew for every shape, and every micro-batch has its own
        torch.backends.cuda.enable_cudnn_sdp(False)
    adapted = lora(module) if lora else module
    model = Model(name, adapted, tokenizer, str(where), processor=processor)
    load_heads(model, where)
    check_numbers(model)
    check_tokens(model)
    return model


def check_numbers(model: Model) -> None:
    """Raises UserError for a weight that is NaN or infinite, with which nothing can be sampled."""
    heads = ((f"{h}.{n}", p) for h, head in model.heads.items() for n, p in head.named_parameters())
    for name, p in (*model.causal.named_parameters(), *heads):
        if p.detach().sum(dtype=torch.float32).isfinite():
            continue  # a sum is NaN or infinite if any of its numbers is
        if n := int((~p.detach().isfinite()).sum()):
            raise UserError(
                f"model {model.name!r}: {n:,} of {p.numel():,} numbers of the weight {name} are NaN "
                "or infinite; take a checkpoint that is whole"
            )


def check_tokens(model: Model) -> None:
    """Raises UserError for tokens without an embedding that a text, the chat template or the end of
    a reply may have.
    """
    rows = len(model.causal.get_input_embeddings().weight)
    tokenizer: Any = model.tokenizer
    added = tokenizer.added_tokens_decoder
    beyond = {i: t for t, i in tokenizer.get_vocab().items() if i >= rows}
    template = str(tokenizer.chat_template or "")
    named = {tokenizer.bos_token, tokenizer.eos_token}
    # a special token that nothing writes, as a place of pictures in a model of texts, does no harm
    used = [
        (i, t)
        for i, t in sorted(beyond.items())
        if not (i in added and added[i].special) or t in template or t in named
    ]
    if used:
        i, token = used[0]
        raise UserError(
            f"model {model.name!r}: the tokenizer has {len(used)} tokens that the model has no "
            f"embedding for, e.g. {token!r} with the number {i} of {rows:,}; call "
            "`model.resize_token_embeddings(len(tokenizer))` and save both again"
        )


def holds_adapters_alone(directory: Path) -> bool:
    """Whether it holds adapters without the model that they were trained on: a checkpoint, or what
    peft saves.
    """
    settings = adapter_folder(directory) / "adapter_config.json"
    return settings.is_file() and not (directory / "config.json").exists()


def adapter_folder(directory: Path) -> Path:
    """Where adapters lie in a directory that holds them alone: beside the heads of a checkpoint, or in
    itself, as peft saves them.
    """
    inner = directory / ADAPTER
    return inner if (inner / "adapter_config.json").is_file() else directory


def base_of(where: Path | str) -> Path | str:
    """The model that adapters were trained on, where they were saved alone; else the model
    itself.
    """
    if isinstance(where, str) or not holds_adapters_alone(where):
        return where
    adapters = adapter_folder(where)
    try:
        settings = json.loads((adapters / "adapter_config.json").read_text(encoding="utf-8"))
    except ValueError:
        raise UserError(f"{adapters / 'adapter_config.json'} is no JSON") from None
    if not (adapters / "adapter_model.safetensors").is_file():
        raise UserError(
            f"{adapters} has no adapter_model.safetensors, and other files of adapters are not read; "
            "save them again with peft's `save_pretrained`"
        )
    base = str(settings.get("base_model_name_or_path") or "")
    try:
        return find(base)
    except UserError:
        raise UserError(
            f"{where} holds adapters alone, of the model {base!r}, which is not here; put it there "
            "(or end the run that made them: its last checkpoint is a whole model)"
        ) from None


def put_on(module: Any, adapters: Path) -> Any:
    """The module with saved adapters merged into it."""
    silence_bitsandbytes()
    try:
        from peft import PeftModel
    except ImportError:
        raise UserError("adapters need the package peft: pip install 'palaestra[lora]'") from None
    if (adapters / BASE).is_file():  # they were trained on rounded weights
        module = restore_conv1d(dequantise(quantise(module, "cpu")))
    with silence_transformers():
        return PeftModel.from_pretrained(module, str(adapters)).merge_and_unload().eval()  # type: ignore[operator]


def find(name: str) -> Path | str:
    """The directory or hub id behind a name, known to be readable."""
    if name in OWN_MODELS:
        return OWN_MODELS[name]()
    path = Path(name).expanduser()
    if path.is_dir():
        check(path)
        return path
    local = (
        name.startswith((".", "/", "~"))
        or name.count("/") > 1
        or ("/" in name and path.parent.is_dir())
    )
    if local or path.exists():
        raise UserError(f"no model directory {name!r}{suggestion(path.name, _siblings(path))}")
    try:
        with silence_transformers():
            settings, _ = PreTrainedConfig.get_config_dict(name)
    except (OSError, ValueError):
        settings = {}
    if not settings:
        known = [*OWN_MODELS, *(p.name for p in Path().iterdir() if (p / "config.json").exists())]
        raise UserError(
            f"unknown model {name!r}{suggestion(name, known)}; use {', '.join(OWN_MODELS)}, a "
            "directory with a saved model, or the id of a model on the Hugging Face hub (which "
            "must be reachable, or the model in its cache)"
        )
    return name


def check(directory: Path) -> None:
    """Says what a directory lacks to be a model."""
    if holds_adapters_alone(directory):
        return
    if not (directory / "config.json").exists():
        inside = [
            p
            for depth in ("*", "*/*", "*/*/*")
            for p in directory.glob(f"{depth}/model.safetensors")
        ]
        hint = f"; {max(inside, key=lambda p: p.stat().st_mtime).parent} is one" if inside else ""
        raise UserError(f"{directory} has no config.json, so it is not a saved model{hint}")
    if not list(directory.glob("*.safetensors")):
        other = [
            p.name
            for p in (*directory.glob("*.bin"), *directory.glob("*.pt*"), *directory.glob("*.gguf"))
        ]
        why = (
            f"only {other[0]}; convert it with `save_pretrained`" if other else "no weights at all"
        )
        raise UserError(f"{directory} has no safetensors file: {why}")
    if not any(
        (directory / n).exists()
        for n in ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json")
    ):
        raise UserError(
            f"{directory} has no tokenizer; save it there with "
            f"`tokenizer.save_pretrained({str(directory)!r})`"
        )


def _siblings(path: Path) -> list[str]:
    return [p.name for p in path.parent.iterdir() if p.is_dir()] if path.parent.is_dir() else []


def save(
    model: Model, directory: str | Path, weights: Iterable[tuple[str, Tensor]] | None = None
) -> None:
    """A directory that `transformers.AutoModelForCausalLM` and `AutoTokenizer` load, and where it sees
    pictures `AutoModelForImageTextToText` and `AutoProcessor`, or where it hears
    `AutoModelForMultimodalLM`; a model whose one head is "score" is
    loaded by `AutoModelForSequenceClassification` as well.

    Adapters are merged into the saved weights, one layer after another, and stand beside them in
    `adapter/`; heads in heads.safetensors.

    Args:
        weights: the trained weights one after another, by their names in `named_trainable`, in the
            place of the model's own; of a model without adapters for which
            `weight_files.converts_alone` holds.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    heads = head_weights(model)
    with silence_transformers():
        if weights is None:
            save_module(model, directory, changes=lambda given: module_weights(model, given, heads))
        else:
            save_weights(model.module, module_weights(model, weights, heads), directory)
        if is_classifier(model):
            describe_classifier(model, directory / "config.json")
        model.tokenizer.save_pretrained(directory)
        if model.processor is not None:
            model.processor.save_pretrained(directory)
    if model.adapted and not model.bare:
        save_adapters(model, directory)
    else:
        save_heads(heads, directory)


def module_weights(
    model: Model, weights: Iterable[tuple[str, Tensor]], heads: dict[str, Tensor]
) -> Iterator[tuple[str, Tensor]]:
    """Weights without those of heads, which replace their namesakes in `heads`; in the end the layer of
    a sequence classifier, which has no bias in transformers.
    """
    for name, value in weights:
        if name.startswith("head."):
            heads[name.removeprefix("head.")] = value.detach().cpu()
        else:
            yield name, value
    if is_classifier(model):
        yield f"{SCORE}.weight", heads[f"{SCORE}.out.weight"]


def describe_classifier(model: Model, path: Path) -> None:
    """Says in a config.json that the model has one label, and which token fills a batch: not the
    one that ends a reply where another will do, since the score is read before what fills.
    """
    settings = json.loads(path.read_text(encoding="utf-8"))
    settings |= {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    tokens = model.tokenizer
    end = tokens.eos_token_id
    own = (settings.get("pad_token_id"), tokens.pad_token_id, tokens.unk_token_id)
    fills = (i for i in (*own, tokens.bos_token_id) if i is not None and i != end)
    settings["pad_token_id"] = next(fills, 0 if end is None else end)
    path.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def save_adapters(model: Model, directory: str | Path) -> None:
    """The adapters alone, in `adapter/` as peft writes them, and the heads: what `load` puts on the
    model that they were trained on.
    """
    directory = Path(directory)
    with silence_transformers():
        model.module.save_pretrained(str(directory / ADAPTER), save_embedding_layers=False)  # type: ignore[operator]
    if is_quantised(model.module):
        (directory / ADAPTER / BASE).write_text('{"load_in_4bit": true}\n', encoding="utf-8")
    save_heads(head_weights(model), directory)


def head_weights(model: Model) -> dict[str, Tensor]:
    """The weights of heads as "HEAD.WEIGHT"."""
    return {
        f"{h}.{n}": t.contiguous()
        for h, head in model.heads.items()
        for n, t in head.state_dict().items()
    }


def save_heads(heads: dict[str, Tensor], directory: Path) -> None:
    """Into heads.safetensors, if there are any."""
    if heads:
        save_file(heads, directory / HEADS)


def load_labels(model: Model, directory: Path) -> None:
    """The heads of a sequence classifier as transformers saves it; none if it is none."""
    tensors = dict[str, Tensor]()
    for file in sorted(directory.glob("*.safetensors")):
        with safe_open(file, framework="pt") as stored:
            keys: list[str] = stored.keys()
            names = [n for n in keys if n.partition(".")[0] in LABEL_LAYERS]
            tensors |= {n.rpartition(".")[2]: stored.get_tensor(n) for n in names}
    weight_LD = tensors.get("weight")
    if weight_LD is None or weight_LD.ndim != 2 or weight_LD.shape[1] != model.width:
        return
    config: Any = model.module.config
    labels = config.id2label or {}
    dtype = torch.promote_types(model.dtype, torch.float32)
    names = (
        [str(labels.get(i, i)) for i in range(len(weight_LD))] if len(weight_LD) > 1 else [SCORE]
    )
    for i, name in enumerate(names):
        head = ScalarHead(model.width, dtype).to(model.device)
        with torch.no_grad():
            head.out.weight.copy_(weight_LD[i : i + 1])
            if "bias" in tensors:
                head.out.bias.copy_(tensors["bias"][i : i + 1])
        model.heads[name] = head


def is_classifier(model: Model) -> bool:
    """Whether its one head makes a sequence classifier of the model."""
    return type(model.heads.get(SCORE)) is ScalarHead and len(model.heads) == 1


def load_heads(model: Model, directory: str | Path) -> None:
    """The heads that were saved in a directory, or with an id of the hub; none if there are none.
    Those of a sequence classifier are "score" where it has one label, else called as its labels.
    """
    path = file_of(directory, HEADS)
    if path is None:
        config = file_of(directory, "config.json")
        load_labels(model, config.parent if config else Path(directory))
        return
    tensors = load_file(path)
    for name in sorted({key.partition(".")[0] for key in tensors}):
        state = {
            key.partition(".")[2]: t for key, t in tensors.items() if key.partition(".")[0] == name
        }
        try:
            model.add_head(name).load_state_dict(state)
        except RuntimeError:
            raise UserError(
                f"{path}: the head {name!r} is of another model (hidden states of this one have "
                f"{model.width})"
            ) from None
