"""The weights of a decoder go from one layout on ranks to another. Each rank fetches the pieces that
it lacks, from ranks that have them; bytes are counted, and every tensor is compared afterwards.

A rank holds a slot: stage s of p stages, and shard r of t shards of each weight of that stage's
layers. Two layouts cut a weight into as many pieces as both can be made of, so they need not divide
one another. Source: ReaLHF (arXiv:2406.14088), reallocation between meshes; HybridFlow
(arXiv:2409.19256), the 3D-HybridEngine, whose ranks generate in groups at stride.

Deviations: ReaLHF broadcasts a shard to all of its receivers, here each fetches it by itself. Norms
are whole on every rank of their stage; the embedding lies in the first stage, an output layer of
its own in the last.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from palaestra.errors import UserError
from palaestra.models.load import load
from palaestra.planning.costs import gather_all_traffic, gather_model_traffic, grouped_traffic
from palaestra.planning.plan import Parallelism
from palaestra.planning.resharding import COLUMNS, ROWS, Way, bytes_arrived
from palaestra.types import value_class


class ModelSlot(NamedTuple):
    """What a rank holds of a model."""

    stage: int = 0
    stages: int = 1
    shard: int = 0
    shards: int = 1


Slots = Mapping[int, ModelSlot]  # by rank; a rank that is not there holds nothing


class WeightPiece(NamedTuple):
    """Part `part` of a weight that is cut along dimension `dim` into equal `parts`."""

    weight: str
    part: int
    parts: int
    dim: int
    size: int  # bytes
    shared: bool  # out over shards; a norm is whole on each rank

    def of(self, weight: Tensor) -> Tensor:
        """This piece of the weight."""
        begin, end = bounds(weight.shape[self.dim], self.part, self.parts)
        return weight.detach().narrow(self.dim, begin, end - begin)


class WeightFetch(NamedTuple):
    """A piece goes from rank `source` to rank `rank`."""

    piece: WeightPiece
    source: int
    rank: int


@value_class
class WeightMove:
    """What one rank saw. Bytes are those of weights that shards share out, `norms` of the others."""

    model: int  # of all ranks together, each weight once
    received: int
    norms: int  # received
    arrived: int | None  # at sockets, headers and all; None where the system does not say
    kept_twice: int  # held before beside what it holds after; 0 where it holds nothing then
    tensors: int  # that this rank holds, or a shard of them, after the move
    different: int  # of these: not bit-identical to the model's
    seconds: float


# ---- who holds what


def slots_of(layout: Parallelism, ranks: Sequence[int]) -> dict[int, ModelSlot]:
    """A layout on ranks in order: the shards of a stage lie beside each other, then the stages of a
    replica, then replicas.

    Raises:
        UserError: for another number of ranks than the layout has.
    """
    each = layout.tensor * layout.pipeline
    if len(ranks) != each * layout.data:
        raise UserError(
            f"a layout of {layout.pipeline} stages, {layout.tensor} tensor-parallel ranks and "
            f"{layout.data} replicas takes {each * layout.data} ranks, not {len(ranks)}"
        )
    return {
        rank: ModelSlot(i // layout.tensor, layout.pipeline, i % layout.tensor, layout.tensor)
        for n, rank in enumerate(ranks)
        for i in [n % each]
    }


def strided_slots(train: Parallelism, stages: int, shards: int) -> dict[int, ModelSlot]:
    """Generation slots of HybridFlow, `stages` x `shards` a replica: each rank generates with the
    part of the model in which its training shard lies, so groups are at stride.

    Raises:
        UserError: the generation layout does not divide that of training.
    """
    grouped_traffic(train.pipeline, train.tensor, stages, shards)
    every = slots_of(train, range(train.data * train.tensor * train.pipeline))
    return {
        rank: ModelSlot(
            x.stage // (train.pipeline // stages),
            stages,
            x.shard // (train.tensor // shards),
            shards,
        )
        for rank, x in every.items()
    }


def generation_slots(
    way: Way, train: Parallelism, stages: int, shards: int
) -> dict[int, ModelSlot]:
    """Slots of the ranks of `train` when they generate: at stride, or neighbours."""
    strided = strided_slots(train, stages, shards)
    if way == "grouped":
        return strided
    return slots_of(replicas(train, stages, shards), range(len(strided)))


def replicas(train: Parallelism, stages: int, shards: int) -> Parallelism:
    """The generation layout on all ranks of `train`."""
    each = train.tensor * train.pipeline * train.data // (stages * shards)
    return Parallelism(data=each, tensor=shards, pipeline=stages)


def passing_slots(way: Way, train: Parallelism) -> tuple[dict[int, ModelSlot], bool]:
    """What ranks hold while they train, and whether they gather all of the model before they keep
    their share of it, as "model group" and "all ranks" do.
    """
    every = range(train.data * train.tensor * train.pipeline)
    if way == "all ranks":  # ZeRO stage 3
        return {rank: ModelSlot(shard=rank, shards=len(every)) for rank in every}, True
    return slots_of(train, every), way == "model group"


def transition_share(way: Way, train: Parallelism, stages: int, shards: int) -> float:
    """What a rank receives by the paper's table, as a share of the model."""
    if way == "grouped":
        return grouped_traffic(train.pipeline, train.tensor, stages, shards)
    if way == "model group":
        return gather_model_traffic(train.pipeline, train.tensor)
    return gather_all_traffic(train.pipeline, train.tensor, train.data)


