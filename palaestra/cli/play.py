"""`palaestra play`: games that are watched, or played by a person in the terminal."""

from __future__ import annotations

import argparse
from typing import Any

from palaestra.cli.train import read_settings
from palaestra.games.one_game import describe, play_given
from palaestra.games.seats import split_names
from palaestra.games.standings import in_world
from palaestra.run.parts import stoppable


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    arguments.words = []
    settings = in_world(read_settings(arguments), arguments.world)
    players = split_names(arguments.seats)
    with stoppable(lambda: "a game that was not over is lost"):
        result = play_given(
            settings,
            players,
            arguments.n,
            arguments.temperature,
            None if arguments.json else tell,
            talk=not arguments.json,
        )
    if not arguments.json:
        print(describe(result))
    return result


def tell(seat: str, player: str, text: str) -> None:
    """A reply, for those who watch."""
    if player != "human":
        print(f"{player} ({seat}): {text}", flush=True)
