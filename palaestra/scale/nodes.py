"""What the nodes of a cluster have, what speaks against a run there, and the command that mends it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch

from palaestra import __version__
from palaestra.cores import cores
from palaestra.errors import UserError
from palaestra.processor import arithmetic
from palaestra.scale.cluster import STARTING, Cluster, counted, unplaced
from palaestra.types import value_class

Extras = Mapping[str, tuple[str, ...]]  # modules by the extra that brings them
EVERYWHERE = ("torch", "transformers", "ray", "numpy")  # that must be the same on all nodes


@value_class
class ClusterNode:
    """A node as a process on it sees it."""

    name: str
    versions: Mapping[str, str]  # of Python, Palaestra and what must be alike
    extras: tuple[str, ...]  # that are installed
    cores: int
    memory_mb: int
    gpus: tuple[str, ...]
    arithmetic: tuple[str, ...]  # instructions that products use
    cpus_free: float = 0.0  # as Ray counts them, when nothing of the run was there
    gpus_free: float = 0.0
    error: str = ""  # why it could not be looked at; nothing else is known then


@value_class
class Trouble:
    """What speaks against a run, on which node, and what mends it there."""

    node: str
    what: str
    command: str


def node_here(extras: Extras) -> ClusterNode:
    """This process's own."""
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    there = range(torch.cuda.device_count())
    return ClusterNode(
        name=socket.gethostname(),
        versions={
            "python": platform.python_version(),
            "palaestra": __version__,
            **{p: version_of(p) for p in EVERYWHERE},
        },
        extras=tuple(
            n for n, modules in extras.items() if all(importlib.util.find_spec(m) for m in modules)
        ),
        cores=cores(),
        memory_mb=pages // 2**20,
        gpus=tuple(torch.cuda.get_device_name(i) for i in there),
        arithmetic=tuple(arithmetic()),
    )


def version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def survey(cluster: Cluster, extras: Extras, seconds: float = STARTING) -> list[ClusterNode]:
    """Every node that is alive, looked at by a process on it.

    Args:
        cluster: how Ray is found or started.
        extras: what to look for.
        seconds: after which a node that has not answered is told as an error.
    """
    with cluster.connected():
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        alive = [n for n in ray.nodes() if n["Alive"]]
        task = ray.remote(num_cpus=0, max_retries=0)(node_here)
        looks = [
            task.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(n["NodeID"], soft=False)
            ).remote(extras)
            for n in alive
        ]
        ray.wait(looks, num_returns=len(looks), timeout=seconds)
        return [_node(ray, n, look) for n, look in zip(alive, looks, strict=True)]


def _node(ray: Any, known: Mapping[str, Any], look: Any) -> ClusterNode:
    resources = known["Resources"]
    free = {"cpus_free": resources.get("CPU", 0.0), "gpus_free": resources.get("GPU", 0.0)}
    try:
        return replace(ray.get(look, timeout=0), **free)
    except Exception as error:
        said = next(reversed(str(error).strip().splitlines()), type(error).__name__)
        name = known["NodeManagerHostname"]
        return ClusterNode(
            name=name, versions={}, extras=(), cores=0, memory_mb=0, gpus=(), arithmetic=(),
            error=said, **free,
        )  # fmt: skip


# ---- what speaks against a run


def troubles(here: ClusterNode, nodes: Sequence[ClusterNode], cluster: Cluster) -> list[Trouble]:
    """What would go wrong with this process as the learner, the worst first."""
    found: list[Trouble] = []
    for node in nodes:
        if node.error:
            found.append(_unreached(here, node))
        else:
            found += [*_versions(here, node), *_extras(here, node), *_processor(here, node)]
    return [*found, *_room(nodes, cluster)]


def _unreached(here: ClusterNode, node: ClusterNode) -> Trouble:
    if "No module named 'palaestra" in node.error:
        command = f"pip install 'palaestra[ray]=={here.versions['palaestra']}'"
        return Trouble(node=node.name, what="Palaestra is not installed there", command=command)
    command = "ray status; then `ray stop` and `ray start --address=HEAD:6379` there"
    return Trouble(node=node.name, what=f"it could not be looked at: {node.error}", command=command)


def _versions(here: ClusterNode, node: ClusterNode) -> list[Trouble]:
    found: list[Trouble] = []
    for name, own in here.versions.items():
        other = node.versions.get(name, "none")
        if other == own:
            continue
        package = f"pip install '{name}=={own.partition('+')[0]}'"
        python = f"python{own.rpartition('.')[0]} -m venv ENV, and pip install Palaestra there"
        command = python if name == "python" else package
        found.append(
            Trouble(node=node.name, what=f"{name} is {other}, here {own}", command=command)
        )
    return found


def _extras(here: ClusterNode, node: ClusterNode) -> list[Trouble]:
    lacks = [n for n in here.extras if n not in node.extras]
    what = f"extras are missing that are here: {', '.join(lacks)}"
    command = f"pip install 'palaestra[{','.join(lacks)}]'"
    return [Trouble(node=node.name, what=what, command=command)] if lacks else []


def _processor(here: ClusterNode, node: ClusterNode) -> list[Trouble]:
    if node.arithmetic == here.arithmetic:
        return []
    told = ", ".join(node.arithmetic) or "unknown instructions"
    what = f"its processor is another ({told}): last bits will differ from run to run"
    command = "none is needed; for equal bits take nodes alike"
    return [Trouble(node=node.name, what=what, command=command)]


def _room(nodes: Sequence[ClusterNode], cluster: Cluster) -> list[Trouble]:
    """Whether the processes find room, each on one node, the dearest first."""
    if not cluster.address:
        most = sum(n.cores for n in nodes)
        need = cluster.cpus * cluster.processes + 1
        what = f"{need:g} processors are asked for, this process's among them, and {most} are there"
        command = f"--cluster {max(1, most - 1)}; or go on: processes take turns"
        return [Trouble(node="all", what=what, command=command)] if need > most else []
    free = [(n.cpus_free, n.gpus_free) for n in nodes]
    left = unplaced(cluster.asked_for(), free)
    if not left:
        return []
    have = f"{sum(n.cpus_free for n in nodes):g} CPUs, {sum(n.gpus_free for n in nodes):g} GPUs"
    command = f"ray start --address={cluster.address} on one more node, or fewer in the file"
    return [Trouble(node="all", what=f"no room for {counted(left)} ({have})", command=command)]


def report(setting: str, extras: Extras) -> dict[str, list[dict[str, Any]]]:
    """Of a cluster as `--cluster` names it: its nodes, and what to do. Raises UserError."""
    cluster = Cluster.read(setting)
    nodes = survey(cluster, extras)
    if not nodes:
        raise UserError(f"--cluster {setting}: no node of the cluster is alive; see `ray status`")
    found = troubles(node_here(extras), nodes, cluster)
    return {"nodes": list(map(asdict, nodes)), "troubles": list(map(asdict, found))}
