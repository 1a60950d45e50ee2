"""Writes palaestra/planning/measured.tsv from what `palaestra bench memory` and `bench gpu` wrote to
benchmarks/: `python -m tools.measured_memory`.

Memory on a processor is that of the whole process, Python and torch included; on a GPU what torch allocated.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from palaestra.planning.fit import MEASURED, named_model

FOLDER = Path(__file__).parents[1] / "benchmarks"
COLUMNS = (
    *(
        "model",
        "weights",
        "way",
        "dtype",
        "recompute",
        "prompts",
        "group",
        "tokens",
        "rollout_gb",
        "update_gb",
    ),
    *("machine", "file"),
)


def lines() -> Iterator[list[str]]:
    """One a setting that ran with the default budgets."""
    for file in sorted(FOLDER.glob("memory-*.json")):
        result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        for x in result["settings"]:
            if x["cache_mb"] == 4096 and x["budget"] == 4096:
                weights = named_model(x["model"]).n_parameters
                memory = x["memory_mb"]
                yield [
                    *(
                        x["model"],
                        str(weights),
                        "full",
                        x["dtype"],
                        "yes" if x["recompute"] else "no",
                    ),
                    *(str(x[k]) for k in ("prompts", "group", "max_tokens")),
                    *(f"{memory[k] / 1e3 * 1.048576:.2f}" for k in ("rollout", "update")),
                    *(f"{result['machine']['processor']} (the whole process)", file.name),
                ]


def table() -> str:
    """The file."""
    head = "# made by `python -m tools.measured_memory` from benchmarks/; GB are 10^9 bytes"
    return "\n".join([head, "\t".join(COLUMNS), *("\t".join(x) for x in lines())]) + "\n"


if __name__ == "__main__":
    MEASURED.write_text(table(), encoding="utf-8")
