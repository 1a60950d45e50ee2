"""The context of a learner on several ranks, and what the ranks that do not drive do.

Rank 0 is the process that drives the run. It holds every model twice: whole, for what samples,
evaluates and is saved, and as its slice, which learns. The others, the followers, hold slices
alone. Rank 0 sends each order to the followers and then takes part in it itself:

    learn          a step's groups, from which every rank credits, packs and updates the same
    show           the weights of a learner one after another, for what needs no more of them
    gather         the weights of a learner to rank 0, before what is whole there is used
    gather_state   one tensor of its optimiser's state to rank 0, for a checkpoint
    scatter        weights and optimiser of a checkpoint from rank 0
    close          the end

What is saved is what a run in one process saves, so a checkpoint goes on with any number of ranks.
"""

from __future__ import annotations

import datetime
import socket
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor

from palaestra.context import Engine, Learns, Runnable
from palaestra.errors import Fault, UserError
from palaestra.method import Recipe
from palaestra.models.files import explain_failures, silence_transformers
from palaestra.models.load import Model, load_heads, save
from palaestra.models.master import Optimizer
from palaestra.models.optimiser_files import DueTensor
from palaestra.models.routing import for_learner
from palaestra.models.weight_files import converts_alone, digest_of, read_weights
from palaestra.run.context import RunContext
from palaestra.run.driver import prepare
from palaestra.run.mismatch import compared, gaps
from palaestra.run.moves import TokenMoves
from palaestra.scale.sharded import (
    ShardedModel,
    is_sliced,
    moved_by,
    on_rank_0,
    reader,
    sharing_copy,
)
from palaestra.step import learn
from palaestra.types import Batch, Example, Groups, Key, Metrics, Objective, Outputs, State

Order: TypeAlias = tuple[str, tuple[Any, ...]]  # the name of a method of `Follower`, and arguments
Send: TypeAlias = Callable[[Order], None]  # to every follower, in order, without waiting for it
CLOSE: Order = ("close", ())
# of a step's state what learning reads; the rest is of rank 0 alone
LEARNED = ("seed", "step", "credit", "update", "draw")


def join(
    rank: int, ranks: int, address: str, device: str = "cpu", seconds: float = 600.0
) -> DeviceMesh:
    """Makes this process one of the ranks of a learner; returns when all of them are there.

    Args:
        rank: of this process, from 0, which drives the run.
        ranks: how many there are.
        address: "host:port" on rank 0's machine, where it listens.
        device: "cpu" or "cuda"; on a GPU the process must have chosen its own.
        seconds: after which a rank that is waited for is an error.

    Raises:
        RuntimeError: the ranks did not meet in time (torch's DistError).
    """
    dist.init_process_group(
        "gloo" if device == "cpu" else "nccl",
        init_method=f"tcp://{address}",
        rank=rank,
        world_size=ranks,
        timeout=datetime.timedelta(seconds=seconds),
    )
    return init_device_mesh(device, (ranks,))


def leave() -> None:
    """Ends what `join` began."""
    dist.destroy_process_group()


