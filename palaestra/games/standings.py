"""Tournaments: all players against all, each deal played twice with the seats swapped.

games.jsonl         a line for each game
tournament.json     what the tournament was: world, players, deals, settings
summary.json        ratings, the cross-play matrix, refused replies
cross-play.png      the matrix as a picture
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, Unpack

from palaestra.api.loops import run_blocking
from palaestra.errors import UserError
from palaestra.games.bradley_terry import ratings
from palaestra.games.cross_play import draw
from palaestra.games.exact import exploitability_of
from palaestra.games.match import Seat, check_seats, in_turn, is_error, play_game
from palaestra.games.seats import MODEL, seat_of
from palaestra.run import setup
from palaestra.run.context import RunContext
from palaestra.run.evaluation import chosen_tasks
from palaestra.run.given_rows import settings_of_call
from palaestra.run.origin import record_settings
from palaestra.settings.fields import Settings
from palaestra.settings.keywords import EvaluateKeywords, check_keywords
from palaestra.stats import bounded_interval
from palaestra.store.checkpoint import jsonable, write_atomic
from palaestra.store.folder import SUMMARY
from palaestra.store.lines import add_line, kept_lines
from palaestra.types import Sampling

GAMES, RECORD, PICTURE = "games.jsonl", "tournament.json", "cross-play.png"
TOGETHER = 32  # games that are played at a time
DEALS = 32  # of each pair

Line = Mapping[str, Any]


def tournament(
    world: str,
    players: Sequence[str],
    *,
    model: str | Path = "tiny",
    n: int = DEALS,
    temperature: float = 1.0,
    exact: bool = False,
    out: str | Path | None = None,
    talk: bool = False,
    **settings: Unpack[EvaluateKeywords],
) -> dict[str, Any]:
    """All players against all in a world of two seats, as `palaestra tournament --json` says it.

    Args:
        world: a built-in world, another library's ("spiel:connect_four"), or FILE.py:CLASS.
        players: at least two, by name: see `palaestra.games.seats`.
        model: the player "policy": a name, or a folder.
        n: deals of each pair; each is played twice, with the seats swapped.
        temperature: of models.
        exact: exploitability of models also in tic-tac-toe, whose 4,520 boards take minutes.
        out: a folder for the games, which goes on where it was stopped; None = they are not kept.
        talk: notes on standard error.
        settings: those of `evaluate`: max_tokens, seed, device, ...

    Returns:
        {"players": {name: {"rating", "low", "high", "points", "illegal", "exploitability", ...}},
        "matrix": {name: {name: {"points", "pay", "games"}}}, "first seat": interval, ...}

    Raises:
        UserError: something that can be mended; Fault: infrastructure failed.
    """
    check_keywords(tournament, EvaluateKeywords, settings)
    with settings_of_call(model, settings, out) as chosen:
        return tournament_given(
            in_world(chosen, world),
            players,
            n,
            temperature,
            Path(out) if out else None,
            exact=exact,
            talk=talk,
        )


def in_world(settings: Settings, world: str) -> Settings:
    """The settings with a world by name, or by FILE.py:CLASS. Raises UserError for a second one."""
    if settings.task or settings.env:
        raise UserError(
            f"the world is named twice: {world} and {settings.task or settings.env}; give it once, "
            "without --task and --env"
        )
    return replace(settings, **{"env" if ".py" in world else "task": world})


def tournament_given(
    settings: Settings,
    players: Sequence[str],
    n: int,
    temperature: float,
    out: Path | None,
    *,
    exact: bool = False,
    talk: bool = True,
) -> dict[str, Any]:
    """See `tournament`."""
    check_players(players)
    ctx = setup.context(settings, out=out, talk=talk, judged=True)
    try:
        seats = check_two_seats(ctx)
        sampling = Sampling(temperature=temperature, max_tokens=ctx.bench.max_tokens)
        makers = {name: seat_of(ctx, name, sampling) for name in players}
        deals = list(chosen_tasks(ctx.bench, n))
        about = record_settings(settings, [p.removeprefix(MODEL) for p in players]) | {
            "players": list(players),
            "deals": len(deals),
            "temperature": temperature,
        }
        kept = kept_lines(out, about, record=RECORD, lines=GAMES, what="tournament") if out else []
        if kept:
            ctx.say(f"{len(kept)} games are played in {out}")
        lines = run_blocking(play_all(ctx, makers, seats, deals, kept, out))
        summary = summarise(lines, players, seats)
        for name in players:
            exploitability = exploitability_of(ctx, name, exact)
            summary["players"][name] |= (
                {} if exploitability is None else {"exploitability": exploitability}
            )
    finally:
        ctx.close()
    names = ("task", "model", "seed", "deals", "temperature")
    result = jsonable({k: about[k] for k in names} | summary)
    if out:
        write_atomic(out / SUMMARY, json.dumps(result, indent=1) + "\n")
        draw(result, out / PICTURE)
        result["folder"] = str(out)
    return result


def check_players(players: Sequence[str]) -> None:
    """Raises UserError for fewer than two players, one twice, or a person."""
    if len(players) < 2:
        raise UserError("a tournament needs at least two players, such as policy and random")
    if twice := [p for i, p in enumerate(players) if p in players[:i]]:
        raise UserError(f"the player {twice[0]!r} is named twice; each plays all others")
    if "human" in players:
        raise UserError("a person plays with `palaestra play`, not in a tournament")


def check_two_seats(ctx: RunContext) -> tuple[str, str]:
    """The two seats of a bench's world, the first to move first. Raises UserError for others."""
    first, second, *more = check_seats(ctx.bench, 2)
    if more:
        raise UserError(
            f"{ctx.bench.name} has {2 + len(more)} seats; a tournament is of games of two"
        )
    return first, second


