"""The weights of a step on their way to other processes, and the proof that they arrived.

A publication holds what moves of all learners, under the step whose clock they are of, with a sum of
the bits of each tensor. Whoever takes it compares the sums before anything of a model is overwritten,
and again with what the model then holds: a bit that flipped on the way, a tensor that is cut off or
missing, one that was not loaded, and weights of another step are noticed before a token is sampled.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from palaestra.errors import Fatal
from palaestra.models.model import Model

if TYPE_CHECKING:
    from palaestra.run.context import RunContext

# of every learner, what moves in its model: adapters alone where there are adapters; heads too
Weights: TypeAlias = Mapping[str, Mapping[str, Any]]
Sums: TypeAlias = Mapping[str, int]  # by the name of a tensor


class WrongWeights(Fatal):
    """Weights in a process are not those that were sent. Whoever samples by them is made anew."""

    def __init__(self, detail: str):
        super().__init__("weights", detail)


@dataclass(frozen=True, kw_only=True)
class Publication:
    """Weights of all learners as they were at a step."""

    step: int
    weights: Weights
    sums: Mapping[str, Sums]  # of each learner, as it has them in its own model


def publish(ctx: RunContext, learners: Iterable[str], step: int) -> Publication:
    """What of the learners' models moves, as arrays of their own (bfloat16 as its bits)."""
    return publish_models({n: ctx.model(n) for n in learners}, step)


def publish_models(models: Mapping[str, Model], step: int) -> Publication:
    """The same of models by the names of their learners."""
    return Publication(
        step=step,
        weights={n: flat_weights(m) for n, m in models.items()},
        sums={n: sums_of(m.named_trainable()) for n, m in models.items()},
    )


def flat_weights(model: Model) -> dict[str, Any]:
    """What of a model moves, as arrays that nothing writes to."""
    arrays: dict[str, Any] = {}
    for name, p in model.named_trainable().items():
        value = p.detach().to("cpu", copy=True)
        low = value.dtype == torch.bfloat16
        arrays[name] = value.view(torch.int16).numpy() if low else value.numpy()
    return arrays


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
    """Raises WrongWeights for one of another step, which is torn, or does not fit into the models:
    nothing of it is to be loaded.
    """
    if given.step != step:
        raise WrongWeights(f"weights of step {given.step} came as those of step {step}")
    if lacking := given.sums.keys() - given.weights.keys():
        raise WrongWeights(f"the publication of step {step} lacks learner {min(lacking)}")
    for name, values in given.weights.items():
        own = models[name].named_trainable()
        differ = own.keys() ^ values.keys()
        differ |= {n for n in own.keys() & values.keys() if own[n].shape != values[n].shape}
        if differ:
            raise WrongWeights(f"published weights and the model differ in {name}/{min(differ)}")
        came = {n: as_tensor(v, own[n].dtype) for n, v in values.items()}
        check_sums(sums_of(came), given.sums[name], f"{name}, published at step {step}")


def load_publication(given: Publication, name: str, model: Model) -> None:
    """Puts what is published of a learner into its model, a second time where it did not arrive.

    Raises WrongWeights where that does not help: the model is then of no step.
    """
    set_weights(model, given.weights[name])
    if sums_of(model.named_trainable()) != given.sums[name]:
        set_weights(model, given.weights[name])
    sums = sums_of(model.named_trainable())
    check_sums(sums, given.sums[name], f"{name}, loaded for step {given.step}")


@torch.no_grad()
def set_weights(model: Model, values: Mapping[str, Any]) -> None:
    """Overwrites what moves of a model."""
    for name, p in model.named_trainable().items():
        p.copy_(as_tensor(values[name], p.dtype))


def as_tensor(value: Any, dtype: torch.dtype) -> Tensor:
    """An array of a publication as a tensor of its own; what is shared is read-only."""
    given = torch.from_numpy(np.array(value))
    return given.view(torch.bfloat16) if dtype == torch.bfloat16 else given
