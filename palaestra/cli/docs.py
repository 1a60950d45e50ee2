"""`palaestra docs`: builds the documentation and shows it in a browser, or writes it to a folder."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import webbrowser
from pathlib import Path
from typing import Any

from palaestra.cli.flags import FLAGS
from palaestra.cli.listening import listen
from palaestra.settings.flags import FlagParser


def run(arguments: argparse.Namespace) -> dict[str, Any] | None:
    from palaestra.site import build

    build.check_generator()
    if arguments.build:
        target = Path(arguments.build)
        build.check_target(target)
        begun = time.monotonic()
        build.build(target, parsers())
        seconds = time.monotonic() - begun
        count = sum(1 for _ in target.rglob("index.html"))
        if not arguments.json:
            print(f"{target}: {count} pages in {seconds:.0f} s")
        return {"folder": str(target), "pages": count, "seconds": round(seconds, 1)}
    with tempfile.TemporaryDirectory() as made:
        print("building the documentation, which takes less than a minute", flush=True)
        serve(build.build(Path(made) / "site", parsers()), arguments)
    return None


def parsers() -> dict[str, FlagParser]:
    """The parser of each verb, by its name."""
    from palaestra.cli.main import parser_of

    return {verb: parser_of(verb) for verb in FLAGS}


def serve(folder: Path, arguments: argparse.Namespace) -> None:
    """Serves the site until the user stops it."""
    from palaestra.site.serve import SiteServer

    with listen(lambda: SiteServer(folder, arguments.port), arguments.port) as server:
        print(f"the documentation: {server.url}", flush=True)
        if not arguments.no_open and "SSH_CONNECTION" not in os.environ:
            webbrowser.open(server.url)
        server.serve_forever()
