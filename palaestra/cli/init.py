"""`palaestra init`: writes a small project to begin from."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from palaestra import values
from palaestra.api.project import write_project


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    folder = Path(arguments.folder)
    names = write_project(arguments.method, folder, values.overrides(arguments.words))
    if not arguments.json:
        print(*(f"wrote  {folder / name}" for name in names), sep="\n")
        print(f"then   cd {folder} && palaestra train @config.toml")
    return {"folder": str(folder), "files": names}
