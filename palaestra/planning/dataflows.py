"""Dataflow graphs of RLHF algorithms: which calls of which models an iteration makes, and what waits
for what.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, TypeAlias

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


def calls_of(
    algorithm: Algorithm,
    sizes: Mapping[str, DecoderSize],
    work: Workload,
    device: Device,
    nodes: int,
) -> list[ModelCall]:
    """The calls of an algorithm with every option that `options_of` estimates.

    Args:
        sizes: of the models, by name: actor, reward, reference, and for PPO critic.
        work, device, nodes: of `options_of`.
    """
    return [
        replace(c, options=options_of(c.kind, sizes[c.model], work, device, nodes))
        for c in DATAFLOWS[algorithm]
    ]
