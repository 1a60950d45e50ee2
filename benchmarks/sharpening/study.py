"""Does RL add or sharpen? pass@k of six recipes at the start and at the end, on three tasks: the cells of the study.

    python -m benchmarks.sharpening.study --out benchmarks/sharpening/results.json

Each seed has problems of its own on each task. Every recipe trains the built-in model for as many steps, with as many
answers to as many prompts, at the recipe's own rate. Start and end answer the
same held-out problems many times with the same random numbers; the start is drawn once more, which says which problems it
"never" solves. A cell keeps the number of right answers to each problem, so every pass@k follows from it. Cells that
the file has are not run again.
"""

from __future__ import annotations

import json
import tempfile
import time
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import palaestra as pl
from benchmarks.cells import CellFile, parser_of
from palaestra.run import built_in

DECLARED: dict[str, Any] = json.loads((Path(__file__).parent / "declared.json").read_text())
TASKS = {
    "add": partial(pl.toys.Add, d=3),
    "count": partial(pl.toys.Count),
    "rec": partial(pl.toys.Rec),
}
FILE = CellFile(("starts", "cells"), indent=None)
ARMS: tuple[str, ...] = tuple(DECLARED["recipes"])


@pl.stage
class CountRight:
    """A program: how many of `n` answers to each of `tasks` held-out problems are right, by draw."""

    tasks: int
    n: int
    draws: tuple[str, ...]
    temperature: float = 1.0

    async def run(self, ctx: pl.Context) -> pl.Result:
        counts, items = dict[str, list[int]](), list[pl.studies.Item]()
        for draw in self.draws:
            items = await pl.studies.answers(
                ctx, "policy", self.tasks, self.n, draw=draw, temperature=self.temperature
            )
            counts[draw] = [sum(map(bool, x["right"])) for x in items]
        golds = {"golds": [str(x["gold"]) for x in items]}  # of the last draw: the same in all
        return pl.Result(metrics={**counts, **golds})


def problem(task: str, seed: int) -> str:
    """The task of a seed by its name, for runs of this process: problems of a stream of its own."""
    questions: Any = built_in.QUESTIONS
    name = f"sharpening-{task}-{seed}"
    questions[name] = partial(TASKS[task], name=name)
    return name


def count_right(
    folder: Path, model: str, task: str, seed: int, draws: tuple[str, ...], temperature: float = 1.0
) -> dict[str, Any]:
    program = CountRight(DECLARED["problems"], DECLARED["answers"], draws, temperature)
    run = pl.train(
        program, task=problem(task, seed), model=model, seed=seed, evaluate=0, rollouts="none",
        max_tokens=DECLARED["longest"], quiet=True, out=folder,
    )  # fmt: skip
    return {k: run.summary[k] for k in (*draws, "golds")}


def train(folder: Path, recipe: Any, model: str, task: str, seed: int) -> tuple[str, dict[str, Any]]:  # fmt: skip
    """The folder of the model that a recipe makes of another, and the run's summary."""
    run = pl.train(
        recipe, task=problem(task, seed), model=model, seed=seed, evaluate=0, rollouts="none",
        checkpoint_every=10**6, max_tokens=DECLARED["longest"], quiet=True, out=folder,
    )  # fmt: skip
    return str(run.summary["artifacts"]["policy"]), dict(run.summary)


def recipe_of(arm: str) -> Any:
    """A recipe as it is, with the prompts, answers and steps of the study."""
    schedule = pl.Schedule(prompts=DECLARED["prompts"], steps=DECLARED["steps"])
    made = pl.vary(pl.recipe(arm), schedule=schedule)
    return pl.override(made, "collect.links.0.n", DECLARED["samples"])


def run_block(file: Path, task: str, seed: int, arms: tuple[str, ...]) -> None:
    """A seed of a task: its start, and the arms that are missing."""
    missing = [arm for arm in arms if not FILE.has(file, f"{task}/{arm}/{seed}")]
    if not missing:
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model = DECLARED["start"]
        if not FILE.has(file, f"{task}/{seed}", "starts"):
            facts = count_right(folder / "start-answers", model, task, seed, ("again", "first"))
            cold = count_right(folder / "cold", model, task, seed, ("again",), DECLARED["cold"])
            FILE.keep(file, starts=(f"{task}/{seed}", {**facts, "cold": cold["again"]}))
        for arm in missing:
            began = time.process_time()
            end, summary = train(folder / arm, recipe_of(arm), model, task, seed)
            made = count_right(folder / f"{arm}-answers", end, task, seed, ("again",))
            cell = {
                "again": made["again"],
                "tokens": summary.get("sampled_tokens"),
                "seconds": round(time.process_time() - began, 1),
            }
            FILE.keep(file, cells=(f"{task}/{arm}/{seed}", cell))
            share = sum(made["again"]) / (len(made["again"]) * DECLARED["answers"])
            print(f"{task}/{arm}/{seed}", f"{share:.3f}", f"{time.process_time() - began:.1f} s", flush=True)  # fmt: skip


def main() -> None:
    given = parser_of(__doc__, DECLARED["seeds"], tasks=list(TASKS), arms=ARMS).parse_args()
    for seed, task in product(given.seeds, given.tasks):
        run_block(given.out, task, seed, tuple(given.arms))


if __name__ == "__main__":
    main()
