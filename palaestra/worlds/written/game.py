"""Written games as an environment: a model that plays them is shown the rules, the board and the numbers
of the legal moves, and replies with one.

user: A heap has 7 stones. In turn take 1 or 2. Who takes the last stone wins. / stones 7 / legal moves:
1, 2                                                                                    assistant: 1

The game is code that a model or a grammar wrote, and runs in the sandbox alone. The state is the moves so
far, which are played anew at each turn. Where the code crashes or hangs in a game, nobody is paid.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, ClassVar, Literal

import numpy as np

from palaestra.declared import declare
from palaestra.errors import Fault, UserError
from palaestra.suggest import no_setting
from palaestra.tasks.procedural import draw_task, question_task, split_of
from palaestra.tasks.spec import parse_alone
from palaestra.types import (
    Act,
    Ask,
    Frame,
    Key,
    Message,
    Task,
    need_at_least,
    seed_of,
    stage,
    value_class,
)
from palaestra.verifiers.base import strip_thinking
from palaestra.worlds.written.files import read_games
from palaestra.worlds.written.grammar import WrittenRules, draw_rules
from palaestra.worlds.written.inside import PLIES
from palaestra.worlds.written.sandboxed import STATES, GameVerdict, GameView, best_move, view_game

NAME = "written-games"
TWO, ONE = ("first", "second"), ("player",)
MOVE = re.compile(r"(?<![\w.-])\d+(?!\w|[.,]\d|-\w)")
AGAIN = "That is no legal move."
KINDS: Mapping[str, tuple[type, str]] = {
    "file": (str, "a file or folder of games"),
    "rival": (str, "none, search, agent or exact"),
    "iterations": (int, "a whole number"),
    "retries": (int, "a whole number"),
    "brief": (bool, "true or false"),
    "illegal": (str, "again or never"),
}


@value_class
class WrittenState:
    """Where a game stands: whose rules, what is seen of it, the seat of the player where the rival has
    the other one, refused replies of the turn, and of the game by seat.
    """

    game: WrittenRules
    view: GameView
    player: int = 0
    tries: int = 0
    illegal: tuple[int, int] = (0, 0)


@declare(
    columns=(
        ("title", str, "the name of a written game"),
        ("rules_told", str, "its rules, as players are shown them"),
        ("moves_told", str, "what the numbers of its moves mean"),
        ("code", str, "its class, which runs in the sandbox alone"),
        ("agent_weights", str, "an opponent that was trained on it by self-play, '' = none"),
        ("plays_second", bool, "whether the player of one seat replies to the rival's opening"),
    )
)
@stage
class WrittenGameTasks:
    """Written games, those of a file or such as the grammar draws. Of a file with more than one game
    about one in eight is held out, by its title.
    """

    file: str = ""
    name: str = NAME

    @property
    def size(self) -> int | None:
        return len(self.games("train")) if self.file else None

    @property
    def test_size(self) -> int | None:
        return len(self.games("test")) if self.file else None

    def games(self, split: str) -> tuple[WrittenRules, ...]:
        """The games of a file that belong to a split; of one game alone both splits are that game."""
        games = read_games(self.file)
        own = tuple(g for g in games if split_of(g.title) == split)
        if 0 < len(own) < len(games):
            return own
        return (games[:1] if split == "test" else games[1:]) or games

    def task(self, split: str, index: int) -> Task:
        if not self.file:
            return draw_task(self, split, index, self._draw)
        if split not in ("train", "test"):
            raise UserError(f"{self.name} has no split {split!r}; use 'train' or 'test'")
        games = self.games(split)
        return self.task_of(games[index % len(games)], f"{self.name}/{split}/{index}", index % 2)

    def task_of(self, game: WrittenRules, name: str, second: int = 0) -> Task:
        """A game as a task, in which the player of one seat opens or not."""
        meta = {
            "title": game.title,
            "rules_told": game.rules,
            "moves_told": game.moves,
            "code": game.code,
            "agent_weights": game.agent,
            "plays_second": bool(second),
        }
        return replace(question_task(self.name, game.rules, None, meta), id=name)

    def _draw(self, rng: np.random.Generator) -> Task:
        return self.task_of(draw_rules(rng), "", int(rng.integers(2)))


@declare(
    facts=(
        ("plies", int, "moves of the game"),
        ("illegal:first", int, "illegal replies of who opens"),
        ("illegal:second", int, "illegal replies of the other seat"),
        ("illegal:player", int, "illegal replies of the player of one seat"),
        ("broke", str, "what the code of a written game did wrong in a game"),
        "result",
    )
)
@stage
class WrittenGame:
    """Two seats, or one with a rival in the other. Pays the winner 1, the loser -1, a draw 0; who finds no
    legal move loses, and where the code breaks or the game has no end nobody is paid.

    Args:
        rival: who has the other seat: nobody, so that there are two; a Monte Carlo tree search with
            random play behind the tree; the search with the agent of the game's file behind it ("agent");
            or an exact solver where the game is small enough, else the search.
        iterations: of the search; 0 = it moves at random, and an agent by its policy alone.
        retries: of a reply that names no legal move; the last number of a reply is its move.
        illegal: such a reply is asked for "again", or cannot be said ("never").
        brief: the text is short, for models with a short context.
    """

    rival: Literal["none", "search", "agent", "exact"] = "none"
    iterations: int = 300
    retries: int = 4
    illegal: Literal["again", "never"] = "again"
    brief: bool = False
    bounds: ClassVar[tuple[float, float]] = (-1.0, 1.0)

    def __post_init__(self) -> None:
        need_at_least(self, iterations=0, retries=0)

    @property
    def seats(self) -> tuple[str, ...]:
        return TWO if self.rival == "none" else ONE

    @property
    def most_turns(self) -> int:
        """Replies of a game, refused ones included."""
        return PLIES + 2 * self.retries + 2

    @property
    def exact(self) -> int:
        return STATES if self.rival == "exact" else 0

    async def reset(self, task: Task, key: Key) -> Frame:
        meta = task.meta
        game = WrittenRules(
            title=meta["title"],
            rules=meta["rules_told"],
            moves=meta["moves_told"],
            code=meta["code"],
            agent=meta.get("agent_weights", ""),
        )
        if self.rival == "agent" and not game.agent:
            raise UserError(
                f"{game.title} has no trained agent; take rival='search', or the games.jsonl that "
                "`palaestra study gg-bench` keeps"
            )
        player = int(meta.get("plays_second", False)) if self.rival != "none" else 0
        start = GameView(actions=(), board="", legal=(), seat=0, done=False, winner=None)
        return await self._go_on(WrittenState(game=game, view=start, player=player), key)

    async def step(self, state: WrittenState, acts: tuple[Act, ...], key: Key) -> Frame:
        move, mover = move_of(acts[0].text), state.view.seat
        if move in state.view.legal:
            view = replace(state.view, actions=(*state.view.actions, move))
            return await self._go_on(replace(state, view=view, tries=0), key)
        illegal = tuple(n + (i == mover) for i, n in enumerate(state.illegal))
        state = replace(state, tries=state.tries + 1, illegal=illegal)
        if state.tries <= self.retries:
            return self._ask(state)
        return self._end(state, 1 - mover, f"illegal:{TWO[mover]}")

    def legal(self, state: WrittenState) -> tuple[str, ...]:
        """The numbers of the legal moves."""
        return tuple(map(str, state.view.legal))

    async def oracle(self, state: WrittenState) -> str:
        """The move of the exact solver where the game is small enough, else of the search."""
        view = state.view
        seed = f"oracle/{view.actions}"
        move = await best_move(state.game.code, view.actions, self.iterations, STATES, seed)
        if isinstance(move, GameVerdict):
            raise Fault("written-game", f"{state.game.title}: {move.verdict}: {move.why}")
        return str(move)

    async def _go_on(self, state: WrittenState, key: Key) -> Frame:
        """The next question behind the moves of the rival and those without a choice, or the end."""
        rival = -1 if self.rival == "none" else 1 - state.player
        view = await view_game(
            state.game.code,
            state.view.actions,
            rival,
            self.iterations,
            self.exact,
            str(seed_of((*key, "rival"))),
            state.game.agent if self.rival == "agent" else "",
        )
        if isinstance(view, GameVerdict):
            facts = self.facts(state) | {"result": "broken", "broke": f"{view.verdict}: {view.why}"}
            return Frame(state=state, facts=facts, status="truncated:broken")
        state = replace(state, view=view)
        if view.done:
            result = "draw" if view.winner is None else TWO[view.winner]
            return self._end(state, view.winner, result)
        if len(view.actions) >= PLIES:
            facts = self.facts(state) | {"result": "endless"}
            return Frame(state=state, facts=facts, status="truncated:turns")
        return self._ask(state)

    def _ask(self, state: WrittenState) -> Frame:
        say = (Message(role="user", content=self.shown(state)),)
        choices = self.legal(state) if self.illegal == "never" else None
        seat = ONE[0] if self.rival != "none" else TWO[state.view.seat]
        ask = Ask(seat=seat, say=say, new_row=True, choices=choices)
        key = f"{state.game.title}: {state.view.actions}"
        return Frame(state=state, asks=(ask,), facts=self.facts(state), state_key=key)

    def shown(self, state: WrittenState) -> str:
        """The prompt of who moves."""
        game, view = state.game, state.view
        legal, again = ", ".join(map(str, view.legal)), f"{AGAIN}\n" if state.tries else ""
        if self.brief:
            return f"{again}{game.rules}\n{view.board}\nlegal moves: {legal}"
        moves = f"\n\nThe numbers of moves:\n{game.moves}" if game.moves else ""
        return (
            f"{again}This is a game of two players:\n{game.rules}{moves}\n\n"
            f"You are the {TWO[view.seat]} player, and it is your turn. The board:\n{view.board}\n\n"
            f"Legal moves: {legal}\nReply with the number of the best one."
        )

    def _end(self, state: WrittenState, winner: int | None, result: str) -> Frame:
        amounts = [0.0 if winner is None else 1.0 if winner == i else -1.0 for i in (0, 1)]
        if self.rival == "none":
            pay = {(seat, ""): amount for seat, amount in zip(TWO, amounts, strict=True)}
        else:
            pay = {(ONE[0], ""): amounts[state.player]}
        return Frame(state=state, pay=pay, facts=self.facts(state) | {"result": result})

    def facts(self, state: WrittenState) -> dict[str, Any]:
        """What is told of a game so far."""
        counts = {f"illegal:{seat}": n for seat, n in zip(TWO, state.illegal, strict=True)}
        if self.rival != "none":
            counts = {f"illegal:{ONE[0]}": state.illegal[state.player]}
        return {"plies": len(state.view.actions), **counts}


def move_of(text: str) -> int | None:
    """The whole number that stands last in a reply behind its thoughts; None = there is none.

    >>> move_of("<think>7?</think>I play **12**.")
    12
    """
    numbers = MOVE.findall(strip_thinking(text))
    return int(numbers[-1][:12]) if numbers else None


def written_by_name(spec: str) -> tuple[WrittenGameTasks, WrittenGame]:
    """The world of `written-games(file='FILE',rival='search',...)`, and its games. Raises UserError for
    other settings.
    """
    given = dict(parse_alone(spec, f"{NAME}(file='FILE',rival='search')").settings)
    ways = {"rival": ("none", "search", "agent", "exact"), "illegal": ("again", "never")}
    takes = ["file", *(f.name for f in fields(WrittenGame))]
    for key, value in given.items():
        if key not in KINDS:
            raise UserError(no_setting(NAME, key, takes))
        kind, words = KINDS[key]
        if type(value) is not kind or value not in ways.get(key, (value,)):
            raise UserError(f"{spec}: {key} is {value!r}; it takes {words}")
    file = given.pop("file", "")
    if file:
        read_games(file)
    return WrittenGameTasks(file, name=spec), WrittenGame(**given)
