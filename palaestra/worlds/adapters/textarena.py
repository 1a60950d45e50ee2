"""textarena's games as worlds: `textarena:TicTacToe-v0(against=...)`, or `TextArenaWorld`.

A reply goes to the game as it is, and the game itself says what it makes of one that is no move.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from palaestra.errors import UserError
from palaestra.suggest import suggestion
from palaestra.tasks.gym import isolate_randomness
from palaestra.types import seed_of, stage
from palaestra.worlds.adapters.base import (
    POLICY,
    AdaptedWorld,
    Illegal,
    Live,
    Opponent,
    Scene,
    library_call,
    missing_library,
)

MOST_PLAYERS = 15


@stage
class TextArenaWorld(AdaptedWorld):
    """A game of textarena (https://github.com/LeonGuertler/TextArena).

    Args:
        make: its id, with -raw, -train and so on as the library has them.
        settings: keywords for `textarena.make`.
        num_players: 0 = the fewest that the game takes.
        against: who plays the other seats. "self": the policy has all, called p0, p1, ... A function
            `(messages, rng) -> text`: then it has one, another one from task to task.

    Who wins is paid 1. The games draw from Python's global random stream; it is seeded for each move
    and given back.
    """

    make: str
    settings: tuple[tuple[str, Any], ...] = ()
    num_players: int = 0
    against: Opponent = "self"
    memory: bool = field(default=False, kw_only=True)
    solved: float | None = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        if isinstance(self.against, str) and self.against != "self":
            raise UserError(
                f"{self.label} does not list its moves, so nobody plays it at random; give a "
                "function (messages, rng) -> text as against, in a file of yours"
            )
        if len(self.sides) < 2 and self.against != "self":
            raise UserError(f"{self.label} has one player; leave out against")

    @property
    def label(self) -> str:
        return f"textarena:{self.make}"

    @property
    def sides(self) -> tuple[str, ...]:
        n = self.num_players or fewest_players(self.make, self.settings)
        return (POLICY,) if n == 1 else tuple(f"p{i}" for i in range(n))

    @property
    def opponent(self) -> Opponent:
        return self.against

    async def lowest_pay(self) -> float:
        """Who loses is paid -1."""
        return -1.0 if len(self.sides) > 1 else 0.0

    def open_live(self) -> Live:
        return TextArenaGame(self, make_game(self.make, self.settings))


def make_game(name: str, settings: tuple[tuple[str, Any], ...]) -> Any:
    """A fresh game. Raises UserError where there is none."""
    try:
        with isolate_randomness():
            ta: Any = import_module("textarena")
            registry: Any = import_module("textarena.envs.registration").ENV_REGISTRY
    except ImportError as error:
        raise missing_library(f"textarena:{name}", "textarena", "textarena", error) from None
    if name not in registry:
        near = suggestion(name, registry) or f"; there are {len(registry)}, e.g. Wordle-v0"
        raise UserError(f"textarena has no game {name!r}{near}")
    try:
        with isolate_randomness():
            return ta.make(name, **dict(settings))
    except Exception as error:
        what = " ".join(str(error).split())
        raise UserError(
            f"textarena:{name}: {what}; change its settings, or install what it needs"
        ) from None


@lru_cache(maxsize=32)
def fewest_players(name: str, settings: tuple[tuple[str, Any], ...]) -> int:
    """With how many players a game can be started."""
    for n in range(1, MOST_PLAYERS + 1):
        try:
            with isolate_randomness():
                make_game(name, settings).reset(num_players=n, seed=0)
        except UserError:
            raise
        except Exception:
            continue
        return n
    raise UserError(f"textarena:{name} cannot be started; give num_players=N")


@dataclass
class TextArenaGame:
    """One game."""

    world: TextArenaWorld
    game: Any
    seed: int = 0
    moves: int = 0

    def start(self, seed: int) -> Scene:
        self.seed = seed
        with library_call(self.world.label), isolate_randomness(seed):
            self.game.reset(num_players=len(self.world.sides), seed=seed)
            return self.scene()

    def act(self, action: str) -> Scene:
        self.moves += 1
        random = seed_of(("textarena", self.seed, self.moves))
        with library_call(self.world.label), isolate_randomness(random):
            over, _ = self.game.step(action)
            if not over:
                return self.scene()
            rewards, outcome = self.game.close()
        pay = {self.world.sides[i]: float(x) for i, x in (rewards or {}).items()}
        reason = next((str(t["reason"]) for t in outcome.values() if t.get("reason")), "")
        return Scene(pay=pay, status="finished", facts={"reason": reason})

    def scene(self) -> Scene:
        player, text = self.game.get_observation()
        return Scene(seat=self.world.sides[player], text=str(text).strip())

    def read(self, text: str) -> str:
        if not text.strip():
            raise Illegal("An empty reply is no move.")
        return text.strip()

    def sample(self, rng: np.random.Generator, how: str) -> str:
        raise NotImplementedError(how)

    def close(self) -> None:
        """There is nothing to close."""
