"""`palaestra bench step`: where the time of a training step goes, and how far it is from the
machine's limit.

The limit is the time that the model's linear layers alone need, at the rate these very layers
reach: every decode step at its own batch size, and three times the forward pass of the distinct
positions that are trained.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.work import Work, prepare_work
from palaestra.engines.own import OwnEngine
from palaestra.method import Recipe
from palaestra.models import forward as forward_pass
from palaestra.models.layout import Layout
from palaestra.run import machine
from palaestra.run.clocks import PHASES
from palaestra.run.context import RunContext
from palaestra.run.driver import peak_memory_mb, prepare
from palaestra.run.parts import Parts, Rounds
from palaestra.step import start, step
from palaestra.store import columns, rollouts


class Counts:
    """How many tokens went through the model and in which company, counted at the engine and the
    training forward pass.
    """

    def __init__(self, ctx: RunContext):
        self.decoded: Counter[int] = Counter()  # batch size: decode steps
        self.positions = self.predicted = self.padded = 0
        engine = ctx.engine()
        assert isinstance(engine, OwnEngine)
        self.engine = engine
        inner = engine.decoder.step

        def counted(tokens: Any, *more: Any) -> Any:
            self.decoded[len(tokens)] += 1
            return inner(tokens, *more)

        engine.decoder.step = counted  # type: ignore[method-assign]
        layout = Layout.of

        def seen(batch: Any, *forks: Any) -> Layout:
            placed = layout(batch, *forks)
            self.positions += len(placed.ids)
            self.predicted += int(batch.mask[:, 1:].sum())
            self.padded += batch["ids"].numel()
            return placed

        forward_pass.Layout.of = seen  # type: ignore[method-assign]
        self.restore = lambda: setattr(forward_pass.Layout, "of", layout)

    def clear(self) -> None:
        self.decoded.clear()
        self.positions = self.predicted = self.padded = 0
        self.engine.read_tokens = self.engine.sampled_tokens = 0


async def time_steps(recipe: Recipe, ctx: RunContext, rounds: Rounds) -> list[dict[str, Any]]:
    """Phases and counts of each step, a round each."""
    prepare(recipe, ctx)
    # from where another process stopped, other problems are drawn than it drew
    state, counts = start(rounds.before), Counts(ctx)
    try:
        for n in rounds:
            counts.clear()
            before, sampling, begin = dict(ctx.seconds), ctx.engine_seconds, time.perf_counter()
            state, _ = await step(recipe, ctx, state)
            rollouts.write(columns.path(ctx.folder, n), n, ctx.seen, ctx.trace, ctx.decode)
            whole = time.perf_counter() - begin
            phases = {p: ctx.seconds[p] - before[p] for p in PHASES if p != "other"}
            phases["rollout"] = ctx.engine_seconds - sampling
            phases["other"] = whole - sum(phases.values())
            rounds.put(
                {
                    "seconds": whole,
                    "phases": phases,
                    "tokens": counts.engine.sampled_tokens,
                    "read": counts.engine.read_tokens,
                    "decoded": list(counts.decoded.items()),
                    "positions": counts.positions,
                    "predicted": counts.predicted,
                    "padded": counts.padded,
                    "peak_memory_mb": peak_memory_mb(),
                }
            )
    finally:
        counts.restore()
    return rounds.found


def measure(work: Work, steps: int, parts: Parts) -> dict[str, Any]:
    """The whole report. Times in seconds; shares of the step."""
    parts.expect(steps)
    with tempfile.TemporaryDirectory() as folder:
        recipe, ctx = prepare_work(work, Path(folder))
        timings = asyncio.run(time_steps(recipe, ctx, parts.rounds("step", steps)))
    linears = machine.Linears(ctx.model("policy"))
    device, dtype = ctx.model("policy").device, ctx.model("policy").dtype
    limits = [
        {
            "rollout": sum(k * linears.decoding(n) for n, k in f["decoded"])
            + linears.time(f["read"], head=False),
            "update": linears.training(f["positions"], f["predicted"]),
        }
        for f in timings
    ]
    limit = {k: float(np.median([x[k] for x in limits])) for k in ("rollout", "update")}
    whole = float(np.median([f["seconds"] for f in timings]))
    phases = {p: float(np.median([f["phases"][p] for f in timings])) for p in PHASES}
    tokens = float(np.median([f["tokens"] for f in timings]))
    passed = [
        (f["read"] + f["tokens"] + 3 * f["positions"], f["tokens"] + 3 * f["predicted"])
        for f in timings
    ]
    flops = float(np.median([linears.flops(*n) for n in passed]))
    rate = machine.gemm(dtype, device)
    update = phases["forward"] + phases["backward"] + phases["optimiser"]
    trained = [linears.flops(3 * f["positions"], 3 * f["predicted"]) for f in timings]
    return {
        "seconds": whole,
        "each": [round(f["seconds"], 4) for f in timings],
        "phases": phases,
        "between": (phases["reward"] + phases["other"]) / whole,
        "tokens": tokens,
        "tokens_per_second": tokens / whole,
        "decode_tokens_per_second": tokens / phases["rollout"],
        "positions": {
            "computed": float(np.median([f["positions"] for f in timings])),
            "padded": float(np.median([f["padded"] for f in timings])),
        },
        "limit": limit | {"step": sum(limit.values())},
        "over_limit": {
            "rollout": phases["rollout"] / limit["rollout"],
            "update": update / limit["update"],
            "step": whole / sum(limit.values()),
        },
        "flop_utilisation": flops / whole / rate,
        "update_flops": float(np.median(trained)) / update,
        "machine_limits": {"gemm_flops": rate, "copy_bytes": machine.bandwidth(device)},
        "peak_memory_mb": max(peak_memory_mb(), *(f["peak_memory_mb"] for f in timings)),
    }


def show(result: dict[str, Any]) -> str:
    """The report as lines to read."""
    p, o = result["phases"], result["over_limit"]
    lines = [
        f"{'step':<12}{result['seconds']:>9.3f} s   {result['tokens_per_second']:.0f} sampled "
        "tokens/s"
    ]
    lines += [
        f"  {name:<10}{p[name]:>9.3f} s   {p[name] / result['seconds']:>6.1%}" for name in PHASES
    ]
    lines.append(f"between the phases {result['between']:.1%} of a step")
    lines.append(
        f"over the linear layers' own time: rollout {o['rollout']:.2f}x, update "
        f"{o['update']:.2f}x, step {o['step']:.2f}x"
    )
    gemm, copy = (
        result["machine_limits"]["gemm_flops"] / 1e9,
        result["machine_limits"]["copy_bytes"] / 1e9,
    )
    lines.append(
        f"machine: {gemm:.0f} GFLOP/s, copies {copy:.0f} GB/s; {result['flop_utilisation']:.0%} of "
        "the FLOP rate used"
    )
    return "\n".join(lines)
