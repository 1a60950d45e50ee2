"""Optimisers of float32 weights where a model, or the moments, are kept in bfloat16.

A bfloat16 weight has eight bits: a step of 1e-5 of its size rounds away. Gradients are gathered and
applied in float32, and only the result is rounded (arXiv:1710.03740, section 3.1). The weight is
the upper half of that result, so only the lower half is kept beside it, and float32 weights are
put together from both, a few at a time, while they move.

Moments that are kept in bfloat16 are rounded at random, up with the probability that makes the mean
of the result exact (arXiv:1502.02551, section 3): to the nearest one, b2 = 0.999 would leave v where
it is whenever it should change by less than 1/256.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from palaestra.errors import UserError
from palaestra.models.optimiser_files import DueTensor, made_state
from palaestra.types import Key, seed_of

PIECE = 1 << 21  # weights whose float32 form exists at a time, or one matrix
STRIP = 1 << 18  # numbers that are put together or rounded at a time; they stay in a core's cache
MOMENTS = ("exp_avg", "exp_avg_sq")


class MasterWeights:
    """An optimiser over float32 forms of `parameters`; used like one of torch.

    Its own parameters, `masters`, have the gradients. Where a parameter is of bfloat16 its master
    has a shape and no content between steps: `values` gives that.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        build: Callable[[Sequence[nn.Parameter]], torch.optim.Optimizer],
        narrow: bool = False,
    ):
        """`narrow`: moments are kept in bfloat16, with the noise of `key`."""
        self.parameters, self.narrow = list(parameters), narrow
        for p in self.parameters:
            if p.dtype == torch.float16:
                raise UserError("weights of float16 are not trained; use bfloat16 or float32")
            if not p.is_contiguous():
                p.data = p.data.contiguous()
        self.key: Key = ()  # of the noise in the next step
        # of masters, as bits; none where a parameter is its own master
        self.lower = [_zeros(p) if p.dtype == torch.bfloat16 else None for p in self.parameters]
        self.masters = [
            p if lower is None else nn.Parameter(_hollow(p))
            for p, lower in zip(self.parameters, self.lower, strict=True)
        ]
        self.inner = build(self.masters)
        for p, master in zip(self.parameters, self.masters, strict=True):
            if p is not master:
                p.register_post_accumulate_grad_hook(lambda p, master=master: _gather(p, master))

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self.inner.param_groups

    @property
    def state(self) -> dict[Any, Any]:
        return self.inner.state

    @torch.no_grad()
    def values(self) -> list[Tensor]:
        """The float32 weights, in the order of the parameters."""
        return [self.value(i) for i in range(len(self.parameters))]

    @torch.no_grad()
    def value(self, i: int) -> Tensor:
        """The float32 weights of one parameter."""
        p, lower = self.parameters[i], self.lower[i]
        return p.detach() if lower is None else join_halves(p, lower)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.inner.zero_grad(set_to_none=set_to_none)

    @torch.no_grad()
    def step(self) -> None:
        """Moves the weights piece by piece; a gradient is dropped as soon as it is applied."""
        grads = [m.grad for m in self.masters]
        self.zero_grad()
        for piece in self._pieces([i for i, g in enumerate(grads) if g is not None]):
            for i in piece:
                master, lower = self.masters[i], self.lower[i]
                if lower is not None:
                    master.data = join_halves(self.parameters[i], lower)
                master.grad, grads[i] = grads[i], None
                self._widen(master)
            self.inner.step()
            for i in piece:
                master, lower = self.masters[i], self.lower[i]
                if lower is not None:
                    split_halves(master.data, self.parameters[i], lower)
                    master.data = _hollow(self.parameters[i])
                master.grad = None
                self._narrow(i)

    def _pieces(self, moving: Sequence[int]) -> Generator[list[int]]:
        """Indices of parameters that take a step together."""
        piece, size = list[int](), 0
        for i in moving:
            n = self.parameters[i].numel()
            if piece and size + n > PIECE:
                yield piece
                piece, size = [], 0
            piece.append(i)
            size += n
        if piece:
            yield piece

    def _widen(self, master: nn.Parameter) -> None:
        for name in MOMENTS if self.narrow and master in self.state else ():
            self.state[master][name] = self.state[master][name].float()

    def _narrow(self, i: int) -> None:
        if self.narrow:
            state = self.state[self.masters[i]]
            first, second = MOMENTS
            pair = round_at_random((state[first], state[second]), (*self.key, i))
            state.update({first: pair[0], second: pair[1]})

    def state_dict(self) -> dict[str, Any]:
        """With no masters where every parameter is its own."""
        return made_state(self.due_state())

    def due_state(self) -> dict[str, Any]:
        """What `state_dict` gives, with masters that are put together when they are needed."""
        due = lambda i, p: DueTensor(
            tuple(p.shape), torch.float32, lambda: self.value(i).to("cpu", copy=True)
        )
        wide = all(lower is None for lower in self.lower)
        masters = [] if wide else [due(i, p) for i, p in enumerate(self.parameters)]
        return {"inner": self.inner.state_dict(), "masters": masters}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.inner.load_state_dict(state["inner"])
        for moments in self.state.values() if self.narrow else ():
            moments.update({n: moments[n].bfloat16() for n in MOMENTS})
        masters = state["masters"] or self.parameters
        for p, lower, saved in zip(self.parameters, self.lower, masters, strict=True):
            if lower is None:
                p.copy_(saved)
            else:
                split_halves(saved.to(p.device), p, lower)