# ---- pieces


def cuts_of(module: nn.Module) -> list[tuple[str, Tensor, int | None, int | None]]:
    """Every weight: its name, the tensor, the dimension that shards share out (None = whole on each
    rank), and the number of its layer (None = before the layers, -1 = after them).
    """
    rows: list[tuple[str, Tensor, int | None, int | None]] = []
    for name, weight in module.named_parameters():
        words = name.split(".")
        own = words[-2] if len(words) > 1 else ""
        layer = next((int(w) for w in words if w.isdecimal()), None)
        dim: int | None = None
        if own in COLUMNS or "embed" in own or own == "lm_head":
            dim = 0
        elif own in ROWS and weight.dim() > 1:
            dim = 1
        after = layer is None and "embed" not in own
        rows.append((name, weight.detach(), dim, -1 if after else layer))
    return rows


def pieces_of(module: nn.Module, slot: ModelSlot, cut: int) -> set[WeightPiece]:
    """The pieces of a slot, where weights are cut into `cut` pieces, a multiple of its shards."""
    rows = cuts_of(module)
    depth = 1 + max((layer for *_, layer in rows if layer is not None), default=0)
    pieces = set[WeightPiece]()
    for name, weight, dim, layer in rows:
        at = 0 if layer is None else depth - 1 if layer < 0 else layer
        if at * slot.stages // depth != slot.stage:
            continue
        if dim is None:
            pieces.add(WeightPiece(name, 0, 1, 0, weight.nbytes, False))
            continue
        first, last = (cut * (slot.shard + i) // slot.shards for i in (0, 1))
        other = weight.nbytes // weight.shape[dim]
        for i in range(first, last):
            begin, end = bounds(weight.shape[dim], i, cut)
            if end > begin:
                pieces.add(WeightPiece(name, i, cut, dim, (end - begin) * other, True))
    return pieces


def bounds(size: int, part: int, parts: int) -> tuple[int, int]:
    """Where part number `part` of `parts` begins and ends along a dimension of that size."""
    return size * part // parts, size * (part + 1) // parts


def fetches_of(
    held: Mapping[int, set[WeightPiece]], needed: Mapping[int, set[WeightPiece]], per_node: int
) -> list[WeightFetch]:
    """Who fetches what, in the same order on every rank: from a rank of the same node where one
    has the piece, and of these from the one that has sent the fewest bytes so far.

    Raises:
        UserError: a piece that nobody holds.
    """
    holders: dict[WeightPiece, list[int]] = defaultdict(list)
    for rank, pieces in sorted(held.items()):
        for piece in pieces:
            holders[piece].append(rank)
    sent: Counter[int] = Counter()
    fetches: list[WeightFetch] = []
    for rank, pieces in sorted(needed.items()):
        for piece in sorted(pieces - held.get(rank, set())):
            if piece not in holders:
                raise UserError(f"no rank holds {piece.weight}, part {piece.part} of {piece.parts}")
            away = lambda r, to=rank: r // per_node != to // per_node
            source = min(holders[piece], key=lambda r: (away(r), sent[r], r))
            sent[source] += piece.size
            fetches.append(WeightFetch(piece, source, rank))
    return fetches


# ---- the move


def reallocate(
    world: DeviceMesh, model: str, moves: Sequence[tuple[Slots, Slots, bool]], per_node: int
) -> list[WeightMove]:
    """Moves a model on this rank, as often as there are `moves`: `work` of `run_ranks`. Each rank
    reads the model, keeps what it holds before, fetches what it lacks, and compares what it holds
    then with what it read.

    Args:
        world: of all ranks.
        model: a name that `load` takes.
        moves: what ranks hold before and after; and whether those that hold something before
            gather the whole model, and then keep their share.
        per_node: ranks of a node.
    """
    module = load(model).module
    return [move(world.get_rank(), module, *given, per_node) for given in moves]


def move(
    rank: int, module: nn.Module, before: Slots, after: Slots, gather: bool, per_node: int
) -> WeightMove:
    """One of the moves of `reallocate` on this rank."""
    weights = dict(module.named_parameters())
    cut = math.lcm(*(slot.shards for slot in (*before.values(), *after.values())))
    held = {r: pieces_of(module, slot, cut) for r, slot in before.items()}
    needed = {r: pieces_of(module, slot, cut) for r, slot in after.items()}
    whole, mine = pieces_of(module, ModelSlot(), cut), needed.get(rank, set[WeightPiece]())
    wanted = {**needed, **dict.fromkeys(before, whole)} if gather else needed
    fetches = fetches_of(held, wanted, per_node)
    own = {piece: piece.of(weights[piece.weight]).clone() for piece in held.get(rank, set())}
    arrived = bytes_arrived()  # before anybody sends
    dist.barrier()
    begin = time.perf_counter()
    own |= exchange(rank, fetches, own, weights)
    seconds, now = time.perf_counter() - begin, bytes_arrived()
    brought = [f.piece for f in fetches if f.rank == rank]
    differ = {p.weight for p in mine if not torch.equal(own[p], p.of(weights[p.weight]))}
    return WeightMove(
        model=sum(p.size for p in whole if p.shared),
        received=sum(p.size for p in brought if p.shared),
        norms=sum(p.size for p in brought if not p.shared),
        arrived=None if now is None or arrived is None else now - arrived,
        kept_twice=sum(p.size for p in held.get(rank, set()) - mine if p.shared and mine),
        tensors=len({p.weight for p in mine}),
        different=len(differ),
        seconds=seconds,
    )


def exchange(
    rank: int,
    fetches: Sequence[WeightFetch],
    own: Mapping[WeightPiece, Tensor],
    like: Mapping[str, Tensor],
) -> dict[WeightPiece, Tensor]:
    """The pieces that come to this rank, in one message of each rank that sends some.

    Args:
        rank: this one.
        fetches: of all ranks, in the same order on each.
        own: what this rank holds.
        like: weights by name, whose shapes the pieces have.
    """
    ways: dict[tuple[int, int], list[WeightPiece]] = defaultdict(list)
    for fetch in fetches:
        ways[fetch.source, fetch.rank].append(fetch.piece)
    works: list[dist.Work | None] = []
    buffers: dict[int, Tensor] = {}
    sending: list[Tensor] = []  # kept until it has gone
    for (source, to), pieces in sorted(ways.items()):
        if source == rank:
            sending.append(torch.cat([own[p].flatten().view(torch.uint8) for p in pieces]))
            works.append(dist.isend(sending[-1], to))
        elif to == rank:
            buffers[source] = torch.empty(sum(p.size for p in pieces), dtype=torch.uint8)
            works.append(dist.irecv(buffers[source], source))
    for work in works:
        if work is not None:
            work.wait()
    brought: dict[WeightPiece, Tensor] = {}
    for source, buffer in buffers.items():
        pieces = ways[source, rank]
        for piece, part in zip(pieces, buffer.split([p.size for p in pieces]), strict=True):
            shape = piece.of(like[piece.weight])
            brought[piece] = part.clone().view(shape.dtype).view(shape.shape)
    return brought


# ---- what came of it


def transition(moved: Sequence[WeightMove]) -> dict[str, float]:
    """The overhead of a move: shares of the model that a rank received, on average and at most, and
    held twice; the bytes of all ranks; the longest seconds; how many tensors differ.
    """
    model = moved[0].model
    arrived = [m.arrived for m in moved if m.arrived is not None]
    return {
        "received": sum(m.received for m in moved) / len(moved) / model,
        "received_most": max(m.received for m in moved) / model,
        "kept_twice": max(m.kept_twice for m in moved) / model,
        "bytes": float(sum(m.received + m.norms for m in moved)),
        "bytes_at_sockets": float(sum(arrived)) if len(arrived) == len(moved) else math.nan,
        "model_bytes": float(model),
        "seconds": max(m.seconds for m in moved),
        "tensors": float(sum(m.tensors for m in moved)),
        "different": float(sum(m.different for m in moved)),
    }
