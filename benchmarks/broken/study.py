"""Who notices that the tool broke: the cells of the study of a broken tool.

    python -m benchmarks.broken.study --out benchmarks/broken/results.json

A model of a million weights adds two numbers. Its start was shown a call for half of the sums and the bare answer for the other
half, so it calls about half of the time, and knows some sums by heart. Each arm trains from such a start; its tool works
for eight steps, and then stays intact or fails in every call. Cells that the file has are not run again.
"""

from __future__ import annotations

import json
import resource
import tempfile
import time
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import palaestra as pl
from benchmarks.cells import CellFile, parser_of
from palaestra.recipes.agents import tool_star, torl, zerotir
from palaestra.run.benches import bench_by_name

HERE = Path(__file__).parent
DECLARED: dict[str, Any] = json.loads((HERE / "declared.json").read_text())
FILE = CellFile(("starts", "cells"))
TASK: str = DECLARED["task"]
TOOL = f"{HERE / 'sums.py'}:add"
SHARES = {"intact": 0.0, "broken": 1.0}  # of the calls that fail
CALL = '<tool_call>{"name": "add", "arguments": {"a": %s, "b": %s}}</tool_call>'
SHARED: Mapping[str, Any] = {"rollouts": "none", "checkpoint_every": 10**6, "quiet": True}

# the start that an arm trains from
STARTS = {"torl": "output", "torl, penalty 0.5": "output", "zerotir": "fence", "tool-star": "call"}


def interpreter(form: str, **options: Any) -> str:
    """Programs in the reply, as `--env` names them. Both forms may run one program."""
    given = {"form": f"'{form}'", "told": False, **options}
    return f"interpreter({','.join(f'{k}={v}' for k, v in given.items())})"


def problem(form: str, share: float = 0.0, since: int = 0) -> dict[str, Any]:
    """The sums with the tool of a start, of whose calls a share fails from a step on."""
    if form != "call":
        broken = {"fails": share, "fails_from": since} if share else {}
        return {"task": TASK, "env": interpreter(form, **broken)}
    broken = {"break_tool": f"add={share:g}@{since}"} if share else {}
    return {"task": TASK, "tools": [TOOL], "tool_turns": 1, **broken}


def never_calls(form: str) -> dict[str, Any]:
    """The sums where the tool cannot be used."""
    return {"task": TASK} if form == "call" else {"task": TASK, "env": interpreter(form, calls=0)}


def shown_calls(n: int, seed: int) -> list[dict[str, Any]]:
    """Conversations: half of the sums with a call, half with the answer alone."""
    bench, _ = bench_by_name(TASK)
    rng, rows = np.random.default_rng(70_000 + seed), list[dict[str, Any]]()
    for i in range(n):
        task = bench.tasks.task("train", 100_000 * (1 + seed) + i)
        asked, answer = task.prompt[0].content, f"= {task.answer}"
        talk = [{"role": "user", "content": asked}]
        if rng.random() < 0.5:
            talk += [
                {"role": "assistant", "content": CALL % tuple(asked.split("+"))},
                {"role": "tool", "content": str(task.answer)},
            ]
        rows.append({"id": f"{i}", "messages": [*talk, {"role": "assistant", "content": answer}]})
    return rows


def start(folder: Path, form: str, seed: int) -> str:
    """The model that arms of a form train from."""
    steps, prompts = DECLARED["start steps"], 16
    sft = pl.vary(
        pl.recipe("sft"),
        schedule=pl.Schedule(prompts=prompts, steps=steps),
        optimiser=pl.AdamW(lr=DECLARED["start rate"], warmup=10),
    )
    if form == "call":
        rows = shown_calls(steps * prompts, seed)
        given: dict[str, Any] = {"data": rows, "test_data": rows[:2], "tools": [TOOL]}
    else:
        given = {"task": TASK, "env": interpreter(form, worked=0.5)}
    run = pl.train(
        sft,
        model="tiny-agent",
        seed=seed,
        data_seed=seed,
        evaluate=0,
        out=folder / f"start-{form}",
        **given,
        **SHARED,
    )
    return str(run.summary["artifacts"]["policy"])


def recipe_of(arm: str) -> pl.Recipe:
    """The method of an arm, with the batch, the draw and the rate of all."""
    n = DECLARED["samples"]
    made: Any = {
        "torl": lambda: torl.build(samples=n),
        "torl, penalty 0.5": lambda: torl.build(penalty=0.5, samples=n),
        "zerotir": lambda: zerotir.build(samples=n, boxed=False),
        "tool-star": lambda: tool_star.build(samples=n, calls=1).parts["rl"].runnable,
    }[arm]()
    plan = pl.Schedule(prompts=DECLARED["prompts"], steps=DECLARED["steps"])
    made = pl.vary(made, schedule=plan)
    return pl.vary(made, draw=pl.Shuffled()) if arm == "tool-star" else made


def processor_seconds() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def run_cell(folder: Path, model: str, arm: str, condition: str, seed: int) -> dict[str, Any]:
    """Trains an arm, and says how its calls and right answers went."""
    began, calls, right = processor_seconds(), list[float](), list[float]()

    def kept(step: int, metrics: Mapping[str, float]) -> None:
        calls.append(round(float(metrics["tools/calls"]), 4))
        right.append(round(float(metrics["part/right"]), 4))

    run = pl.train(
        recipe_of(arm), model=model, seed=seed, data_seed=seed, evaluate=DECLARED["held out"],
        on_step=kept, out=folder / f"{arm}-{condition}".replace(" ", "-"), **SHARED,
        **problem(STARTS[arm], SHARES[condition], DECLARED["break"]),
    )  # fmt: skip
    return {
        "calls": calls,
        "right": right,
        "greedy": round(run.summary["accuracy_after"]["mean"], 4),
        "tokens": run.summary["sampled_tokens"],
        "seconds": round(processor_seconds() - began, 1),
    }


def baselines(model: str, form: str, seed: int) -> dict[str, Any]:
    """What the start does without training."""
    worlds = {"never": never_calls(form), "intact": problem(form), "broken": problem(form, 1.0)}
    made = dict[str, Any]()
    for name, given in worlds.items():
        x = pl.evaluate(model, n=DECLARED["held out"], k=4, seed=seed, **given)
        made[name] = {
            "greedy": round(x["greedy"]["mean"], 4),
            "sampled": round(x["pass@1"]["mean"], 4),
        }
    return made


def cells_of(seed: int) -> list[tuple[str, str, str]]:
    """Name, arm and condition of each cell of a seed."""
    return [
        (f"{arm}/{condition}/{seed}", arm, condition)
        for arm, condition in product(DECLARED["arms"], DECLARED["conditions"])
    ]


def run_seed(file: Path, seed: int) -> None:
    missing = [c for c in cells_of(seed) if not FILE.has(file, c[0])]
    models = dict[str, str]()
    with tempfile.TemporaryDirectory() as name:
        for at, arm, condition in missing:
            form = STARTS[arm]
            if form not in models:
                models[form] = start(Path(name), form, seed)
                facts = baselines(models[form], form, seed)
                FILE.keep(file, starts=(f"{form}/{seed}", facts))
                print(form, seed, facts, flush=True)
            cell = run_cell(Path(name), models[form], arm, condition, seed)
            FILE.keep(file, cells=(at, cell))
            print(at, cell, flush=True)


def main() -> None:
    given = parser_of(__doc__, DECLARED["seeds"]).parse_args()
    for seed in given.seeds:
        run_seed(given.out, seed)


if __name__ == "__main__":
    main()
