"""GPUs of the learner's process, told to Ray, which would give them to another process."""

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
    """Asks Ray for GPUs and does nothing with them."""

    def gpus(self) -> list[str]:
        """By their names in CUDA_VISIBLE_DEVICES, or their numbers where that is not set."""
        return list(map(str, ray.get_gpu_ids()))


def gpus_here() -> list[str]:
    """Those that this process sees, as Ray names them."""
    seen = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return seen or list(map(str, range(torch.cuda.device_count())))


def gpu_here() -> str:
    """This process's GPU, as Ray names it."""
    return gpus_here()[torch.cuda.current_device()]


def hold(share: float, gpu: str, seconds: float = ROOM) -> Any:
    """A process on this node that has `share` of this GPU, for as long as there is a reference to it.
    A share of several GPUs is of those that this process sees first, as engines take them.

    Ray chooses the GPUs that a process gets, so it is asked until it gives these, and what it gave
    before is given back.

    Raises UserError where Ray has no such GPUs, or others have them.
    """
    wanted = {gpu} if share <= 1 else set(gpus_here()[: int(share)])
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
            named: Any = ray.get(holder.gpus.remote(), timeout=seconds)
        except exceptions.GetTimeoutError:
            break
        if set(named) == wanted:
            return holder
    raise UserError(
        f"cluster: the learner's GPU is {', '.join(sorted(wanted))}, of which Ray has no {share:g} to give on this node; "
        "choose another with CUDA_VISIBLE_DEVICES, a share with learner_gpus, or learner_gpus = 0, "
        "of which Ray is told nothing"
    )
