"""Plays and examines a written game. This file is the program that the sandbox runs; the game is the
module `written_game` beside it, and nothing of the game runs anywhere else.

A game is a class with `reset`, `step(action)`, `render` and `valid_moves`, as gymnasium has them. The
mover of a finished game wins with a reward above 0, loses with one below, and else it is a draw;
rewards before the end say nothing. Who moves is read from `current_player`, where the class has it, so
that a player may have two turns in a row; else players alternate.

    UCB1(i) = w_i / n_i + c sqrt(ln N / n_i)        c = 1.4; w_i: wins of who chose i, a draw is half a win

An agent that was trained on the game by self-play (`self_play`, a file beside this one) plays behind the
tree in place of random moves.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import io
import json
import math
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

PLIES = 100  # of a game at most
ILLEGAL_PAY = -10  # what a written game pays an illegal move
EXPLORE = 1.4  # c of UCB1
SHARE = 0.9  # of random games that who opens may win at most, and lose
DECIDED = 0.8  # of random games that somebody wins, at least
SKILL = 0.6  # of games that a search wins against random play, at least
BOARD = 8_000  # characters of a board at most
METHODS = ("reset", "step", "render", "valid_moves")


class Broken(Exception):
    """What is wrong with a game: a verdict in one word, and why."""

    def __init__(self, verdict: str, why: str) -> None:
        super().__init__(why)
        self.verdict, self.why = verdict, " ".join(why.split())[:300]


class Unsolved(Exception):
    """The game has too many positions, or goes round."""


def call(method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Calls a method of the game. Whatever it raises, `SystemExit` too, is a crash of the game."""
    try:
        return method(*arguments, **named)
    except BaseException as error:
        raise Broken("crash", f"{type(error).__name__}: {error}") from None


class Position:
    """A position of a game. `seat` 0 is who opened; `winner` is 0, 1, or None for a draw."""

    def __init__(self, env: Any) -> None:
        self.env, self.plies, self.done = env, 0, False
        self.winner: int | None = None
        self.first = getattr(env, "current_player", None)

    @property
    def seat(self) -> int:
        if self.first is None:
            return self.plies % 2
        return int(bool(call(getattr, self.env, "current_player") != self.first))

    def moves(self) -> list[int]:
        """The legal moves in order; [] = the game is over."""
        if self.done:
            return []
        listed = call(self.env.valid_moves)
        try:
            moves = sorted({int(m) for m in listed})
        except (TypeError, ValueError):
            raise Broken("malformed", f"valid_moves returned {listed!r}") from None
        if not moves or moves[0] < 0:
            what = "a move below 0" if moves else "no move, and the game goes on"
            raise Broken("malformed", f"valid_moves returned {what}")
        return moves

    def advance(self, action: int) -> None:
        """Makes a legal move in place."""
        mover = self.seat
        made = call(self.env.step, action)
        if not isinstance(made, tuple) or len(made) not in (4, 5):
            raise Broken(
                "malformed", "step returned no (observation, reward, done, truncated, info)"
            )
        self.plies += 1
        try:
            reward, self.done = float(made[1]), bool(made[2]) or (len(made) == 5 and bool(made[3]))
        except (TypeError, ValueError):
            raise Broken("malformed", f"step returned the reward {made[1]!r}") from None
        if not self.done:
            return
        if reward <= ILLEGAL_PAY:
            raise Broken(
                "malformed", f"move {action} was listed as legal, and paid {reward:g} as illegal"
            )
        self.winner = None if reward == 0 else mover if reward > 0 else 1 - mover

    def after(self, action: int) -> Position:
        """The position behind a move; this one stays."""
        position = self.copy()
        position.advance(action)
        return position

    def copy(self) -> Position:
        position = copy.copy(self)
        position.env = call(copy.deepcopy, self.env)
        return position

    def board(self) -> str:
        picture = call(self.env.render)
        if not isinstance(picture, str) or not picture.strip():
            raise Broken("malformed", "render returned no text")
        if len(picture) > BOARD:
            raise Broken("malformed", f"render returned {len(picture)} characters")
        return picture.strip("\n")

    def key(self) -> Any:
        """What tells positions apart that play on differently."""
        return self.seat, freeze(vars(self.env))


