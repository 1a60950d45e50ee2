"""The linear weights of a decoder go from the tensor-parallel layout of training to that of
generation, on the same ranks, in three ways; what each rank receives is counted.

t = ranks of a tensor-parallel group that trains, t_g of one that generates, d = replicas. Rank
(replica, r) trains with shard r of t of each weight and generates with a shard of t_g:

- "grouped" (HybridFlow, arXiv:2409.19256): it generates with shard r // (t / t_g), in which its
  training shard lies, so the groups that generate are at stride t / t_g. Only the t / t_g ranks
  that lie beside each other gather, one micro data-parallel group.
- "model group" (HybridFlow's engine without grouping): the t ranks of a replica gather every
  weight, and each keeps the shard of its place among t_g neighbours.
- "all ranks" (DeepSpeed-Chat, ZeRO stage 3): weights are sharded over all d t ranks, which gather.

A meter sums the bytes of the collectives themselves, and on Linux the kernel is asked what arrived
at this process's sockets. Then the model is run in tensor-parallel groups of t_g.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)
from torch.utils._python_dispatch import TorchDispatchMode

from palaestra.errors import UserError
from palaestra.models.load import load
from palaestra.planning.costs import gather_all_traffic, gather_model_traffic, grouped_traffic
from palaestra.types import need_at_least, value_class

Way: TypeAlias = Literal["grouped", "model group", "all ranks"]
# the weights of a layer, by the dimension that is shared out
COLUMNS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
ROWS = ("o_proj", "down_proj")
# operations of torch's collectives that send nothing
MOVES_NOTHING = ("::wait_tensor", "::_wrap_tensor_autograd")
# of Linux's tcp_info: where the bytes received stand, as a number of 64 bits
TCP_INFO_BYTES, BYTES_RECEIVED = 256, 128


@value_class
class TensorLayout:
    """Ranks of a tensor-parallel group in training, in generation, and replicas.

    Raises:
        UserError: the generation layout does not divide that of training.
    """

    train: int = 4
    generate: int = 2
    data: int = 2

    def __post_init__(self) -> None:
        need_at_least(self, train=1, generate=1, data=1)
        self.traffic("grouped")

    @property
    def ranks(self) -> int:
        return self.train * self.data

    @property
    def micro(self) -> int:
        """Ranks of a micro data-parallel group."""
        return self.train // self.generate

    def traffic(self, way: Way) -> float:
        """What a rank receives by the formula, as a share of the model's bytes."""
        if way == "grouped":
            return grouped_traffic(1, self.train, 1, self.generate)
        if way == "model group":
            return gather_model_traffic(1, self.train)
        return gather_all_traffic(1, self.train, self.data)


@value_class
class Resharded:
    """What one rank saw. Bytes are those of linear weights."""

    model: int  # of all
    received: int  # by the collectives
    arrived: int | None  # at sockets, headers and all; None where the system does not say
    kept: int  # of the training shard that the generation shard does not hold
    logits: float  # largest difference from those of the whole model


