"""`palaestra bench company`: what it costs that a sample does not depend on who shares its pass. The own
engine as it is, beside itself without each of the two things that it does for that.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from benchmarks.engine import PROMPT, prompts_of
from benchmarks.formats import BATCHES, sample
from benchmarks.work import Work
from palaestra.engines.own import OwnEngine
from palaestra.engines.rows import ANY, force
from palaestra.models import blockwise
from palaestra.models.load import Model, load
from palaestra.run.machine import format_spread, spread
from palaestra.run.parts import Parts

MEASURED, ROWS, FREE = "as it is", "any number of rows", "any number of rows, columns added at once"


def measure(work: Work, pairs: int, parts: Parts) -> dict[str, Any]:
    """Rounds in which each arm samples the same number of tokens, in an order that changes."""
    parts.expect(len(BATCHES) * pairs)
    policy = load(work.model, dtype=work.dtype, device=work.device)
    policy.eos = frozenset()
    engines = {kind: OwnEngine(policy) for kind in (MEASURED, ROWS)}
    engines[FREE] = engines[ROWS]
    return {
        "batches": [by_batch(policy, engines, n, work.max_tokens, pairs, parts) for n in BATCHES]
    }


@contextmanager
def arm(kind: str) -> Generator[None]:
    """Within it the engine of an arm samples as the arm does."""
    block = blockwise.BLOCK
    with ExitStack() as stack:
        if kind != MEASURED:
            stack.enter_context(force(ANY))
        if kind == FREE:
            blockwise.BLOCK = 1 << 30
            stack.callback(setattr, blockwise, "BLOCK", block)
        yield


def by_batch(
    model: Model, engines: dict[str, OwnEngine], n: int, tokens: int, pairs: int, parts: Parts
) -> dict[str, Any]:
    """`n` different prompts, `tokens` new tokens each."""
    rounds, kinds = parts.rounds(f"{n} at a time", pairs), list(engines)
    for i in rounds:
        prompts, turn, taken = prompts_of(model, n, PROMPT, i), i % len(kinds), dict[str, Any]()
        for kind in kinds[turn:] + kinds[:turn]:
            with arm(kind):
                taken[kind] = sample(engines[kind], prompts, tokens)[:2]
        rounds.put([taken[kind] for kind in kinds])
    seconds = np.array(rounds.found)  # [rounds, arms, clock and processor]
    rates = n * tokens / seconds
    return {
        "batch": n,
        "arms": {
            kind: {
                "tokens_per_second": float(np.median(rates[:, k, 0])),
                "tokens_per_processor_second": float(np.median(rates[:, k, 1])),
                "cost": spread(seconds[:, 0, 0] / seconds[:, k, 0]),
                "processor_cost": spread(seconds[:, 0, 1] / seconds[:, k, 1]),
            }
            for k, kind in enumerate(kinds)
        },
    }


def show(result: dict[str, Any]) -> str:
    lines = [
        "tokens per processor second, and seconds as it is over those of the arm: processor, clock"
    ]
    for b in result["batches"]:
        for kind, x in b["arms"].items():
            lines.append(
                f"  {b['batch']:>4}  {kind:<42}{x['tokens_per_processor_second']:>7.1f}   "
                f"{format_spread(x['processor_cost'])}   {format_spread(x['cost'])}"
            )
    return "\n".join(lines)
