"""Router replay for mixtures of experts: the training pass takes the experts that sampling took.

A router scores the experts of a layer for a token, s = W h, takes the k best and mixes their outputs with
weights g of their scores. Sampler and trainer compute h in other precisions or orders, so that now and then
they take other experts, and log-probs jump. Rollout routing replay (R3, Ma et al. 2025, arXiv:2510.11370v2)
keeps the set I that the sampler took, and lets the trainer weigh it by its own scores:

    g_i = I_i exp(s_i) / sum_j I_j exp(s_j),  s of the trainer

which is softmax over all experts, of I, renormalised. No gradient passes through the choice, and the
router learns by its weights as always. Routers that weigh otherwise (without renormalising, by a sigmoid,
with a scale) keep their own formula: what is replaced is what their `torch.topk` gives. Prompts are replayed
too, since their keys and values are read by every later token; what a cache holds of a prefix comes with the
choices that it was made with, as in the paper.

N tokens, L routers of a model in order, K experts that each of them takes, B rows, T tokens of a row. -1 stands for a
choice that nobody recorded: there the trainer takes its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from palaestra.errors import UserError
from palaestra.models.routes import NARROW, experts_of
from palaestra.types import Batch, Row

# takes the number of a router, its choices [N, K], and in which type they are kept
Keep: TypeAlias = Callable[[int, Tensor, torch.dtype], None]
COLUMN = (
    "experts"  # of a batch [B, T, L, K], for the model at hand; "experts:NAME" for the learner NAME
)
# transformers' names of what scores experts
NAMES = re.compile(r"(Router|Gate)$")


class _TopK(TorchFunctionMode):
    """Within it `given` [N, K] stands for what the call number `at` of `torch.topk` would choose."""

    def __init__(self, at: int = -1, given: Tensor | None = None):
        super().__init__()
        self.at, self.given, self.calls = at, given, 0
        self.chosen: list[Tensor] = []
        self.scored: list[int] = []  # among how many each call chooses

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in (torch.topk, Tensor.topk):
            return func(*args, **kwargs)
        self.calls += 1
        if self.given is None or self.calls - 1 != self.at:
            result = func(*args, **kwargs)
            self.chosen.append(result.indices)
            self.scored.append(args[0].shape[-1])
            return result
        number_NK = self.given.to(args[0].device, torch.int64)
        if bool((number_NK < 0).any()):
            number_NK = torch.where(number_NK < 0, func(*args, **kwargs).indices, number_NK)
        return torch.return_types.topk((args[0].gather(-1, number_NK), number_NK))


@dataclass(frozen=True, eq=False)
class Router:
    """A router of a model: its module, the layer that holds it, which of its calls of `torch.topk`
    chooses, how many experts there are and how many it takes.
    """

    module: nn.Module
    layer: nn.Module
    call: int
    experts: int
    top: int

    @property
    def stored_as(self) -> torch.dtype:
        """In which its choices are kept while sampling."""
        return torch.uint8 if self.experts <= NARROW else torch.int16

    def run(self, forward: Callable[..., Any], given_NK: Tensor | None, *args: Any) -> Any:
        """What its forward pass gives with these choices; None = its own."""
        with _TopK(self.call, given_NK):
            return forward(*args)


class HasRouters(Protocol):
    """A model, as far as its experts go."""

    name: str

    @property
    def routers(self) -> list[Router]: ...


def find_routers(layers: Sequence[nn.Module]) -> list[Router]:
    """The routers of a model's layers, in order; none of a dense model. Raises UserError for one
    whose choices cannot be told from outside.
    """
    routers = list[Router]()
    for layer in layers:
        for module in layer.modules():
            if NAMES.search(type(module).__name__) and hasattr(module, "weight"):
                routers.append(_probe(module, layer))
    if len({(r.experts, r.top) for r in routers}) > 1:
        raise UserError("router replay: the layers of this model have different numbers of experts")
    return routers


@torch.no_grad()
def _probe(module: Any, layer: nn.Module) -> Router:
    """A router tried on random numbers: it must follow choices that are not its own."""
    weight: Tensor = module.weight
    numbers = torch.Generator().manual_seed(0)
    x_ND = torch.randn(4, weight.shape[-1], generator=numbers).to(weight)
    kind = type(module).__name__
    refusal = UserError(
        f"router replay: {kind} is not a router whose choices can be replayed; leave router_replay off"
    )
    try:
        with _TopK() as seen:
            own = module(x_ND)
        at = next(
            i
            for i, c in reversed([*enumerate(seen.chosen)])
            if any(o is c or (o.shape == c.shape and torch.equal(o, c)) for o in own)
        )
        router = Router(module, layer, at, seen.scored[at], seen.chosen[at].shape[-1])
        other = (seen.chosen[at] + 1) % router.experts
        outs = router.run(module.forward, other, x_ND)
    except (StopIteration, TypeError, RuntimeError, AttributeError, IndexError):
        raise refusal from None
    if not any(o.shape == other.shape and torch.equal(o.to(other), other) for o in outs):
        raise refusal
    return router


# ---- while sampling


def routers_to_replay(model: HasRouters) -> list[Router]:
    """The routers of a mixture of experts. Raises UserError for a model that has none, or has some that
    cannot be replayed.
    """
    if not model.routers:
        raise UserError(
            f"router_replay=True: {model.name} is no mixture of experts that is known here; leave it off"
        )
    return model.routers


@contextmanager
def recording(routers: Sequence[Router], keep: Keep) -> Generator[None]:
    """Within it `keep` gets of each router, by number, the choices [N, K] of every pass."""
    for i, router in enumerate(routers):
        router.module.__dict__["forward"] = partial(_record, router, router.module.forward, i, keep)
    try:
        yield
    finally:
        for router in routers:
            del router.module.__dict__["forward"]


def _record(
    router: Router,
    forward: Callable[..., Any],
    number: int,
    keep: Keep,
    *args: Any,
) -> Any:
    with _TopK() as seen:
        result = forward(*args)
    keep(number, seen.chosen[router.call], router.stored_as)
    return result


# ---- while training


def expert_columns(rows: Sequence[Row], T: int) -> dict[str, Tensor]:
    """Columns of a batch of rows that are T long at most, one for each learner that recorded choices."""
    columns: dict[str, Tensor] = {}
    for b, row in enumerate(rows):
        for name, given_TLK in experts_of(row).items():
            blank = (len(rows), T, *given_TLK.shape[1:])
            column = columns.setdefault(
                f"{COLUMN}:{name}", torch.full(blank, -1, dtype=torch.int16)
            )
            column[b, : len(given_TLK)] = torch.from_numpy(given_TLK)
    return columns


def for_learner(batch: Batch, name: str) -> Batch:
    """A batch as the model called `name` passes over it: with the choices that were recorded as it
    sampled, and no others. A frozen reference takes its own experts.
    """
    if not any(c.startswith(f"{COLUMN}:") for c in batch.columns):
        return batch
    columns = {k: v for k, v in batch.columns.items() if not k.startswith(f"{COLUMN}:")}
    own = batch.columns.get(f"{COLUMN}:{name}")
    return replace(batch, columns=columns if own is None else {**columns, COLUMN: own})


@contextmanager
def replaying(model: HasRouters, given_NLK: Tensor | None) -> Generator[None]:
    """Within it passes over N tokens take these experts, also where a layer is computed again in the
    backward pass; None = their own.

    Raises UserError where the model's routers are not as many as those that were recorded, or are others.
    """
    if given_NLK is None:
        yield
        return
    routers = model.routers
    if len(routers) != given_NLK.shape[1] or any(r.top != given_NLK.shape[2] for r in routers):
        raise UserError(
            f"{model.name}: the samples hold choices of {given_NLK.shape[1]} routers, each of "
            f"{given_NLK.shape[2]} experts, and this model has others"
        )
    of_layer: dict[nn.Module, list[tuple[Router, Tensor]]] = {}
    for i, router in enumerate(routers):
        of_layer.setdefault(router.layer, []).append((router, given_NLK[:, i]))
    for layer, given in of_layer.items():
        layer.__dict__["forward"] = partial(_replay, layer.forward, given)
    try:
        yield
    finally:
        for layer in of_layer:
            del layer.__dict__["forward"]


def _replay(
    forward: Callable[..., Any], given: Sequence[tuple[Router, Tensor]], *args: Any, **kwargs: Any
) -> Any:
    """A layer's pass, whose routers are told what to choose."""
    for router, given_NK in given:
        module = router.module
        module.__dict__["forward"] = partial(router.run, module.forward, given_NK)
    try:
        return forward(*args, **kwargs)
    finally:
        for router, _ in given:
            del router.module.__dict__["forward"]
