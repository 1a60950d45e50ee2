"""What a call of a model takes in every layout, from assumed speeds of devices: the options that a
search over execution plans chooses from.

A layer takes the longer of its arithmetic and of reading its weights, a pipeline and a generation
what the formulas of ReaLHF say (`costs.pipeline_seconds`, `costs.generation_seconds`). ReaLHF
measures the seconds of a layer on the device; here they are computed, so they are assumptions.

t, p, d = devices of a tensor-parallel group, stages of a pipeline, replicas.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache

from palaestra.planning.costs import (
    BANDWIDTH_ACROSS,
    BANDWIDTH_INSIDE,
    GIGABIT,
    generation_seconds,
    pipeline_seconds,
    reallocation_seconds,
)
from palaestra.planning.plan import (
    CallKind,
    CallOption,
    Mesh,
    Parallelism,
    Reallocation,
    layouts,
    meshes,
)
from palaestra.types import value_class

BYTES = 2  # of a weight, an activation, a key or a value: float16 or bfloat16
TRAINED_BYTES = 2 + 4  # of a trained weight and its gradient
OPTIMISER_BYTES = 12  # of its float32 copy and two moments, shared out over the replicas
PASSES = 4  # of training: forward, again for what was not kept, and backward as long as both
ACTIVATION_BYTES = 34  # of a token and hidden number in the layer at work (arXiv:2205.05198)


@value_class
class DecoderSize:
    """A decoder: `key_values` are the numbers that it remembers of a token in each layer."""

    parameters: float
    layers: int
    hidden: int
    key_values: int


DECODERS = {  # Llama 2 (arXiv:2307.09288) and Code Llama (arXiv:2308.12950)
    "7b": DecoderSize(parameters=6.7e9, layers=32, hidden=4096, key_values=8192),
    "13b": DecoderSize(parameters=13.0e9, layers=40, hidden=5120, key_values=10240),
    "34b": DecoderSize(parameters=33.7e9, layers=48, hidden=8192, key_values=2048),
}


@value_class
class Device:
    """What devices of a cluster reach: assumptions, of devices with 80 GB."""

    flops: float = 150e12  # FLOP/s of large products
    memory: float = 1.2e12  # bytes/s of reading weights
    layer: float = 20e-6  # seconds that a pass through a layer takes at least
    latency: float = 15e-6  # seconds of a collective
    capacity_gb: float = 80.0
    per_node: int = 8

    def link(self, inside: bool) -> float:
        """Bytes/s between devices."""
        return (BANDWIDTH_INSIDE if inside else BANDWIDTH_ACROSS) * GIGABIT / 8

    def inside(self, mesh: Mesh) -> bool:
        """Whether a mesh lies in one node."""
        return len({d // self.per_node for d in mesh}) == 1

    def assumptions(self) -> list[str]:
        """What an estimate from these speeds takes for granted, a line each."""
        return [
            f"a device reaches {self.flops / 1e12:g} TFLOP/s, reads {self.memory / 1e12:g} TB/s and "
            f"holds {self.capacity_gb:g} GB; nodes of {self.per_node}",
            f"links of {BANDWIDTH_INSIDE:g} Gb/s within a node and {BANDWIDTH_ACROSS:g} Gb/s "
            "between nodes, as ReaLHF has them",
            f"a layer takes {self.layer * 1e6:g} us at least, a collective {self.latency * 1e6:g} us",
            f"training is {PASSES} forward passes as activations are recomputed, the sum of gradients "
            "and the optimiser's pass",
            "answers are equally long; nothing overlaps within a call",
        ]


@value_class
class Workload:
    """What an iteration's calls work on."""

    sequences: int
    prompt: int  # tokens
    answer: int  # tokens
    minibatches: int = 4  # that training takes a batch in


def pass_seconds(
    model: DecoderSize, device: Device, tensor: int, tokens: float, context: float = 0.0
) -> float:
    """Seconds of a layer's forward pass over so many tokens on a tensor-parallel group: arithmetic
    or reading, whichever is longer, and two sums of its outputs over the group.

    Args:
        model, device: of the layer.
        tensor: devices of the group, all in one node.
        tokens: that go through.
        context: remembered tokens that are read, of all sequences.
    """
    weights = model.parameters / model.layers
    arithmetic = 2 * weights * tokens / (tensor * device.flops)
    reading = BYTES * (weights + model.key_values * context) / (tensor * device.memory)
    sums = 0.0
    if tensor > 1:
        share = 2 * (tensor - 1) / tensor * BYTES * model.hidden * tokens
        sums = 2 * (device.latency + share / device.link(inside=True))
    return max(arithmetic, reading, device.layer) + sums


