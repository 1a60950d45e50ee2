"""`palaestra bench engine`: sampling alone. Tokens a second by batch size, beside transformers'
generate; and what continuous batching gains when lengths have a long tail.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from benchmarks.work import Work
from palaestra.context import Engine
from palaestra.engines.own import OwnEngine
from palaestra.models.load import Model, load
from palaestra.run.machine import spread
from palaestra.run.parts import Parts
from palaestra.types import Sampling, rng_of

PROMPT = 32  # tokens
BATCHES, SLOTS = (1, 8, 32, 64), (16, 32)


def measure(work: Work, pairs: int, parts: Parts) -> dict[str, Any]:
    """Medians over interleaved repetitions."""
    parts.expect((len(BATCHES) + len(SLOTS) + 1) * pairs)
    policy = load(work.model, dtype=work.dtype, device=work.device)
    policy.eos = frozenset()  # lengths are given here, not sampled
    return {
        "batches": [by_batch(policy, n, work.max_tokens, pairs, parts) for n in BATCHES],
        "long_tail": [long_tail(policy, pairs, slots, parts) for slots in SLOTS],
        "turns": turns(policy, pairs, parts),
    }


def by_batch(model: Model, n: int, tokens: int, pairs: int, parts: Parts) -> dict[str, Any]:
    """`n` different prompts, `tokens` new tokens each."""
    prompts = prompts_of(model, n, PROMPT)
    own, rounds = OwnEngine(model), parts.rounds(f"{n} at a time", pairs)
    for _ in rounds:
        own.forget()
        rounds.put((sample_seconds(own, prompts, [tokens] * n), _generate(model, prompts, tokens)))
    mine, theirs = np.array(rounds.found).T
    rates = n * tokens / np.array([mine, theirs])
    return {
        "batch": n,
        "own": float(np.median(rates[0])),
        "transformers": float(np.median(rates[1])),
        "ratio": spread(theirs / mine),
    }


def long_tail(model: Model, pairs: int, slots: int, parts: Parts) -> dict[str, Any]:
    """Log-normal lengths, the longest about ten times the median: one queue against waves that wait
    for their longest.
    """
    n, median = 8 * slots, 24
    lengths = (
        np.exp(rng_of(("long tail",)).normal(np.log(median), 0.9, n))
        .round()
        .astype(int)
        .clip(1, 10 * median)
    )
    prompts = prompts_of(model, n, PROMPT)
    rounds = parts.rounds(f"long tail in {slots} slots", pairs, warm=False)
    for _ in rounds:
        engine = OwnEngine(model, slots=slots)
        a = sample_seconds(engine, prompts, lengths)
        b = 0.0
        for i in range(0, n, slots):
            engine = OwnEngine(model, slots=slots)
            b += sample_seconds(engine, prompts[i : i + slots], lengths[i : i + slots])
        rounds.put(b / a)
    return {
        "slots": slots,
        "sequences": n,
        "median_length": float(np.median(lengths)),
        "longest": int(lengths.max()),
        "waves_over_continuous": spread(np.array(rounds.found)),
    }


def turns(
    model: Model, pairs: int, parts: Parts, episodes: int = 16, length: int = 6
) -> dict[str, Any]:
    """Histories kept in the cache against histories read again."""
    rounds = parts.rounds(f"{length} turns", pairs, warm=False)
    for _ in rounds:
        rounds.put(histories(model, episodes, length))
    kept, again = np.array(rounds.found).T
    return {"episodes": episodes, "turns": length, "again_over_kept": spread(again / kept)}


def histories(model: Model, n: int, rounds: int) -> tuple[float, float]:
    """Seconds of `n` episodes whose turns add 8 sampled and 16 heard tokens: kept in the cache, and
    read again every turn.
    """
    kept, again = OwnEngine(model), OwnEngine(model)
    prompts, a, b = prompts_of(model, n, PROMPT), 0.0, 0.0
    for _ in range(rounds):
        again.forget()
        b += sample_seconds(again, prompts, [8] * n)
        a += sample_seconds(kept, prompts, [8] * n)
        prompts = [(*p, *range(5, 21)) for p in prompts]
    return a, b


def prompts_of(model: Model, n: int, length: int, *key: int) -> list[tuple[int, ...]]:
    """`n` prompts of random tokens; others with another `key`."""
    rng = rng_of(("prompts", n, length, *key))
    return [
        tuple(int(t) for t in rng.integers(3, min(250, model.vocabulary), length)) for _ in range(n)
    ]


def sample_seconds(
    engine: Engine, prompts: Sequence[tuple[int, ...]], lengths: Sequence[int] | np.ndarray
) -> float:
    """Seconds in which an engine goes on with all prompts, each by its own number of tokens."""

    async def run() -> None:
        await asyncio.gather(
            *(
                engine.generate(p, Sampling(max_tokens=int(n)), ("bench", i))
                for i, (p, n) in enumerate(zip(prompts, lengths, strict=True))
            )
        )

    begin = time.perf_counter()
    asyncio.run(run())
    return time.perf_counter() - begin


@torch.no_grad()
def _generate(model: Model, prompts: Sequence[tuple[int, ...]], tokens: int) -> float:
    ids = torch.tensor(prompts, device=model.device)
    begin = time.perf_counter()
    model.causal.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=True,
        top_k=0,
        max_new_tokens=tokens,
        min_new_tokens=tokens,
        pad_token_id=0,
    )
    return time.perf_counter() - begin


def show(result: dict[str, Any]) -> str:
    lines = ["tokens/s by sequences at a time"]
    for b in result["batches"]:
        r = b["ratio"]
        lines.append(
            f"  {b['batch']:>4}  own {b['own']:>7.0f}   transformers {b['transformers']:>7.0f}   "
            f"{r['median']:.2f}x ({r['low']:.2f} to {r['high']:.2f})"
        )
    for b in result["long_tail"]:
        r = b["waves_over_continuous"]
        lines.append(
            f"long tail, {b['sequences']} answers in {b['slots']} slots (median "
            f"{b['median_length']:.0f}, longest {b['longest']}): continuous batching "
            f"{r['median']:.2f}x over waves ({r['low']:.2f} to {r['high']:.2f})"
        )
    r = result["turns"]["again_over_kept"]
    lines.append(
        f"{result['turns']['turns']} turns: kept histories {r['median']:.2f}x over reading them "
        f"again ({r['low']:.2f} to {r['high']:.2f})"
    )
    return "\n".join(lines)