async def play_all(
    ctx: RunContext,
    makers: Mapping[str, Seat],
    seats: tuple[str, str],
    deals: Sequence[int],
    kept: Sequence[Line],
    out: Path | None,
) -> list[Line]:
    """A line for each game, in order; those that are `kept` are not played again. How a game goes
    depends on its players, its deal and the seed alone.
    """
    fixtures = [
        (pair, deal)
        for a, b in combinations(makers, 2)
        for deal in deals
        for pair in ((a, b), (b, a))
    ]

    def work(pair: tuple[str, str], deal: int) -> Any:
        async def one() -> Line:
            line = await play_game(
                ctx.bench,
                ctx.bench.tasks.task("test", deal),
                {seat: (name, makers[name]) for seat, name in zip(seats, pair, strict=True)},
                (ctx.seed, "tournament", *pair, deal),
                (ctx.seed, "tournament", deal),
            )
            return {"deal": deal, **line}

        return one

    lines = list(kept)
    async for line in in_turn([work(*f) for f in fixtures[len(kept) :]], TOGETHER):
        if out is not None:
            add_line(out / GAMES, line)
        lines.append(line)
        if len(lines) % (2 * len(deals)) == 0:
            a, b = line["players"].values()
            ctx.say(f"{b} and {a} have met: {len(lines)} of {len(fixtures)} games")
    return lines


# ---- what came of it


def points_of(line: Line, seats: tuple[str, str]) -> tuple[float, float]:
    """1 for the seat that was paid more, 0.5 for both where they were paid alike."""
    first, second = (line["pay"][seat] for seat in seats)
    points = 0.5 if first == second else float(first > second)
    return points, 1 - points


def summarise(
    lines: Sequence[Line], players: Sequence[str], seats: tuple[str, str]
) -> dict[str, Any]:
    """Ratings, matrix and counts of the games of a tournament; those with an error are left out."""
    good = [line for line in lines if not is_error(line)]
    if not good:
        raise UserError(
            f"no game came to a result; the first one says: {lines[0].get('error', 'nothing')}"
        )
    rated = ratings(len(players), _pairs(good, players, seats))
    first = [points_of(line, seats)[0] for line in good]
    return {
        "games": len(good),
        "drawn": sum(p == 0.5 for p in first),
        "cut": sum(str(line["status"]).startswith("truncated") for line in good),
        "errors": len(lines) - len(good),
        "first seat": bounded_interval(first, 0.0, 1.0).json(),
        "players": {
            name: r | _record_of(name, good, seats) for name, r in zip(players, rated, strict=True)
        },
        "matrix": {a: {b: _cell(a, b, good, seats) for b in players if b != a} for a in players},
    }


def _pairs(
    lines: Sequence[Line], players: Sequence[str], seats: tuple[str, str]
) -> dict[tuple[int, int], list[tuple[float, float]]]:
    """By pair, for each deal the points of both: of one game, or of two with the seats swapped."""
    points: dict[tuple[int, int], dict[int, tuple[float, float]]] = {}
    for line in lines:
        a, b = (players.index(line["players"][seat]) for seat in seats)
        x, y = points_of(line, seats)
        if a > b:
            a, b, x, y = b, a, y, x
        deals = points.setdefault((a, b), {})
        before = deals.get(line["deal"], (0.0, 0.0))
        deals[line["deal"]] = (before[0] + x, before[1] + y)
    return {pair: list(deals.values()) for pair, deals in points.items()}


def _record_of(name: str, lines: Sequence[Line], seats: tuple[str, str]) -> dict[str, Any]:
    """What a player did in all of its games. Refused replies stand apart: "legal points" are those
    of games in which nobody's reply was refused.
    """
    own = [_seen_by(name, line, seats) for line in lines if name in line["players"].values()]
    legal = [g for g in own if not g["any illegal"]]
    replies, illegal = sum(g["turns"] for g in own), sum(g["illegal"] for g in own)
    points = [g["points"] for g in own]
    return {
        "games": len(own),
        "won": points.count(1.0),
        "drawn": points.count(0.5),
        "lost": points.count(0.0),
        "points": bounded_interval(points, 0.0, 1.0).json() if own else None,
        "pay": _mean([g["pay"] for g in own]),
        "replies": replies,
        "illegal": illegal,
        "illegal share": illegal / replies if replies else None,
        "ended by an illegal reply": sum(g["forfeit"] for g in own),
        "legal games": len(legal),
        "legal points": _mean([g["points"] for g in legal]),
    }


def _seen_by(name: str, line: Line, seats: tuple[str, str]) -> dict[str, Any]:
    """A game from one player's side."""
    seat = next(s for s in seats if line["players"][s] == name)
    return {
        "points": dict(zip(seats, points_of(line, seats), strict=True))[seat],
        "pay": line["pay"][seat],
        "turns": line["turns"][seat],
        "illegal": line["illegal"][seat],
        "any illegal": any(line["illegal"].values()),
        "forfeit": line["forfeit"] == seat,
    }


def _cell(a: str, b: str, lines: Sequence[Line], seats: tuple[str, str]) -> dict[str, Any]:
    """What a player earned against another one."""
    met = [_seen_by(a, line, seats) for line in lines if {a, b} == set(line["players"].values())]
    return {
        "points": _mean([g["points"] for g in met]),
        "pay": _mean([g["pay"] for g in met]),
        "games": len(met),
    }


def _mean(numbers: Sequence[float]) -> float | None:
    return sum(numbers) / len(numbers) if numbers else None