def freeze(x: Any, depth: int = 12) -> Any:
    """A hashable twin of plain values and of objects by their fields."""
    if depth < 0:
        raise Unsolved
    if isinstance(x, str | bytes | int | float | bool | type(None)):
        return x
    if hasattr(x, "tobytes") and hasattr(x, "shape"):
        return x.shape, x.tobytes()
    if isinstance(x, Mapping):
        return tuple(
            sorted((repr(k), freeze(v, depth - 1)) for k, v in x.items() if not is_space(v))
        )
    if isinstance(x, set | frozenset):
        return tuple(sorted(map(repr, x)))
    if isinstance(x, Sequence):
        return tuple(freeze(v, depth - 1) for v in x)
    if hasattr(x, "__dict__"):
        return type(x).__name__, freeze(vars(x), depth - 1)
    raise Unsolved


def is_space(x: Any) -> bool:
    """A description of actions or observations, or a random generator, which are no part of a position."""
    return type(x).__module__.partition(".")[0] == "gymnasium" or type(x).__name__ in (
        "Generator",
        "RandomState",
        "Random",
    )


def game_class(module: Any) -> Callable[[], Any]:
    """The class `CustomEnv` of a module, else the last one that has the methods of a game."""
    own = [
        v for v in vars(module).values() if isinstance(v, type) and v.__module__ == module.__name__
    ]
    games = [c for c in own if all(callable(getattr(c, m, None)) for m in METHODS)]
    named = [c for c in games if c.__name__ == "CustomEnv"]
    if not games:
        raise Broken("malformed", f"no class has the methods {', '.join(METHODS)}")
    return (named or games)[-1]


def begin(make: Callable[[], Any], seed: int) -> Position:
    """The first position of a game."""
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
    env = call(make)
    takes_seed = "seed" in call(inspect.signature, env.reset).parameters
    call(env.reset, **({"seed": seed} if takes_seed else {}))
    return Position(env)


def replay(make: Callable[[], Any], actions: Sequence[int]) -> Position:
    position = begin(make, 0)
    for action in actions:
        position.advance(action)
    return position


# ---- search


def ucb1(wins: float, visits: int, parent: int, c: float = EXPLORE) -> float:
    """The upper confidence bound of a move: mean + c sqrt(ln parent / visits)."""
    return wins / visits + c * math.sqrt(math.log(parent) / visits)


class Node:
    """A position that was searched. `wins` are those of the seat that moved to it."""

    def __init__(self, position: Position) -> None:
        self.position, self.open = position, position.moves()
        self.children: dict[int, Node] = {}
        self.wins, self.visits = 0.0, 0


def search_move(position: Position, iterations: int, rng: random.Random, agent: Any = None) -> int:
    """The most visited move after `iterations` of Monte Carlo tree search; behind the tree the agent
    plays both sides, or without one random moves. With no iterations the move is the agent's own, or random.
    """
    root = Node(position)
    moves = list(root.open)
    if iterations < 1:
        return rng.choice(moves) if agent is None else agent.move(position, rng)
    rng.shuffle(root.open)
    for _ in range(iterations):
        path = [root]
        while not path[-1].open and path[-1].children:
            node = path[-1]
            bound = lambda child, n=node.visits: ucb1(child.wins, child.visits, n)
            path.append(max(node.children.values(), key=bound))
        leaf = path[-1]
        if leaf.open:
            move = leaf.open.pop()
            child = leaf.children[move] = Node(leaf.position.after(move))
            rng.shuffle(child.open)
            path.append(child)
        points = roll_out(path[-1].position, rng, agent)
        for i, node in enumerate(path):
            node.visits += 1
            node.wins += points[path[i - 1].position.seat] if i else 0.0
    return max(root.children, key=lambda m: (root.children[m].visits, root.children[m].wins))


