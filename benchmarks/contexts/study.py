"""Summaries against truncation and a longer window: the cells of the study of contexts.

    python -m benchmarks.contexts.study --out benchmarks/contexts/results.json

A small model answers questions over a wiki by one to three searches. A context of
`limit` tokens holds one result. Each arm begins with the same start, shown episodes with summaries and without them, and
learns by the same loss until its sampled tokens, summaries among them, are used up. What differs is what becomes of an episode
that outgrows the limit. Cells that the file has are not run again.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import palaestra as pl
from benchmarks.cells import CellFile, parser_of
from palaestra.recipes.agents.supo import ShowSummaries, build

HERE = Path(__file__).parent
DECLARED: dict[str, Any] = json.loads((HERE / "declared.json").read_text())
FILE = CellFile()
WORDS: Mapping[str, Any] = {"instruction": "note?", "lead_in": "note:"}
SHARED: Mapping[str, Any] = {"rollouts": "none", "checkpoint_every": 10**6, "quiet": True}
# the limit of a context, None = what the model has room for, and the summaries beyond it
CONTEXTS: Mapping[str, tuple[int | None, int]] = {
    "summaries": (DECLARED["limit"], DECLARED["summaries"]),
    "truncation": (DECLARED["limit"], 0),
    "longer window": (None, 0),
}


@pl.stage
class ShowEither:
    """Demonstrates half of the episodes with summaries, and half without them."""

    summed: pl.Collect

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        summed = pl.rng_of((*key, "summed")).random() < 0.5
        return await (self.summed if summed else pl.Demonstrate())(ctx, key, group)


def recipe_of(arm: str, steps: int = 1000) -> pl.Recipe:
    """SUPO's loss with the context of an arm. Steps are ended by tokens."""
    limit, summaries = CONTEXTS[arm]
    made = build(limit, summaries, samples=DECLARED["samples"], exam=DECLARED["held out"], **WORDS)
    return pl.vary(made, schedule=pl.Schedule(prompts=DECLARED["prompts"], steps=steps))


def start(folder: Path, seed: int) -> str:
    """The model that all arms of a seed begin with."""
    collect: Any = recipe_of("summaries").collect
    sft = pl.vary(
        pl.recipe("sft"),
        collect=pl.links(ShowEither(ShowSummaries(collect.links[0]))),
        schedule=pl.Schedule(prompts=16, steps=DECLARED["start steps"]),
        optimiser=pl.AdamW(lr=DECLARED["start rate"], warmup=10),
    )
    run = pl.train(
        sft, task=DECLARED["task"], model="tiny-agent", seed=seed, data_seed=seed, evaluate=0,
        out=folder / "start", **SHARED,
    )  # fmt: skip
    return str(run.summary["artifacts"]["policy"])


def exam_of(run: Any, arm: str, end: str) -> float:
    """Right greedy answers with the arm's own context, "before" training or "after" it."""
    ends = run.summary["evaluations"][f"up to {CONTEXTS[arm][1]} summaries"]
    return round(float(ends[end]["greedy"]["mean"]), 4)


def run_cell(folder: Path, model: str, arm: str, seed: int) -> dict[str, Any]:
    """Trains an arm until its tokens are used up, and measures it."""
    began, tokens, right = time.process_time(), list[int](), list[float]()
    truncated, beyond = list[float](), list[float]()

    def spent(step: int, x: Mapping[str, float]) -> bool:
        tokens.append(int(x["sampled_tokens"]))
        right.append(float(x["reward"]))
        truncated.append(float(x["truncated"]))
        beyond.append(float(x.get("part/beyond", 0.0)))
        return tokens[-1] >= DECLARED["tokens"]

    run = pl.train(
        recipe_of(arm), task=DECLARED["task"], model=model, seed=seed, data_seed=seed,
        evaluate=DECLARED["held out"], on_step=spent, out=folder / arm.replace(" ", "-"), **SHARED,
    )  # fmt: skip
    late = [i for i, n in enumerate(tokens) if n >= 0.9 * DECLARED["tokens"]]
    return {
        "start": exam_of(run, arm, "before"),
        "right": exam_of(run, arm, "after"),
        "late": round(float(np.mean([right[i] for i in late])), 4),
        "truncated": round(float(np.mean([truncated[i] for i in late])), 4),
        "beyond": round(float(np.mean([beyond[i] for i in late])), 4),
        "steps": len(tokens),
        "tokens": tokens[-1],
        "seconds": round(time.process_time() - began, 1),
    }


def run_seed(file: Path, seed: int) -> None:
    missing = [a for a in DECLARED["arms"] if not FILE.has(file, f"{a}/{seed}")]
    if not missing:
        return
    with tempfile.TemporaryDirectory() as name:
        model = start(Path(name), seed)
        for arm in missing:
            cell = run_cell(Path(name), model, arm, seed)
            FILE.keep(file, cells=(f"{arm}/{seed}", cell))
            print(arm, seed, cell, flush=True)


def main() -> None:
    given = parser_of(__doc__, DECLARED["seeds"]).parse_args()
    for seed in given.seeds:
        run_seed(given.out, seed)


if __name__ == "__main__":
    main()
