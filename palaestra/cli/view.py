"""`palaestra view`: shows runs in a browser, a file or the terminal."""

from __future__ import annotations

import argparse
import os
import socket
import webbrowser
from pathlib import Path
from typing import Any

from palaestra.cli.listening import listen
from palaestra.errors import UserError
from palaestra.store.limits import raised
from palaestra.view.reader import open_runs

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def run(arguments: argparse.Namespace) -> dict[str, Any] | None:
    with raised(arguments.limits):
        return look(arguments)


def look(arguments: argparse.Namespace) -> dict[str, Any] | None:
    given = [Path(r) for r in arguments.runs or ["runs"]]
    if not arguments.runs and not given[0].is_dir():
        raise UserError("there is no folder runs/ here; name a run: palaestra view RUN")
    if not arguments.text and (arguments.step, arguments.group) != (None, None):
        raise UserError("--step and --group go with --text; in the browser, choose a group")
    runs = open_runs(given)
    names = [r.name for r in runs]
    if arguments.text:
        from palaestra.view.in_text import show

        show(runs, step=arguments.step, group=arguments.group)
        return {"runs": names}
    if arguments.export:
        from palaestra.view.export import write

        groups = write(runs, Path(arguments.export), arguments.megabytes)
        if not arguments.json:
            print(f"{arguments.export}: {', '.join(names)}, with the tokens of {groups} groups")
        return {"runs": names, "file": arguments.export, "groups": groups}
    serve(arguments, runs, names)
    return None


def serve(arguments: argparse.Namespace, runs: Any, names: list[str]) -> None:
    """Serves the viewer until the user stops it."""
    from palaestra.view.server import ViewerServer

    make = lambda: ViewerServer(runs, arguments.host, arguments.port)
    with listen(make, arguments.port) as server:
        print(f"{', '.join(names[:4])}{' ...' if len(names) > 4 else ''}: {server.url}", flush=True)
        if arguments.host not in LOOPBACK:
            print(f"note: everybody who reaches {arguments.host} can read these runs", flush=True)
        elif "SSH_CONNECTION" in os.environ:
            port, here = server.server_port, socket.gethostname()
            print(f"from your machine: ssh -N -L {port}:127.0.0.1:{port} {here}", flush=True)
        elif not arguments.no_open:
            webbrowser.open(server.url)
        server.serve_forever()
