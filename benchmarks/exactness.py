"""The laws that a device could break, measured on it: log-probs of the engine are the trainer's,
and neither graphs, company, micro-batches, padding, recomputing nor the device itself change what
comes out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.ablation import swap_attribute
from benchmarks.engine import prompts_of
from palaestra.context import Engine
from palaestra.engines.own import OwnEngine
from palaestra.models.forward import forward
from palaestra.models.load import Model, load
from palaestra.objective.policy import Clipped
from palaestra.types import Batch, Completion, Example, Row, Sampling, Segment
from palaestra.update import backward, pack

LOGP_MEAN = 1e-5  # nats, in float32
GRADIENT = 1e-3  # of the gradient's norm, in float32
ALIKE = 0.95  # of the answers: a rounding may tip a draw over, and the rest then differs
GROUP = 4  # answers that share a prompt


def sample_prompts(
    engine: Engine, prompts: Sequence[tuple[int, ...]], tokens: int
) -> list[Completion]:
    """An answer to each prompt; its random stream is that of its place."""

    async def run() -> list[Completion]:
        asked = Sampling(max_tokens=tokens)
        return list(
            await asyncio.gather(
                *(engine.generate(p, asked, ("answer", i)) for i, p in enumerate(prompts))
            )
        )

    return asyncio.run(run())


def batch_of(prompts: Sequence[tuple[int, ...]], answers: Sequence[Completion]) -> Batch:
    """Answers as the update gets them, their advantages 1 and -1 in turn."""
    examples: list[Example] = []
    for i, (prompt, a) in enumerate(zip(prompts, answers, strict=True)):
        segment = Segment(ids=a.ids, logp=a.logp, policy="policy", trained=True)
        row = Row(segments=(Segment(ids=prompt), segment))
        advantage_T = np.full(len(prompt) + len(a.ids), 1.0 - 2.0 * (i % 2))
        examples.append(Example(row=row, columns={"advantage": advantage_T}))
    batch = pack(examples)
    assert batch is not None
    return batch


def repeated_prompts(model: Model, groups: int, length: int) -> list[tuple[int, ...]]:
    return [p for p in prompts_of(model, groups, length) for _ in range(GROUP)]


@torch.no_grad()
def logp_gap(model: Model, batch: Batch) -> dict[str, float]:
    """|log pi (trainer) - log mu (as recorded)| over the sampled tokens, in nats."""
    batch = batch.to(model.device)
    logp = forward(model, batch, ("logp",))["logp"]
    gap_N = (logp - batch["behaviour_logp"]).abs()[batch.mask > 0].double()
    return {"mean": float(gap_N.mean()), "max": float(gap_N.max()), "tokens": len(gap_N)}


def measure_gap(
    model: Model, engine: Engine, name: str, groups: int, tokens: int
) -> dict[str, Any]:
    """The gap of one engine on random prompts."""
    prompts = repeated_prompts(model, groups, 24)
    batch = batch_of(prompts, sample_prompts(engine, prompts, tokens))
    about = {"model": model.name, "dtype": str(model.dtype).removeprefix("torch."), "engine": name}
    return about | logp_gap(model, batch)


def gradient(model: Model, batch: Batch, budget: int = 1 << 20) -> Tensor:
    """Of a clipped objective, as one vector on the processor."""
    run = lambda part: forward(model, part, ("logp",))
    metrics = backward(run, Clipped(), batch.to(model.device), budget, model.packs)
    assert torch.isfinite(metrics["loss"])
    vector = torch.cat([p.grad.flatten().cpu() for p in model.trainable() if p.grad is not None])
    for p in model.trainable():
        p.grad = None
    return vector


def apart(a: Tensor, b: Tensor) -> float:
    """|a - b| / |b|."""
    return float((a - b).norm() / b.norm())


def alike(a: Sequence[Completion], b: Sequence[Completion]) -> float:
    """The share of answers that have the same tokens."""
    return sum(x.ids == y.ids for x, y in zip(a, b, strict=True)) / len(a)


def check_laws(device: str, groups: int, tokens: int) -> list[dict[str, Any]]:
    """Each law on the embedded model in float32: what was found, and the bound it is held to."""
    model, twin = load("tiny", device=device), load("tiny")
    prompts = repeated_prompts(model, groups, 24)
    graphs, launches = OwnEngine(model), OwnEngine(model)
    launches.decoder.graphs = None
    answers = sample_prompts(graphs, prompts, tokens)
    batch = batch_of(prompts, answers)
    whole = gradient(model, batch)
    with swap_attribute(model, "packs", False):
        padded, padded_gap = gradient(model, batch), logp_gap(model, batch)
    with swap_attribute(model, "recompute", True):
        recomputed = gradient(model, batch)
    longest = int(batch["length"].max())
    rows: list[tuple[str, float, float]] = [
        ("log-probs of the engine, mean gap in nats", logp_gap(model, batch)["mean"], LOGP_MEAN),
        ("log-probs of a padded pass, mean gap in nats", padded_gap["mean"], LOGP_MEAN),
        ("log-probs on a processor, mean gap in nats", logp_gap(twin, batch)["mean"], LOGP_MEAN),
        ("gradient on a processor, apart by", apart(gradient(twin, batch), whole), GRADIENT),
        ("gradient in micro-batches", apart(gradient(model, batch, 2 * longest), whole), GRADIENT),
        ("gradient of a padded pass", apart(padded, whole), GRADIENT),
        ("gradient with recomputing", apart(recomputed, whole), GRADIENT),
    ]
    checks = [
        {"law": law, "found": x, "at most": most, "holds": x <= most} for law, x, most in rows
    ]
    launched = sample_prompts(launches, prompts, tokens)
    alone = sample_prompts(OwnEngine(model, slots=1), prompts, tokens)
    shares = [
        ("answers alike without CUDA graphs", alike(launched, answers)),
        ("answers alike one at a time", alike(alone, answers)),
    ]
    return checks + [
        {"law": law, "found": x, "at least": ALIKE, "holds": x >= ALIKE} for law, x in shares
    ]
