"""The GPU of the learner's process, told to Ray, which would give it to another process."""

from __future__ import annotations

import os
from typing import Any

import ray
import torch
from ray import exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from palaestra.errors import UserError
from palaestra.scale.cluster import ROOM


class Holder:
    """Asks Ray for a GPU and does nothing with it."""

    def gpu(self) -> str:
        """By its name in CUDA_VISIBLE_DEVICES, or its number where that is not set."""
        return str(ray.get_gpu_ids()[0])


def gpu_here() -> str:
    """This process's GPU, as Ray names it."""
    seen = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    number = torch.cuda.current_device()
    return seen[number] if seen else str(number)


def hold(share: float, gpu: str, seconds: float = ROOM) -> Any:
    """A process on this node that has `share` of this GPU, for as long as there is a reference to it.

    Ray chooses the GPU that a process gets, so it is asked until it gives this one, and what it
    gave before is given back.

    Raises UserError where Ray has no such GPU, or others have it.
    """
    here = ray.get_runtime_context().get_node_id()
    there = sum(n["Resources"].get("GPU", 0.0) for n in ray.nodes() if n["NodeID"] == here)
    where = NodeAffinitySchedulingStrategy(here, soft=False)
    remote: Any = ray.remote  # its types do not know of scheduling strategies
    kind = remote(num_cpus=0, num_gpus=share, scheduling_strategy=where)(Holder)
    given = list[Any]()
    for _ in range(int(there / share)):
        holder: Any = kind.remote()
        given.append(holder)  # also the wrong ones, until the right one is there
        try:
            named: Any = ray.get(holder.gpu.remote(), timeout=seconds)
        except exceptions.GetTimeoutError:
            break
        if named == gpu:
            return holder
    raise UserError(
        f"cluster: the learner's GPU is {gpu}, of which Ray has no {share:g} to give on this node; "
        "choose another with CUDA_VISIBLE_DEVICES, a share with learner_gpus, or learner_gpus = 0, "
        "of which Ray is told nothing"
    )
