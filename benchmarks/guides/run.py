"""Runs the cells of the studies that are not done, one after another; a run that was killed goes on.

python -m benchmarks.guides.run            # writes benchmarks/guides/results.json
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.guides import advice, maps, rewards
from palaestra.store.checkpoint import write_atomic

RESULTS = Path(__file__).parent / "results.json"
# by study: its cells with their places in the queue, and what runs one
STUDIES: Mapping[
    str, tuple[Callable[[], list[tuple[int, Any]]], Callable[..., Mapping[str, Any]]]
] = {
    "rewards": (rewards.cells, rewards.run_cell),
    "advice": (advice.cells, advice.run_cell),
    "maps": (maps.cells, maps.run_cell),
}


def read_results(path: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """By study, then by cell, "simulator/arm/seed"."""
    return json.loads(path.read_text()) if path.is_file() else {}


def main() -> None:
    results = read_results()
    queue = sorted(
        ((place, study, cell) for study, (cells, _) in STUDIES.items() for place, cell in cells()),
        key=lambda x: x[0],
    )
    for _, study, cell in queue:
        name, done = "/".join(map(str, cell)), results.setdefault(study, {})
        if name in done:
            continue
        begin = time.process_time()
        done[name] = dict(STUDIES[study][1](*cell))
        seconds = time.process_time() - begin
        lines = [
            f'"{s}": {{\n'
            + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in own.items())
            + "\n}"
            for s, own in results.items()
        ]
        write_atomic(RESULTS, ("{\n" + ",\n".join(lines) + "\n}\n").encode())
        print(
            study,
            name,
            f"{done[name]['return']:.4g}",
            f"{seconds:.1f} s of the processor",
            flush=True,
        )


if __name__ == "__main__":
    main()