def roll_out(position: Position, rng: random.Random, agent: Any = None) -> tuple[float, float]:
    """What either seat gets by the agent's play from a position, or random play: 1 for a win, a half
    for a draw.
    """
    end = position if position.done else play_out(position.copy(), rng, agent)
    won = end.winner if end.done else None
    return (0.5, 0.5) if won is None else (float(won == 0), float(won == 1))


def play_out(position: Position, rng: random.Random, agent: Any = None) -> Position:
    """The agent's moves, or random ones, to the end of the game, or to the limit of plies."""
    while not position.done and position.plies < PLIES:
        moves = position.moves()
        position.advance(rng.choice(moves) if agent is None else agent.move(position, rng))
    return position


def solve(position: Position, limit: int, known: dict[Any, int] | None = None) -> int:
    """The value of a position for who moves: 1 won, 0 drawn, -1 lost. Raises Unsolved.

    Args:
        limit: positions that are looked at, at most.
        known: values of positions of this game by their keys, which grow.
    """
    values: dict[Any, int] = {} if known is None else known
    path = set[Any]()

    def value(at: Position) -> int:
        key = at.key()
        if key in values:
            return values[key]
        if key in path or len(values) + len(path) > limit or at.plies >= PLIES:
            raise Unsolved
        path.add(key)
        best = -1
        for move in at.moves():
            child = at.after(move)
            best = max(
                best, ended(child, at.seat) if child.done else sign(child, at) * value(child)
            )
            if best == 1:
                break
        path.discard(key)
        values[key] = best
        return best

    return value(position)


def ended(position: Position, seat: int) -> int:
    """What a finished game is worth to a seat."""
    return 0 if position.winner is None else 1 if position.winner == seat else -1


def sign(child: Position, parent: Position) -> int:
    """1 if the same seat moves in both positions, else -1."""
    return 1 if child.seat == parent.seat else -1


def best_moves(position: Position, limit: int, known: dict[Any, int] | None = None) -> list[int]:
    """The moves that keep the value of a position. Raises Unsolved."""
    values, worth = {} if known is None else known, dict[int, int]()
    for move in position.moves():
        child = position.after(move)
        if child.done:
            worth[move] = ended(child, position.seat)
        else:
            worth[move] = sign(child, position) * solve(child, limit, values)
    return [m for m, v in worth.items() if v == max(worth.values())]


def rival_move(position: Position, ask: Mapping[str, Any], seed: str, known: dict[Any, int]) -> int:
    """The opponent's move: of the exact solver where the game is small enough and `exact` says so, else
    of the search, with the agent where `ask` has one. `known` values of positions are used, and grow.
    """
    rng = random.Random(f"{seed}/{position.plies}")
    if ask.get("exact"):
        try:
            return rng.choice(best_moves(position, int(ask["exact"]), known))
        except (Unsolved, RecursionError):
            known.clear()  # what is left of the game later may be small enough
    return search_move(position, int(ask["iterations"]), rng, ask.get("agent"))


# ---- what the host asks for


def examine(make: Callable[[], Any], ask: Mapping[str, Any]) -> dict[str, Any]:
    """Whether a game can be used, and what is known of it. Raises Broken with the first verdict that
    speaks against it.
    """
    rng = random.Random(ask["seed"])
    ends = list[Position]()
    for _ in range(ask["games"]):
        position, made = begin(make, 0), list[int]()
        position.board()
        while not position.done:
            if position.plies >= PLIES:
                raise Broken("endless", f"a game of random moves was not over after {PLIES} moves")
            made.append(rng.choice(position.moves()))
            position.advance(made[-1])
        if len(ends) < 2:
            check_repeats(make, made, position)
        ends.append(position)
    won = [p.winner for p in ends if p.winner is not None]
    if len(won) < DECIDED * len(ends):
        raise Broken("undecided", f"{len(ends) - len(won)} of {len(ends)} random games were drawn")
    opener = won.count(0) / len(won)
    check_first_move(begin(make, 0), opener)
    wins = skilled_wins(make, ask)
    if wins < SKILL:
        raise Broken("luck", f"a search wins {wins:.0%} of games against random moves")
    try:
        value = solve(begin(make, 0), int(ask["states"]))
    except (Unsolved, RecursionError):
        value = None
    return {
        "opener": opener,
        "plies": sum(p.plies for p in ends) / len(ends),
        "skill": wins,
        "value": value,
    }


