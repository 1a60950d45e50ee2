"""One model on N ranks of FSDP2: the same outputs, gradient and metrics as in one process.

Every rank holds a slice of each weight and works on its share of a batch. Three things differ from
one process:

1. The root that FSDP wraps is the training forward pass itself, so that what the pass reads is
   gathered: the decoder is called without the causal model's own `forward`, the output head without
   the body, and a tied output head is the embedding.
2. Losses carry the denominators of the whole optimiser batch, so gradients are summed over ranks;
   FSDP would average them.
3. Every rank makes as many passes as any other, for each pass gathers weights: the parts of a batch
   are dealt by size, and short hands are filled up with ghosts, which are computed and count for
   nothing.

(FSDP: arXiv:2304.11277.) B = rows of a batch, T = its tokens.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from transformers.modeling_layers import GradientCheckpointingLayer

from palaestra.errors import UserError
from palaestra.models.forward import forward
from palaestra.models.inside.attention import FROM_MAPS
from palaestra.models.model import Model
from palaestra.models.optimiser_files import DueTensor
from palaestra.run.moves import Forward, TokenMoves
from palaestra.types import Batch, Objective, Outputs
from palaestra.update import add_metrics, cut_to, loss_of, pad_to, split

# heads return views, which `forward` reads and never writes into
warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")


class TrainingForward(nn.Module):
    """The training forward pass of a model as a module, the root of its FSDP groups.

    Layers are gathered one by one, each head in a group of its own that keeps its precision, all
    the rest with the root.
    """

    def __init__(self, model: Model):
        super().__init__()
        self.body = model.module
        self.heads = nn.ModuleList(model.heads.values())

    def layers(self) -> list[nn.Module]:
        """The layers of the decoder, inner ones before those that hold them."""
        every = [*self.body.modules()]
        return [m for m in reversed(every) if isinstance(m, GradientCheckpointingLayer)]

    def forward(self, model: Model, batch: Batch, needs: Sequence[str]) -> Outputs:
        """`palaestra.models.forward.forward` of `model`, which is the root's own or a view of its
        weights without adapters.

        What would be gathered as often as the rows of a rank ask for it is gathered first: ranks
        would wait for each other in other numbers. Those are the heads, which `forward` reads chunk
        by chunk, and the layers where attention maps are computed row by row.
        """
        maps = any(n.split(":")[0] in FROM_MAPS for n in needs)
        first = [*self.heads, *(self.layers() if maps else ())]
        for module in map(fsdp, first):
            module.set_reshard_after_forward(False, recurse=False)
            module.unshard()
        try:
            # what FSDP hooks on to an output goes lost where an objective writes into a view
            return {k: v.clone() for k, v in forward(model, batch, needs).items()}
        finally:
            for module in map(fsdp, self.layers() if maps else ()):
                module.set_reshard_after_forward(True, recurse=False)


def fsdp(module: nn.Module) -> FSDPModule:
    """A module that `fully_shard` has wrapped, under the type of what it can do since."""
    return cast(FSDPModule, module)


def sharing_copy(model: Model) -> Model:
    """The model as it is, on the same weights: to be cut by `shard` with `borrowed`."""
    every = (model.module, *model.heads.values())
    same = {id(p): p for module in every for p in module.parameters()}
    return replace(
        model,
        module=copy.deepcopy(model.module, same),
        heads={n: copy.deepcopy(h, same) for n, h in model.heads.items()},
    )


def shard(model: Model, mesh: DeviceMesh, borrowed: bool = False) -> TrainingForward:
    """Leaves this rank its slice of a model's weights, in place: parameters keep their names and
    become DTensors. All ranks must hold equal weights.

    Trained weights below float32 are kept in float32, gathered in their own precision, and their
    gradients summed in float32: what `MasterWeights` does in one process.

    Args:
        borrowed: the weights belong to another model too, which keeps them: those of a module are
            copied just before it is cut, so that no second copy of the whole ever exists.
    """
    if model.has_senses:
        raise UserError(
            f"{model.name} has eyes or ears, whose weights are learned in one process; train it without ranks"
        )
    # a model remembers what it finds out about itself, and finds it in whole weights alone
    _ = model.packs, model.position_bytes
    with suppress(UserError):  # asked for where routers are replayed
        _ = model.routers
    model.logits(torch.zeros(1, model.width, dtype=model.dtype, device=model.device))
    low = {p.dtype for p in model.trainable() if is_low(p)}
    policy = MixedPrecisionPolicy(cast_forward_inputs=False)
    if low:
        policy = MixedPrecisionPolicy(
            param_dtype=low.pop(), reduce_dtype=torch.float32, cast_forward_inputs=False
        )
    root = TrainingForward(model)
    ready = own_wide if borrowed else widen
    for layer in root.layers():
        ready(layer)
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    for head in root.heads:
        ready(head)
        fully_shard(head, mesh=mesh, reshard_after_forward=False)
    ready(root)
    fully_shard(root, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    for module in root.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    return root


def widen(module: nn.Module) -> None:
    """Trained weights of a module in float32, just before it is cut: a whole model never is."""
    for p in module.parameters():
        if p.requires_grad and is_low(p):
            p.data = p.data.to(torch.float32)


def own_wide(module: nn.Module) -> None:
    """Gives a module copies of its weights that are not cut yet, as wide as `widen` makes them; what
    is one weight under two names stays one.
    """
    copies: dict[nn.Parameter, nn.Parameter] = {}
    for part in module.modules():
        for name, p in part.named_parameters(recurse=False):
            if isinstance(p, DTensor):
                continue
            if p not in copies:
                wide = p.requires_grad and is_low(p)
                values = p.detach().to(torch.float32 if wide else p.dtype, copy=True)
                copies[p] = nn.Parameter(values, requires_grad=p.requires_grad)
            setattr(part, name, copies[p])


def is_low(p: Tensor) -> bool:
    """Whether a weight has less than float32, and is trained in float32 all the same."""
    return p.dtype.itemsize < torch.float32.itemsize


class Turn(NamedTuple):
    """A pass of one rank: over which part of a batch, and whether as a ghost, which counts for
    nothing.
    """

    part: int
    ghost: bool


def deal(cost: Sequence[int], ranks: int) -> list[list[Turn]]:
    """A hand of parts for each rank, of equal length: the dearest part to the rank that has least,
    and to short hands the cheapest part as a ghost.

    Args:
        cost: of each part, in any unit; at least one part.
        ranks: number of hands.
    """
    hands: list[list[Turn]] = [[] for _ in range(ranks)]
    load = [0] * ranks
    for part in sorted(range(len(cost)), key=lambda i: (-cost[i], i)):
        rank = min(range(ranks), key=lambda r: (load[r], r))
        hands[rank].append(Turn(part, False))
        load[rank] += cost[part]
    ghost = Turn(min(range(len(cost)), key=lambda i: (cost[i], i)), True)
    most = max(map(len, hands))
    return [hand + [ghost] * (most - len(hand)) for hand in hands]


class ShardedModel:
    """A model of which this rank holds a slice. What is called is called on every rank, in the same
    order, with the same arguments.
    """

    def __init__(
        self,
        model: Model,
        mesh: DeviceMesh,
        root: TrainingForward | None = None,
        *,
        borrowed: bool = False,
    ):
        """Shards `model`, or takes it as a view of weights that `root` holds already; `borrowed` as of
        `shard`.
        """
        self.model, self.mesh = model, mesh
        self.low = any(is_low(p) for p in model.trainable())  # below float32, in files
        self.root = root or shard(model, mesh, borrowed)

    @property
    def ranks(self) -> int:
        return self.mesh.size()

    def __call__(self, batch: Batch, needs: Sequence[str]) -> Outputs:
        """The training forward pass of this rank's rows. Without gradients nothing stays
        gathered.
        """
        out = self.root(self.model, batch.to(self.model.device), needs)
        if not torch.is_grad_enabled():
            for module in self.root.modules():
                if isinstance(module, FSDPModule):
                    module.reshard()
        return out

    def hands(self, batch: Batch, parts: Sequence[Tensor]) -> list[list[Turn]]:
        """Every rank's passes over the parts of a batch."""
        length = batch["length"]
        return deal([int(length[rows].max()) * len(rows) for rows in parts], self.ranks)

    def hand(self, batch: Batch, parts: Sequence[Tensor]) -> list[Turn]:
        """This rank's passes."""
        return self.hands(batch, parts)[self.mesh.get_rank()]

    def split(self, objective: Objective, batch: Batch, budget: int) -> list[Tensor]:
        """Rows of the parts that the ranks share: of at most `budget` tokens, and of no more than a
        rank's share, so that all ranks have something to do where there are rows for them. Ranks
        may have other budgets, as a GPU has room; the smallest holds for all.
        """
        budget = min(self.gather_objects(budget))
        packs, (rows, T) = self.model.packs, batch["ids"].shape
        positions = int(batch["length"].sum()) if packs else rows * T
        share = min(budget, -(-positions // self.ranks))
        return split(batch, share, objective.couples == "unit", packs)

    # ---- a batch

    def backward(
        self, objective: Objective, batch: Batch, budget: int, moves: TokenMoves | None = None
    ) -> dict[str, Tensor]:
        """As `update.backward`, this rank's share of it. Returns the metrics of the whole batch.

        `budget` bounds the tokens of a pass, `moves` keep what this rank's passes do to each token.
        """
        parts = self.split(objective, batch, budget)
        hand = self.hand(batch, parts)
        plain = lambda part: self(part, objective.needs)
        run = moves.watch(plain) if moves else plain
        if objective.couples == "batch":
            return self._backward_coupled(objective, batch, parts, hand, run)
        total: dict[str, Tensor] = {}
        for turn in hand:
            part = batch.part(parts[turn.part]).to(self.model.device)
            loss, metrics = loss_of(objective, run(part), part)
            (loss * 0.0 if turn.ghost else loss).backward()
            if not turn.ghost:
                add_metrics(total, metrics | {"loss": loss})
        return self._sum({k: float(v) for k, v in total.items()})

    def _backward_coupled(
        self,
        objective: Objective,
        batch: Batch,
        parts: list[Tensor],
        hand: list[Turn],
        run: Forward,
    ) -> dict[str, Tensor]:
        """A loss that depends on all rows at once. Outputs without a gradient travel, a few numbers
        a token; then every rank knows the loss, and goes back through its own rows.
        """
        batch = batch.to(self.model.device)
        needs = objective.needs
        with torch.no_grad():
            outs = [self(batch.part(parts[turn.part]), needs) for turn in hand]
        leaves = {k: v.requires_grad_() for k, v in self._join(outs, batch, parts, hand).items()}
        loss, metrics = loss_of(objective, leaves, batch)
        loss.backward()
        total: dict[str, Tensor] = {}
        add_metrics(total, metrics | {"loss": loss})
        for turn in hand:
            rows = parts[turn.part]
            out = run(batch.part(rows))
            given = {k: g[rows] for k in out if (g := leaves[k].grad) is not None}
            grads = [cut_to(g, out[k]) * (not turn.ghost) for k, g in given.items()]
            torch.autograd.backward([out[k] for k in given], grads)
        return total

    def _join(
        self, outs: list[Outputs], batch: Batch, parts: list[Tensor], hand: list[Turn]
    ) -> dict[str, Tensor]:
        """Every rank's outputs in the order of the batch's rows. Each number comes from one rank
        and is 0 at the others, so their sum is exact.
        """
        B, T = batch["ids"].shape
        whole: dict[str, Tensor] = {}
        for turn, out in zip(hand, outs, strict=True):
            for name, value in out.items():
                wide = pad_to(value, T)
                at = whole.setdefault(name, wide.new_zeros(B, *wide.shape[1:]))
                if not turn.ghost:
                    at[parts[turn.part]] = wide
        for name in sorted(whole):
            dist.all_reduce(whole[name], group=self.mesh.get_group())
        return whole

    def _sum(self, metrics: Mapping[str, float]) -> dict[str, Tensor]:
        """Of all ranks, added up in their order."""
        total: dict[str, Tensor] = {}
        for each in self.gather_objects(dict(metrics)):
            add_metrics(total, {k: torch.tensor(v, dtype=torch.float64) for k, v in each.items()})
        return total

    @torch.no_grad()
    def outputs(
        self, needs: Sequence[str], batch: Batch, parts: Sequence[Tensor]
    ) -> list[dict[str, np.ndarray]]:
        """What the model says of each part of a batch, in order, as float64 arrays, on every rank
        all of them.
        """
        outputs: dict[int, dict[str, np.ndarray]] = {}
        for turn in self.hand(batch, parts):
            out = self(batch.part(parts[turn.part]), needs)
            if not turn.ghost:
                outputs[turn.part] = {k: v.double().cpu().numpy() for k, v in out.items()}
        whole = {i: out for each in self.gather_objects(outputs) for i, out in each.items()}
        return [whole[i] for i in range(len(parts))]

    def gather_objects(self, mine: Any) -> list[Any]:
        """What every rank gives, in their order."""
        objects: list[Any] = [None] * self.ranks
        dist.all_gather_object(objects, mine, group=self.mesh.get_group())
        return objects

    # ---- weights and optimisers, whole

    @torch.no_grad()
    def full_weights(self) -> Generator[tuple[str, Tensor]]:
        """Every trained weight as one tensor, by the name that it has in `named_trainable`, one
        after another: no rank needs room for all of them.
        """
        for name, p in self.model.named_trainable().items():
            yield name, full(p.detach())

    @torch.no_grad()
    def set_weights(self, values: Iterable[Tensor] | None) -> None:
        """Sets every trained weight, in the order of `named_trainable`. Rank 0 gives the values,
        the others None. Errors are those of `scatter`.
        """
        given = None if values is None else iter(values)
        for p in self.model.trainable():
            p.copy_(scatter(cast(DTensor, p), None if given is None else partial(next, given)))

    def set_optimiser_state(
        self, optimiser: torch.optim.Optimizer, state: Mapping[str, Any] | None
    ) -> None:
        """Sets an optimiser to the state dict of one process, which rank 0 gives and may have read one
        tensor after another (`DueTensor`). Errors are those of `scatter`.
        """
        states: list[Any] = [None]
        if state is not None:  # what is no slice of a weight travels at once
            small = {
                i: {k: None if is_sliced(v) else v for k, v in each.items()}
                for i, each in state["state"].items()
            }
            states = [{**state, "state": small}]
        dist.broadcast_object_list(states, group=self.mesh.get_group(), group_src=0)
        moved = moved_by(optimiser)
        mine = {
            i: {
                k: scatter(moved[i], None if state is None else reader(state["state"][i][k]))
                if v is None
                else v
                for k, v in each.items()
            }
            for i, each in states[0]["state"].items()
        }
        optimiser.load_state_dict({**states[0], "state": mine})


def moved_by(optimiser: torch.optim.Optimizer) -> list[Any]:
    """The parameters of an optimiser, in the order in which its state dict counts them."""
    return [p for group in optimiser.param_groups for p in group["params"]]


def is_sliced(x: Any) -> bool:
    """Whether an entry of an optimiser's state is cut as its weight is; a count of steps is not."""
    return isinstance(x, DueTensor) or (isinstance(x, Tensor) and x.dim() > 0)


def reader(x: Tensor | DueTensor) -> Callable[[], Tensor]:
    """What gives a tensor that is there, or is to be read first."""
    return x.make if isinstance(x, DueTensor) else lambda: x


def full(x: Tensor) -> Tensor:
    """A tensor of which each rank holds a slice, whole on every rank."""
    return x.full_tensor() if isinstance(x, DTensor) else x


def on_rank_0(x: DTensor) -> Tensor | None:
    """A tensor of which each rank holds rows, whole on rank 0, in the processor's memory; None on the
    others, which hold no more than their rows.
    """
    assert x.placements == (Shard(0),), "FSDP cuts along the first dimension"
    mesh = x.device_mesh
    rows = -(-x.shape[0] // mesh.size())  # of a slice, of which the last ranks may have fewer
    mine = x.to_local()
    padded = mine.new_zeros(rows, *x.shape[1:])
    padded[: len(mine)] = mine
    leads = mesh.get_rank() == 0
    whole = mine.new_empty(rows * mesh.size() if leads else 0, *x.shape[1:])
    parts = list(whole.split(rows)) if leads else None
    dist.gather(padded, parts, group=mesh.get_group(), group_dst=0)
    return whole[: x.shape[0]].cpu() if leads else None


def scatter(like: DTensor, read: Callable[[], Tensor] | None) -> DTensor:
    """This rank's slice of a tensor that rank 0 reads, cut as `like` is, of its type.

    Args:
        like: this rank's slice of a tensor of that shape.
        read: on rank 0, gives the tensor; None on the others.

    Raises:
        UserError: rank 0 could not read it, on every rank; there whatever `read` raised.
    """
    whole = torch.empty(like.shape, dtype=like.dtype, device=like.device)
    failure: Exception | None = None
    if read is not None:
        try:
            value = read()
            if value.shape != like.shape:
                raise UserError(
                    f"a tensor is {tuple(value.shape)}, and was to be {tuple(like.shape)}"
                )
            whole.copy_(value)
        except Exception as error:  # the other ranks wait, whatever it is
            failure = error
    # nobody waits for a slice that will not come
    reasons = [failure and (str(failure) or type(failure).__name__)]
    dist.broadcast_object_list(reasons, group=like.device_mesh.get_group(), group_src=0)
    if failure is not None:
        raise failure
    if reasons[0] is not None:
        raise UserError(f"rank 0 hands out no more tensors: {reasons[0]}")
    return distribute_tensor(whole, like.device_mesh, like.placements)