def free_address(host: str = "127.0.0.1") -> str:
    """ "host:port" that nobody listens at."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return f"{host}:{probe.getsockname()[1]}"


def drain(values: Iterable[object]) -> None:
    """Takes all of them, and keeps none."""
    for _ in values:
        pass


def stored_weights(model: Model, folder: Path) -> Iterable[Tensor]:
    """Trained weights of a checkpoint in the order of `named_trainable`, one after another; those of
    heads are the model's, and so are adapters, which are read into it.
    """
    trained = model.named_trainable()
    if model.adapted:
        model.load_weights(folder)
        return trained.values()
    with silence_transformers(), explain_failures(str(folder)):
        stored = read_weights(model.module, folder)
    body = (value for name, value in stored if name in trained)
    return chain(body, (p for name, p in trained.items() if name.startswith("head.")))


def nobody() -> str:
    """Of ranks about which nothing can be asked."""
    return ""


@contextmanager
def losses(doing: str, missing: Callable[[], str] = nobody) -> Generator[None]:
    """Raises Fault in the place of what torch raises where another rank has ended, or has stood
    still for longer than ranks wait for each other. Other errors stay what they are.

    Args:
        doing: what this rank takes part in.
        missing: names the ranks that do not answer; "" = none is known.
    """
    try:
        yield
    except RuntimeError as error:
        names = missing()
        if not names and not isinstance(error, dist.DistError) and "gloo" not in str(error):
            raise
        who = f"{names} does not answer: " if names else ""
        reason = str(error).strip().splitlines()[0]
        raise Fault("learner", f"a rank is lost while {doing}: {who}{reason}") from error


@dataclass
class ShardedContext(RunContext):
    """A run's context on one rank of a sharded learner.

    While a step is learned from, `model`, `forward`, `backward` and what is measured are those of
    the slices, on every rank alike. Outside, they are those of the whole models on rank 0, which
    are made up to date when they are asked for.
    """

    mesh: DeviceMesh = field(kw_only=True)
    send: Send = field(kw_only=True)
    missing: Callable[[], str] = field(kw_only=True, default=nobody)  # followers that are silent

    def __post_init__(self) -> None:
        super().__post_init__()
        self._sharded: dict[str, ShardedModel] = {}
        self._stale: set[str] = set()  # learners whose weights moved since they were gathered
        self._learns = False

    @property
    def leads(self) -> bool:
        """Whether this is rank 0, which drives the run."""
        return self.mesh.get_rank() == 0

    # ---- models

    def sharded(self, name: str) -> ShardedModel:
        """This rank's slice of a model, made when it is first asked for."""
        if name not in self._sharded:
            plain = super().model(name)
            if plain.bare:
                model = self._view(name, plain)
            else:
                mine = sharing_copy(plain) if self.leads else plain
                model = ShardedModel(mine, self.mesh, borrowed=self.leads)
            self._sharded[name] = model
        return self._sharded[name]

    def _view(self, name: str, bare: Model) -> ShardedModel:
        """A reference without adapters, on the slices of the model whose weights it shares."""
        owner = next(n for n, m in self.models.items() if m.module is bare.module and not m.bare)
        base = self.sharded(owner)
        view = Model(
            bare.name, base.model.module, bare.tokenizer, bare.source, bare.heads, bare=True
        )
        return ShardedModel(view, self.mesh, base.root)

    def model(self, name: str) -> Model:
        if self._learns:
            return self.sharded(name).model
        return self.whole(name) if self.leads else super().model(name)

    def whole(self, name: str) -> Model:
        """On rank 0: the model with its present weights, gathered if they have moved."""
        if name in self._stale:
            if not self._learns:
                self.send(("gather", (name,)))
            with losses(f"gathering the weights of {name!r}", self.missing):
                self.gather(name)
        return super().model(name)

    @torch.no_grad()
    def gather(self, name: str) -> None:
        """Every rank's part in bringing a learner's weights to rank 0."""
        if self.leads:
            super().moving(name)
        kept = super().model(name).named_trainable()
        for weight, value in self.sharded(name).full_weights():
            if self.leads:
                kept[weight].copy_(value)
        self._stale.discard(name)

    @contextmanager
    def weights(self, name: str) -> Generator[Iterable[tuple[str, Tensor]]]:
        """On rank 0. Of what has moved since it was gathered no more than the one at hand is whole on
        any rank.
        """
        if name not in self._stale:
            with super().weights(name) as values:
                yield values
            return
        kept = super().model(name).named_trainable()
        self.send(("show", (name,)))
        every = self.sharded(name).full_weights()
        with losses(f"showing the weights of {name!r}", self.missing):
            try:
                yield ((n, value.to(kept[n].dtype)) for n, value in every)
            finally:
                drain(every)  # the other ranks show them all, whatever became of these

    def show(self, name: str) -> None:
        """A follower's part in `weights`."""
        drain(self.sharded(name).full_weights())

    def save(self, name: str, directory: Path, *, whole: bool) -> None:
        kept = super().model(name)
        if name not in self._stale or kept.adapted or not converts_alone(kept.module):
            return super().save(name, directory, whole=whole)
        with self.weights(name) as weights:
            save(kept, directory, weights)

    def weights_sha256(self, name: str) -> str:
        if name not in self._stale:
            return super().weights_sha256(name)
        with self.weights(name) as weights:
            return digest_of(weights)

    def reference(self, name: str, source: str) -> None:
        if source in self._sharded:
            raise UserError(
                f"reference {name!r}: a learner on several ranks takes its references before its "
                "first step"
            )
        super().reference(name, source)

    def engine(self, name: str = "policy") -> Engine:
        self.whole(name)
        return super().engine(name)

    def moving(self, name: str) -> None:
        """The slices will move; what is whole on rank 0 stays until it is gathered."""
        self._stale.add(name)

    # ---- optimisers

    def optimiser(self, name: str, learner: Learns) -> Optimizer:
        if name not in self.optimisers:
            self.optimisers[name] = learner.optimiser.build(self.sharded(name).model.trainable())
        return self.optimisers[name]

    def optimiser_state(self, name: str) -> dict[str, Any]:
        """On rank 0: as one process has it, with master weights where that keeps some. Each tensor is
        gathered when it is needed.
        """
        sharded, state = self.sharded(name), self._torch_optimiser(name).state_dict()
        inner = {
            **state,
            "state": {
                i: {k: self._due(v, name, i, k) for k, v in each.items()}
                for i, each in state["state"].items()
            },
        }
        if not sharded.low:
            return inner
        weights = enumerate(sharded.model.trainable())
        return {"inner": inner, "masters": [self._due(p, name, i, "") for i, p in weights]}

    def _due(self, x: Any, name: str, i: int, key: str) -> Any:
        """An entry of an optimiser's state, which is gathered first if it is cut."""

        def gathered() -> Tensor:
            self.send(("gather_state", (name, i, key)))
            with losses(f"gathering the optimiser of {name!r}", self.missing):
                whole = self.gather_state(name, i, key)
            assert whole is not None  # on rank 0
            return whole

        return DueTensor(tuple(x.shape), x.dtype, gathered) if isinstance(x, DTensor) else x

    @torch.no_grad()
    def gather_state(self, name: str, i: int, key: str) -> Tensor | None:
        """Every rank's part in bringing a tensor of an optimiser's state to rank 0, where it is returned:
        the entry `key` of the weight `i`; "" = the weight itself, which is in float32.
        """
        if not key:
            return on_rank_0(cast(DTensor, self.sharded(name).model.trainable()[i].detach()))
        optimiser = self._torch_optimiser(name)
        return on_rank_0(optimiser.state[moved_by(optimiser)[i]][key])

    def _torch_optimiser(self, name: str) -> torch.optim.Optimizer:
        """Slices are never below float32, so their optimiser has no masters."""
        optimiser = self.optimisers[name]
        assert isinstance(optimiser, torch.optim.Optimizer)
        return optimiser

    def restore(self, name: str, learner: Learns, folder: Path, optimiser: dict[str, Any]) -> None:
        """Rank 0's own model is brought up to date when it is asked for."""
        self.optimiser(name, learner)
        kept = super().model(name)
        load_heads(kept, folder)
        self._check_shapes(name, folder, optimiser.get("inner", optimiser))
        masters = (reader(x)() for x in optimiser.get("masters", ()))
        values = masters if optimiser.get("masters") else stored_weights(kept, folder)
        self.send(("scatter", (name,)))
        with losses(f"handing out the weights of {name!r}", self.missing):
            self.scatter(name, values, optimiser.get("inner", optimiser))
        self._stale.add(name)

    def _check_shapes(self, name: str, folder: Path, state: Mapping[str, Any]) -> None:
        """Raises UserError for an optimiser's state of other weights, before any rank waits for it."""
        moved = moved_by(self._torch_optimiser(name))
        for i, each in state["state"].items():
            for key, x in each.items():
                if is_sliced(x) and tuple(x.shape) != tuple(moved[i].shape):
                    raise UserError(
                        f"{folder}: the entry {key} of the optimiser's state of weight {i} is "
                        f"{tuple(x.shape)}, and the weight is {tuple(moved[i].shape)}; take a checkpoint "
                        "of the same model"
                    )

    def scatter(
        self,
        name: str,
        values: Iterable[Tensor] | None = None,
        optimiser: dict[str, Any] | None = None,
    ) -> None:
        """Every rank's part in taking over weights and optimiser, which rank 0 gives."""
        sharded = self.sharded(name)
        sharded.set_weights(values)
        sharded.set_optimiser_state(self._torch_optimiser(name), optimiser)

    # ---- learning

    @contextmanager
    def learning(self, state: State, ready: Groups, seen: Groups) -> Generator[None]:
        with super().learning(state, ready, seen):
            if self.leads:
                self.send(("learn", ({k: state[k] for k in LEARNED}, ready, seen)))
            self._learns = True
            try:
                with losses(f"learning from step {state['step']}", self.missing):
                    yield
            finally:
                self._learns = False

    def forward(self, name: str, needs: Sequence[str]) -> Callable[[Batch], Outputs]:
        if not self._learns:
            return super().forward(name, needs)

        def run(batch: Batch) -> Outputs:
            with self.phase("forward"):
                return self.sharded(name)(for_learner(batch, name), needs)

        return run

    def backward(
        self, name: str, objective: Objective, batch: Batch, budget: int
    ) -> dict[str, Tensor]:
        moves = self.moves.setdefault(name, TokenMoves())
        return self.sharded(name).backward(objective, for_learner(batch, name), budget, moves)

    def outputs(
        self, name: str, needs: Sequence[str], batch: Batch, parts: Sequence[Tensor]
    ) -> Iterable[dict[str, np.ndarray]]:
        if not self._learns:
            return super().outputs(name, needs, batch, parts)
        with self.phase("forward"):
            return self.sharded(name).outputs(needs, for_learner(batch, name), parts)

    def describe(self, seen: Groups, ready: Groups) -> Metrics:
        """On rank 0 as in one process; the others take part in what is measured for it."""
        comparisons = [compared(self.learners_engines, ready)] if self.leads else [None]
        dist.broadcast_object_list(comparisons, group=self.mesh.get_group(), group_src=0)
        if self.leads:
            return super().describe(seen, ready)
        for name, n in (comparisons[0] or {}).items():
            gaps(self, ready[:n], name)
        return {}

    def record(
        self, seen: Groups, examples: Mapping[str, list[Example]], kept: Mapping[Key, str]
    ) -> None:
        """On rank 0 as in one process, from what every rank's passes did to each token."""
        for name in examples:
            mine = self.moves.setdefault(name, TokenMoves())
            mine.join(self.sharded(name).gather_objects(mine.on_cpu()))
        super().record(seen, examples, kept)

    def dump(self, name: str, learner: Learns, batch: Batch, metrics: Any) -> None:
        """The model as a whole: every rank takes part, and rank 0 writes."""
        self.whole(name)
        super().dump(name, learner, batch, metrics)

    # ---- runs

    def close(self) -> None:
        if self.leads:
            self.send(CLOSE)
        super().close()

    async def once(
        self, name: str, runnable: Runnable | Callable[[], Any], *more: Any, **given: Any
    ) -> Any:
        raise UserError(
            f"part {name}: the parts of a pipeline are learned in one process; run each of them by "
            "itself, from the model of the one before"
        )


