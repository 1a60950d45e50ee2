"""What a forward pass keeps for the backward pass, kept elsewhere meanwhile: of a GPU in the machine's
memory, of a processor in a file of the folder for temporary files.

Large tensors alone are moved, and weights never. Each is brought back, bit for bit and laid out in
memory as it was, when the backward pass asks for it. What several operators keep is moved for each.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

import torch
from torch import Tensor

SMALLEST = 1 << 16  # bytes that are worth a move


@dataclass(frozen=True)
class Stored:
    """A tensor that is elsewhere: how it comes back, and the order of its dimensions in memory."""

    load: Callable[[], Tensor]
    order: tuple[int, ...]

    def tensor(self) -> Tensor:
        back = [0] * len(self.order)
        for place, dim in enumerate(self.order):
            back[dim] = place
        return self.load().permute(back)


@dataclass
class MovedTensor:
    """What was moved in a forward pass."""

    tensors: int = 0
    bytes: int = 0


@contextmanager
def offloading(weights: Iterable[Tensor]) -> Generator[MovedTensor]:
    """Inside, what operators keep for the backward pass is moved away, but for these weights."""
    own = {w.untyped_storage().data_ptr() for w in weights}
    moved, files = MovedTensor(), list[IO[bytes]]()

    def scratch() -> IO[bytes]:
        if not files:  # it lives as long as a tensor that is in it
            files.append(tempfile.TemporaryFile(prefix="palaestra-offload-"))  # noqa: SIM115
        return files[0]

    def pack(tensor: Tensor) -> Tensor | Stored:
        size = tensor.numel() * tensor.element_size()
        if size < SMALLEST or not _is_movable(tensor) or tensor.untyped_storage().data_ptr() in own:
            return tensor
        order = tuple(sorted(range(tensor.dim()), key=lambda d: -tensor.stride(d)))
        laid = tensor.detach().permute(order)
        if not laid.is_contiguous():  # a view with holes, or of one element many times
            order, laid = tuple(range(tensor.dim())), tensor.detach().contiguous()
        moved.tensors, moved.bytes = moved.tensors + 1, moved.bytes + size
        put = _to_file(laid, scratch()) if tensor.device.type == "cpu" else _to_machine(laid)
        return Stored(put, order)

    unpack = lambda kept: kept.tensor() if isinstance(kept, Stored) else kept
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        yield moved


def _is_movable(tensor: Tensor) -> bool:
    """Whether its numbers are all there is to it."""
    plain = type(tensor) in (Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
    return plain and not (tensor.is_conj() or tensor.is_neg())


def _to_machine(tensor: Tensor) -> Callable[[], Tensor]:
    """From a GPU into memory that it reads without the processor."""
    pinned = tensor.device.type == "cuda"
    held = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=pinned)
    held.copy_(tensor)
    device = tensor.device
    return lambda: held.to(device, non_blocking=pinned)


def _to_file(tensor: Tensor, file: IO[bytes]) -> Callable[[], Tensor]:
    shape, dtype, size = tensor.shape, tensor.dtype, tensor.numel() * tensor.element_size()
    begin = file.seek(0, 2)
    file.write(tensor.view(-1).view(torch.uint8).numpy().tobytes())

    def load() -> Tensor:
        room = bytearray(size)
        file.seek(begin)
        if file.readinto(room) != size:  # type: ignore[attr-defined]
            raise OSError("the file of what was moved away is shorter than it was")
        return torch.frombuffer(room, dtype=dtype).view(shape)

    return load
