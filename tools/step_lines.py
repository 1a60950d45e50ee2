"""What to read to follow one GRPO step: `python -m tools.step_lines`.

Two lists and a trace. The spine: the files that hold the step and the parts that `palaestra show grpo` names, with their lines
(blank ones left out). What runs: the files of which one step on the embedded model executes lines, and how many. The
trace: the calls between functions of the spine, in their order, each once under its caller.
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


def executed(
    recipe: Any, files: list[Path]
) -> tuple[dict[Path, set[int]], dict[tuple[str, ...], int]]:
    """The lines of the package that one step executes, by file; and how often functions of `files`
    are called, by the functions of these files that they are called from, in the order of the first.
    """
    bench, players = bench_by_name("chain")
    ctx = RunContext(
        bench=bench, seed=0, models={"policy": load("tiny")}, drive=train, players=players
    )
    prepare(recipe, ctx)
    lines: dict[Path, set[int]] = defaultdict(set)
    calls: dict[tuple[str, ...], int] = {}
    own, entered, alive = {str(f) for f in files}, set[int](), list[FrameType]()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(str(ROOT)):
            return None
        if event == "call" and frame.f_code.co_filename in own and id(frame) not in entered:
            entered.add(id(frame))  # a coroutine is called again whenever it goes on
            alive.append(frame)
            if frame.f_code.co_qualname.rpartition(".")[2][0] != "<":
                path = callers(frame, own)
                calls[path] = calls.get(path, 0) + 1
        if event == "line":
            lines[Path(frame.f_code.co_filename)].add(frame.f_lineno)
        return trace

    sys.settrace(trace)
    try:
        asyncio.run(step(recipe, ctx, start(0)))
    finally:
        sys.settrace(None)
    return lines, calls


def callers(frame: FrameType | None, own: set[str]) -> tuple[str, ...]:
    """The functions of some files that are under way at a frame, the outermost first."""
    path: list[str] = []
    while frame is not None:
        if frame.f_code.co_filename in own and "<" not in (name := frame.f_code.co_qualname):
            path.append(name)
        frame = frame.f_back
    return tuple(reversed(path))


def main() -> None:
    from palaestra.recipes.base import grpo

    recipe = make_smallest(grpo.build())
    files = spine(recipe, Path(grpo.__file__))
    print("the spine")
    for file in files:
        print(f"  {lines_of(file):5d}  {file.relative_to(ROOT)}")
    print(f"  {sum(map(lines_of, files)):5d}  in {len(files)} files\nwhat one step executes")
    ran, calls = executed(recipe, files)
    for file, numbers in sorted(ran.items(), key=lambda x: -len(x[1])):
        print(f"  {len(numbers):5d} of {lines_of(file):5d}  {file.relative_to(ROOT)}")
    print(f"  {sum(map(len, ran.values())):5d}  in {len(ran)} files\nthe trace, through the spine")
    for path, times in calls.items():
        print(f"  {times:5d}  {'  ' * (len(path) - 1)}{path[-1]}")


if __name__ == "__main__":
    main()