def reshard(world: DeviceMesh, way: Way, layout: TensorLayout, seed: int) -> Resharded:
    """Reshards the embedded model on this rank and runs it: `work` of `run_ranks`. It is computed in
    float64, in which another order of sums is not mistaken for another weight; the model's
    norms round to float32.

    Args:
        world: of all `layout.ranks` ranks.
        way: of the three.
        layout: of both phases.
        seed: of the tokens that the model is run on.
    """
    if way not in get_args(Way):
        raise UserError(f"no way of resharding {way!r}; there are {', '.join(get_args(Way))}")
    rank = world.get_rank()
    mesh, before, after = gathering(way, layout)
    groups = generation_groups(way, layout, mesh)
    place = groups.get_local_rank()  # which shard this rank generates with
    model = load("tiny").module.double()
    ids_BT = torch.randint(0, 256, (2, 32), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        whole_BTV = model(ids_BT).logits
    linears = list(linear_layers(model))
    bytes_of_model = sum(linear.weight.nbytes for _, linear, _ in linears)
    shards = [
        distribute_tensor(linear.weight.detach(), mesh, placed(before, dim), src_data_rank=None)
        for _, linear, dim in linears
    ]
    dist.barrier()
    arrived, meter = bytes_arrived(), CollectiveBytes()
    with meter:
        gathered = [
            shard.redistribute(mesh, placed(after, dim)).to_local()
            for shard, (_, _, dim) in zip(shards, linears, strict=True)
        ]
    now = bytes_arrived()
    for (_, linear, dim), weight in zip(linears, gathered, strict=True):
        own = weight if way == "grouped" else weight.chunk(layout.generate, dim)[place]
        shard = DTensor.from_local(own.contiguous(), groups, [Shard(dim)])
        linear.weight = nn.Parameter(shard, requires_grad=False)
    styles: dict[str, ParallelStyle] = {
        name: RowwiseParallel() if dim else ColwiseParallel() for name, _, dim in linears
    }
    parallelize_module(model, groups, styles)
    with torch.no_grad():
        own_BTV = model(ids_BT).logits
    parts, shard = (
        (layout.ranks, rank) if way == "all ranks" else (layout.train, rank % layout.train)
    )
    inside = shard * layout.generate // parts == place
    return Resharded(
        model=bytes_of_model,
        received=meter.received,
        arrived=None if now is None or arrived is None else now - arrived,
        kept=0 if inside else bytes_of_model // parts,
        logits=float((own_BTV - whole_BTV).abs().max()),
    )


def gathering(way: Way, layout: TensorLayout) -> tuple[DeviceMesh, str, str]:
    """The mesh in which weights are gathered, and how they lie before and after: of each of its
    dimensions "s" = shared out, "r" = every rank the same.
    """
    if way == "grouped":
        shape, names = (layout.data, layout.generate, layout.micro), ("data", "generation", "micro")
        return init_device_mesh("cpu", shape, mesh_dim_names=names), "rss", "rsr"
    if way == "model group":
        shape, names = (layout.data, layout.train), ("data", "tensor")
        return init_device_mesh("cpu", shape, mesh_dim_names=names), "rs", "rr"
    return init_device_mesh("cpu", (layout.ranks,), mesh_dim_names=("all",)), "s", "r"


def generation_groups(way: Way, layout: TensorLayout, mesh: DeviceMesh) -> DeviceMesh:
    """The ranks that generate together with this one: at stride, or neighbours."""
    if way == "grouped":
        return mesh["generation"]
    shape, names = (layout.data, layout.micro, layout.generate), ("data", "micro", "generation")
    return init_device_mesh("cpu", shape, mesh_dim_names=names)["generation"]


def placed(kinds: str, dim: int) -> list[Shard | Replicate]:
    return [Shard(dim) if kind == "s" else Replicate() for kind in kinds]


def linear_layers(model: nn.Module) -> Iterator[tuple[str, nn.Linear, int]]:
    """The linear layers of a decoder's layers by name, with the dimension that is shared out."""
    for name, module in model.named_modules():
        own = name.rpartition(".")[2]
        if isinstance(module, nn.Linear) and own in COLUMNS + ROWS:
            yield name, module, int(own in ROWS)


class CollectiveBytes(TorchDispatchMode):
    """Sums what all-gathers bring to this rank: all of their output but its own share.

    Raises:
        NotImplementedError: another collective is called.
    """

    def __init__(self) -> None:
        super().__init__()
        self.received = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        name = func.name()
        if name.startswith("_c10d_functional::all_gather_into_tensor"):
            own, size = args[0], args[1]
            self.received += own.nbytes * (size - 1)
        elif name.startswith("_c10d_functional::") and not name.endswith(MOVES_NOTHING):
            raise NotImplementedError(f"bytes of {name} are not counted")
        return func(*args, **(kwargs or {}))


def bytes_arrived() -> int | None:
    """Bytes that the TCP sockets of this process have received so far, by the kernel; None where
    the system does not say.
    """
    folder, total = Path("/proc/self/fd"), 0
    if not folder.is_dir() or not hasattr(socket, "TCP_INFO"):
        return None
    for file in folder.iterdir():
        try:
            if not os.readlink(file).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(file.name))) as copy:
                info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
        except OSError:  # closed since, or no TCP socket
            continue
        total += struct.unpack_from("Q", info, BYTES_RECEIVED)[0]
    return total
