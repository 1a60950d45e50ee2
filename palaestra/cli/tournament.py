"""`palaestra tournament`: all players meet in a game of two, and are rated."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from palaestra.cli.train import read_settings
from palaestra.games.standings import PICTURE, in_world, tournament_given
from palaestra.run.parts import go_on, stoppable
from palaestra.view.drawing import percent


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    arguments.words = []
    settings = in_world(read_settings(arguments), arguments.world)
    word = re.sub(r"\W+", "-", Path(settings.problem).name).strip("-")
    out = Path(arguments.out or f"runs/tournament-{word}-s{settings.seed}")
    with stoppable(lambda: go_on(arguments.command)):
        result = tournament_given(
            settings,
            arguments.players,
            arguments.n,
            arguments.temperature,
            out,
            exact=arguments.exact,
            talk=not arguments.json,
        )
    if not arguments.json:
        print(*table(result), sep="\n")
        print(f"games: {out}   picture: {out / PICTURE}")
    return result


def table(result: Mapping[str, Any]) -> Iterator[str]:
    """Players by rating, and the cross-play matrix, for people."""
    players: Mapping[str, Any] = result["players"]
    order = sorted(players, key=lambda p: -players[p]["rating"])
    width = max(map(len, order))
    first = result["first seat"]
    yield (
        f"{result['task']}: {result['games']} games, {result['drawn']} drawn; the first seat took "
        f"{percent(first['mean'])} of the points ({percent(first['low'])} to {percent(first['high'])})"
    )
    exact = any("exploitability" in p for p in players.values())
    yield (
        f"{'':<{width}}  {'rating (95%)':<22}{'points':>7}{'won':>6}{'drawn':>7}{'lost':>6}"
        f"{'illegal':>9}{'legal':>7}" + (f"{'exploitable':>13}" if exact else "")
    )
    for name in order:
        p = players[name]
        rating = f"{p['rating']:+.0f} ({p['low']:+.0f} to {p['high']:+.0f})"
        yield (
            f"{name:<{width}}  {rating:<22}{_share(p['points'] and p['points']['mean']):>7}"
            f"{p['won']:>6}{p['drawn']:>7}{p['lost']:>6}{_share(p['illegal share']):>9}"
            f"{_share(p['legal points']):>7}"
            + (f"{p['exploitability']:>13.4f}" if "exploitability" in p else "")
        )
    yield "share of points of the row against the column"
    yield f"{'':<{width}}" + "".join(f"{n[-12:]:>14}" for n in order)
    for a in order:
        cells = (result["matrix"][a].get(b) for b in order)
        yield f"{a:<{width}}" + "".join(f"{_share(c['points']) if c else '':>14}" for c in cells)
    yield (
        "legend: illegal = replies that the world refused; legal = points in games without any; "
        "exploitable = what a best response earns more than an equilibrium player, a seat"
    )
    for count, what in (
        (result["cut"], "were cut"),
        (result["errors"], "ended in an error, left out"),
    ):
        if count:
            yield f"{count} games {what}"


def _share(x: float | None) -> str:
    return "-" if x is None else percent(x)
