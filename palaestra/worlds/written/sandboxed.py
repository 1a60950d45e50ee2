"""What the host asks of a written game: each question is one run of `inside` in the sandbox."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from palaestra.errors import Fault
from palaestra.services.sandbox import Limits, run_program
from palaestra.types import value_class
from palaestra.worlds.written.gym_standin import FILES

RANDOM_GAMES, SKILLED_GAMES, SEARCHED = 50, 10, 25  # of an examination
T = TypeVar("T")
STATES = 5_000  # positions of a game that is solved exactly, at most
SECONDS = 10.0  # of one question
TRIALS = 100  # games of a trained agent against random moves
COMPARED = 20  # games of random moves in which players are compared


@value_class
class GameVerdict:
    """Why a written game cannot be used: crash, malformed, timeout, memory, endless, undecided, chance,
    "first move", luck, or untrained; "" = it can.
    """

    verdict: str
    why: str = ""


@value_class
class ExaminedGame:
    """What is known of a game that can be used.

    Args:
        opener: share of random games that who opens wins.
        plies: mean length of a random game.
        skill: share of games that a small search wins against random play.
        value: with perfect play on both sides, for who opens: 1 won, 0 drawn, -1 lost; None = the game
            is too large to say.
    """

    opener: float
    plies: float
    skill: float
    value: int | None


@value_class
class GameView:
    """Where a game stands: its moves so far, the board, the legal moves, and who moves or has won."""

    actions: tuple[int, ...]
    board: str
    legal: tuple[int, ...]
    seat: int
    done: bool
    winner: int | None


@value_class
class GameAgent:
    """An agent that was trained on a game by self-play: its weights as JSON, and its points against random
    moves, a draw being half a win.
    """

    weights: str
    points: float


@cache
def program(name: str = "inside") -> str:
    return (Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8")


async def ask_game(
    code: str, do: str, read: Callable[[Mapping[str, Any]], T], seconds: float, **ask: Any
) -> T | GameVerdict:
    """What `read` makes of the answer of the program inside, or the `GameVerdict` of a game that failed.

    Raises:
        Fault: this machine cannot isolate code, or its sandbox failed.
    """
    mark = f"@@{secrets.token_hex(8)}"
    given = json.dumps({"do": do, "mark": mark, **ask})
    files = {**FILES, "written_game.py": code, "self_play.py": program("self_play")}
    ran = await asyncio.to_thread(run_program, program(), given, files, Limits(seconds=seconds))
    if ran.status == "refused":
        raise Fault("sandbox", f"written games run in the sandbox alone: {ran.stderr}")
    if ran.status != "ok":
        word = "crash" if ran.status == "error" else ran.status
        last = ran.stderr.strip().rpartition("\n")[2][:300]
        return GameVerdict(verdict=word, why=last or f"it ended by {ran.status} ({seconds:g} s)")
    try:
        answer = json.loads(ran.stdout.rpartition(mark)[2])
        if "verdict" in answer:
            return GameVerdict(verdict=str(answer["verdict"]), why=str(answer["why"]))
        return read(answer["result"])
    except (ValueError, KeyError, TypeError):  # the game has ended its program, or written for it
        return GameVerdict(verdict="crash", why="the game ended its program")


async def examine_game(code: str, seed: int = 0) -> ExaminedGame | GameVerdict:
    """Plays a game at random, again with other seeds, and with a small search, and solves it where it is
    small. Raises Fault.
    """
    ask = {"games": RANDOM_GAMES, "skill": SKILLED_GAMES, "iterations": SEARCHED, "states": STATES}
    read = lambda x: ExaminedGame(
        opener=float(x["opener"]),
        plies=float(x["plies"]),
        skill=float(x["skill"]),
        value=None if x["value"] is None else int(x["value"]),
    )
    return await ask_game(code, "examine", read, 3 * SECONDS, seed=seed, **ask)


def read_view(x: Mapping[str, Any]) -> GameView:
    return GameView(
        actions=tuple(map(int, x["actions"])),
        board=str(x["board"]),
        legal=tuple(map(int, x["legal"])),
        seat=int(x["seat"]),
        done=bool(x["done"]),
        winner=None if x["winner"] is None else int(x["winner"]),
    )


async def train_on_game(code: str, steps: int, seed: str) -> GameAgent | GameVerdict:
    """An agent after `steps` turns of self-play, or the verdict "untrained" where it then wins fewer than
    60% of games against random moves. Raises Fault.
    """
    ask = {"steps": steps, "trials": TRIALS, "seed": seed}
    read = lambda x: GameAgent(weights=json.dumps(x["agent"]), points=float(x["points"]))
    seconds = SECONDS * (2 + steps / 500)  # a game's own code may be slow
    return await ask_game(code, "train", read, seconds, **ask)


async def compare_players(
    code: str, iterations: int, agent: str, seed: str
) -> dict[str, float] | GameVerdict:
    """Of random moves ("random"), the agent, the search, and both ("agent_and_search") the share of moves
    that the exact solver would make, of positions in which not every move is one; {} of a game that is
    too large to be solved. Raises Fault.
    """
    ask = {"iterations": iterations, "agent": agent, "states": STATES, "games": COMPARED}
    read = lambda x: {str(k): float(v) for k, v in x.items()}
    return await ask_game(code, "compare", read, SECONDS * (2 + COMPARED), seed=seed, **ask)


async def view_game(
    code: str,
    actions: Sequence[int],
    rival: int,
    iterations: int,
    exact: int,
    seed: str,
    agent: str = "",
) -> GameView | GameVerdict:
    """The game after the given moves, those of the rival in seat `rival` (-1 = nobody), and moves
    without a choice. With the weights of an `agent` it plays behind the tree of the rival's search. Raises
    Fault.
    """
    ask = {"actions": list(actions), "rival": rival, "iterations": iterations, "exact": exact}
    return await ask_game(code, "view", read_view, 2 * SECONDS, seed=seed, agent=agent, **ask)


async def best_move(
    code: str, actions: Sequence[int], iterations: int, exact: int, seed: str
) -> int | GameVerdict:
    """The move of the exact solver where the game is small enough, else of the search. Raises Fault."""
    ask = {"actions": list(actions), "iterations": iterations, "exact": exact, "seed": seed}
    return await ask_game(code, "best", lambda x: int(x["move"]), 2 * SECONDS, **ask)


async def random_points(
    code: str, games: int, iterations: int, exact: int, seed: str, agent: str = ""
) -> tuple[int, ...] | GameVerdict:
    """By game, whether a player of random legal moves wins against the rival, seats in turn. Raises
    Fault.
    """
    ask = {"games": games, "iterations": iterations, "exact": exact, "seed": seed, "agent": agent}
    read = lambda x: tuple(map(int, x["points"]))
    return await ask_game(code, "match", read, SECONDS * (1 + games), **ask)


async def game_lessons(
    code: str, iterations: int, seed: str
) -> tuple[tuple[GameView, int], ...] | GameVerdict:
    """Positions of a game in which half of the moves are random, with the move that the exact solver, or
    in a larger game the search, would make. Raises Fault.
    """
    ask = {"iterations": iterations, "exact": STATES, "seed": seed}
    read = lambda x: tuple((read_view(turn), int(turn["move"])) for turn in x["turns"])
    return await ask_game(code, "lessons", read, 2 * SECONDS, **ask)
