"""`palaestra sandbox run`: runs one Python program in isolation. The exit status is 0 whatever the
program did, and 2 if it was refused.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from palaestra.errors import UserError
from palaestra.services import sandbox


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    limits = sandbox.Limits(seconds=arguments.timeout, memory_mb=arguments.memory_mb)
    ran = sandbox.run_program(
        text(arguments.file), text(arguments.stdin) if arguments.stdin else "", limits=limits
    )
    if ran.status == "refused":
        if arguments.json:
            print(json.dumps(asdict(ran)))
        raise UserError(ran.stderr)
    if not arguments.json:
        show(ran)
    return asdict(ran)


def text(path: str) -> str:
    try:
        return Path(path).read_bytes().decode(errors="surrogateescape")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; give a file that can be read") from None


def show(ran: sandbox.Ran) -> None:
    print(ran.stdout, end="")
    print(ran.stderr, end="", file=sys.stderr)
    print(f"status {ran.status}, {ran.seconds:.3f} s", file=sys.stderr)
