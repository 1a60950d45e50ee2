"""Games that are watched, or played by a person in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from palaestra.api.loops import run_blocking
from palaestra.errors import UserError
from palaestra.games.match import Watch, check_seats, play_game
from palaestra.games.seats import seat_of
from palaestra.games.standings import in_world
from palaestra.run import setup
from palaestra.run.evaluation import chosen_tasks
from palaestra.run.given_rows import settings_of_call
from palaestra.settings.fields import Settings
from palaestra.settings.keywords import EvaluateKeywords, check_keywords
from palaestra.store.checkpoint import jsonable
from palaestra.types import Sampling


def play(
    world: str,
    seats: Sequence[str] = ("policy", "random"),
    *,
    model: str | Path = "tiny",
    n: int = 1,
    temperature: float = 1.0,
    watch: Watch | None = None,
    talk: bool = False,
    **settings: Unpack[EvaluateKeywords],
) -> dict[str, Any]:
    """Games between players in the seats of a world, as `palaestra play --json` says it.

    Args:
        world: a built-in world, another library's ("spiel:connect_four"), or FILE.py:CLASS.
        seats: a player for each seat, in the world's order: see `palaestra.games.seats`.
        model: the player "policy": a name, or a folder.
        n: games, one after the other.
        temperature: of models.
        watch: is told every reply, as (seat, player, text).
        talk: notes on standard error.
        settings: those of `evaluate`: max_tokens, seed, device, ...

    Returns:
        {"games": [{"players", "pay", "turns", "illegal", "forfeit", "status", "solved", "transcript"}],
        "pay": the mean by seat}; a transcript has "seat", "shown" and "said" of each reply

    Raises:
        UserError: something that can be mended; Fault: infrastructure failed.
    """
    check_keywords(play, EvaluateKeywords, settings)
    with settings_of_call(model, settings) as chosen:
        return play_given(in_world(chosen, world), seats, n, temperature, watch, talk=talk)


def play_given(
    settings: Settings,
    players: Sequence[str],
    n: int,
    temperature: float,
    watch: Watch | None = None,
    *,
    talk: bool = True,
) -> dict[str, Any]:
    """See `play`."""
    ctx = setup.context(settings, talk=talk, judged=True)
    try:
        seats = check_seats(ctx.bench)
        if len(players) != len(seats):
            raise UserError(
                f"{ctx.bench.name} has the seats {', '.join(seats)}, and {len(players)} players are "
                f"given; name one for each: --seats {','.join(['policy'] * len(seats))}"
            )
        sampling = Sampling(temperature=temperature, max_tokens=ctx.bench.max_tokens)
        makers = {name: seat_of(ctx, name, sampling) for name in players}
        cast = {seat: (name, makers[name]) for seat, name in zip(seats, players, strict=True)}
        games = [
            run_blocking(
                play_game(
                    ctx.bench,
                    ctx.bench.tasks.task("test", i),
                    cast,
                    (ctx.seed, "play", i),
                    (ctx.seed, "play", "world", i),
                    watch,
                    keep=True,
                )
            )
            for i in chosen_tasks(ctx.bench, n)
        ]
    finally:
        ctx.close()
    means = {seat: sum(g["pay"][seat] for g in games) / len(games) for seat in seats}
    return jsonable({"task": settings.problem, "seed": settings.seed, "games": games, "pay": means})


def describe(result: Mapping[str, Any]) -> str:
    """What came of the games, for people."""
    lines = list[str]()
    for i, game in enumerate(result["games"], 1):
        sides = ", ".join(
            f"{game['players'][seat]} ({seat}) {pay:+g}" for seat, pay in game["pay"].items()
        )
        refused = {s: k for s, k in game["illegal"].items() if k}
        more = f"; illegal replies: {refused}" if refused else ""
        ended = f"; {game['forfeit']} lost by one" if game["forfeit"] else ""
        state = "" if game["status"] == "finished" else f"; {game['status']}"
        lines.append(f"game {i}: {sides}{more}{ended}{state}")
    return "\n".join(lines)
