"""Studies that train: each arm is a part of the study with a folder of its own, and all arms answer the
same problems with the same random numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from palaestra.context import Context
from palaestra.store.checkpoint import write_atomic
from palaestra.store.folder import records
from palaestra.studies.items import Item, answers
from palaestra.types import Result, stage

ANSWERED = "answers.jsonl"
WINDOW = 5  # steps of a running mean


@stage
class AnswerProblems:
    """A program: `n` answers of its model to each of the first `tasks` problems of a split, kept in its
    folder. The arguments are those of `answers`.
    """

    tasks: int
    n: int
    temperature: float = 1.0
    max_tokens: int = 0
    split: str = "test"

    async def run(self, ctx: Context) -> Result:
        items = await answers(
            ctx,
            "policy",
            self.tasks,
            self.n,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            split=self.split,
        )
        file = ctx.folder / ANSWERED
        write_atomic(file, "".join(json.dumps(x, ensure_ascii=False) + "\n" for x in items))
        metrics = {"problems": len(items), "sampled_tokens": ctx.sampled_tokens}
        return Result(metrics=metrics, artifacts={"answers": str(file)})


async def answers_of(
    ctx: Context,
    name: str,
    model: str | None,
    asked: AnswerProblems,
    problem: Mapping[str, str] | None = None,
) -> list[Item]:
    """What a model of a study answers. One model is in memory at a time.

    Args:
        ctx: of the study.
        name: of the part, and of its folder.
        model: a folder or name; None = the model under study.
        asked: which problems, and how.
        problem: settings of another problem than the study's.
    """
    result = await ctx.once(name, asked, model, None, problem)
    lines = Path(result.artifacts["answers"]).read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line]


def curve_of(ctx: Context, part: str, metric: str = "reward") -> list[float]:
    """A metric of the steps of a part that trained, in order; steps that do not have it are left out."""
    file = ctx.folder / part / "metrics.jsonl"
    steps = records(file) if file.is_file() else []
    return [float(x[metric]) for x in steps if isinstance(x.get(metric), int | float)]


def drawdown(values: Sequence[float], window: int = WINDOW) -> float:
    """The worst fall of a curve from a height that it had reached: max over t of max_{s <= t} v_s - v_t,
    of the running mean over `window` values; 0 for a curve that never falls, and for one too short.
    """
    if len(values) < window:
        return 0.0
    v_T = np.convolve(np.asarray(values, np.float64), np.full(window, 1 / window), "valid")
    return float((np.maximum.accumulate(v_T) - v_T).max())
