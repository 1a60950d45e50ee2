"""Weights one at a time: written into safetensors files, read out of them, and their digest."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers.core_model_loading import revert_weight_conversion

from palaestra.errors import UserError
from palaestra.models.files import read_module
from palaestra.models.limits import file_of

STEM = "model"  # how the names of a model's files begin
WHOLE, INDEX = f"{STEM}.safetensors", f"{STEM}.safetensors.index.json"
ANOTHER = "take another checkpoint, or another copy of this one"
SHARD = 1 << 30  # bytes of a file of weights, unless one weight is larger


def files_of_weights(where: Path | str, name: str, stem: str = STEM) -> dict[str, Path]:
    """The file of each weight of a folder or of an id of the hub, by the weight's name there. `stem` is how
    the files' names begin.

    Raises UserError, which calls the model `name`, where there are no safetensors files or one of
    them is missing.
    """
    single, many = f"{stem}.safetensors", f"{stem}.safetensors.index.json"
    index = file_of(where, many)
    if index is not None:
        names: Mapping[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        shards = {s: file_of(where, s) for s in set(names.values())}
        if gone := sorted(s for s, path in shards.items() if path is None):
            raise UserError(f"{name}: its file {gone[0]} is missing; download it again")
        return {n: path for n, s in names.items() if (path := shards[s]) is not None}
    path = file_of(where, single)
    if path is None:
        raise UserError(
            f"{name} has neither {single} nor {many}; load it with transformers and save it "
            "again with `save_pretrained`"
        )
    return dict.fromkeys(open_file(path).keys(), path)


class ShardWriter:
    """Writes weights into safetensors files of at most `size` bytes, and their index where there are
    several. Nothing but the shard at hand is in memory. Files get their names when the block ends, and
    none is left where it raises. `stem` is how their names begin.
    """

    def __init__(self, folder: Path, size: int = SHARD, *, stem: str = STEM) -> None:
        self.folder, self.size, self.stem = folder, size, stem
        self.shard: dict[str, Tensor] = {}
        self.shards: list[list[str]] = []
        self.bytes = 0

    def add(self, name: str, tensor: Tensor) -> None:
        n = tensor.nbytes
        if self.shard and sum(t.nbytes for t in self.shard.values()) + n > self.size:
            self._flush()
        self.shard[name] = tensor.contiguous()
        self.bytes += n

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None:
            self._close()
        for i in range(len(self.shards)):
            self._aside(i).unlink(missing_ok=True)

    def _close(self) -> None:
        self._flush()
        n = len(self.shards)
        names = [f"{self.stem}-{i:05d}-of-{n:05d}.safetensors" for i in range(1, n + 1)]
        names = [f"{self.stem}.safetensors"] if n == 1 else names
        for i, name in enumerate(names):
            os.replace(self._aside(i), self.folder / name)
        if n > 1:
            where = {w: name for name, s in zip(names, self.shards, strict=True) for w in s}
            index = {"metadata": {"total_size": self.bytes}, "weight_map": where}
            text = json.dumps(index, indent=2) + "\n"
            (self.folder / f"{self.stem}.safetensors.index.json").write_text(text, encoding="utf-8")

    def _flush(self) -> None:
        save_file(self.shard, self._aside(len(self.shards)), metadata={"format": "pt"})
        self.shards.append([*self.shard])
        self.shard = {}

    def _aside(self, i: int) -> Path:
        return self.folder / f".shard-{i}.partial"


def kept_weights(module: Any) -> dict[str, Tensor]:
    """What of a transformers model lies in its files, on its own memory: a weight under two names
    once, by the first of them.
    """
    left_out = {n for n, _ in module.named_parameters(remove_duplicate=False)}
    left_out -= {n for n, _ in module.named_parameters()}
    left_out |= set(module._keys_to_ignore_on_save or ())
    return {n: t for n, t in module.state_dict().items() if n not in left_out}


def converts_alone(module: Any) -> bool:
    """Whether what a weight is called and how it is cut in files depends on no other weight.

    transformers keeps some models otherwise in memory than in files, as the experts of a mixture in
    one tensor. One at a time and all at once the conversion must give the same names and shapes.
    """
    empty = {n: torch.empty_like(t, device="meta") for n, t in kept_weights(module).items()}
    whole = revert_weight_conversion(module, dict(empty))
    parts = [revert_weight_conversion(module, {n: t}) for n, t in empty.items()]
    alone = {n: t.shape for part in parts for n, t in part.items()}
    return alone == {n: t.shape for n, t in whole.items()} and sum(map(len, parts)) == len(whole)


def save_weights(module: Any, weights: Iterable[tuple[str, Tensor]], directory: Path) -> None:
    """Writes what `module.save_pretrained` writes, with the numbers of `weights` in the place of the
    module's own. No more than one file of them is in memory.

    Args:
        module: a transformers model for which `converts_alone` holds.
        weights: by their names in the module, in any order; of what they leave out the module's own
            are written, and names that the module does not have are written as they are.
    """
    left = kept_weights(module)
    module.save_pretrained(directory, state_dict={})  # the settings
    with ShardWriter(directory) as writer:
        for name, value in weights:
            left.pop(name, None)
            add_weight(writer, module, name, value)
        for name, value in left.items():
            add_weight(writer, module, name, value)


def add_weight(writer: ShardWriter, module: Any, name: str, value: Tensor) -> None:
    """Hands a weight of a module to a writer under the names that it has in files."""
    for n, tensor in revert_weight_conversion(module, {name: value.detach().cpu()}).items():
        writer.add(n, tensor)


def reads_alone(module: Any, files: Mapping[str, Path]) -> bool:
    """Whether every weight of a module lies in `files` under its own name and as it is: transformers
    converts none of them on the way.
    """
    empty = {n: torch.empty_like(p, device="meta") for n, p in module.named_parameters()}
    same = lambda n: revert_weight_conversion(module, {n: empty[n]}).get(n) is empty[n]
    return empty.keys() <= files.keys() and all(map(same, empty))


def read_weights(module: Any, directory: Path) -> Iterator[tuple[str, Tensor]]:
    """The parameters of a transformers model as a folder has them, by name, read when they are asked
    for; where `reads_alone` does not hold, out of a second model.

    Raises UserError for files that are not whole or of another model, before anything is read.
    """
    files = files_of_weights(directory, str(directory))
    if not reads_alone(module, files):
        saved = read_module(directory, module.dtype, "eager")
        return saved.named_parameters()
    opened = {path: open_file(path) for path in {*files.values()}}
    for name, p in module.named_parameters():
        shape = tuple(opened[files[name]].get_slice(name).get_shape())
        if shape != p.shape:
            raise UserError(
                f"{directory}: the weight {name} is {shape}, and that of the model {tuple(p.shape)}; "
                "take the folder of a model of the same architecture"
            )
    return ((n, read_tensor(opened[files[n]], n, files[n])) for n, _ in module.named_parameters())


def open_file(path: Path) -> Any:
    """A safetensors file whose tensors are read when they are asked for. It is not mapped: a file that
    shrinks or fails while it is read is an error then, where a page of it that is missing would end the
    process without one. Raises UserError, which names the file, for one that is not whole.
    """
    try:
        return safe_open(path, framework="pt", backend="pread")
    except Exception as error:  # of the system, or of safetensors, which has its own
        raise UserError(
            f"{path} cannot be read ({type(error).__name__}: {error}); {ANOTHER}"
        ) from error


def read_tensor(opened: Any, name: str, path: Path) -> Tensor:
    """A tensor of an open safetensors file. Raises UserError, which names the file, where it cannot be
    read.
    """
    try:
        return opened.get_tensor(name)
    except Exception as error:  # of the system, or of safetensors, which has its own
        raise UserError(
            f"{path}: the tensor {name} cannot be read ({type(error).__name__}: {error}); {ANOTHER}"
        ) from error


def digest_of(weights: Iterable[tuple[str, Tensor]]) -> str:
    """SHA-256 of names, types, shapes and bytes, in their order."""
    digest = hashlib.sha256()
    for name, value in weights:
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
