"""`palaestra guide init`: writes what a simulator is about, for its user to correct."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from palaestra.api.describing import describe_simulator


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    file = Path(arguments.out)
    description = describe_simulator(arguments.simulator, arguments.goal, arguments.llm, file)
    if not arguments.json:
        print(
            f"wrote  {file}: {len(description.observations)} numbers, {len(description.actions)} actions"
        )
        print(f"then   correct it, and name it --env {file}")
    return {"file": str(file), **description.model_dump()}
