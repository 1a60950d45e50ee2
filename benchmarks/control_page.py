"""Fills the tables of docs/control.md: python -m benchmarks.control_page

`--cells FOLDER` first writes benchmarks/learners.json from the cells that `palaestra bench learners --out DIR` has
done so far, DIR/.parts/learners/DIGEST: a study under way is published with what it has.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.learners import SIDES, TASKS, cell_name, format_interval, summary
from palaestra.markdown import fill_marks, table
from palaestra.run import machine

HERE = Path(__file__).parent
PAGE = Path("docs/control.md")
SEEDS = 5  # declared


def collect(folder: Path) -> dict[str, Any]:
    """A result like that of `bench learners`, of the seeds of which both sides are done, and of how many cells."""
    done: dict[str, Any] = {
        p.stem: json.loads(p.read_text())["value"] for p in sorted(folder.glob("*.json"))
    }
    tasks = dict[str, Any]()
    for name, task in TASKS.items():
        each = [{w: done.get(cell_name(name, s, w), {}) for w in SIDES} for s in range(SEEDS)]
        if rows := [r for r in each if all(r.values())]:
            tasks[name] = summary(task, rows)
    here = machine.describe_machine("cpu") | machine.versions(["stable-baselines3"])
    return {
        "bench": "learners",
        "command": f"palaestra bench learners --repeats {SEEDS} --out DIR",
        "machine": here,
        "cells_done": len(done),
        "tasks": tasks,
    }


def verdict(difference: Mapping[str, Any]) -> str:
    """Better or worse where the interval of ours less the peer's leaves out 0."""
    if difference["high"] is None:
        return "one seed: nothing can be said"
    if difference["low"] > 0:
        return "better"
    return "worse" if difference["high"] < 0 else "alike"


def learners_table(result: Mapping[str, Any]) -> str:
    rows = list[list[str]]()
    for name in TASKS:
        x = result["tasks"].get(name)
        if x is None:
            rows.append([name, f"{TASKS[name].steps:,}", "0", *[""] * 5])
            continue
        n = len(x["returns"]["ours"])
        speed = x["steps_a_processor_second"]
        rows.append(
            [
                name,
                f"{x['steps']:,}",
                str(n),
                *(format_interval(x["return"][who]) for who in SIDES),
                format_interval(x["difference"]),
                verdict(x["difference"]),
                f"{speed['ours']:,.0f} / {speed['peer']:,.0f}",
            ]
        )
    whole = SEEDS * len(TASKS) * len(SIDES)
    done = result.get("cells_done", whole)
    state = "" if done == whole else f"{done} of {whole} cells are done. "
    head = ["learner, task", "steps", "seeds", "return, palaestra", "return, stable-baselines3"]
    head += ["difference", "palaestra is", "steps a processor second"]
    text = f"{state}Mean return of {result.get('test_games', 100)} test games, with 95% intervals over seeds; {place(result)}."
    return f"{text}\n\n{table(rows, *head)}"


def speed_table(result: Mapping[str, Any]) -> str:
    rows = [
        [name, f"{x['median']:,.0f}", f"{x['low']:,.0f} to {x['high']:,.0f}"]
        for name, x in result["per_processor_second"].items()
    ]
    over = result["over_peer"]
    text = (
        f"{result['environment_steps']:,} environment steps a measurement, {len(over['each'])} rounds after one that warms up; "
        f"{place(result)}. Pendulum is stepped copy by copy on both sides: {over['median']:.2f} "
        f"({over['low']:.2f} to {over['high']:.2f}) times as fast as stable-baselines3."
    )
    return f"{text}\n\n{table(rows, 'PPO on', 'environment steps a processor second', 'lowest to highest')}"


def place(result: Mapping[str, Any]) -> str:
    """The machine and its load when the measurement began."""
    m = result["machine"]
    load = m.get("load")
    first = load[0] if isinstance(load, list) else load
    busy = "" if first is None else f", load {first} on {m.get('cores', '?')} cores"
    who, threads = m.get("processor", "an unnamed processor"), m.get("omp_num_threads", "1")
    return f"{who}, {threads} thread{busy}, stable-baselines3 {m.get('stable-baselines3', '')}"


def read(name: str) -> Mapping[str, Any]:
    return json.loads((HERE / f"{name}.json").read_text())


def made_parts() -> dict[str, str]:
    return {"learners": learners_table(read("learners")), "speed": speed_table(read("control"))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=Path, metavar="FOLDER")
    if folder := parser.parse_args().cells:
        (HERE / "learners.json").write_text(json.dumps(collect(folder), indent=1) + "\n")
    PAGE.write_text(fill_marks(PAGE.read_text(), made_parts()))


if __name__ == "__main__":
    main()
