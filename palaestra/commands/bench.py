"""`palaestra bench`: speed, as a ratio to a peer measured in the same run. Each bench is a module beside this one."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

from palaestra import __version__

BENCHES = {"sandbox": "palaestra.commands.bench_sandbox"}  # each has run(arguments) -> dict


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    result = {
        "bench": arguments.what,
        "command": "palaestra " + " ".join(sys.argv[1:]),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": machine(),
        "versions": {"palaestra": __version__, "python": platform.python_version()},
        **importlib.import_module(BENCHES[arguments.what]).run(arguments),
    }
    if arguments.out is not None:
        path = Path(arguments.out or f"benchmarks/{arguments.what}.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1) + "\n")
    if not arguments.json:
        print(json.dumps(result, indent=1))
    return result


def machine() -> dict[str, Any]:
    """What a number depends on; the load says how far to trust it."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load": [round(x, 2) for x in os.getloadavg()],
    }


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((x.partition(":")[2].strip() for x in lines if x.startswith("model name")), platform.machine())
