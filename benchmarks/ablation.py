"""`palaestra bench ablation`: what each technique contributes. Steps with it switched off, between
steps with all of them on.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.work import Work, prepare_work
from palaestra import update
from palaestra.engines.own import OwnEngine
from palaestra.method import Recipe
from palaestra.run.context import RunContext
from palaestra.run.driver import prepare
from palaestra.run.machine import spread
from palaestra.run.parts import Parts, Rounds
from palaestra.step import start, step
from palaestra.types import Batch, Objective

Off = Callable[[RunContext], AbstractContextManager[None]]


@contextmanager
def swap_attribute(owner: object, name: str, other: object) -> Generator[None]:
    """Inside, an attribute is another."""
    kept = getattr(owner, name)
    setattr(owner, name, other)
    try:
        yield
    finally:
        setattr(owner, name, kept)


def padded_rows(ctx: RunContext) -> AbstractContextManager[None]:
    """Every row of the update with its own prompt, padded to the longest."""
    return swap_attribute(ctx.model("policy"), "packs", False)


def general_products(ctx: RunContext) -> AbstractContextManager[None]:
    """Sampling multiplies with the weights as they lie."""
    engine = ctx.engine()
    assert isinstance(engine, OwnEngine)
    return swap_attribute(engine.decoder.linears, "linears", [])


def second_forward(ctx: RunContext) -> AbstractContextManager[None]:
    """The log-probs of sampling are computed once more before the update, as where the sampler
    gives none.
    """
    inner = update.backward

    def both(
        forward: update.Forward,
        objective: Objective,
        batch: Batch,
        budget: int,
        packed: bool = False,
    ) -> dict[str, torch.Tensor]:
        with torch.no_grad():
            for rows in update.split(batch, budget, False, packed):
                forward(batch.part(rows))
        return inner(forward, objective, batch, budget, packed)

    return swap_attribute(update, "backward", both)


TECHNIQUES: Mapping[str, Off] = {
    "no padding in the update, a group's prompt once": padded_rows,
    "reordered weights while sampling": general_products,
    "log-probs recorded while sampling": second_forward,
}


def measure(work: Work, repeats: int, parts: Parts) -> dict[str, Any]:
    """Seconds a sampled token without each technique, over those of the step with all of them in
    the same round.
    """
    parts.expect(repeats)
    rounds = parts.rounds("round", repeats)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(time_rounds(*prepare_work(work, Path(folder)), rounds))
    seconds = {name: [r[name] for r in rounds.found] for name in ("", *TECHNIQUES)}
    whole = np.array(seconds[""])
    return {
        "seconds_per_token": float(np.median(whole)),
        "without": {name: spread(np.array(seconds[name]) / whole) for name in TECHNIQUES},
    }


async def time_rounds(recipe: Recipe, ctx: RunContext, rounds: Rounds) -> None:
    """Seconds a sampled token of every step of a round, by what was off; "" = nothing."""
    prepare(recipe, ctx)
    # from where another process stopped, other problems are drawn than it drew
    state = start(rounds.before)
    for _ in rounds:
        rates: dict[str, float] = {}
        for name in ("", *TECHNIQUES):
            with TECHNIQUES[name](ctx) if name else nullcontext():
                tokens, begin = ctx.sampled_tokens, time.perf_counter()
                state, _ = await step(recipe, ctx, state)
                seconds = time.perf_counter() - begin
            rates[name] = seconds / (ctx.sampled_tokens - tokens)
        rounds.put(rates)


def show(result: dict[str, Any]) -> str:
    lines = [f"{1000 * result['seconds_per_token']:.2f} ms a sampled token; without"]
    for name, r in result["without"].items():
        lines.append(f"  {name:<50} {r['median']:.2f}x ({r['low']:.2f} to {r['high']:.2f})")
    return "\n".join(lines)
