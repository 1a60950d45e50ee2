"""What a model folder may ask for. It is checked before anything is built from it: a stranger's
files may hang a program, or fill its memory, where their numbers are absurd.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from transformers.utils.hub import cached_file

from palaestra.errors import UserError

MB = 2**20
SIZES = {  # of the files that are read as a whole, in bytes; the largest known ones take a fifth
    "config.json": 4 * MB,
    "generation_config.json": MB,
    "special_tokens_map.json": MB,
    "chat_template.jinja": MB,
    "chat_template.json": MB,
    "added_tokens.json": 32 * MB,
    "tokenizer_config.json": 32 * MB,
    "tokenizer.json": 256 * MB,
    "model.safetensors.index.json": 64 * MB,
}
OBJECTS = ("config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json")
TEMPLATE = MB  # characters of a chat template
COUNTS = {  # the most that a config may say, by every name that architectures have for it
    1_000: ("num_hidden_layers", "num_layers", "n_layers", "n_layer"),
    2**17: ("hidden_size", "n_embd", "d_model", "dim"),
    2**12: ("num_attention_heads", "n_heads", "n_head", "num_heads", "num_key_value_heads"),
    2**16: ("head_dim", "num_experts", "num_local_experts", "n_routed_experts"),
    2**22: ("intermediate_size", "n_inner", "ffn_dim", "d_ff"),
    2**24: ("vocab_size",),
    2**27: ("max_position_embeddings", "n_positions", "max_sequence_length", "n_ctx"),
}
MAY_BE_ZERO = ("num_experts", "num_local_experts", "n_routed_experts")
TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")
PARTS = (
    "text_config", "llm_config", "language_config", "vision_config", "audio_config", "thinker_config",
)  # fmt: skip
GROWTH = 16  # how many times as long a normalizer or decoder may make a text
POINTER = b"version https://git-lfs"


def check_files(where: Path | str) -> None:
    """Raises UserError for the files of a model's folder, or of an id of the hub, that are no such
    files, or ask for more than any model does.
    """
    for path in _weights(where):
        _check_pointer(path)
    for name, most in SIZES.items():
        path = file_of(where, name)
        if path is None:
            continue
        if path.stat().st_size > most:
            raise UserError(
                f"{path} has {path.stat().st_size:,} bytes, and at most {most:,} are read"
            )
        _check_pointer(path)
        if name in OBJECTS:
            _check_object(path, name)


def _weights(where: Path | str) -> list[Path]:
    return (
        [p for p in where.glob("*.safetensors") if p.is_file()] if isinstance(where, Path) else []
    )


def file_of(where: Path | str, name: str) -> Path | None:
    """The file of that name in a folder, or of an id of the hub, if there is one. Files of the hub lie
    in one folder, that of their revision.
    """
    if isinstance(where, Path) or Path(where).is_dir():
        path = Path(where) / name
        return path if path.is_file() else None
    try:
        file = cached_file(where, name, _raise_exceptions_for_missing_entries=False)
    except OSError:  # whatever reads the file says what is wrong
        return None
    return Path(file) if file else None


def _check_pointer(path: Path) -> None:
    with path.open("rb") as file:
        if file.read(len(POINTER)) == POINTER:
            raise UserError(
                f"{path} is a pointer of Git LFS and not the file itself; fetch the file with "
                "`git lfs pull` in that folder"
            )


def _check_object(path: Path, name: str) -> None:
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        why = str(error).splitlines()[0]
        raise UserError(f"{path} is not JSON: {why}; download or save the model again") from None
    if not isinstance(given, dict):
        raise UserError(
            f"{path} holds a {type(given).__name__}, not an object of settings; download or save "
            "the model again"
        )
    if name == "tokenizer.json":
        _check_growth(path, given)
    elif name == "tokenizer_config.json":
        _check_template(path, given.get("chat_template"))
    else:
        check_config(given, str(path))


def check_config(given: Mapping[str, Any], path: str) -> None:
    """Raises UserError for a number of layers, heads, ... that no model has.

    Args:
        given: the settings of a config.json or generation_config.json, with those of its parts.
        path: where they stand, for the message.
    """
    for name, most in ((n, most) for most, names in COUNTS.items() for n in names):
        for x in _listed(given.get(name)):
            least = 0 if name in MAY_BE_ZERO else 1
            if isinstance(x, bool) or not isinstance(x, int) or not least <= x <= most:
                value_text = repr(x)[:40] if not isinstance(x, int) or abs(x) < 10**18 else "huge"
                raise UserError(
                    f"{path}: {name} is {value_text}; it must be a whole number from {least} to {most:,}"
                )
    for name in TOKENS:
        for x in _listed(given.get(name)):
            if isinstance(x, bool) or not isinstance(x, int):
                raise UserError(f"{path}: {name} is {x!r:.40}, not the number of a token")
    for part in PARTS:
        if isinstance(inner := given.get(part), Mapping):
            check_config(inner, f"{path}: {part}")


def _listed(x: Any) -> list[Any]:
    """The values of a setting, which may be one a layer."""
    if x is None:
        return []
    return x if isinstance(x, list) else [x]


def _check_template(path: Path, template: Any) -> None:
    named = template if isinstance(template, list) else [template]
    for each in named:
        text = each.get("template") if isinstance(each, Mapping) else each
        if text is not None and not isinstance(text, str):
            raise UserError(f"{path}: chat_template is a {type(text).__name__}, not a text")
        if text is not None and len(text) > TEMPLATE:
            raise UserError(
                f"{path}: chat_template has {len(text):,} characters, and at most {TEMPLATE:,} are "
                "read"
            )


def _check_growth(path: Path, given: Mapping[str, Any]) -> None:
    """What rewrites each text that is read, or written, may not make it much longer."""
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        growth = 1.0
        for step in _steps(given.get(part)):
            if step.get("type") == "Replace":
                pattern = step.get("pattern")
                text = pattern.get("String") if isinstance(pattern, Mapping) else None
                least = len(text) if isinstance(text, str) else 1  # that a pattern matches
                growth *= max(1.0, len(str(step.get("content", ""))) / max(least, 1))
            if step.get("type") == "Prepend":
                growth *= max(1.0, len(str(step.get("prepend", ""))))
        if growth > GROWTH:
            raise UserError(
                f"{path}: the {part} makes texts {growth:,.0f} times as long, and {GROWTH} times at "
                "most is read"
            )


def _steps(part: Any) -> Iterator[Mapping[str, Any]]:
    """The steps of a normalizer, decoder, ..., which may be nested sequences."""
    todo = [part]
    while todo:
        step = todo.pop()
        if not isinstance(step, Mapping):
            continue
        yield step
        for name in ("normalizers", "pretokenizers", "decoders"):
            inner = step.get(name)
            todo += inner if isinstance(inner, list) else []