def check_repeats(make: Callable[[], Any], actions: Sequence[int], end: Position) -> None:
    """Raises Broken unless the same moves lead to the same boards whatever the seed: states are kept as
    moves, and a search may not see what is hidden from a player.
    """
    one, two = begin(make, 0), begin(make, 12345)
    for action in actions:
        if one.board() != two.board() or one.moves() != two.moves():
            raise Broken("chance", "the same moves lead to other positions")
        one.advance(action)
        two.advance(action)
    if (one.done, one.winner) != (end.done, end.winner) or (two.done, two.winner) != (
        end.done,
        end.winner,
    ):
        raise Broken("chance", "the same moves lead to another end")


def check_first_move(start: Position, opener: float) -> None:
    """Raises Broken where the first move wins at once, or random games are nearly all won by one seat."""
    for move in start.moves():
        child = start.after(move)
        if child.done and child.winner == start.seat:
            raise Broken("first move", f"move {move} wins at once")
    if not 1 - SHARE <= opener <= SHARE:
        raise Broken("first move", f"who opens wins {opener:.0%} of games of random moves")


def skilled_wins(make: Callable[[], Any], ask: Mapping[str, Any]) -> float:
    """The share of games that a search wins against random play, seats in turn; a draw is half."""
    points = 0.0
    for i in range(ask["skill"]):
        rng = random.Random(f"{ask['seed']}/skill/{i}")
        position, own = begin(make, 0), i % 2
        while not position.done and position.plies < PLIES:
            effort = ask["iterations"] if position.seat == own else 0
            position.advance(search_move(position, effort, rng))
        points += 0.5 if position.winner is None else float(position.winner == own)
    return points / ask["skill"]


def view(make: Callable[[], Any], ask: Mapping[str, Any]) -> dict[str, Any]:
    """Where a game stands after some moves, and those of the rival in the seat `rival` and those that are
    the only legal ones, which are made first; `rival` -1 is nobody.
    """
    position, made = replay(make, ask["actions"]), list(map(int, ask["actions"]))
    known = dict[Any, int]()
    while not position.done and position.plies < PLIES:
        moves = position.moves()
        if len(moves) > 1 and position.seat != ask["rival"]:
            break
        forced = len(moves) == 1
        made.append(moves[0] if forced else rival_move(position, ask, ask["seed"], known))
        position.advance(made[-1])
    return {
        "actions": made,
        "board": position.board(),
        "legal": position.moves(),
        "seat": position.seat,
        "done": position.done,
        "winner": position.winner,
    }


def best(make: Callable[[], Any], ask: Mapping[str, Any]) -> dict[str, Any]:
    """The rival's move in a position."""
    return {"move": rival_move(replay(make, ask["actions"]), ask, ask["seed"], {})}


def match(make: Callable[[], Any], ask: Mapping[str, Any]) -> dict[str, Any]:
    """The points of a player of random moves against the rival, by game, seats in turn: 1 for a win, 0
    for anything else.
    """
    points, known = list[int](), dict[Any, int]()
    for i in range(ask["games"]):
        rng = random.Random(f"{ask['seed']}/random/{i}")
        position, own = begin(make, 0), i % 2
        while not position.done and position.plies < PLIES:
            moves = position.moves()
            mine = position.seat == own or len(moves) == 1
            move = (
                rng.choice(moves)
                if mine
                else rival_move(position, ask, f"{ask['seed']}/{i}", known)
            )
            position.advance(move)
        points.append(int(position.winner == own))
    return {"points": points}


