"""The weights of a step on their way to other processes, and the proof that they arrived.

A publication holds what moves of all learners, under the step whose clock they are of, with a sum of
the bits of each tensor. Tensors travel in buckets, one after another: neither who sends them nor who
takes them holds more than a bucket beside its own model. Whoever takes a publication first sees that
every bucket comes and compares the sums, before anything of a model is overwritten, and then again with
what the model holds: a bit that flipped on the way, a tensor that is cut off or missing, one that was
not loaded, and weights of another step are noticed before a token is sampled.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from palaestra.errors import Fatal
from palaestra.models.model import Model

if TYPE_CHECKING:
    from palaestra.run.context import RunContext

Arrays: TypeAlias = Mapping[str, Any]  # by the name of a tensor; bfloat16 as its bits
Bucket: TypeAlias = Callable[[], Arrays]  # brings some of a learner's tensors
Sums: TypeAlias = Mapping[str, int]  # by the name of a tensor
BUCKET = 1 << 28  # bytes of the tensors that travel together, unless one is larger


class WrongWeights(Fatal):
    """Weights in a process are not those that were sent. Whoever samples by them is made anew."""

    def __init__(self, detail: str):
        super().__init__("weights", detail)


@dataclass(frozen=True, kw_only=True)
class Publication:
    """Weights of all learners as they were at a step."""

    step: int
    # of every learner, what moves in its model: adapters alone where there are adapters; heads too
    weights: Mapping[str, Sequence[Bucket]]
    sums: Mapping[str, Sums]  # of each learner, as it has them in its own model


@dataclass(frozen=True)
class HeldBucket:
    """A bucket in the memory of the process that made it."""

    arrays: Arrays

    def __call__(self) -> Arrays:
        return self.arrays


def publish(
    ctx: RunContext,
    learners: Iterable[str],
    step: int,
    keep: Callable[[Arrays], Bucket] = HeldBucket,
    size: int = BUCKET,
) -> Publication:
    """What of the learners' models moves, as arrays of their own.

    Args:
        ctx: whose learners they are.
        learners: their names.
        step: whose weights these are.
        keep: puts the arrays of a bucket where the bucket finds them.
        size: bytes of a bucket at most, unless one tensor is larger.
    """
    weights, sums = dict[str, list[Bucket]](), dict[str, dict[str, int]]()
    for name in learners:
        with ctx.weights(name) as tensors:
            weights[name], sums[name] = in_buckets(tensors, keep, size)
    return Publication(step=step, weights=weights, sums=sums)


def in_buckets(
    tensors: Iterable[tuple[str, Tensor]],
    keep: Callable[[Arrays], Bucket] = HeldBucket,
    size: int = BUCKET,
) -> tuple[list[Bucket], dict[str, int]]:
    """Buckets of at most `size` bytes, each kept as soon as it is full, and the sums of the tensors."""
    buckets, sums = list[Bucket](), dict[str, int]()
    arrays, filled = dict[str, Any](), 0
    for name, value in tensors:
        if arrays and filled + value.nbytes > size:
            buckets.append(keep(arrays))
            arrays, filled = {}, 0
        arrays[name], sums[name] = as_array(value), bits_sum(value)
        filled += value.nbytes
    return [*buckets, keep(arrays)], sums


def as_array(x: Tensor) -> Any:
    """A tensor as an array that nothing writes to, bfloat16 as its bits."""
    value = x.detach().to("cpu", copy=True)
    return (value.view(torch.int16) if value.dtype == torch.bfloat16 else value).numpy()


def bits_sum(x: Tensor) -> int:
    """CRC-32 of the bytes of a tensor. Whatever changes within 32 bits in a row changes it, other
    accidents but for one in 2^32; it is no proof against an attacker.
    """
    whole = x.detach().cpu().contiguous().reshape(-1)
    return zlib.crc32(whole.view(torch.uint8).numpy().data)


@torch.no_grad()
def sums_of(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Of each tensor the sum of its bits."""
    return {name: bits_sum(x) for name, x in tensors.items()}


def every_weight(model: Model) -> Mapping[str, Tensor]:
    """Also what is frozen; heads as "head.NAME"."""
    heads = {f"head.{h}.{n}": p for h, m in model.heads.items() for n, p in m.named_parameters()}
    return dict(model.module.named_parameters()) | heads


def check_sums(sums: Sums, sent: Sums, what: str) -> None:
    """Raises WrongWeights, which names the tensors that are not as they were sent."""
    wrong = [n for n in sent if sums.get(n) != sent[n]]
    if wrong:
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise WrongWeights(f"{what}: {wrong[0]}{more} of {len(sent)} tensors have other bits")


def check_publication(given: Publication, step: int, models: Mapping[str, Model]) -> None:
    """Raises WrongWeights for one of another step, which is torn or of which a bucket does not come, or
    which does not fit into the models: nothing of it is to be loaded.
    """
    if given.step != step:
        raise WrongWeights(f"weights of step {given.step} came as those of step {step}")
    if lacking := given.sums.keys() - given.weights.keys():
        raise WrongWeights(f"the publication of step {step} lacks learner {min(lacking)}")
    for name, buckets in given.weights.items():
        own, differ, sums = models[name].named_trainable(), set[str](), dict[str, int]()
        for bucket in buckets:
            for n, value in bucket().items():
                if n in own and own[n].shape == value.shape:
                    sums[n] = bits_sum(as_tensor(value, own[n].dtype))
                else:
                    differ.add(n)
        if differ := differ | (own.keys() - sums.keys()):
            raise WrongWeights(f"published weights and the model differ in {name}/{min(differ)}")
        check_sums(sums, given.sums[name], f"{name}, published at step {step}")


def load_publication(given: Publication, name: str, model: Model) -> None:
    """Puts what is published of a learner into its model, a second time where it did not arrive.

    Raises WrongWeights where that does not help, or where a bucket does not come any more: the model is
    then of no step.
    """
    set_weights(model, given.weights[name])
    if sums_of(model.named_trainable()) != given.sums[name]:
        set_weights(model, given.weights[name])
    sums = sums_of(model.named_trainable())
    check_sums(sums, given.sums[name], f"{name}, loaded for step {given.step}")


@torch.no_grad()
def set_weights(model: Model, buckets: Iterable[Bucket]) -> None:
    """Overwrites what moves of a model, one bucket after another."""
    own = model.named_trainable()
    for bucket in buckets:
        for name, value in bucket().items():
            own[name].copy_(as_tensor(value, own[name].dtype))


def as_tensor(value: Any, dtype: torch.dtype) -> Tensor:
    """An array of a publication as a tensor of its own; what is shared is read-only."""
    given = torch.from_numpy(np.array(value))
    return given.view(torch.bfloat16) if dtype == torch.bfloat16 else given