def sharded_context(
    ctx: RunContext, mesh: DeviceMesh, send: Send, missing: Callable[[], str] = nobody
) -> ShardedContext:
    """A run's context on a rank of its learner, from the one that it would have in one process."""
    given = {f.name: getattr(ctx, f.name) for f in fields(RunContext) if f.init}
    return ShardedContext(**given, mesh=mesh, send=send, missing=missing)


def send_nothing(order: Order) -> None:
    """A follower gives no orders."""


class Follower:
    """A rank that does what rank 0 says. Each method takes part in what rank 0 does at the same
    time, and returns when this rank's part is done.
    """

    def __init__(self, recipe: Recipe, ctx: RunContext, mesh: DeviceMesh):
        """`recipe` and `ctx` are those of rank 0's run: the same settings give the same models."""
        self.recipe, self.ctx = recipe, sharded_context(ctx, mesh, send_nothing)
        self.open = True
        prepare(recipe, self.ctx)
        self._orders: dict[str, Callable[..., object]] = {
            "learn": self.learn,
            "show": self.ctx.show,
            "gather": self.ctx.gather,
            "gather_state": self.ctx.gather_state,
            "scatter": self.ctx.scatter,
            "close": self.close,
        }

    def obey(self, order: Order) -> None:
        """Carries out one order. Orders are sent to all followers in one sequence."""
        name, arguments = order
        self._orders[name](*arguments)

    def learn(self, state: State, ready: Groups, seen: Groups) -> None:
        """Learns from the groups of a step, as rank 0 does. The state that comes of it is rank
        0's to keep.
        """
        recipe = self.ctx.at(self.recipe, state["step"])
        with self.ctx.learning(state, ready, seen):
            learn(recipe, self.ctx, state, list(ready), list(seen))

    def close(self) -> None:
        self.ctx.close()
        self.open = False


def follow(follower: Follower, receive: Callable[[], Order]) -> None:
    """Carries out orders as they come, until the last one."""
    while follower.open:
        follower.obey(receive())
