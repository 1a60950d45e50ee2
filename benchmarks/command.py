"""The work of `palaestra bench`. The JSON result names the machine, the versions and the command.
`gpu` is a programme of its own.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmarks import (
    ablation,
    busy,
    checkers,
    company,
    control,
    drafts,
    engine,
    episodes,
    formats,
    learners,
    memory,
    notebook,
    programme,
    sandbox,
    scaling,
    step,
    trl,
    view,
)
from benchmarks.work import Work
from palaestra.errors import UserError
from palaestra.ledger.digests import model_sha256
from palaestra.run import machine
from palaestra.run.parts import FOLDER, Parts, folder_sha256, go_on, stoppable
from palaestra.store.checkpoint import make_folder, write_atomic
from palaestra.terminal.progress import Headway

OF_WORK = {
    "step": step,
    "engine": engine,
    "drafts": drafts,
    "formats": formats,
    "company": company,
    "trl": trl,
    "memory": memory,
    "ablation": ablation,
}

# what is measured beside another project: its package, and the extra that brings it
PEERS = {
    "trl": ("trl", "bench"),
    "control": ("stable-baselines3", "control"),
    "learners": ("stable-baselines3", "control"),
}


def run(arguments: argparse.Namespace) -> dict[str, Any] | list[Any]:
    return run_gpu(arguments) if arguments.what == "gpu" else run_one(arguments)


def run_gpu(arguments: argparse.Namespace) -> dict[str, Any] | list[Any]:
    """Runs the GPU programme, or lists its slices."""
    device = arguments.device or "cuda"
    folder = Path(arguments.out or programme.default_folder(device))
    if arguments.list:
        return programme.show_list(folder)
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("no CUDA device here; --device cpu rehearses the programme in miniature")
    models = Path(arguments.models) if arguments.models else None
    order = programme.Order(
        device=device,
        folder=folder,
        limit=arguments.limit,
        only=tuple(arguments.only),
        again=tuple(arguments.again),
        models=models,
    )
    return dict(programme.run_programme(order))


def run_one(arguments: argparse.Namespace) -> dict[str, Any]:
    """A single measurement."""
    what = arguments.what
    work = Work(
        model=arguments.model,
        dtype=arguments.dtype,
        device=machine.device_of(arguments.device),
        prompts=arguments.prompts,
        group=arguments.group,
        max_tokens=arguments.max_tokens,
        full=arguments.full,
        recompute=arguments.recompute,
        peer_batch=arguments.peer_batch,
        positions=arguments.positions,
    )
    peer, extra = PEERS.get(what, ("", ""))
    if peer and importlib.util.find_spec(peer.replace("-", "_")) is None:
        raise UserError(f"{peer} is not installed; `pip install 'palaestra[{extra}]'`")
    if work.peer_batch and work.prompts * work.group % work.peer_batch:
        raise UserError(
            f"--peer-batch {work.peer_batch} must divide prompts x group = "
            f"{work.prompts * work.group}"
        )
    out = make_folder(Path(arguments.out)) if arguments.out else None
    name = name_of(what, work)
    before = machine.describe_machine(work.device) | machine.versions([peer] if peer else [])
    then = lambda: go_on(arguments.command) if out else "without --out DIR nothing is kept"
    with stoppable(then), Headway(f"bench {what}") as headway:
        parts = Parts(headway)
        if out:
            parts = Parts(headway, out / FOLDER / name, conditions(arguments, work, before))
        found, text = measure(arguments, work, parts)
    result = {
        "bench": what,
        "command": arguments.command,
        "machine": before,
        "work": asdict(work),
        **found,
    }
    if out:
        write_atomic(out / f"{name}.json", json.dumps(result, indent=1) + "\n")
        parts.remove()
    if not arguments.json:
        print(text)
    return result


def name_of(what: str, work: Work) -> str:
    """Of the result's file."""
    if what in (
        "busy",
        "control",
        "episodes",
        "learners",
        "notebook",
        "sandbox",
        "scaling",
        "verifiers",
        "view",
    ):
        return what
    name = f"{what}-{Path(work.model).name}-{work.dtype}"
    if what in ("step", "trl", "ablation"):
        name += f"-{work.prompts}x{work.group}x{work.max_tokens}{'-full' if work.full else ''}"
    threads = os.environ.get("OMP_NUM_THREADS", "1")
    if threads != "1":
        name += f"-{threads}-threads"
    return name


def conditions(arguments: argparse.Namespace, work: Work, here: dict[str, Any]) -> dict[str, Any]:
    """What the parts of a measurement depend on."""
    sizes = {k: getattr(arguments, k) for k in ("repeats", "n", "orphans")}
    return (
        machine.conditions(here)
        | sizes
        | {"work": asdict(work) | {"model": model_sha256(work.model)}}
        | {"bench": folder_sha256(Path(__file__).parent)}
    )


def measure(arguments: argparse.Namespace, work: Work, parts: Parts) -> tuple[dict[str, Any], str]:
    """The numbers, and the lines to read."""
    what, repeats = arguments.what, arguments.repeats
    if what == "sandbox":
        found = sandbox.measure(arguments.n, arguments.orphans, parts)
        return found, sandbox.show(found)
    if what == "notebook":
        found = notebook.measure(arguments.n, parts)
        return found, notebook.show(found)
    if what == "episodes":
        found = episodes.measure(parts)
        return found, episodes.show(found)
    if what == "verifiers":
        found = checkers.measure(arguments.n, parts)
        return found, checkers.show(found)
    if what == "view":
        found = view.measure(parts)
        return found, view.show(found)
    if what == "busy":
        found = busy.measure(repeats, parts)
        return found, busy.show(found)
    if what == "control":
        found = control.measure(repeats, parts)
        return found, control.show(found)
    if what == "learners":
        found = learners.measure(repeats, parts)
        return found, learners.show(found)
    if what == "scaling":
        found = scaling.measure(repeats, work.device, parts)
        return found, scaling.show(found)
    found = OF_WORK[what].measure(work, repeats, parts)
    return found, OF_WORK[what].show(found)
