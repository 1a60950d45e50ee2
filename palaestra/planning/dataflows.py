"""Dataflow graphs of RLHF algorithms: which calls of which models an iteration makes, and what waits
for what.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from palaestra.errors import UserError
from palaestra.planning.estimate import DecoderSize, Device, Workload, options_of
from palaestra.planning.plan import CallKind, ModelCall

Algorithm: TypeAlias = Literal["ppo", "grpo", "remax"]


def call(name: str, model: str, kind: CallKind, *after: str) -> ModelCall:
    """A call without options."""
    return ModelCall(name=name, model=model, kind=kind, after=after, options=())


GENERATE = call("generate", "actor", "generate")
REWARD = call("reward", "reward", "inference", "generate")
REFERENCE = call("reference", "reference", "inference", "generate")
DATAFLOWS: Mapping[Algorithm, tuple[ModelCall, ...]] = {
    "ppo": (
        GENERATE,
        REWARD,
        REFERENCE,
        call("values", "critic", "inference", "generate"),
        call("train actor", "actor", "train", "reward", "reference", "values"),
        call("train critic", "critic", "train", "reward", "reference", "values"),
    ),
    "grpo": (
        GENERATE,
        REWARD,
        REFERENCE,
        call("train actor", "actor", "train", "reward", "reference"),
    ),
    "remax": (  # the greedy answer's reward is the baseline
        GENERATE,
        call("generate greedily", "actor", "generate"),
        REWARD,
        call("baseline", "reward", "inference", "generate greedily"),
        REFERENCE,
        call("train actor", "actor", "train", "reward", "baseline", "reference"),
    ),
}


def calls_without(calls: Sequence[ModelCall], absent: Collection[str]) -> list[ModelCall]:
    """The calls of an algorithm without those of the models that are `absent`, by role."""
    kept = [c for c in calls if c.model not in absent]
    names = {c.name for c in kept}
    return [replace(c, after=tuple(n for n in c.after if n in names)) for c in kept]


def calls_of(
    algorithm: Algorithm,
    sizes: Mapping[str, DecoderSize],
    work: Workload,
    device: Device,
    nodes: int,
) -> list[ModelCall]:
    """`with_options` of an algorithm's calls.

    Args:
        algorithm: of `DATAFLOWS`.
        sizes: of the models, by name: actor, reward, reference, and for PPO critic.
        work, device, nodes: of `options_of`.
    """
    return with_options(DATAFLOWS[algorithm], sizes, work, device, nodes)


def with_options(
    calls: Sequence[ModelCall],
    sizes: Mapping[str, DecoderSize],
    work: Workload,
    device: Device,
    nodes: int,
) -> list[ModelCall]:
    """Calls with every option that `options_of` estimates; arguments as in `calls_of`."""
    return [
        replace(c, options=options_of(c.kind, sizes[c.model], work, device, nodes)) for c in calls
    ]


def check_room(calls: Sequence[ModelCall], device: Device) -> None:
    """Raises UserError where a call has no option."""
    for call in calls:
        if not call.options:
            raise UserError(
                f"the call {call.name!r} fits no mesh of devices with {device.capacity_gb:g} GB; give "
                "more nodes or devices, fewer sequences, or a smaller model"
            )