def stage_seconds(
    model: DecoderSize, device: Device, mesh: Mesh, layout: Parallelism, tokens: float,
    context: float = 0.0,
) -> float:  # fmt: skip
    """Seconds of a micro-batch in a stage of a pipeline, and of handing it to the next."""
    layers = math.ceil(model.layers / layout.pipeline)
    hand = BYTES * model.hidden * tokens / device.link(device.inside(mesh)) + device.latency
    own = layers * pass_seconds(model, device, layout.tensor, tokens, context)
    return own + (hand if layout.pipeline > 1 else 0.0)


def option_of(
    kind: CallKind, model: DecoderSize, work: Workload, device: Device, mesh: Mesh,
    layout: Parallelism,
) -> CallOption:  # fmt: skip
    """Seconds and memory of a call on a mesh in a layout."""
    length = work.prompt + work.answer
    rows = work.sequences / layout.data  # of a replica
    own = model.parameters / (layout.tensor * layout.pipeline)  # parameters of a device
    stage = lambda tokens, context=0.0: stage_seconds(model, device, mesh, layout, tokens, context)
    depth = layout.pipeline
    if kind == "train":
        return _training(model, work, device, mesh, layout)
    if kind == "inference":
        each = rows * length / depth
        seconds = pipeline_seconds(stage(each), depth, depth)
        active = 8 * BYTES * each * model.hidden
    else:
        each = rows / depth
        prefill = pipeline_seconds(stage(each * work.prompt), depth, depth)
        decode = stage(each, each * (work.prompt + work.answer / 2))
        seconds = generation_seconds(prefill, decode, work.answer, depth)
        active = BYTES * rows * length * model.key_values * model.layers
        active /= layout.tensor * depth
    return CallOption(
        mesh=mesh, layout=layout, seconds=seconds, static_gb=BYTES * own / 1e9,
        active_gb=active / 1e9,
    )  # fmt: skip


def _training(
    model: DecoderSize, work: Workload, device: Device, mesh: Mesh, layout: Parallelism
) -> CallOption:
    depth, micro = layout.pipeline, 2 * layout.pipeline
    own = model.parameters / (layout.tensor * depth)
    rows = work.sequences / layout.data / work.minibatches
    tokens = rows * (work.prompt + work.answer) / micro  # of a micro-batch
    passes = PASSES * pipeline_seconds(
        stage_seconds(model, device, mesh, layout, tokens), depth, micro
    )
    share = 2 * (layout.data - 1) / layout.data * BYTES * own
    gradients = share / device.link(device.inside(mesh)) + device.latency
    optimiser = own * (TRAINED_BYTES + OPTIMISER_BYTES / layout.data) / device.memory
    layers = math.ceil(model.layers / depth)
    # a stage holds the inputs of its layers for as many micro-batches as there are stages
    held = tokens * model.hidden * (BYTES * layers * depth + ACTIVATION_BYTES / layout.tensor)
    return CallOption(
        mesh=mesh,
        layout=layout,
        seconds=work.minibatches * (passes + gradients + optimiser),
        static_gb=own * (TRAINED_BYTES + OPTIMISER_BYTES / layout.data) / 1e9,
        active_gb=held / 1e9,
    )


def options_of(
    kind: CallKind, model: DecoderSize, work: Workload, device: Device, nodes: int
) -> tuple[CallOption, ...]:
    """Every mesh and layout that fits a device by itself; tensor-parallel groups lie in a node."""
    batch = work.sequences if kind == "train" else 0
    options = (
        option_of(kind, model, work, device, mesh, layout)
        for mesh in meshes(nodes, device.per_node)
        for layout in allowed(len(mesh), nodes, batch, work.minibatches, device.per_node)
    )
    return tuple(o for o in options if o.static_gb + o.active_gb <= device.capacity_gb)


@cache
def allowed(
    devices: int, nodes: int, batch: int, minibatches: int, per_node: int
) -> list[Parallelism]:
    """The layouts of `plan.layouts` whose tensor-parallel groups divide a node."""
    choices = layouts(devices, nodes, batch=batch, minibatches=minibatches)
    return [x for x in choices if per_node % x.tensor == 0]


def moves_of(models: Mapping[str, DecoderSize], device: Device) -> Reallocation:
    """Seconds of moving each model's parameters, by `costs.reallocation_seconds`: to the nodes that
    do not hold it yet, or within nodes.
    """

    @cache
    def seconds(model: str, source: Mesh, target: Mesh) -> float:
        there, here = ({d // device.per_node for d in mesh} for mesh in (target, source))
        return reallocation_seconds(models[model].parameters, nodes=len(there - here))

    return lambda model, source, target: seconds(model, source.mesh, target.mesh)
