"""`palaestra bench formats`: the own engine sampling from copies of the weights in fewer bytes, beside
the model's own dtype, and how far its log-probs are from the trainer's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.engine import PROMPT, prompts_of
from benchmarks.work import Work
from palaestra.engines.formats import Format, formats_here
from palaestra.engines.own import OwnEngine
from palaestra.engines.probe import Sampled, own_logp
from palaestra.models.load import Model, load
from palaestra.run.machine import spread
from palaestra.run.parts import Parts
from palaestra.types import Sampling

BATCHES = (1, 8, 32)


def measure(work: Work, pairs: int, parts: Parts) -> dict[str, Any]:
    """Medians over interleaved repetitions, in seconds of the clock and of the processor."""
    kinds = [kind.partition(" ")[0] for kind in formats_here()]
    parts.expect(len(BATCHES) * pairs + 1)
    policy = load(work.model, dtype=work.dtype, device=work.device)
    policy.eos = frozenset()
    engines = {kind: OwnEngine(policy, dtype=_format(kind)) for kind in ("", *kinds)}
    batches = [by_batch(policy, engines, n, work.max_tokens, pairs, parts) for n in BATCHES]
    once = parts.rounds("copies and log-probs", 1, warm=False)
    for _ in once:
        seconds = {kind: copy_seconds(e) for kind, e in engines.items()}
        near = {kind: gaps(policy, engines[kind], work.max_tokens) for kind in kinds}
        once.put({"copy_seconds": seconds, "gaps": near})
    return {"batches": batches, **once.found[0]}


def _format(kind: str) -> Format:
    return kind  # type: ignore[return-value]


def by_batch(
    model: Model,
    engines: dict[str, OwnEngine],
    n: int,
    tokens: int,
    pairs: int,
    parts: Parts,
) -> dict[str, Any]:
    """`n` different prompts, `tokens` new tokens each; copies of the weights are there already."""
    rounds = parts.rounds(f"{n} at a time", pairs)
    for i in rounds:
        prompts = prompts_of(model, n, PROMPT, int(i or 0))
        rounds.put([sample(e, prompts, tokens)[:2] for e in engines.values()])
    seconds = np.array(rounds.found)  # [rounds, formats, clock and processor]
    rates = n * tokens / seconds
    return {
        "batch": n,
        "formats": {
            kind: {
                "tokens_per_second": float(np.median(rates[:, k, 0])),
                "tokens_per_processor_second": float(np.median(rates[:, k, 1])),
                "ratio": spread(seconds[:, 0, 0] / seconds[:, k, 0]),
                "processor_ratio": spread(seconds[:, 0, 1] / seconds[:, k, 1]),
            }
            for k, kind in enumerate(engines)
        },
    }


def sample(
    engine: OwnEngine, prompts: Sequence[tuple[int, ...]], tokens: int
) -> tuple[float, float, list[Sampled]]:
    """Seconds of the clock and of the processor, and what came."""
    engine.prefixes.forget()

    async def run() -> list[Sampled]:
        each = (
            engine.generate(p, Sampling(max_tokens=tokens), ("bench", i))
            for i, p in enumerate(prompts)
        )
        answers = await asyncio.gather(*each)
        return [Sampled(p, a.ids, a.logp) for p, a in zip(prompts, answers, strict=True)]

    clock, processor = time.perf_counter(), time.process_time()
    answers = asyncio.run(run())
    return time.perf_counter() - clock, time.process_time() - processor, answers


def copy_seconds(engine: OwnEngine) -> float:
    """Processor seconds in which the copies are made anew, as after every update."""
    engine.decoder.linears.forget()
    begin = time.process_time()
    with engine.decoder.linears:
        pass
    return time.process_time() - begin


def gaps(model: Model, engine: OwnEngine, tokens: int) -> dict[str, float]:
    """How far log-probs of sampled tokens are from the trainer's, as `mismatch` logs it, and the share
    of importance weights above 2.
    """
    *_, every = sample(engine, prompts_of(model, 8, PROMPT), tokens)
    d_N = np.concatenate([own_logp(model, s) - np.array(s.logp) for s in every])
    return {
        "gap": float(np.abs(d_N).mean()),
        "max": float(np.abs(d_N).max()),
        "kl": float((np.exp(d_N) - 1 - d_N).mean()),
        "capped": float((np.exp(d_N) > 2).mean()),
    }


def show(result: dict[str, Any]) -> str:
    lines = [
        "tokens per second of the clock, and of the processor with the ratio to the model's dtype"
    ]
    for b in result["batches"]:
        for kind, x in b["formats"].items():
            r = x["processor_ratio"]
            lines.append(
                f"  {b['batch']:>4}  {kind or 'own':<9}{x['tokens_per_second']:>7.1f} "
                f"{x['tokens_per_processor_second']:>7.1f}   {r['median']:.2f}x ({r['low']:.2f} to "
                f"{r['high']:.2f})"
            )
    for kind, x in result["gaps"].items():
        lines.append(
            f"{kind}: log-probs {x['gap']:.2g} nats from the trainer's, at most {x['max']:.2g}; KL "
            f"{x['kl']:.2g}; {x['capped']:.1%} of the weights above 2"
        )
    seconds = ", ".join(f"{k or 'own'} {s:.2f}" for k, s in result["copy_seconds"].items())
    return "\n".join([*lines, f"processor seconds to copy the weights: {seconds}"])
