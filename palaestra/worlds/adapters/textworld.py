"""TextWorld's games as worlds: `textworld:FOLDER` or `textworld:game.z8`, or `TextWorldGames`.

Games are files that `tw-make` writes, or that come from elsewhere in a form that TextWorld plays.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from palaestra.errors import UserError
from palaestra.types import Task, rng_of, stage
from palaestra.verifiers.base import strip_thinking
from palaestra.worlds.adapters.base import (
    POLICY,
    AdaptedWorld,
    Illegal,
    Live,
    Scene,
    library_call,
    missing_library,
)

GAMES = (".z8", ".ulx", ".tw-pddl")  # endings of game files
TEST_EVERY = 8
SOLVED = 0.999  # the sum of the parts of a score may end just below 1
# of the interpreter, not of the game: some write files, others end or begin the game
REFUSED = {
    *("save", "restore", "script", "transcript", "noscript", "unscript", "recording", "replay"),
    *("quit", "q", "restart", "undo"),
}
PROMPT = re.compile(r"\n>[^\n]*\Z")  # the interpreter's, with its status line
PREFIX = re.compile(r"^(?:[>*\-\s]|action\s*\d*\s*:|command\s*:)+", re.IGNORECASE)


@stage
class TextWorldGames(AdaptedWorld):
    """Games of TextWorld (https://github.com/microsoft/TextWorld), an episode each.

    Args:
        make: a game file, or a folder whose game files, at any depth, are the tasks. One in eight, and at
            least one of two, is held out; a single game is both trained and tested on.
        settings: none; TextWorld has its settings where a game is made.
        commands: whether the commands that the game takes stand below every observation, where it
            knows them.

    The command is the last line of a reply. One with a word to the interpreter, such as "save", which
    would write a file, is illegal. It pays score / highest score, where the score rises or
    falls. A game that is won or lost is over.
    """

    draws: ClassVar[bool] = False
    make: str
    settings: tuple[tuple[str, Any], ...] = ()
    commands: bool = field(default=False, kw_only=True)
    solved: float | None = field(default=SOLVED, kw_only=True)
    files: tuple[Path, ...] = field(default=(), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        load_library(self.label)
        refuse_settings(self.label, self.settings)
        object.__setattr__(self, "files", game_files(Path(self.make)))

    @property
    def label(self) -> str:
        return f"textworld:{self.make}"

    @property
    def held_out(self) -> int:
        n = len(self.files)
        return 0 if n == 1 else max(1, n // TEST_EVERY)

    @property
    def size(self) -> int | None:
        return len(self.files) - self.held_out

    @property
    def test_size(self) -> int | None:
        return self.held_out or 1

    @property
    def caveat(self) -> str:
        return "" if self.held_out else "there is one game, which is trained and tested on"

    def task(self, split: str, index: int) -> Task:
        ahead = len(self.files) - self.held_out if split == "test" and self.held_out else 0
        at = ahead + index
        name = self.files[at].name
        return Task(
            id=f"{self.label}/{split}/{index}/{name}",
            meta={"seed": at, "plays": ""},
            domain=self.label,
        )

    def open_live(self) -> Live:
        return TextWorldEpisode(self)


def game_files(path: Path) -> tuple[Path, ...]:
    """The games of a path, a folder's in an order that has nothing to do with their names."""
    if path.is_file():
        return (path,)
    games = sorted(p for p in path.rglob("*") if p.is_file() and p.name.endswith(GAMES))
    if not games:
        raise UserError(
            f"textworld: {path} has no game ({', '.join(GAMES)}); make one with tw-make, for example "
            f"tw-make custom --quest-length 3 --seed 1 --output {path / 'a.z8'}"
        )
    return tuple(games[i] for i in rng_of(("textworld", len(games))).permutation(len(games)))


def load_library(label: str) -> Any:
    try:
        return import_module("textworld")
    except ImportError as error:
        raise missing_library(label, "TextWorld", "textworld", error) from None


def refuse_settings(label: str, settings: tuple[tuple[str, Any], ...]) -> None:
    """Raises UserError for settings that neither the adapter nor the library has."""
    if settings:
        names = ", ".join(name for name, _ in settings)
        raise UserError(f"{label} has no setting {names}; leave it out")


def last_command(text: str) -> str:
    """The command that a reply gives: its last line, without thoughts, marks and "Action:" in front.

    Raises Illegal for an empty one.

    >>> last_command("I am in the hall.\\n> Action: `go east`")
    'go east'
    """
    lines = [line.strip() for line in strip_thinking(text).splitlines() if line.strip()]
    command = PREFIX.sub("", lines[-1]).strip("`*\"' \t") if lines else ""
    if not command:
        raise Illegal("An empty reply is no command. Reply with a command.")
    return command


@dataclass
class TextWorldEpisode:
    """One game as it is played."""

    world: TextWorldGames
    game: Any = None
    paid: float = 0.0

    def start(self, seed: int) -> Scene:
        library = load_library(self.world.label)
        facts = library.EnvInfos(
            admissible_commands=True, won=True, lost=True, max_score=True, score=True
        )
        with library_call(self.world.label):
            self.game = library.start(str(self.world.files[seed]), facts)
            self.game.seed(0)
            return self.scene(self.game.reset())

    def act(self, action: str) -> Scene:
        with library_call(self.world.label):
            state, _, over = self.game.step(action)
            return self.scene(state, over)

    def scene(self, state: Any, over: bool = False) -> Scene:
        text = PROMPT.sub("", state.feedback or "").strip()
        known = state.admissible_commands if self.world.commands and not over else None
        if known:
            text = f"{text}\n\nYou can: {', '.join(known)}"
        share = (state.score or 0) / (state.max_score or 1)
        pay, self.paid = share - self.paid, share
        facts = {"reason": "won" if state.won else "lost" if state.lost else ""}
        return Scene(
            text=text,
            pay={POLICY: pay},
            status="finished" if over else "",
            facts=facts if over else {},
        )

    def read(self, text: str) -> str:
        command = last_command(text)
        for word in re.findall(r"\w+", command.lower()):
            if word in REFUSED:
                raise Illegal(f'"{word}" is no command here. Reply with a command to the game.')
        return command

    def sample(self, rng: np.random.Generator, how: str) -> str:
        raise NotImplementedError(how)

    def close(self) -> None:
        if self.game is not None:
            self.game.close()
