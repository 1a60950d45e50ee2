"""What the nodes of a cluster have, what speaks against a run there, and the command that mends it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import math
import os
import platform
import secrets
import shlex
import socket
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
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
# seconds that clocks may be apart: the timeline of a run sets what nodes did beside the learner's
APART = 0.5
RUNS = Path("runs")  # where runs are, unless --out says otherwise
READINGS = 3  # of each node's clock
MARK = ".palaestra-doctor-"  # begins the name of the file that nodes look for, for as long


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
    # seconds that its clock is ahead of that of the process that looks, at least and at most
    ahead: tuple[float, float] = (0.0, 0.0)
    mark: str | None = ""  # what the file in the folder of runs says there; None = no such file
    error: str = ""  # why it could not be looked at; nothing else is known then


@value_class
class Trouble:
    """What speaks against a run, on which node, and what mends it there."""

    node: str
    what: str
    command: str


def node_here(extras: Extras, mark: str = "") -> ClusterNode:
    """This process's own. `mark`: a file to be read; "" = none."""
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
        mark=read_mark(mark) if mark else "",
    )


def read_mark(path: str) -> str | None:
    try:
        return Path(path).read_text()
    except OSError:
        return None


@contextmanager
def marked(folder: Path) -> Generator[str]:
    """A file in a folder that says what no other does, for as long as the block takes; "" where
    none can be written.
    """
    try:
        file = tempfile.NamedTemporaryFile("w", prefix=MARK, dir=folder)  # noqa: SIM115
    except OSError:
        yield ""
        return
    with file:
        Path(file.name).chmod(0o644)  # the nodes' processes may be another user's
        file.write(secrets.token_hex(16))
        file.flush()
        os.fsync(file.fileno())
        yield file.name


def clock_here() -> float:
    """Seconds since the epoch."""
    return time.time()


