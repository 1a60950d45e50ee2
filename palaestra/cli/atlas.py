"""`palaestra atlas`: the update directions of all methods on the same rollouts, compared."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from palaestra.atlas.directions import survey
from palaestra.atlas.pages import page, pictures
from palaestra.markdown import line_by_name
from palaestra.run import machine
from palaestra.run.parts import FOLDER, Parts, go_on, stoppable
from palaestra.store.checkpoint import make_folder, write_atomic
from palaestra.terminal.progress import Headway


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    out = make_folder(Path(arguments.out))
    methods = [m for m in arguments.methods.split(",") if m]
    conditions = machine.conditions(machine.describe_machine("cpu"))
    with stoppable(lambda: go_on(arguments.command)), Headway("atlas") as headway:
        parts = Parts(headway, out / FOLDER / "atlas", conditions | {"methods": methods})
        data = survey(methods, parts)
    write_atomic(out / "atlas.json", line_by_name(data))
    write_atomic(out / "atlas.md", page(data))
    pictures(data, out)
    parts.remove()
    if not arguments.json:
        print(page(data))
        print(f"written to {out}/atlas.md, {out}/atlas.json and pictures beside them")
    return data
