"""The state of an optimiser in a checkpoint: its tensors in safetensors files, written and read one after
another, and all else as data that names them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from palaestra.errors import UserError
from palaestra.models.weight_files import ShardWriter, files_of_weights, open_file, read_tensor

FOLDER, STEM = "optimisers", "optimiser"  # of a checkpoint, and how its files' names begin


@dataclass(frozen=True)
class StoredTensor:
    """Stands for a tensor of an optimiser's state that lies in a file, under this name."""

    name: str


@dataclass(frozen=True, eq=False)
class DueTensor:
    """A tensor of an optimiser's state that is computed, gathered or read when it is needed."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    make: Callable[[], Tensor]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def map_tensors(tree: Any, change: Callable[[str, Any], Any], at: str = "") -> Any:
    """Nested plain data with another value in the place of each tensor, which has a name by its place.
    Numbers that are tensors, as counts of steps, stay.
    """
    if isinstance(tree, StoredTensor | DueTensor) or (isinstance(tree, Tensor) and tree.dim()):
        return change(at, tree)
    below = f"{at}." if at else ""
    if isinstance(tree, dict):
        return {k: map_tensors(v, change, f"{below}{k}") for k, v in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(map_tensors(v, change, f"{below}{i}") for i, v in enumerate(tree))
    return tree


def without_tensors(state: Any) -> Any:
    """A state with a `StoredTensor` in the place of each tensor, named as `write_state` names it."""
    return map_tensors(state, lambda name, _: StoredTensor(name))


def write_state(state: Any, folder: Path) -> None:
    """Writes the tensors of a state. No more than a file of them is in memory beside the state."""
    with ShardWriter(folder, stem=STEM) as writer:
        map_tensors(state, lambda name, x: writer.add(name, _own(x)))


def _own(x: Tensor | DueTensor) -> Tensor:
    """In memory of its own: tensors of a file must share none."""
    return x.make() if isinstance(x, DueTensor) else x.detach().to("cpu", copy=True)


def read_state(state: Any, folder: Path) -> Any:
    """A state whose tensors are read out of a folder's files when they are needed. One without a
    `StoredTensor`, as of checkpoints of earlier versions, is as it was.

    Raises UserError for files that are not whole or lack a tensor; `make` of a tensor raises one for a
    file that cannot be read any more. Both name the file.
    """
    stored = list[str]()
    map_tensors(state, lambda _, x: stored.append(x.name) if isinstance(x, StoredTensor) else None)
    if not stored:
        return state
    files = files_of_weights(folder, str(folder), STEM)
    if missing := [name for name in stored if name not in files]:
        raise UserError(f"{folder}: its files lack the tensor {missing[0]}")
    opened = {path: open_file(path) for path in {*files.values()}}

    def due(_: str, x: Any) -> Any:
        if not isinstance(x, StoredTensor):
            return x
        path = files[x.name]
        part = opened[path].get_slice(x.name)
        make = partial(read_tensor, opened[path], x.name, path)
        return DueTensor(tuple(part.get_shape()), part[:0].dtype, make)

    return map_tensors(state, due)


def made_state(state: Any) -> Any:
    """A state with all of its tensors."""
    return map_tensors(state, lambda _, x: x.make() if isinstance(x, DueTensor) else x)