def clock_ahead(readings: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """How far another clock is ahead of this one, at least and at most, in seconds.

    The other was read at some moment between the question and its answer, so one reading says
    told - heard <= ahead <= told - asked; several say what all of them allow.

    Args:
        readings: of each when it was asked and heard by this clock, and what the other told:
            (asked, told, heard).
    """
    least = max(clock - heard for _, clock, heard in readings)
    return least, min(clock - asked for asked, clock, _ in readings)


def version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def survey(
    cluster: Cluster, extras: Extras, seconds: float = STARTING, mark: str = ""
) -> list[ClusterNode]:
    """Every node that is alive, looked at by a process on it.

    Args:
        cluster: how Ray is found or started.
        extras: what to look for.
        seconds: after which a node that has not answered is told as an error.
        mark: a file of this machine, which nodes are asked for; "" = none.
    """
    with cluster.connected():
        import ray

        alive = [n for n in ray.nodes() if n["Alive"]]
        looks = [_on(ray, n, node_here).remote(extras, mark) for n in alive]
        ray.wait(looks, num_returns=len(looks), timeout=seconds)
        return [_node(ray, n, look) for n, look in zip(alive, looks, strict=True)]


def _on(ray: Any, node: Mapping[str, Any], look: Any) -> Any:
    """A function that is called on a node."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    where = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    return ray.remote(num_cpus=0, max_retries=0)(look).options(scheduling_strategy=where)


def _node(ray: Any, known: Mapping[str, Any], look: Any) -> ClusterNode:
    resources = known["Resources"]
    free = {"cpus_free": resources.get("CPU", 0.0), "gpus_free": resources.get("GPU", 0.0)}
    try:
        node_facts = replace(ray.get(look, timeout=0), **free)
        # a process is there by now, so little time passes between a question and its answer
        return replace(
            node_facts, ahead=clock_ahead([_reading(ray, known) for _ in range(READINGS)])
        )
    except Exception as error:
        reason = next(reversed(str(error).strip().splitlines()), type(error).__name__)
        name = known["NodeManagerHostname"]
        return ClusterNode(
            name=name, versions={}, extras=(), cores=0, memory_mb=0, gpus=(), arithmetic=(),
            error=reason, **free,
        )  # fmt: skip


def _reading(ray: Any, node: Mapping[str, Any]) -> tuple[float, float, float]:
    asked = time.time()
    remote_time: float = ray.get(_on(ray, node, clock_here).remote(), timeout=STARTING)
    return asked, remote_time, time.time()


# ---- what speaks against a run


def troubles(
    here: ClusterNode, nodes: Sequence[ClusterNode], cluster: Cluster, folder: str = "."
) -> list[Trouble]:
    """What would go wrong with this process as the learner and its run in a folder of `folder`, the
    worst first.
    """
    problems: list[Trouble] = []
    for node in nodes:
        if node.error:
            problems.append(_unreached(here, node))
        else:
            problems += [*_versions(here, node), *_extras(here, node), *_processor(here, node)]
            problems += [*_clock(here, node), *_folder(here, node, folder)]
    return [*problems, *_gpus(here, cluster), *_room(here, nodes, cluster)]


def _unreached(here: ClusterNode, node: ClusterNode) -> Trouble:
    if "No module named 'palaestra" in node.error:
        command = f"pip install 'palaestra[ray]=={here.versions['palaestra']}'"
        return Trouble(node=node.name, what="Palaestra is not installed there", command=command)
    command = "ray status; then `ray stop` and `ray start --address=HEAD:6379` there"
    return Trouble(node=node.name, what=f"it could not be looked at: {node.error}", command=command)


def _versions(here: ClusterNode, node: ClusterNode) -> list[Trouble]:
    problems: list[Trouble] = []
    for name, own in here.versions.items():
        other = node.versions.get(name, "none")
        if other == own:
            continue
        package = f"pip install '{name}=={own.partition('+')[0]}'"
        python = f"python{own.rpartition('.')[0]} -m venv ENV, and pip install Palaestra there"
        command = python if name == "python" else package
        problems.append(
            Trouble(node=node.name, what=f"{name} is {other}, here {own}", command=command)
        )
    return problems


def _extras(here: ClusterNode, node: ClusterNode) -> list[Trouble]:
    lacks = [n for n in here.extras if n not in node.extras]
    what = f"extras are missing that are here: {', '.join(lacks)}"
    command = f"pip install 'palaestra[{','.join(lacks)}]'"
    return [Trouble(node=node.name, what=what, command=command)] if lacks else []


def _processor(here: ClusterNode, node: ClusterNode) -> list[Trouble]:
    if node.arithmetic == here.arithmetic:
        return []
    instructions = ", ".join(node.arithmetic) or "unknown instructions"
    what = f"its processor is another ({instructions}): last bits will differ from run to run"
    command = "none is needed; for equal bits take nodes alike"
    return [Trouble(node=node.name, what=what, command=command)]


def _clock(here: ClusterNode, node: ClusterNode) -> list[Trouble]:
    """Where it is surely further away than may be: what slow answers leave open counts for it."""
    least, most = node.ahead
    apart = max(least, -most)
    if apart <= APART:
        return []
    way = "ahead of" if least > 0 else "behind"
    what = f"its clock is {apart:.1f} s or more {way} that of {here.name}: timelines will be wrong"
    command = "sudo chronyc makestep (or `sudo timedatectl set-ntp true`) there"
    return [Trouble(node=node.name, what=what, command=command)]


def _folder(here: ClusterNode, node: ClusterNode, folder: str) -> list[Trouble]:
    """Whether a run's folder is the same there: rollout processes keep replies of endpoints in it,
    which a run that goes on would otherwise ask and pay for again.
    """
    if node.mark == here.mark:
        return []
    which = "is another there" if node.mark is not None else "is not there"
    what = f"the folder of runs, {folder} of {here.name}, {which}: replies of endpoints get lost"
    at = shlex.quote(folder)
    command = (
        f"sudo mkdir -p {at} && sudo mount -t nfs {here.name}:{at} {at}; or --out a shared one"
    )
    return [Trouble(node=node.name, what=what, command=command)]


# the settings that give GPUs to the processes of a role, to which models travel as they are
GPU_KEYS = {"workers": "gpus", "judges": "judge_gpus"}
SHARE = 0.5  # of a GPU, that a learner may do with


def _gpus(here: ClusterNode, cluster: Cluster) -> list[Trouble]:
    """Whether processes lack the GPU that their models will be on: those of the learner's machine
    where it has some, as `--device` is if nothing is said.
    """
    without = {role for role, _, gpus in cluster.asked_for() if not gpus} if here.gpus else set()
    return [
        Trouble(
            node="all",
            what=f"models are on {here.name}'s GPU, and {role} have none",
            command=f"{key} = 1, or a share such as 0.5, in a file of the cluster; or --device cpu",
        )
        for role, key in GPU_KEYS.items()
        if role in without
    ]


def _room(here: ClusterNode, nodes: Sequence[ClusterNode], cluster: Cluster) -> list[Trouble]:
    """Whether the processes find room, each on one node, the dearest first. The learner takes GPUs
    where its machine has some.
    """
    problems: list[Trouble] = []
    free = [(n.cpus_free, n.gpus_free) for n in nodes]
    if not cluster.address:
        most = sum(n.cores for n in nodes)
        need = cluster.cpus * cluster.processes + 1
        if need > most:
            what = f"{need:g} processors are asked for, this process's among them, and {most} are there"
            command = f"--cluster {max(1, most - 1)}; or go on: processes take turns"
            problems.append(Trouble(node="all", what=what, command=command))
        free = [(math.inf, gpus) for _, gpus in free]
    asked = cluster.asked_for(on_gpus=bool(here.gpus))
    if left := unplaced(asked, free):
        have = f"{sum(n.cpus_free for n in nodes):g} CPUs, {sum(n.gpus_free for n in nodes):g} GPUs"
        ways = (
            [f"ray start --address={cluster.address} on one more node"] if cluster.address else []
        )
        ways.append("fewer in a file of the cluster")
        lacks_gpus = unplaced(asked, [(math.inf, gpus) for _, gpus in free])
        if lacks_gpus and here.gpus and cluster.learner_gpus > SHARE:
            ways.append(f"learner_gpus = {SHARE}, which leaves the rest of one")
        what, command = f"no room for {counted(left)} ({have})", ", or ".join(ways)
        problems.append(Trouble(node="all", what=what, command=command))
    return problems


def report(setting: str, extras: Extras, runs: Path = RUNS) -> dict[str, list[dict[str, Any]]]:
    """Of a cluster as `--cluster` names it: its nodes, and what to do. Raises UserError.

    `runs`: the folder that runs are in.
    """
    cluster = Cluster.read(setting)
    folder = nearest(runs)
    with marked(folder) as mark:
        here, nodes = node_here(extras, mark), survey(cluster, extras, mark=mark)
    if not nodes:
        raise UserError(f"--cluster {setting}: no node of the cluster is alive; see `ray status`")
    problems = troubles(here, nodes, cluster, str(folder))
    return {"nodes": list(map(asdict, nodes)), "troubles": list(map(asdict, problems))}


def nearest(folder: Path) -> Path:
    """A folder, or of those around it the first that is there."""
    whole = folder.absolute()
    return next(p for p in (whole, *whole.parents) if p.is_dir())
