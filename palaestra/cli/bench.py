"""`palaestra bench`: measures speed and memory on this machine. What measures is no part of an
installed package: it lies in `benchmarks/` of a checkout.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

import palaestra
from palaestra.errors import UserError

COMMAND = Path("benchmarks", "command.py")


def run(arguments: argparse.Namespace) -> dict[str, Any] | list[Any]:
    folder = str(checkout())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module("benchmarks.command").run(arguments)


def checkout() -> Path:
    """The checkout that this package is of, else the folder in which the command was called.

    Raises:
        UserError: neither holds the code that measures.
    """
    for place in (Path(palaestra.__file__).parents[1], Path.cwd()):
        if (place / COMMAND).is_file() and (place / "palaestra" / "cli" / "bench.py").is_file():
            return place
    raise UserError(
        f"`palaestra bench` needs {COMMAND.parent}/ of a checkout, which is not part of the "
        "installed package: run the command in a copy of the repository"
    )
