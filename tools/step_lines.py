"""What to read to follow one GRPO step: `python -m tools.step_lines`.

Two lists. The spine: the files that hold the step and the parts that `palaestra show grpo` names, with their lines
(blank ones left out). What runs: the files of which one step on the embedded model executes lines, and how many.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

import palaestra as pl
from palaestra import values
from palaestra.models.load import load
from palaestra.run.benches import bench_by_name
from palaestra.run.context import RunContext
from palaestra.run.driver import prepare, train
from palaestra.settings.overrides import make_smallest
from palaestra.step import start, step

ROOT = Path(pl.__file__).parent


def lines_of(file: Path) -> int:
    return sum(bool(line.strip()) for line in file.read_text().splitlines())


def spine(recipe: Any, file: Path) -> list[Path]:
    """The files of a recipe, the step, and the parts of the recipe that do something."""
    parts = [type(part) for _, part in values.walk(recipe) if callable(part)]
    files = {Path(inspect.getfile(kind)) for kind in parts}
    return sorted(
        {file, Path(inspect.getfile(step)), *(f for f in files if f.is_relative_to(ROOT))}
    )


def executed(recipe: Any) -> dict[Path, set[int]]:
    """The lines of the package that one step executes, by file."""
    bench, players = bench_by_name("chain")
    ctx = RunContext(
        bench=bench, seed=0, models={"policy": load("tiny")}, drive=train, players=players
    )
    prepare(recipe, ctx)
    lines: dict[Path, set[int]] = defaultdict(set)

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(str(ROOT)):
            return None
        if event == "line":
            lines[Path(frame.f_code.co_filename)].add(frame.f_lineno)
        return trace

    sys.settrace(trace)
    try:
        asyncio.run(step(recipe, ctx, start(0)))
    finally:
        sys.settrace(None)
    return lines


def main() -> None:
    from palaestra.recipes.base import grpo

    recipe = make_smallest(grpo.build())
    files = spine(recipe, Path(grpo.__file__))
    print("the spine")
    for file in files:
        print(f"  {lines_of(file):5d}  {file.relative_to(ROOT)}")
    print(f"  {sum(map(lines_of, files)):5d}  in {len(files)} files\nwhat one step executes")
    ran = executed(recipe)
    for file, numbers in sorted(ran.items(), key=lambda x: -len(x[1])):
        print(f"  {len(numbers):5d} of {lines_of(file):5d}  {file.relative_to(ROOT)}")
    print(f"  {sum(map(len, ran.values())):5d}  in {len(ran)} files")


if __name__ == "__main__":
    main()