def _zeros(p: nn.Parameter) -> Tensor:
    return torch.zeros(p.numel(), dtype=torch.int16, device=p.device)


def _hollow(p: nn.Parameter) -> Tensor:
    """A float32 tensor of the shape of `p` that takes the memory of one number."""
    return torch.zeros((), dtype=torch.float32, device=p.device).expand(p.shape)


@torch.no_grad()
def _gather(p: Tensor, master: nn.Parameter) -> None:
    """Adds a gradient to the master's as soon as it is there, so that micro-batches sum
    in float32.
    """
    if p.grad is None:
        return
    master.grad = p.grad.float() if master.grad is None else master.grad.add_(p.grad)
    p.grad = None


# ---- halves: a float32 number as the nearest bfloat16 number, and the 16 bits that this lacks


@torch.no_grad()
def join_halves(upper: Tensor, lower: Tensor) -> Tensor:
    """The float32 numbers [...] whose nearest bfloat16 numbers are `upper` [...]; `lower` [N] is how
    far they are from these, in units of the last bit of float32.

    A weight that was set to 0 since has no neighbour on its other side; its lower half counts for
    nothing.
    """
    out = torch.empty(upper.shape, dtype=torch.float32, device=upper.device)
    for up, low, to in _strips(upper, lower, out):
        to.copy_(up).view(torch.int32).add_(low)
        to.nan_to_num_(nan=0.0)
    return out


@torch.no_grad()
def split_halves(x: Tensor, upper: Tensor, lower: Tensor) -> None:
    """Writes float32 numbers as `upper` and `lower`, which `join_halves` puts together again.

    A number in the middle between two bfloat16 numbers whose even one is the smaller is 0x8000 from
    this, which is more than 16 bits hold: it becomes the one before it.
    """
    for part, up, low in _strips(x, upper, lower):
        up.copy_(part)
        low.copy_((part.view(torch.int32) - up.float().view(torch.int32)).clamp_max_(0x7FFF))


def _strips(*tensors: Tensor) -> Iterable[tuple[Tensor, ...]]:
    return zip(*(x.detach().view(-1).split(STRIP) for x in tensors), strict=True)


# ---- rounding at random


@torch.no_grad()
def round_at_random(pair: tuple[Tensor, Tensor], key: Key) -> tuple[Tensor, Tensor]:
    """Float32 numbers in bfloat16, each rounded away from 0 with the probability (x - a) / (b - a),
    a and b its neighbours: the mean over keys is x. Equal keys give equal numbers.
    """
    device = pair[0].device
    noise = torch.Generator(device).manual_seed(seed_of(key))
    first, second = (torch.empty(x.shape, dtype=torch.bfloat16, device=device) for x in pair)
    for a, b, to_a, to_b in _strips(*pair, first, second):
        drawn = torch.randint(
            -(1 << 31), 1 << 31, a.shape, generator=noise, device=device, dtype=torch.int32
        )
        to_a.view(torch.int16).copy_(rounded_bits(a, drawn & 0xFFFF))
        to_b.view(torch.int16).copy_(rounded_bits(b, (drawn >> 16) & 0xFFFF))
    return first, second


def rounded_bits(x: Tensor, noise: Tensor) -> Tensor:
    """The upper 16 bits of float32 numbers after `noise`, from 0 to 65535, is added to the lower
    ones.
    """
    return (x.view(torch.int32) + noise) >> 16


Optimizer: TypeAlias = torch.optim.Optimizer | MasterWeights


def with_masters(
    parameters: Sequence[nn.Parameter],
    build: Callable[[Sequence[nn.Parameter]], torch.optim.Optimizer],
    narrow: bool = False,
) -> Optimizer:
    """The optimiser that `build` makes, over masters where a parameter is below float32 or moments
    are to be narrow.
    """
    low = any(p.dtype.itemsize < torch.float32.itemsize for p in parameters)
    return MasterWeights(parameters, build, narrow) if low or narrow else build(parameters)


def load_optimiser(optimiser: Optimizer, state: dict[str, Any]) -> None:
    """Sets an optimiser to a stored state, which may be of the other kind: a run may go on with narrow
    moments, or leave them off.
    """
    if isinstance(optimiser, MasterWeights):
        state = state if "inner" in state else {"inner": state, "masters": []}
    elif "inner" in state:
        state = state["inner"]
    optimiser.load_state_dict(state)
