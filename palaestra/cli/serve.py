"""`palaestra serve`: an environment behind AgentGym's HTTP protocol."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from typing import Any

from palaestra.cli.listening import listen
from palaestra.cli.train import read_settings
from palaestra.games.standings import in_world
from palaestra.run.setup import bench_of
from palaestra.worlds.world_server import LOOPBACK, WorldServer


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    arguments.words = []
    settings = read_settings(arguments)
    if arguments.world:
        settings = in_world(settings, arguments.world)
    bench, _ = bench_of(settings)
    server = listen(lambda: WorldServer(bench, arguments.port, arguments.host), arguments.port)
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    server.start()
    print(f'palaestra train METHOD --task "agentgym:{server.url}"', flush=True)
    print(f"note: {bench.name} is served at {server.url}; Ctrl-C ends this", file=sys.stderr)
    if arguments.host not in LOOPBACK:
        text = "note: whoever reaches this address can play, without a key"
        print(text, file=sys.stderr)
    stopped.wait()
    server.stop()
    print(f"{server.created} episodes were created", file=sys.stderr)
    return {"episodes": server.created}
