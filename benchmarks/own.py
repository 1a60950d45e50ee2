"""The work of `palaestra bench trl` in Palaestra, one step at a word:
`python -m benchmarks.own WORK FOLDER SEED`.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from benchmarks.turns import Memory, Turns
from benchmarks.work import Work, prepare_work
from palaestra.run.driver import prepare
from palaestra.step import start, step
from palaestra.store import columns, rollouts


async def run(work: Work, folder: Path, seed: int, turns: Turns) -> None:
    recipe, ctx = prepare_work(work, folder)
    prepare(recipe, ctx)
    ctx.phase = watch_phase(ctx.phase)  # type: ignore[method-assign]
    state, n = start(seed), 0
    turns.ready()
    while True:
        turns.wait()
        n += 1
        before, sampling, tokens = dict(ctx.seconds), ctx.engine_seconds, ctx.sampled_tokens
        with Memory() as memory:
            begin, busy = time.perf_counter(), time.process_time()
            state, _ = await step(recipe, ctx, state)
            rollouts.write(columns.path(folder, n), n, ctx.seen, ctx.trace, ctx.decode)
            seconds = time.perf_counter() - begin
            processor = time.process_time() - busy
        spent = {
            p: ctx.seconds[p] - before[p] for p in ("reward", "forward", "backward", "optimiser")
        }
        turns.report(
            {
                "seconds": seconds,
                "processor": processor,
                "tokens": ctx.sampled_tokens - tokens,
                "rollout": ctx.engine_seconds - sampling,
                **spent,
                "memory": memory.peaks,
            }
        )


def watch_phase(
    phase: Callable[[str], AbstractContextManager[None]],
) -> Callable[[str], AbstractContextManager[None]]:
    """The clock of a phase, with its memory."""

    @contextmanager
    def both(name: str) -> Generator[None]:
        with Memory.phase(name), phase(name):
            yield

    return both


if __name__ == "__main__":
    asyncio.run(run(Work.read(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), Turns()))
