"""The numbers of a run that a canary records."""

from __future__ import annotations

import json
import math
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch.optim.optimizer import register_optimizer_step_pre_hook

from palaestra.store.checkpoint import STATE
from palaestra.store.columns import read_episodes
from palaestra.store.folder import is_step, records

STEPS = 2
ROUNDED = 1e-3  # of a gradient's norm: one below it is rounding, of which Adam makes whole steps


CLOCKS = ("seconds", "_mb", "per_second")  # parts of names of numbers that no two runs share


LEFT_OUT = {  # which say nothing that others do not, as counts and intervals of these
    "step", "seed", "steps", "low", "high", "n", "reward_low", "reward_high", "length_right",
    "length_wrong", "groups", "groups_ready", "groups_mixed_trained", "sampled_tokens", "errors",
    "drafts/drafted", "drafts/accepted", "drafts/tokens_per_pass"}  # fmt: skip


OF_TOKENS = ("logp", "advantage", "weight", "ratio")  # columns of rollouts whose sums are recorded


def read_run(folder: Path) -> tuple[str, dict[str, float]]:
    """The digest of the ids of the first steps of a run and of its parts, and all their numbers."""
    ids, numbers = sha256(), dict[str, float]()
    for file in sorted(folder.rglob("metrics.jsonl")):
        part = file.parent.relative_to(folder)
        at = "" if part == Path() else f"{part}/"
        for record in records(file):
            if is_step(record):
                numbers |= {f"{at}step {record['step']}/{n}": x for n, x in numeric(record)}
        for i, rollouts in enumerate(sorted((file.parent / "rollouts").glob("step-*.parquet"))):
            for row in rows_of(rollouts):
                if i == 0:
                    ids.update(json.dumps(row["ids"]).encode())
                for name in OF_TOKENS:
                    key = f"{at}rollouts {i + 1}/{name}"
                    known = (abs(x) for x in row[name] or () if x is not None)
                    numbers[key] = numbers.get(key, 0.0) + sum(filter(math.isfinite, known))
                key = f"{at}rollouts {i + 1}/trained"
                numbers[key] = numbers.get(key, 0.0) + sum(map(bool, row["trained"] or ()))
        numbers |= {f"{at}moved/{n}": x for n, x in distances(file.parent / "checkpoints")}
    return ids.hexdigest(), numbers


def distances(checkpoints: Path) -> Iterator[tuple[str, float]]:
    """How far weights went with the second step, ||theta_2 - theta_1||, by file."""
    before, after = (checkpoints / f"step-{i}" for i in (STEPS - 1, STEPS))
    for file in sorted(after.rglob("*.safetensors")):
        name = file.relative_to(after)
        if name.name == STATE[1] or not (before / name).is_file():
            continue
        then, now = load_file(before / name), load_file(file)
        squares = sum(float((now[n].float() - x.float()).square().sum()) for n, x in then.items())
        yield str(name.with_suffix("")), math.sqrt(squares)


def rows_of(file: Path) -> Iterator[Mapping[str, Any]]:
    for rows in read_episodes([file], tokens=True)["rows"].to_pylist():
        yield from rows or ()


def numeric(x: Any, at: str = "") -> Iterator[tuple[str, float]]:
    """The finite numbers of nested records by their path, without those of clocks."""
    if isinstance(x, Mapping):
        for name, inner in x.items():
            yield from numeric(inner, f"{at}.{name}" if at else str(name))
    elif isinstance(x, list | tuple):
        for i, inner in enumerate(x):
            yield from numeric(inner, f"{at}.{i}")
    elif isinstance(x, int | float) and math.isfinite(x) and is_measured(at):
        yield at, float(x)


def is_measured(name: str) -> bool:
    """Whether a number is one that two equal runs share and that others do not imply."""
    last = name.rpartition(".")[2]
    return last not in LEFT_OUT and not any(clock in name for clock in CLOCKS)


@contextmanager
def observing_updates(noise: int, scale: float) -> Generator[list[float]]:
    """The norm of the gradient of each step that an optimiser makes meanwhile. A gradient that is
    rounding (`ROUNDED`) counts as 0 in the step, which would else depend on the processor alone.

    Args:
        noise: seed of what is added to each number of their gradients that is not 0: a normal draw
            times `scale` times the root mean square of the tensor; 0 = they stay as they are.
    """
    norms, generator = list[float](), torch.Generator().manual_seed(noise)

    def observe(optimiser: torch.optim.Optimizer, *_: object) -> None:
        every = [p.grad for group in optimiser.param_groups for p in group["params"]]
        grads = [g for g in every if g is not None]
        norms.append(float(torch.nn.utils.get_total_norm(grads)))
        if norms[-1] < ROUNDED:
            for g in grads:
                g.zero_()
        for g in grads if noise else ():
            shaken = g + scale * g.square().mean().sqrt() * torch.randn(
                g.shape, generator=generator
            )
            g.copy_(torch.where(g == 0, g, shaken))

    handle = register_optimizer_step_pre_hook(observe)
    try:
        yield norms
    finally:
        handle.remove()