def lessons(make: Callable[[], Any], ask: Mapping[str, Any]) -> dict[str, Any]:
    """The turns of a game in which half of the moves are random, each with the rival's move in it."""
    rng, position = random.Random(ask["seed"]), begin(make, 0)
    actions, turns, known = list[int](), list[dict[str, Any]](), dict[Any, int]()
    while not position.done and position.plies < PLIES:
        moves = position.moves()
        good = rival_move(position, ask, ask["seed"], known) if len(moves) > 1 else moves[0]
        if len(moves) > 1:
            here = {"actions": list(actions), "board": position.board(), "legal": moves}
            ends: dict[str, Any] = {"done": False, "winner": None}
            turns.append({**here, **ends, "seat": position.seat, "move": good})
        actions.append(good if rng.random() < 0.5 else rng.choice(moves))
        position.advance(actions[-1])
    return {"turns": turns}


def self_play() -> Any:
    """The module that trains agents: beside this program in the sandbox, in the package elsewhere."""
    package = "" if __name__ == "__main__" else f"{__name__.rpartition('.')[0]}."
    return importlib.import_module(f"{package}self_play")


def train(make: Callable[[], Any], ask: Mapping[str, Any]) -> dict[str, Any]:
    """An agent after `steps` turns of self-play, and its points against random moves. Raises Broken
    where it does not beat them: an agent cannot be trained on the game.
    """
    learner, first = self_play(), lambda: begin(make, 0)
    agent = learner.train_agent(first, int(ask["steps"]), ask["seed"])
    rng = random.Random(f"{ask['seed']}/trial")
    points = [learner.duel(first, agent, None, i % 2, rng) for i in range(ask["trials"])]
    mean = sum(points) / len(points)
    if mean < SKILL:
        raise Broken(
            "untrained", f"an agent of self-play wins {mean:.0%} of games against random moves"
        )
    return {"agent": agent.data(), "points": mean}


def compare(make: Callable[[], Any], ask: Mapping[str, Any]) -> dict[str, Any]:
    """How well players move in games of random moves, by player: the share of their moves that keep
    the value of a position, of positions in which some move loses value; {} of a game that is too large.
    """
    rng, known, kept = random.Random(ask["seed"]), dict[Any, int](), list[dict[str, float]]()
    players = {
        "random": lambda at, best: len(best) / len(at.moves()),
        "agent": lambda at, best: ask["agent"].move(at, rng) in best,
        "search": lambda at, best: search_move(at, ask["iterations"], rng) in best,
        "agent_and_search": lambda at, best: (
            search_move(at, ask["iterations"], rng, ask["agent"]) in best
        ),
    }
    try:
        for _ in range(ask["games"]):
            position = begin(make, 0)
            while not position.done and position.plies < PLIES:
                moves = position.moves()
                best = best_moves(position, int(ask["states"]), known) if len(moves) > 1 else moves
                if len(best) < len(moves):
                    kept.append({name: float(p(position, best)) for name, p in players.items()})
                position.advance(rng.choice(moves))
    except (Unsolved, RecursionError):
        return {}
    return {name: sum(k[name] for k in kept) / len(kept) for name in players} if kept else {}


TASKS = {
    "lessons": lessons,
    "examine": examine,
    "view": view,
    "best": best,
    "match": match,
    "train": train,
    "compare": compare,
}


def main() -> None:
    ask = json.loads(sys.stdin.read())
    out, sys.stdout = sys.stdout, io.StringIO()
    try:
        if "agent" in ask:  # "" = there is none
            text = ask["agent"]
            ask["agent"] = self_play().Agent.read(json.loads(text)) if text else None
        module = call(__import__, "written_game")
        result = {"result": TASKS[ask["do"]](game_class(module), ask)}
    except Broken as broken:
        result = {"verdict": broken.verdict, "why": broken.why}
    out.write(f"\n{ask['mark']}{json.dumps(result)}\n")
    out.flush()


if __name__ == "__main__":
    main()
